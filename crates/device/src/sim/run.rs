//! Walks command lists: binds what a dispatch may touch, and turns faults into errors.

use super::ffi::{BUFFERS_MAX, STAMP_BITS, SimBinding, SimDispatch, SimFault};
use super::memory::SimMemory;
use super::pool::Pool;
use super::{SimDevice, SimKernel, SimOptions};
use crate::source::Access;
use crate::{Command, Commands, DeviceError, Grid, Kernel, Slice};
use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::sync::{Arc, Weak};

#[derive(Debug)]
pub(super) struct Runner {
    pool: Pool,
    checked: bool,
    seed: u64,
    /// Counts commands, so that each has its own order.
    turn: u64,
    /// The next threadgroup's stamp; 0 means nobody.
    stamp: u32,
    watched: Vec<Weak<SimMemory>>,
}

/// A command of the current barrier interval that has run.
struct Done<'a> {
    name: &'a str,
    stamps: Range<u32>,
}

impl Runner {
    pub(super) fn new(options: &SimOptions) -> Result<Self, DeviceError> {
        Ok(Self {
            pool: Pool::new(options.threads.max(1))?,
            checked: options.checked,
            seed: options.seed,
            turn: 0,
            stamp: 1,
            watched: Vec::new(),
        })
    }

    #[cfg(test)]
    pub(super) fn leave_stamps(&mut self, n: u32) {
        self.stamp = (1 << STAMP_BITS) - 1 - n;
    }

    #[cfg(test)]
    pub(super) fn stamps_used(&self) -> u32 {
        self.stamp
    }

    /// Remembers memory for the day when stamps start again.
    pub(super) fn watch(&mut self, memory: &Arc<SimMemory>) {
        if self.checked {
            if self.watched.len().is_power_of_two() {
                self.watched.retain(|memory| memory.strong_count() > 0);
            }
            self.watched.push(Arc::downgrade(memory));
        }
    }

    pub(super) fn run(
        &mut self,
        device: &SimDevice,
        commands: &Commands,
    ) -> Result<(), DeviceError> {
        let mut interval: Vec<&Command> = Vec::new();
        for command in commands.iter() {
            match command {
                Command::Barrier => {
                    self.run_interval(device, &mut interval)?;
                    interval.clear();
                }
                Command::Label(_) => {}
                _ => interval.push(command),
            }
        }
        self.run_interval(device, &mut interval)
    }

    /// Commands that may run in any order.
    fn run_interval(
        &mut self,
        device: &SimDevice,
        commands: &mut [&Command],
    ) -> Result<(), DeviceError> {
        let written = if self.checked { check_transfers(commands)? } else { Vec::new() };
        self.shuffle(commands);
        self.restart_stamps(commands);
        let interval_stamp = self.stamp;
        let mut done: Vec<Done<'_>> = Vec::new();
        for command in commands {
            match command {
                Command::Dispatch { kernel, buffers, params, grid } => {
                    let first = self.stamp;
                    let launch = Launch { kernel, buffers, params, grid: *grid, interval_stamp };
                    let fault = self.dispatch(device, &launch, &written)?;
                    done.push(Done { name: kernel.entry, stamps: first..self.stamp });
                    if let Some(fault) = fault {
                        return Err(fault.error(kernel.entry, &done));
                    }
                }
                Command::Copy { src, dst } => {
                    let from = device.memory(src, "copy")?;
                    let to = writable(device, dst, "copy")?;
                    to.copy(dst.offset, from, &src.range());
                }
                Command::Zero { dst } => writable(device, dst, "zero")?.zero(&dst.range()),
                Command::Barrier | Command::Label(_) => {}
            }
        }
        Ok(())
    }

    fn random(&mut self) -> u64 {
        self.turn += 1;
        if self.seed == 0 {
            return 0;
        }
        // SplitMix64.
        let mut x = self.seed.wrapping_add(self.turn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) | 1
    }

    fn shuffle(&mut self, commands: &mut [&Command]) {
        if self.seed == 0 {
            return;
        }
        for n in (1..commands.len()).rev() {
            let pick = (self.random() >> 1) % (n as u64 + 1);
            commands.swap(n, usize::try_from(pick).expect("below the length"));
        }
    }

