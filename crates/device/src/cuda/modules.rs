//! Kernels: from source text to functions on the GPU, each file and set of constants compiled once
//! a process, and, with a cache folder, once a machine.

use super::disk::{Cache, Key};
use super::driver::{Failure, Opaque};
use super::gpu::Gpu;
use super::nvrtc::{self, Image, Nvrtc, Target};
use super::rewrite::{CudaSource, rewrite};
use crate::source::{ArgKind, Found};
use crate::{DeviceError, Kernel, KernelSource, source};
use std::collections::HashMap;
use std::ffi::CString;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// More than any kernel has; what Metal allows.
pub(super) const BUFFERS_MAX: usize = 31;

/// The loaded modules of a GPU, and how to make more.
#[derive(Debug)]
pub(super) struct Modules {
    gpu: Arc<Gpu>,
    nvrtc: Nvrtc,
    target: Target,
    cache: Option<Cache>,
    loaded: Mutex<HashMap<Key, Place>>,
}

/// Where a module will be. The lock is held while it is compiled, so that threads that want the
/// same module wait, and others go on.
type Place = Arc<Mutex<Option<Arc<Module>>>>;

/// Code on the GPU.
#[derive(Debug)]
struct Module {
    gpu: Arc<Gpu>,
    raw: Opaque,
    kernels: Vec<Found>,
}

impl Drop for Module {
    fn drop(&mut self) {
        // A lost context takes its modules with it.
        let _ = self.gpu.bind();
        let _ = self.gpu.driver.stream_wait(self.gpu.stream);
        let _ = self.gpu.driver.module_unload(self.raw);
    }
}

/// A kernel function on the GPU.
#[derive(Debug)]
pub(super) struct CudaKernel {
    /// Keeps `function` loaded.
    _module: Arc<Module>,
    pub(super) function: Opaque,
    pub(super) threads_max: u32,
    pub(super) has_params: bool,
}

impl Modules {
    pub(super) fn new(gpu: &Arc<Gpu>, nvrtc: Nvrtc, target: Target, cache: Option<Cache>) -> Self {
        Self { gpu: Arc::clone(gpu), nvrtc, target, cache, loaded: Mutex::default() }
    }

    /// The kernel `entry` of the expanded text of `file`.
    pub(super) fn kernel(
        &self,
        file: &str,
        entry: &'static str,
        text: &str,
    ) -> Result<Kernel, DeviceError> {
        let module = self.module(file, text)?;
        let found = entry_of(&module.kernels, file, entry)?;
        let signature = Arc::new(found.signature.clone());
        let n_buffers = signature.buffers().count();
        assert!(n_buffers <= BUFFERS_MAX, "kernel {entry} has {n_buffers} buffers");
        let has_params =
            signature.args.iter().any(|arg| matches!(arg.kind, ArgKind::Params { .. }));
        let name = CString::new(entry).expect("a name in a kernel file has no NUL");
        self.gpu.bind()?;
        let function = self.gpu.driver.module_function(module.raw, &name)?;
        // Also makes the driver load the code now, and not at the first launch.
        let threads_max = self.gpu.driver.function_threads_max(function)?;
        let kernel = CudaKernel { _module: module, function, threads_max, has_params };
        Ok(Kernel::new(entry, signature, kernel))
    }

    fn module(&self, file: &str, text: &str) -> Result<Arc<Module>, DeviceError> {
        let place = {
            let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(loaded.entry(Key::new(&[file, text])).or_default())
        };
        let mut module = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = &*module {
            return Ok(Arc::clone(module));
        }
        let made = Arc::new(self.load(file, text)?);
        *module = Some(Arc::clone(&made));
        Ok(made)
    }

    fn load(&self, file: &str, text: &str) -> Result<Module, DeviceError> {
        let source = rewrite(&format!("{file}.metal"), text)?;
        let (major, minor) = self.nvrtc.version;
        let version = format!("{major}.{minor}");
        let options = nvrtc::OPTIONS.join(" ");
        let key = Key::new(&[&source.text, self.target.name(), &version, &options]);
        self.gpu.bind()?;
        if let Some(bytes) = self.cache.as_ref().and_then(|cache| cache.read(key)) {
            // A file that the driver does not like is made anew.
            if let Ok(raw) = self.gpu.driver.module_load(&bytes) {
                return Ok(self.loaded_as(raw, source));
            }
        }
        let image = compile(&self.nvrtc, &self.target, file, &source)?;
        let raw = self.gpu.driver.module_load(&image.bytes).map_err(|failure: Failure| {
            let log = format!("the driver refuses it: {}", DeviceError::from(failure));
            DeviceError::Compile { kernel: file.to_owned(), target: self.target.name().into(), log }
        })?;
        if let Some(cache) = &self.cache {
            cache.write(key, &image.bytes);
        }
        Ok(self.loaded_as(raw, source))
    }

    fn loaded_as(&self, raw: Opaque, source: CudaSource) -> Module {
        Module { gpu: Arc::clone(&self.gpu), raw, kernels: source.kernels }
    }
}

fn compile(
    nvrtc: &Nvrtc,
    target: &Target,
    file: &str,
    source: &CudaSource,
) -> Result<Image, DeviceError> {
    let name = format!("{file}.metal");
    nvrtc.compile(&name, &source.text, target).map_err(|log| DeviceError::Compile {
        kernel: file.to_owned(),
        target: target.name().to_owned(),
        log,
    })
}

