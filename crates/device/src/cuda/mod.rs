//! CUDA: the kernels rewritten as CUDA C++, compiled by NVRTC when they are first asked for, and
//! launched through the driver.
//!
//! Nothing of CUDA is needed to build Lily or to start it: both libraries are loaded when a device
//! is opened. All work of a device is on one stream, so barriers cost nothing and mean nothing
//! here; what a prepared list saves is the launches, as a CUDA graph. Memory of small buffers is
//! shared in chunks, and bytes from the host go through page-locked memory.

mod disk;
mod driver;
mod gpu;
mod modules;
mod nvrtc;
mod pool;
mod queue;
mod rewrite;
mod staging;

pub use modules::{Compiled, CubinInfo, CudaCompiler, compile_only};

use crate::{
    Buffer, Commands, Device, DeviceError, DeviceInfo, DeviceKind, HostBytes, Kernel, KernelSource,
    Program, Slice, Ticket, TileBody, source,
};
use disk::Cache;
use driver::{Opaque, unavailable};
use gpu::Gpu;
use modules::Modules;
use nvrtc::Nvrtc;
use queue::{Queue, address_of, encode, label_of, record};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How to open a GPU.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// Which GPU, as the driver counts.
    pub ordinal: u32,
    /// Where compiled kernels are kept; processes may share it. `None` compiles anew each time.
    pub cache_dir: Option<PathBuf>,
    /// Waits after every kernel, so that an error names the kernel that made it. Slow, and no
    /// graphs.
    pub check_each_launch: bool,
}

/// An NVIDIA GPU.
#[derive(Debug)]
pub struct CudaDevice {
    info: DeviceInfo,
    gpu: Arc<Gpu>,
    modules: Modules,
    queue: Mutex<Queue>,
    check_each_launch: bool,
}

/// A prepared list. The commands keep their buffers and kernels alive, which the graph names by
/// address.
#[derive(Debug)]
struct CudaProgram {
    gpu: Arc<Gpu>,
    commands: Commands,
    label: &'static str,
    /// `None` where each launch is checked.
    graph: Option<Opaque>,
}

impl Drop for CudaProgram {
    fn drop(&mut self) {
        if let Some(graph) = self.graph {
            // A lost context takes its graphs with it.
            let _ = self.gpu.bind();
            let _ = self.gpu.driver.stream_wait(self.gpu.stream);
            let _ = self.gpu.driver.graph_exec_destroy(graph);
        }
    }
}

impl CudaDevice {
    /// Opens a GPU.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] without a driver, a GPU of compute capability 8.0, or NVRTC.
    pub fn open(options: &CudaOptions) -> Result<Self, DeviceError> {
        let (gpu, facts) = Gpu::open(options.ordinal)?;
        let nvrtc = Nvrtc::load(None, Some(facts.driver_version / 1000))?;
        let (major, minor) = nvrtc.version;
        let target = nvrtc.target(facts.capability).ok_or_else(|| {
            unavailable(
                format!("NVRTC {major}.{minor} does not compile for {}", facts.name),
                "install another version of NVRTC",
            )
        })?;
        let cuda = (facts.driver_version / 1000, facts.driver_version % 1000 / 10);
        let info = DeviceInfo {
            kind: DeviceKind::Cuda,
            name: facts.name,
            version: format!(
                "sm_{}, CUDA {}.{}, NVRTC {major}.{minor}",
                facts.capability, cuda.0, cuda.1
            ),
            memory_bytes: facts.memory_bytes,
            buffer_bytes_max: facts.memory_bytes,
            unified_memory: false,
            n_cores: facts.n_cores,
            tile: TileBody::Mma,
        };
        let cache = options.cache_dir.as_deref().map(Cache::new);
        let modules = Modules::new(&gpu, nvrtc, target, cache);
        let queue = Mutex::new(Queue::new(&gpu)?);
        Ok(Self { info, gpu, modules, queue, check_each_launch: options.check_each_launch })
    }

    /// A kernel whose text is not in `kernels/`: for tests, and for checking that an installation
    /// works. Includes are not replaced.
    ///
    /// # Errors
    /// As [`Device::kernel`].
    pub fn kernel_from_text(
        &self,
        file: &str,
        entry: &'static str,
        text: &str,
    ) -> Result<Kernel, DeviceError> {
        self.modules.kernel(file, entry, text)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That a slice is too short for the host's bytes.
fn too_long(call: &'static str, len: usize, slice: &Slice) -> DeviceError {
    let reason = format!("{len} bytes, but {} of {}", slice.len, slice.buffer.label());
    DeviceError::Driver { device: "cuda", call, reason }
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, len_bytes: usize, label: &str) -> Result<Buffer, DeviceError> {
        Ok(Buffer::new(Arc::new(self.gpu.alloc(len_bytes, label)?)))
    }

    fn import(&self, bytes: &HostBytes, label: &str) -> Result<Buffer, DeviceError> {
        let bytes = bytes.as_slice();
        let memory = self.gpu.alloc(bytes.len(), label)?;
        self.lock().write(memory.address, bytes)?;
        Ok(Buffer::new(Arc::new(memory)))
    }

    fn kernel(&self, source: &KernelSource) -> Result<Kernel, DeviceError> {
        let text = source::expand(source, false)?;
        self.kernel_from_text(source.file, source.entry, &text)
    }

    fn write(&self, dst: &Slice, bytes: &[u8]) -> Result<(), DeviceError> {
        if bytes.len() > dst.len {
            return Err(too_long("write", bytes.len(), dst));
        }
        self.gpu.bind()?;
        self.lock().write(address_of(dst), bytes)
    }

    fn read(&self, src: &Slice, out: &mut [u8]) -> Result<(), DeviceError> {
        if out.len() > src.len {
            return Err(too_long("read", out.len(), src));
        }
        self.gpu.bind()?;
        self.lock().read(address_of(src), out)
    }

    fn submit(&self, commands: &Commands) -> Result<Ticket, DeviceError> {
        self.gpu.bind()?;
        let gpu = &self.gpu;
        self.lock().submit(label_of(commands), || {
            encode(gpu, commands, gpu.stream, self.check_each_launch)
        })
    }

    fn prepare(&self, commands: Commands) -> Result<Program, DeviceError> {
        self.gpu.bind()?;
        let graph = if self.check_each_launch { None } else { Some(record(&self.gpu, &commands)?) };
        let label = label_of(&commands);
        Ok(Program::new(CudaProgram { gpu: Arc::clone(&self.gpu), commands, label, graph }))
    }

    fn replay(&self, program: &Program) -> Result<Ticket, DeviceError> {
        let program: &CudaProgram = program.downcast().expect("a program of a CUDA device");
        let Some(graph) = program.graph else {
            return self.submit(&program.commands);
        };
        self.gpu.bind()?;
        let gpu = &self.gpu;
        self.lock().submit(program.label, || {
            let launched = gpu.driver.graph_launch(graph, gpu.stream);
            launched.map_err(|failure| failure.during(program.label))
        })
    }

    fn wait(&self, ticket: Ticket) -> Result<Duration, DeviceError> {
        self.gpu.bind()?;
        // Not while waiting: others may submit.
        let submission = self.lock().find(ticket).expect("a ticket of this device");
        let ms = Queue::wait(&self.gpu, submission)?;
        Ok(Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
    }
}
