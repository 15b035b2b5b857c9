//! NVIDIA's run-time compiler: finding it, and CUDA C++ to machine code.

use super::driver::{functions, unavailable};
use crate::DeviceError;
use libloading::Library;
use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt::Debug;
use std::fs;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

type Program = *mut c_void;

functions! { Functions {
    version = "nvrtcVersion"(*mut c_int, *mut c_int);
    arch_count = "nvrtcGetNumSupportedArchs"(*mut c_int);
    archs = "nvrtcGetSupportedArchs"(*mut c_int);
    create = "nvrtcCreateProgram"(
        *mut Program, *const c_char, *const c_char, c_int, *const *const c_char,
        *const *const c_char,
    );
    destroy = "nvrtcDestroyProgram"(*mut Program);
    compile = "nvrtcCompileProgram"(Program, c_int, *const *const c_char);
    log_size = "nvrtcGetProgramLogSize"(Program, *mut usize);
    log = "nvrtcGetProgramLog"(Program, *mut c_char);
    cubin_size = "nvrtcGetCUBINSize"(Program, *mut usize);
    cubin = "nvrtcGetCUBIN"(Program, *mut c_char);
    ptx_size = "nvrtcGetPTXSize"(Program, *mut usize);
    ptx = "nvrtcGetPTX"(Program, *mut c_char);
}}

const REMEDY: &str = "install it with `pip install nvidia-cuda-nvrtc` (or nvidia-cuda-nvrtc-cu12 \
    for drivers of CUDA 12) or with the CUDA toolkit, or set LILY_NVRTC to the library's file";

/// Options of every compilation; part of the cache's key. Division, square root and the
/// functions stay accurate: no fast-math.
pub(super) const OPTIONS: &[&str] = &[
    "--std=c++17",
    "--device-as-default-execution-space",
    // Registers and spills in the log.
    "--ptxas-options=-v",
];

/// The compiler. It is never unloaded, as other threads may be in it.
pub(super) struct Nvrtc {
    f: Functions,
    _library: ManuallyDrop<Library>,
    /// Major and minor.
    pub(super) version: (i32, i32),
    /// Compute capabilities that it makes machine code for, ascending: 80 for 8.0.
    archs: Vec<i32>,
}

impl Debug for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvrtc").field("version", &self.version).finish_non_exhaustive()
    }
}

/// What to compile for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Machine code for `sm_NN`.
    MachineCode(String),
    /// Portable code for `compute_NN`, finished by the driver: the GPU is newer than the compiler.
    Portable(String),
}

impl Target {
    /// As in `--gpu-architecture`.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::MachineCode(name) | Self::Portable(name) => name,
        }
    }
}

/// What the compiler made.
#[derive(Debug)]
pub(super) struct Image {
    /// A cubin, or PTX that ends in NUL.
    pub(super) bytes: Vec<u8>,
    /// What the compiler and the assembler said.
    pub(super) log: String,
}

impl Nvrtc {
    /// Loads the library at `path`, or else the first that is found whose major version is at most
    /// `major_max`: an older driver does not load the machine code of a newer compiler.
    pub(super) fn load(path: Option<&Path>, major_max: Option<i32>) -> Result<Self, DeviceError> {
        let wanted = path.map(Path::to_owned).or_else(|| env::var_os("LILY_NVRTC").map(Into::into));
        if let Some(path) = wanted {
            return Self::open(&path).map_err(|reason| {
                unavailable(format!("NVRTC at {} does not load: {reason}", path.display()), REMEDY)
            });
        }
        let mut too_new = None;
        for path in candidates() {
            let Ok(nvrtc) = Self::open(&path) else { continue };
            match major_max {
                Some(max) if nvrtc.version.0 > max => too_new = Some((nvrtc.version, max)),
                _ => return Ok(nvrtc),
            }
        }
        Err(match too_new {
            Some(((major, minor), max)) => unavailable(
                format!(
                    "NVRTC {major}.{minor} is too new for this driver, which runs CUDA {max}, \
                     and no other NVRTC was found"
                ),
                REMEDY,
            ),
            None => unavailable("the library NVRTC, which compiles kernels, was not found", REMEDY),
        })
    }

    fn open(path: &Path) -> Result<Self, String> {
        load_builtins_beside(path);
        // SAFETY: the initialisers of NVIDIA's library have no preconditions.
        let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
        let f = Functions::load(&library).map_err(|error| error.to_string())?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both may be written.
        let version_code = unsafe { (f.version)(&raw mut major, &raw mut minor) };
        let mut count = 0;
        // SAFETY: `count` may be written.
        let count_code = unsafe { (f.arch_count)(&raw mut count) };
        let mut archs = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: `archs` has the length that the library asked for.
        let archs_code = unsafe { (f.archs)(archs.as_mut_ptr()) };
        if [version_code, count_code, archs_code] != [0; 3] {
            return Err("it does not tell its version".to_owned());
        }
        archs.sort_unstable();
        Ok(Self { f, _library: ManuallyDrop::new(library), version: (major, minor), archs })
    }

