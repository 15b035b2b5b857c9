//! The machine's C++ compiler, and the modules it has made before.

use super::ffi::{EntryFn, RunFn};
use super::text::{checking_runtime, entry_symbol, translate};
use crate::DeviceError;
use crate::source::Found;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Tried in this order.
const COMPILERS: [&str; 3] = ["c++", "g++", "clang++"];

/// What every part of a module is compiled with. Contraction and fast maths are off so that results
/// do not depend on the compiler; kernels look at the same bytes as different types.
const FLAGS: [&str; 13] = [
    "-std=c++20",
    "-O2",
    "-g1",
    "-gdwarf-4",
    "-w",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
];

/// A compiler that runs.
#[derive(Clone, Debug)]
pub(super) struct Compiler {
    program: PathBuf,
    version: String,
    flags: Vec<&'static str>,
}

/// A loaded module. Kernels keep it alive.
#[derive(Debug)]
pub(super) struct Module {
    library: Library,
    pub(super) kernels: Vec<Found>,
    pub(super) run: RunFn,
}

impl Module {
    pub(super) fn entry(&self, kernel: &str) -> Result<EntryFn, DeviceError> {
        let symbol = entry_symbol(kernel);
        // SAFETY: the text that we compiled defines it with this type.
        let entry = unsafe { self.library.get::<EntryFn>(symbol.as_bytes()) };
        entry.map(|entry| *entry).map_err(|error| load_failed(&error))
    }
}

fn load_failed(error: &libloading::Error) -> DeviceError {
    DeviceError::Driver { device: "sim", call: "dlopen", reason: error.to_string() }
}

fn io_failed(call: &'static str, path: &Path, error: &std::io::Error) -> DeviceError {
    let reason = format!("{}: {error}", path.display());
    DeviceError::Driver { device: "sim", call, reason }
}

impl Compiler {
    /// The one asked for, or the first of the usual names that is installed.
    pub(super) fn find(wanted: Option<&Path>) -> Result<Self, DeviceError> {
        static FOUND: OnceLock<Option<Compiler>> = OnceLock::new();
        let found = match wanted {
            Some(wanted) => Self::probe(wanted),
            None => FOUND
                .get_or_init(|| COMPILERS.iter().find_map(|name| Self::probe(Path::new(name))))
                .clone(),
        };
        found.ok_or_else(|| DeviceError::Unavailable {
            device: "sim",
            reason: match wanted {
                Some(wanted) => format!("{} is no C++ compiler", wanted.display()),
                None => format!("none of {} is installed", COMPILERS.join(", ")),
            },
            remedy: "install a C++ compiler: `apt install g++`, or `xcode-select --install`",
        })
    }

    fn probe(program: &Path) -> Option<Self> {
        let output = Command::new(program).arg("--version").output().ok()?;
        if !output.status.success() {
            return None;
        }
        let version = String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned();
        let flags = [&FLAGS, cpu_flags()].concat();
        Some(Self { program: program.to_owned(), version, flags })
    }

    /// Name and version, as it introduces itself.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Compiles and loads the kernels of `source`, or loads what is in `cache_dir`.
    pub(super) fn module(
        &self,
        cache_dir: &Path,
        file: &str,
        source: &str,
        checked: bool,
    ) -> Result<Module, DeviceError> {
        let translated = translate(file, source, checked)?;
        let extra: &[&str] = if checked { &["-fsanitize=thread"] } else { &[] };
        let key = self.key(&[&translated.text, &checking_runtime()], extra);
        let path = cache_dir.join(format!("{file}-{key}.so"));
        let lock = lock_of(&key);
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !path.exists() {
            std::fs::create_dir_all(cache_dir)
                .map_err(|error| io_failed("create_dir", cache_dir, &error))?;
            let what = format!("{file}.metal");
            if checked {
                let runtime = self.runtime(cache_dir)?;
                let object = self.compile(&path, "o", &what, &translated.text, |command| {
                    command.args(extra).arg("-c");
                })?;
                let linked = self.link(&path, &what, &[&object, &runtime]);
                let _ = std::fs::remove_file(&object);
                linked?;
            } else {
                let built = self.compile(&path, "so", &what, &translated.text, |command| {
                    command.arg("-shared");
                })?;
                publish(&built, &path)?;
            }
        }
        drop(guard);
        // SAFETY: the library is ours; it has no constructors beyond an empty callback.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|error| load_failed(&error))?;
        // SAFETY: sim_runtime.h defines it with this type.
        let run = unsafe { library.get::<RunFn>(b"sim_run") };
        let run = *run.map_err(|error| load_failed(&error))?;
        Ok(Module { library, kernels: translated.kernels, run })
    }

