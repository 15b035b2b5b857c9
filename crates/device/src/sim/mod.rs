//! The simulator: kernels compiled as C++ and run on the CPU, with every access checked.
//!
//! A threadgroup's threads are fibres of one OS thread, which switch at barriers and SIMD
//! operations; threadgroups spread over OS threads. A checked module is compiled with the
//! instrumentation of `-fsanitize=thread`, but the callbacks are ours (`kernels/shim/sim_check.h`):
//! they know the slices that a dispatch was given, which bytes are defined, and who touched them
//! since the last barrier. The run-time is C++ in `kernels/shim`; this module compiles and loads
//! it, keeps the memory, and walks command lists. It knows no model.

mod compile;
mod ffi;
mod memory;
mod pool;
mod region;
mod run;
mod text;

use crate::{
    Buffer, Commands, Device, DeviceError, DeviceInfo, DeviceKind, HostBytes, Kernel, KernelSource,
    Program, Slice, Ticket, TileBody, source,
};
use compile::{Compiler, Module};
use ffi::EntryFn;
use memory::{Account, SimMemory};
use run::Runner;
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How to simulate.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Where compiled kernels are kept; processes may share it.
    pub cache_dir: PathBuf,
    /// Whether accesses are checked. Products then take twice as long, stores to device memory
    /// ten times.
    pub checked: bool,
    /// 0 runs threadgroups and threads in order; other values shuffle them, and the commands
    /// between barriers.
    pub seed: u64,
    /// OS threads, at least 1.
    pub threads: usize,
    /// Which body of `kernels/tile.h` is simulated: Simdgroup or Tensor.
    pub tile: TileBody,
    /// Memory that can be allocated; `None` is half of the machine's.
    pub memory_bytes: Option<u64>,
    /// A C++ compiler; `None` looks for `c++`, `g++` and `clang++`.
    pub compiler: Option<PathBuf>,
}

impl SimOptions {
    /// A checked simulation in order, on one thread.
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            cache_dir: cache_dir.into(),
            checked: true,
            seed: 0,
            threads: 1,
            tile: TileBody::Simdgroup,
            memory_bytes: None,
            compiler: None,
        }
    }
}

/// Durations of this many submissions are remembered.
const DURATIONS_KEPT: usize = 1024;

/// The simulator.
#[derive(Debug)]
pub struct SimDevice {
    info: DeviceInfo,
    options: SimOptions,
    compiler: Compiler,
    used: Arc<AtomicU64>,
    modules: Mutex<HashMap<(String, String), Arc<Module>>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    runner: Runner,
    submissions: u64,
    durations: VecDeque<Duration>,
}

/// A kernel of the simulator.
#[derive(Debug)]
struct SimKernel {
    /// Keeps `entry` loaded.
    module: Arc<Module>,
    entry: EntryFn,
    /// Names of the buffers, for messages.
    names: Vec<CString>,
}

impl SimDevice {
    /// A simulator of its own.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] without a C++ compiler, [`DeviceError::Driver`] if address
    /// space cannot be reserved.
    pub fn new(options: SimOptions) -> Result<Self, DeviceError> {
        let compiler = Compiler::find(options.compiler.as_deref())?;
        let memory_bytes = options.memory_bytes.unwrap_or_else(|| physical_bytes() / 2);
        let info = DeviceInfo {
            kind: DeviceKind::Sim,
            name: "simulator".to_owned(),
            version: compiler.version().to_owned(),
            memory_bytes,
            buffer_bytes_max: memory_bytes,
            unified_memory: true,
            n_cores: u32::try_from(options.threads).unwrap_or(u32::MAX),
            tile: options.tile,
        };
        let runner = Runner::new(&options)?;
        let state = State { runner, submissions: 0, durations: VecDeque::new() };
        Ok(Self {
            info,
            options,
            compiler,
            used: Arc::default(),
            modules: Mutex::default(),
            state: Mutex::new(state),
        })
    }

    /// A kernel whose text is not in `kernels/`: for tests of the simulator, and for checking that
    /// an installation works. Includes are not replaced.
    ///
    /// # Errors
    /// As [`Device::kernel`].
    pub fn kernel_from_text(
        &self,
        file: &str,
        entry: &'static str,
        text: &str,
    ) -> Result<Kernel, DeviceError> {
        let module = self.module(file, text)?;
        let found = module.kernels.iter().find(|found| found.name == entry);
        let found = found.ok_or_else(|| DeviceError::Dialect {
            file: format!("{file}.metal"),
            problem: format!("there is no kernel {entry}"),
        })?;
        let signature = Arc::new(found.signature.clone());
        let names = signature.args.iter().filter_map(|arg| match arg.kind {
            source::ArgKind::Buffer { .. } => CString::new(arg.name.as_str()).ok(),
            _ => None,
        });
        let kernel = SimKernel {
            entry: module.entry(entry)?,
            names: names.collect(),
            module: Arc::clone(&module),
        };
        Ok(Kernel::new(entry, signature, kernel))
    }

    fn module(&self, file: &str, text: &str) -> Result<Arc<Module>, DeviceError> {
        let key = (file.to_owned(), text.to_owned());
        // Held while compiling: a device compiles one module at a time.
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(&key) {
            return Ok(Arc::clone(module));
        }
        let SimOptions { cache_dir, checked, .. } = &self.options;
        let module = Arc::new(self.compiler.module(cache_dir, file, text, *checked)?);
        modules.insert(key, Arc::clone(&module));
        Ok(module)
    }