    /// How to compile for a GPU of compute capability `capability`: 90 for 9.0.
    pub(super) fn target(&self, capability: i32) -> Option<Target> {
        let best = self.archs.iter().rev().find(|arch| **arch <= capability)?;
        Some(if *best == capability {
            Target::MachineCode(format!("sm_{best}"))
        } else {
            Target::Portable(format!("compute_{best}"))
        })
    }

    /// Compiles `text`; the error is the compiler's log.
    pub(super) fn compile(&self, name: &str, text: &str, target: &Target) -> Result<Image, String> {
        let program = self.create(name, text)?;
        let options: Vec<CString> = OPTIONS
            .iter()
            .map(|option| (*option).to_owned())
            .chain([format!("--gpu-architecture={}", target.name())])
            .map(|option| CString::new(option).expect("options hold no NUL"))
            .collect();
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let n_options = c_int::try_from(pointers.len()).expect("a handful of options");
        // SAFETY: the program is alive and there are `n_options` strings that end in NUL.
        let code = unsafe { (self.f.compile)(program.raw, n_options, pointers.as_ptr()) };
        let log = program.text(self.f.log_size, self.f.log).unwrap_or_default();
        let log = String::from_utf8_lossy(log.strip_suffix(&[0]).unwrap_or(&log)).into_owned();
        if code != 0 {
            return Err(if log.is_empty() { format!("NVRTC error {code}") } else { log });
        }
        let (size, read) = match target {
            Target::MachineCode(_) => (self.f.cubin_size, self.f.cubin),
            Target::Portable(_) => (self.f.ptx_size, self.f.ptx),
        };
        let bytes = program.text(size, read).ok_or("NVRTC compiled, but made no code")?;
        Ok(Image { bytes, log })
    }

    fn create(&self, name: &str, text: &str) -> Result<Running<'_>, String> {
        let text = CString::new(text).map_err(|_| "a NUL in the source".to_owned())?;
        let name = CString::new(name).map_err(|_| "a NUL in the name".to_owned())?;
        let mut raw = null_mut();
        // SAFETY: both strings end in NUL, there are no headers, `raw` may be written.
        let code = unsafe {
            (self.f.create)(&raw mut raw, text.as_ptr(), name.as_ptr(), 0, null(), null())
        };
        if code != 0 {
            return Err(format!("nvrtcCreateProgram failed with {code}"));
        }
        Ok(Running { nvrtc: self, raw })
    }
}

/// A compilation, destroyed at the end.
struct Running<'a> {
    nvrtc: &'a Nvrtc,
    raw: Program,
}

impl Running<'_> {
    /// One of the program's outputs.
    fn text(
        &self,
        size: unsafe extern "system" fn(Program, *mut usize) -> c_int,
        read: unsafe extern "system" fn(Program, *mut c_char) -> c_int,
    ) -> Option<Vec<u8>> {
        let mut len = 0;
        // SAFETY: the program is alive and `len` may be written.
        let size_code = unsafe { size(self.raw, &raw mut len) };
        let mut bytes = vec![0u8; len];
        // SAFETY: the program is alive and `bytes` has the length that it asked for.
        let read_code = unsafe { read(self.raw, bytes.as_mut_ptr().cast()) };
        (size_code == 0 && read_code == 0 && len > 0).then_some(bytes)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let _ = unsafe { (self.nvrtc.f.destroy)(&raw mut self.raw) };
    }
}

/// NVRTC opens a second library, by name, when it first compiles. Not all of NVIDIA's packages tell
/// the loader to look for it in their own folder; one that is loaded already is found always.
fn load_builtins_beside(path: &Path) {
    let prefix = if cfg!(windows) { "nvrtc-builtins64_" } else { "libnvrtc-builtins.so." };
    for file in path.parent().map(entries).unwrap_or_default() {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(prefix) {
            // SAFETY: the initialisers of NVIDIA's library have no preconditions.
            if let Ok(library) = unsafe { Library::new(&file) } {
                std::mem::forget(library);
            }
        }
    }
}

/// Where the library may be, best first: what the loader finds, the CUDA toolkit, Python packages.
fn candidates() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = if cfg!(windows) {
        ["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"].map(PathBuf::from).to_vec()
    } else {
        ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"].map(PathBuf::from).to_vec()
    };
    for dir in toolkit_dirs().into_iter().chain(python_dirs()) {
        let mut files: Vec<PathBuf> =
            entries(&dir).into_iter().filter(|path| is_nvrtc(path)).collect();
        // The newest first: names end in the version.
        files.sort_unstable();
        found.extend(files.into_iter().rev());
    }
    found
}