    /// The checking run-time as an object file; it is the same for every module.
    fn runtime(&self, cache_dir: &Path) -> Result<PathBuf, DeviceError> {
        let text = checking_runtime();
        let key = self.key(&[&text], &[]);
        let path = cache_dir.join(format!("runtime-{key}.o"));
        let lock = lock_of(&key);
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !path.exists() {
            let built = self.compile(&path, "o", "the simulator's run-time", &text, |command| {
                command.arg("-c");
            })?;
            publish(&built, &path)?;
        }
        Ok(path)
    }

    fn key(&self, texts: &[&str], extra: &[&str]) -> String {
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &self.version, &self.flags, extra, texts).hash(&mut hasher);
            hasher.finish()
        };
        format!("{:016x}{:016x}", hash(0), hash(1))
    }

    /// Compiles to a temporary file beside `path`.
    fn compile(
        &self,
        path: &Path,
        extension: &str,
        what: &str,
        text: &str,
        arguments: impl FnOnce(&mut Command),
    ) -> Result<PathBuf, DeviceError> {
        let source = temporary(path, "cpp");
        std::fs::write(&source, text).map_err(|error| io_failed("write", &source, &error))?;
        let output = temporary(path, extension);
        let mut command = Command::new(&self.program);
        command.args(&self.flags);
        arguments(&mut command);
        command.arg("-o").arg(&output).arg(&source);
        let done = self.run(command, what);
        let _ = std::fs::remove_file(&source);
        done.map(|()| output)
    }

    fn link(&self, path: &Path, what: &str, objects: &[&Path]) -> Result<(), DeviceError> {
        let output = temporary(path, "so");
        let mut command = Command::new(&self.program);
        // Without the sanitizer's own library: the callbacks are in the run-time.
        command.arg("-shared").arg("-o").arg(&output).args(objects);
        self.run(command, what)?;
        publish(&output, path)
    }

    fn run(&self, mut command: Command, what: &str) -> Result<(), DeviceError> {
        let output =
            command.output().map_err(|error| io_failed("compiler", &self.program, &error))?;
        if output.status.success() {
            return Ok(());
        }
        Err(DeviceError::Compile {
            kernel: what.to_owned(),
            target: self.version.clone(),
            log: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// Without them, `fma` is a function call.
fn cpu_flags() -> &'static [&'static str] {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("fma") && std::is_x86_feature_detected!("avx2") {
        return &["-mfma", "-mavx2"];
    }
    &[]
}

/// A name that no other process or thread uses.
fn temporary(path: &Path, extension: &str) -> PathBuf {
    let thread = std::thread::current().id();
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{}-{thread:?}.{extension}", std::process::id()).replace(['(', ')'], ""));
    path.with_file_name(name)
}

/// Readers see a whole file or none.
fn publish(from: &Path, to: &Path) -> Result<(), DeviceError> {
    std::fs::rename(from, to).map_err(|error| io_failed("rename", to, &error))
}

/// Threads that want the same module compile it once; processes may do it twice, harmlessly.
fn lock_of(key: &str) -> Arc<Mutex<()>> {
    static LOCKS: OnceLock<Mutex<HashMap<String, Arc<Mutex<()>>>>> = OnceLock::new();
    let mut locks =
        LOCKS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(locks.entry(key.to_owned()).or_default())
}