    fn account(&self, len: usize, label: &str) -> Result<Account, DeviceError> {
        let total = self.info.memory_bytes;
        let bytes = len as u64;
        Account::open(&self.used, bytes, total).map_err(|available| DeviceError::OutOfMemory {
            label: label.to_owned(),
            bytes,
            available,
            total,
        })
    }

    /// The simulator's memory behind a slice.
    fn memory<'a>(
        &self,
        slice: &'a Slice,
        call: &'static str,
    ) -> Result<&'a SimMemory, DeviceError> {
        let memory = slice.buffer.downcast::<SimMemory>();
        memory.filter(|memory| memory.account().is_of(&self.used)).ok_or_else(|| {
            DeviceError::Driver {
                device: "sim",
                call,
                reason: format!("{} is memory of another device", slice.buffer.label()),
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, len_bytes: usize, label: &str) -> Result<Buffer, DeviceError> {
        let account = self.account(len_bytes, label)?;
        let memory =
            Arc::new(SimMemory::undefined(len_bytes, label, self.options.checked, account));
        self.lock().runner.watch(&memory);
        Ok(Buffer::new(memory))
    }

    fn import(&self, bytes: &HostBytes, label: &str) -> Result<Buffer, DeviceError> {
        const PAGE_BYTES: usize = 4096;
        let host = bytes.as_slice();
        if host.as_ptr().addr().is_multiple_of(PAGE_BYTES) {
            let account = self.account(host.len(), label)?;
            return Ok(Buffer::new(Arc::new(SimMemory::shared(bytes, label, account))));
        }
        let buffer = self.alloc(host.len(), label)?;
        self.write(&buffer.all(), host)?;
        Ok(buffer)
    }

    fn kernel(&self, source: &KernelSource) -> Result<Kernel, DeviceError> {
        let text = source::expand(source, false)?;
        self.kernel_from_text(source.file, source.entry, &text)
    }

    fn write(&self, dst: &Slice, bytes: &[u8]) -> Result<(), DeviceError> {
        let memory = self.memory(dst, "write")?;
        if !memory.is_writable() || bytes.len() > dst.len {
            let (len, label) = (bytes.len(), dst.buffer.label());
            let reason = format!("{len} bytes to {} of {label}", dst.len);
            return Err(DeviceError::Driver { device: "sim", call: "write", reason });
        }
        let _state = self.lock();
        memory.write(dst.offset, bytes);
        Ok(())
    }

    fn read(&self, src: &Slice, out: &mut [u8]) -> Result<(), DeviceError> {
        let memory = self.memory(src, "read")?;
        if out.len() > src.len {
            let reason = format!("{} bytes of {} of {}", out.len(), src.len, src.buffer.label());
            return Err(DeviceError::Driver { device: "sim", call: "read", reason });
        }
        let _state = self.lock();
        memory.read(src.offset, out);
        Ok(())
    }

    fn submit(&self, commands: &Commands) -> Result<Ticket, DeviceError> {
        let mut state = self.lock();
        let start = Instant::now();
        state.runner.run(self, commands)?;
        let duration = start.elapsed();
        state.submissions += 1;
        state.durations.push_back(duration);
        if state.durations.len() > DURATIONS_KEPT {
            state.durations.pop_front();
        }
        Ok(Ticket(state.submissions))
    }

    fn prepare(&self, commands: Commands) -> Result<Program, DeviceError> {
        Ok(Program::new(commands))
    }

    fn replay(&self, program: &Program) -> Result<Ticket, DeviceError> {
        let commands = program.downcast::<Commands>().ok_or_else(|| DeviceError::Driver {
            device: "sim",
            call: "replay",
            reason: "the program is of another device".to_owned(),
        })?;
        self.submit(commands)
    }

    fn wait(&self, ticket: Ticket) -> Result<Duration, DeviceError> {
        let state = self.lock();
        let age = state.submissions.checked_sub(ticket.0).and_then(|age| usize::try_from(age).ok());
        let duration = age.and_then(|age| state.durations.iter().rev().nth(age));
        duration.copied().ok_or_else(|| DeviceError::Driver {
            device: "sim",
            call: "wait",
            reason: format!("submission {} is unknown or long past", ticket.0),
        })
    }
}

/// Memory of the machine.
fn physical_bytes() -> u64 {
    // SAFETY: asks for a number.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(page).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Grid};

    #[test]
    fn stamps_start_again_without_false_alarms() {
        let dir = tempfile::tempdir().expect("a directory");
        let device = SimDevice::new(SimOptions::new(dir.path())).expect("a C++ compiler");
        let text = "kernel void add(device float* y [[buffer(0)]], \
                    uint tid [[thread_index_in_threadgroup]]) { y[tid] += 1.0f; }\n";
        let kernel = device.kernel_from_text("add", "add", text).expect("it compiles");
        let y = device.alloc(128, "y").expect("memory");
        device.write(&y.all(), &[0; 128]).expect("a write");
        let add = Command::Dispatch {
            kernel,
            buffers: vec![y.all()],
            params: Vec::new(),
            grid: Grid::linear(1, 32),
        };
        let once = Commands::from_list(vec![add.clone()]);
        let twice = Commands::from_list(vec![add.clone(), add]);
        // Stamps before the restart are larger than all that follow.
        for _ in 0..3 {
            device.submit(&once).expect("one at a time");
        }
        device.lock().runner.leave_stamps(2);
        for _ in 0..6 {
            device.submit(&once).expect("one at a time");
            device.submit(&twice).expect_err("no barrier between");
        }
        assert!(device.lock().runner.stamps_used() < 100, "they started again");
    }
}