fn is_nvrtc(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // "libnvrtc-builtins" is loaded by the library itself; ".alt" is another build of it.
    let prefix = if cfg!(windows) { "nvrtc64_" } else { "libnvrtc.so" };
    name.starts_with(prefix) && !name.contains(".alt")
}

fn toolkit_dirs() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CONDA_PREFIX"]
        .iter()
        .filter_map(|name| env::var_os(name).map(PathBuf::from))
        .collect();
    if !cfg!(windows) {
        let mut installed: Vec<PathBuf> = entries(Path::new("/usr/local"))
            .into_iter()
            .filter(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cuda"))
            })
            .collect();
        installed.sort_unstable();
        roots.extend(installed);
        roots.push("/opt/cuda".into());
    }
    let dirs = if cfg!(windows) {
        &["bin", "bin/x64"][..]
    } else {
        &["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"][..]
    };
    roots.iter().flat_map(|root| dirs.iter().map(|dir| root.join(dir))).collect()
}

/// Folders of the packages nvidia-cuda-nvrtc and nvidia-cuda-nvrtc-cu12 in the Pythons around.
fn python_dirs() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .iter()
        .filter_map(|name| env::var_os(name).map(PathBuf::from))
        .collect();
    if let Some(home) = env::var_os("HOME") {
        prefixes.push(Path::new(&home).join(".local"));
    }
    // A virtual environment in use has its Python on the path.
    if let Some(path) = env::var_os("PATH") {
        prefixes.extend(env::split_paths(&path).filter_map(|bin| Some(bin.parent()?.to_owned())));
    }
    let mut packages = Vec::new();
    for prefix in prefixes {
        if cfg!(windows) {
            packages.push(prefix.join("Lib/site-packages"));
            continue;
        }
        for python in entries(&prefix.join("lib")) {
            packages.extend(["site-packages", "dist-packages"].map(|dir| python.join(dir)));
        }
    }
    let mut dirs = Vec::new();
    for package in packages {
        for library in entries(&package.join("nvidia")) {
            dirs.extend(["lib", "bin", "bin/x86_64"].map(|dir| library.join(dir)));
        }
    }
    let mut seen = std::collections::HashSet::new();
    dirs.retain(|dir| seen.insert(dir.clone()));
    dirs
}

/// What is in a folder, which need not exist.
fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

/// One kernel's share of the assembler's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) registers: Option<u32>,
    pub(super) shared_bytes: u32,
    pub(super) spilled_bytes: u32,
}

/// What the assembler says of `entry`.
pub(super) fn usage(log: &str, entry: &str) -> Usage {
    let mut usage = Usage::default();
    let header = format!("'{entry}'");
    let of_entry = log
        .lines()
        .skip_while(|line| !(line.contains("Compiling entry function") && line.contains(&header)))
        .skip(1)
        .take_while(|line| !line.contains("Compiling entry function"));
    for line in of_entry {
        if let Some(bytes) = number_before(line, " bytes spill stores") {
            usage.spilled_bytes = bytes;
        }
        if let Some(registers) = number_before(line, " registers") {
            usage.registers = Some(registers);
            usage.shared_bytes = number_before(line, " bytes smem").unwrap_or(0);
        }
    }
    usage
}

fn number_before(line: &str, words: &str) -> Option<u32> {
    let before = &line[..line.find(words)?];
    let start = before.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |idx| idx + 1);
    before[start..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_assemblers_log_is_read() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'other' for 'sm_90'\n\
            ptxas info    : Used 8 registers\n\
            ptxas info    : Compiling entry function 'gemv' for 'sm_90'\n\
            ptxas info    : Function properties for gemv\n\
            \x20   16 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads\n\
            ptxas info    : Used 40 registers, used 1 barriers, 8224 bytes smem, 512 bytes cmem[0]\n";
        let gemv = Usage { registers: Some(40), shared_bytes: 8224, spilled_bytes: 24 };
        assert_eq!(usage(log, "gemv"), gemv);
        assert_eq!(usage(log, "other"), Usage { registers: Some(8), ..Usage::default() });
        assert_eq!(usage(log, "missing"), Usage::default());
    }

    #[test]
    fn a_library_that_is_none_is_reported_with_its_path() {
        let error = Nvrtc::load(Some(Path::new("/nowhere/libnvrtc.so")), None).expect_err("none");
        let text = error.to_string();
        assert!(text.contains("/nowhere/libnvrtc.so") && text.contains("pip install"), "{text}");
    }
}