    /// Starts again at 1 if the stamps of an interval would not fit.
    fn restart_stamps(&mut self, commands: &[&Command]) {
        let groups = commands.iter().map(|command| match command {
            Command::Dispatch { grid, .. } => n_groups(*grid),
            _ => 0,
        });
        let needed: u64 = groups.sum();
        if self.checked && u64::from(self.stamp) + needed >= 1 << STAMP_BITS {
            self.stamp = 1;
            self.watched.retain(|memory| memory.strong_count() > 0);
            for memory in self.watched.iter().filter_map(Weak::upgrade) {
                memory.clear_cells();
            }
        }
    }

    fn dispatch(
        &mut self,
        device: &SimDevice,
        launch: &Launch<'_>,
        written: &[(usize, Range<usize>)],
    ) -> Result<Option<Fault>, DeviceError> {
        let kernel = launch.kernel.downcast::<SimKernel>().ok_or_else(|| DeviceError::Driver {
            device: "sim",
            call: "dispatch",
            reason: format!("kernel {} is of another device", launch.kernel.entry),
        })?;
        assert!(launch.buffers.len() <= BUFFERS_MAX, "{} buffers", launch.buffers.len());
        let mut bindings = Vec::with_capacity(launch.buffers.len());
        let mut pointers: Vec<*mut c_void> = Vec::with_capacity(launch.buffers.len());
        let accesses = launch.kernel.signature.buffers();
        for ((slice, access), name) in launch.buffers.iter().zip(accesses).zip(&kernel.names) {
            let writes = access == Access::ReadWrite;
            let memory = if writes {
                writable(device, slice, "dispatch")?
            } else {
                device.memory(slice, "dispatch")?
            };
            let lo = memory.as_ptr().wrapping_add(slice.offset);
            pointers.push(lo.cast());
            if !self.checked {
                continue;
            }
            let id = slice.buffer.id();
            let range = slice.range();
            let tracked = writes
                || written.iter().any(|(other, bytes)| *other == id && overlap(bytes, &range));
            bindings.push(SimBinding {
                lo: lo.addr(),
                len: slice.len,
                base: memory.as_ptr().addr(),
                defined: if memory.is_defined(&range) {
                    std::ptr::null_mut()
                } else {
                    memory.defined()
                },
                cells: if tracked { memory.cells() } else { std::ptr::null_mut() },
                name: name.as_ptr(),
                writable: u32::from(writes),
                kind: 0,
            });
        }
        let mut dispatch = SimDispatch {
            kernel: kernel.entry,
            buffers: pointers.as_ptr(),
            params: launch.params.as_ptr(),
            bindings: bindings.as_ptr(),
            seed: self.random(),
            n_bindings: u32::try_from(bindings.len()).expect("few buffers"),
            groups: launch.grid.groups,
            threads: launch.grid.threads,
            first_stamp: self.stamp,
            interval_stamp: launch.interval_stamp,
            next: 0,
            stop: 0,
            fault: SimFault { pc: 0, other_stamp: 0, text: [0; 1004] },
        };
        if self.checked {
            let n = u32::try_from(n_groups(launch.grid)).expect("a grid below 2^28 threadgroups");
            self.stamp += n;
        }
        self.pool.run(kernel.module.run, &mut dispatch)?;
        Ok((dispatch.stop != 0).then(|| Fault::new(&dispatch.fault)))
    }
}

/// A dispatch, taken apart.
struct Launch<'a> {
    kernel: &'a Kernel,
    buffers: &'a [Slice],
    params: &'a [u32],
    grid: Grid,
    interval_stamp: u32,
}

/// What the run-time reported.
struct Fault {
    text: String,
    pc: usize,
    other_stamp: u32,
}

impl Fault {
    fn new(fault: &SimFault) -> Self {
        // SAFETY: the run-time ends its text with a zero.
        let text = unsafe { CStr::from_ptr(fault.text.as_ptr()) };
        Self {
            text: text.to_string_lossy().into_owned(),
            pc: fault.pc,
            other_stamp: fault.other_stamp,
        }
    }