fn entry_of<'a>(kernels: &'a [Found], file: &str, entry: &str) -> Result<&'a Found, DeviceError> {
    kernels.iter().find(|found| found.name == entry).ok_or_else(|| DeviceError::Dialect {
        file: format!("{file}.metal"),
        problem: format!("there is no kernel {entry}"),
    })
}

/// What a kernel became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CubinInfo {
    /// Length of the machine code of the whole file.
    pub bytes: usize,
    /// Registers of a thread, if the compiler tells.
    pub registers: Option<u32>,
    /// Threadgroup memory.
    pub shared_bytes: u32,
    /// Registers that had to go to memory, in bytes a thread.
    pub spilled_bytes: u32,
}

impl CubinInfo {
    fn new(image: &Image, entry: &str) -> Self {
        let nvrtc::Usage { registers, shared_bytes, spilled_bytes } =
            nvrtc::usage(&image.log, entry);
        Self { bytes: image.bytes.len(), registers, shared_bytes, spilled_bytes }
    }
}

/// One compilation of [`CudaCompiler::compile_all`].
#[derive(Debug)]
pub struct Compiled {
    /// The kernels of one file with one set of constants.
    pub sources: Vec<KernelSource>,
    /// What they were compiled for.
    pub arch: String,
    /// What each became, or why the file does not compile.
    pub result: Result<Vec<CubinInfo>, DeviceError>,
}

/// A compiler without a GPU: proves that kernels compile, and for what cost.
#[derive(Debug)]
pub struct CudaCompiler {
    nvrtc: Nvrtc,
}

impl CudaCompiler {
    /// Loads NVRTC from the file `nvrtc`; without it, from `LILY_NVRTC` or the usual places.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`].
    pub fn new(nvrtc: Option<&Path>) -> Result<Self, DeviceError> {
        Ok(Self { nvrtc: Nvrtc::load(nvrtc, None)? })
    }

    /// Version of NVRTC, major and minor.
    pub fn version(&self) -> (i32, i32) {
        self.nvrtc.version
    }

    /// Compiles a kernel for `arch`, such as `sm_90`.
    ///
    /// # Errors
    /// [`DeviceError::Compile`], [`DeviceError::Dialect`].
    pub fn compile(&self, source: &KernelSource, arch: &str) -> Result<CubinInfo, DeviceError> {
        let text = source::expand(source, false)?;
        self.compile_text(source.file, source.entry, &text, arch)
    }

    /// Compiles a kernel whose text is not in `kernels/`. Includes are not replaced.
    ///
    /// # Errors
    /// As [`CudaCompiler::compile`].
    pub fn compile_text(
        &self,
        file: &str,
        entry: &str,
        text: &str,
        arch: &str,
    ) -> Result<CubinInfo, DeviceError> {
        let image = self.image(file, &[entry], text, arch)?;
        Ok(CubinInfo::new(&image, entry))
    }

    /// Compiles every kernel for every architecture, on all cores; kernels of one file with the
    /// same constants together.
    pub fn compile_all(&self, sources: &[KernelSource], archs: &[String]) -> Vec<Compiled> {
        let mut files: Vec<Vec<KernelSource>> = Vec::new();
        for source in sources {
            let same = |file: &&mut Vec<KernelSource>| {
                file[0].file == source.file && file[0].defines == source.defines
            };
            match files.iter_mut().find(same) {
                Some(file) => file.push(source.clone()),
                None => files.push(vec![source.clone()]),
            }
        }
        let jobs: Vec<(&Vec<KernelSource>, &String)> =
            files.iter().flat_map(|file| archs.iter().map(move |arch| (file, arch))).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let idx = next.fetch_add(1, Ordering::Relaxed);
                let Some((sources, arch)) = jobs.get(idx) else { return done };
                let (sources, arch) = ((*sources).clone(), (*arch).clone());
                let result = self.compile_file(&sources, &arch);
                done.push((idx, Compiled { sources, arch, result }));
            }
        };
        let n_threads = thread::available_parallelism().map_or(1, NonZero::get);
        let mut done: Vec<(usize, Compiled)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().flat_map(|t| t.join().expect("compiling does not panic")).collect()
        });
        done.sort_by_key(|(idx, _)| *idx);
        done.into_iter().map(|(_, compiled)| compiled).collect()
    }

    fn compile_file(
        &self,
        sources: &[KernelSource],
        arch: &str,
    ) -> Result<Vec<CubinInfo>, DeviceError> {
        let text = source::expand(&sources[0], false)?;
        let entries: Vec<&str> = sources.iter().map(|source| source.entry).collect();
        let image = self.image(sources[0].file, &entries, &text, arch)?;
        Ok(entries.iter().map(|entry| CubinInfo::new(&image, entry)).collect())
    }

    fn image(
        &self,
        file: &str,
        entries: &[&str],
        text: &str,
        arch: &str,
    ) -> Result<Image, DeviceError> {
        let source = rewrite(&format!("{file}.metal"), text)?;
        for entry in entries {
            entry_of(&source.kernels, file, entry)?;
        }
        compile(&self.nvrtc, &Target::MachineCode(arch.to_owned()), file, &source)
    }
}

/// Compiles one kernel with a compiler loaded for it; see [`CudaCompiler`].
///
/// # Errors
/// As [`CudaCompiler::new`] and [`CudaCompiler::compile`].
pub fn compile_only(
    source: &KernelSource,
    arch: &str,
    nvrtc: Option<&Path>,
) -> Result<CubinInfo, DeviceError> {
    CudaCompiler::new(nvrtc)?.compile(source, arch)
}