    fn error(&self, kernel: &str, done: &[Done<'_>]) -> DeviceError {
        let mut fault = self.text.clone();
        if let Some(other) = done.iter().find(|done| done.stamps.contains(&self.other_stamp)) {
            fault = format!("{fault}; the other kernel is {}", other.name);
        }
        if let Some(line) = source_line(self.pc) {
            fault = format!("{fault}; at {line}");
        }
        DeviceError::Fault { kernel: kernel.to_owned(), device: "simulator", fault }
    }
}

/// File and line of an instruction, if the tools of the compiler are there.
fn source_line(pc: usize) -> Option<String> {
    if pc == 0 {
        return None;
    }
    // SAFETY: all fields may be zero.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: only looks the address up and fills `info`.
    let known = unsafe { libc::dladdr(pc as *const c_void, &raw mut info) };
    if known == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives the name of a loaded library.
    let file = unsafe { CStr::from_ptr(info.dli_fname) };
    // The instruction before the return address.
    let offset = pc.checked_sub(info.dli_fbase.addr() + 1)?;
    let output = std::process::Command::new("addr2line")
        .arg("-ie")
        .arg(file.to_str().ok()?)
        .arg(format!("{offset:#x}"))
        .output()
        .ok()?;
    // From the innermost inlined function outwards: the first line outside of the shim.
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter_map(|line| line.rsplit('/').next());
    let line = lines.filter(|line| !line.starts_with('?')).find(|line| !line.starts_with("sim"))?;
    Some(line.split(' ').next().unwrap_or(line).to_owned())
}

fn n_groups(grid: Grid) -> u64 {
    grid.groups.iter().map(|n| u64::from(*n)).product()
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

fn writable<'a>(
    device: &SimDevice,
    slice: &'a Slice,
    call: &'static str,
) -> Result<&'a SimMemory, DeviceError> {
    let memory = device.memory(slice, call)?;
    if memory.is_writable() {
        return Ok(memory);
    }
    let reason = format!("{} is imported, and cannot be written", slice.buffer.label());
    Err(DeviceError::Driver { device: "sim", call, reason })
}

/// Bytes that commands between two barriers write. Copies and fills touch all bytes that they
/// name, so their conflicts show here; those of kernels show when they run.
fn check_transfers(commands: &[&Command]) -> Result<Vec<(usize, Range<usize>)>, DeviceError> {
    struct Touched<'a> {
        slice: &'a Slice,
        writes: bool,
        transfer: bool,
        name: &'a str,
    }
    let mut touched: Vec<Touched<'_>> = Vec::new();
    for command in commands {
        let from = touched.len();
        match command {
            Command::Dispatch { kernel, buffers, .. } => {
                let accesses = kernel.signature.buffers();
                touched.extend(buffers.iter().zip(accesses).map(|(slice, access)| Touched {
                    slice,
                    writes: access == Access::ReadWrite,
                    transfer: false,
                    name: kernel.entry,
                }));
            }
            Command::Copy { src, dst } => {
                for (slice, writes) in [(src, false), (dst, true)] {
                    touched.push(Touched { slice, writes, transfer: true, name: "copy" });
                }
            }
            Command::Zero { dst } => {
                touched.push(Touched { slice: dst, writes: true, transfer: true, name: "zero" });
            }
            Command::Barrier | Command::Label(_) => {}
        }
        let (old, new) = touched.split_at(from);
        for (a, b) in new.iter().flat_map(|new| old.iter().map(move |old| (old, new))) {
            if (a.transfer || b.transfer)
                && (a.writes || b.writes)
                && a.slice.buffer.id() == b.slice.buffer.id()
                && overlap(&a.slice.range(), &b.slice.range())
            {
                return Err(DeviceError::Fault {
                    kernel: b.name.to_owned(),
                    device: "simulator",
                    fault: format!(
                        "no barrier between {} and {}, which share bytes {:?} and {:?} of {}",
                        a.name,
                        b.name,
                        a.slice.range(),
                        b.slice.range(),
                        a.slice.buffer.label()
                    ),
                });
            }
        }
    }
    let written = touched.iter().filter(|touched| touched.writes);
    Ok(written.map(|touched| (touched.slice.buffer.id(), touched.slice.range())).collect())
}
