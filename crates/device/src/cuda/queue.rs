//! Command lists on the one stream of a GPU: launches, graphs, tickets and their times.

use super::driver::{Failure, Opaque};
use super::gpu::{CudaMemory, Gpu};
use super::modules::{BUFFERS_MAX, CudaKernel};
use super::staging::Staging;
use crate::source::Access;
use crate::{Command, Commands, DeviceError, Grid, Kernel, Slice, Ticket};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

/// Times of this many submissions are kept; events are made once and used again.
const SUBMISSIONS_KEPT: usize = 1024;

/// Token ids, positions, logits: what a step writes and reads.
const SMALL_SLOTS: usize = 32;
const SMALL_SLOT_BYTES: usize = 64 << 10;
/// Weights. Two slots: one is filled while the other is on its way.
const LARGE_SLOTS: usize = 2;
const LARGE_SLOT_BYTES: usize = 64 << 20;

/// What is on the way to and from the GPU.
#[derive(Debug)]
pub(super) struct Queue {
    gpu: Arc<Gpu>,
    small: Staging,
    /// Made when something large comes.
    large: Option<Staging>,
    submissions: VecDeque<Submission>,
    last: u64,
}

/// A submission and the events around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submission {
    ticket: u64,
    start: Opaque,
    end: Opaque,
    /// Its first label, or its first kernel.
    pub(super) label: &'static str,
}

impl Queue {
    pub(super) fn new(gpu: &Arc<Gpu>) -> Result<Self, DeviceError> {
        Ok(Self {
            gpu: Arc::clone(gpu),
            small: Staging::new(gpu, SMALL_SLOTS, SMALL_SLOT_BYTES)?,
            large: None,
            submissions: VecDeque::new(),
            last: 0,
        })
    }

    /// Puts `work` on the stream between two events.
    pub(super) fn submit(
        &mut self,
        label: &'static str,
        work: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<Ticket, DeviceError> {
        let (start, end) = self.events()?;
        let mut submission = Submission { ticket: 0, start, end, label };
        let done = self.gpu.driver.event_record(start, self.gpu.stream);
        let done = done.map_err(DeviceError::from).and_then(|()| work());
        let ended = self.gpu.driver.event_record(end, self.gpu.stream);
        self.last += 1;
        submission.ticket = self.last;
        // Also after an error, so that the events are not lost.
        self.submissions.push_back(submission);
        done?;
        ended.map_err(|failure| failure.during(label))?;
        Ok(Ticket(self.last))
    }

    fn events(&mut self) -> Result<(Opaque, Opaque), Failure> {
        if self.submissions.len() >= SUBMISSIONS_KEPT
            && let Some(oldest) = self.submissions.pop_front()
        {
            return Ok((oldest.start, oldest.end));
        }
        Ok((self.gpu.driver.event_create()?, self.gpu.driver.event_create()?))
    }

    /// The submission of a ticket, or the oldest that is kept, which is later; `None` if the
    /// ticket is not from here.
    pub(super) fn find(&self, ticket: Ticket) -> Option<Submission> {
        let oldest = self.submissions.front()?.ticket;
        let idx = usize::try_from(ticket.0.max(oldest) - oldest).ok()?;
        self.submissions.get(idx).copied()
    }

    /// Waits for the submission; milliseconds between its events.
    pub(super) fn wait(gpu: &Gpu, submission: Submission) -> Result<f32, DeviceError> {
        let ms = gpu
            .driver
            .event_wait(submission.end)
            .and_then(|()| gpu.driver.event_elapsed_ms(submission.start, submission.end));
        ms.map_err(|failure| failure.during(submission.label))
    }

    /// Label of the last submission.
    fn label(&self) -> &'static str {
        self.submissions.back().map_or("(nothing submitted)", |last| last.label)
    }

    pub(super) fn write(&mut self, dst: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let label = self.label();
        let staging = self.staging(bytes.len())?;
        staging.send(dst, bytes).map_err(|failure| failure.during(label))
    }

    pub(super) fn read(&mut self, src: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        let label = self.label();
        let stream = self.gpu.stream;
        let staging = self.staging(out.len())?;
        staging.receive(src, out).map_err(|failure| failure.during(label))?;
        // A read of nothing waits too.
        self.gpu.driver.stream_wait(stream).map_err(|failure| failure.during(label))
    }

    fn staging(&mut self, len: usize) -> Result<&mut Staging, DeviceError> {
        if len <= 4 * self.small.slot_bytes() {
            return Ok(&mut self.small);
        }
        if self.large.is_none() {
            self.large = Some(Staging::new(&self.gpu, LARGE_SLOTS, LARGE_SLOT_BYTES)?);
        }
        Ok(self.large.as_mut().expect("just made"))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // A lost context takes its events with it.
        let _ = self.gpu.bind();
        let _ = self.gpu.driver.stream_wait(self.gpu.stream);
        for submission in self.submissions.drain(..) {
            let _ = self.gpu.driver.event_destroy(submission.start);
            let _ = self.gpu.driver.event_destroy(submission.end);
        }
    }
}

/// A name for messages about a list: its first label, or else its first kernel.
pub(super) fn label_of(commands: &Commands) -> &'static str {
    let named = commands.iter().find_map(|command| match command {
        Command::Label(label) => Some(*label),
        _ => None,
    });
    let kernel = || {
        commands.iter().find_map(|command| match command {
            Command::Dispatch { kernel, .. } => Some(kernel.entry),
            _ => None,
        })
    };
    named.or_else(kernel).unwrap_or("(copies)")
}

/// Puts a list on `stream`, in order: barriers have nothing to do.
pub(super) fn encode(
    gpu: &Gpu,
    commands: &Commands,
    stream: Opaque,
    check_each_launch: bool,
) -> Result<(), DeviceError> {
    for command in commands.iter() {
        match command {
            Command::Dispatch { kernel, buffers, params, grid } => {
                launch(gpu, kernel, buffers, params, *grid, stream)?;
                if check_each_launch {
                    let done = gpu.driver.stream_wait(stream);
                    done.map_err(|failure| failure.during(kernel.entry))?;
                }
            }
            Command::Copy { src, dst } if dst.len > 0 => {
                gpu.driver.copy_on_device(address_of(dst), address_of(src), dst.len, stream)?;
            }
            Command::Zero { dst } if dst.len > 0 => {
                gpu.driver.fill_with_zeros(address_of(dst), dst.len, stream)?;
            }
            Command::Copy { .. } | Command::Zero { .. } | Command::Barrier | Command::Label(_) => {}
        }
    }
    Ok(())
}

/// Records a list as a graph that can be launched.
pub(super) fn record(gpu: &Gpu, commands: &Commands) -> Result<Opaque, DeviceError> {
    // A stream of its own: nothing that others submit meanwhile gets into the graph.
    let stream = gpu.driver.stream_create()?;
    let graph = record_on(gpu, commands, stream);
    let destroyed = gpu.driver.stream_destroy(stream);
    let graph = graph?;
    let exec = gpu.driver.graph_instantiate(graph);
    gpu.driver.graph_destroy(graph)?;
    destroyed?;
    Ok(exec?)
}

fn record_on(gpu: &Gpu, commands: &Commands, stream: Opaque) -> Result<Opaque, DeviceError> {
    gpu.driver.capture_begin(stream)?;
    let encoded = encode(gpu, commands, stream, false);
    // Also after an error: a stream that is being recorded cannot be destroyed.
    let graph = gpu.driver.capture_end(stream);
    match (encoded, graph) {
        (Ok(()), graph) => Ok(graph?),
        (Err(error), Ok(graph)) => {
            gpu.driver.graph_destroy(graph)?;
            Err(error)
        }
        (Err(error), Err(_)) => Err(error),
    }
}

/// The GPU's memory behind a slice.
///
/// # Panics
/// If the slice is of another device.
pub(super) fn address_of(slice: &Slice) -> u64 {
    let memory: &CudaMemory = slice.buffer.downcast().expect("a buffer of a CUDA device");
    memory.address + slice.offset as u64
}

fn launch(
    gpu: &Gpu,
    kernel: &Kernel,
    buffers: &[Slice],
    params: &[u32],
    grid: Grid,
    stream: Opaque,
) -> Result<(), DeviceError> {
    let compiled: &CudaKernel = kernel.downcast().expect("a kernel of a CUDA device");
    let fault = |fault: String| DeviceError::Fault {
        kernel: kernel.entry.to_owned(),
        device: "cuda",
        fault,
    };
    if grid.threads > compiled.threads_max {
        return Err(fault(format!(
            "its registers allow {} threads, not {}; define LILY_THREADS",
            compiled.threads_max, grid.threads
        )));
    }
    let [_, y, z] = grid.groups;
    if y > GROUPS_YZ_MAX || z > GROUPS_YZ_MAX {
        return Err(fault(format!("{:?} threadgroups: y and z end at 65535", grid.groups)));
    }
    if let Some((read, written)) = overlap(kernel, buffers) {
        return Err(fault(format!(
            "it reads buffer {read} and writes the same bytes as {written}"
        )));
    }
    let mut addresses = [0u64; BUFFERS_MAX];
    let mut args = [std::ptr::null_mut::<c_void>(); BUFFERS_MAX + 1];
    for (idx, slice) in buffers.iter().enumerate() {
        addresses[idx] = address_of(slice);
    }
    let mut n_args = buffers.len();
    for (arg, address) in args.iter_mut().zip(&mut addresses[..n_args]) {
        *arg = std::ptr::from_mut(address).cast();
    }
    if compiled.has_params {
        // The driver reads the struct and does not write it.
        args[n_args] = params.as_ptr().cast_mut().cast();
        n_args += 1;
    }
    // SAFETY: `Commands` has checked that there is one slice per pointer and one word per member of
    // the params struct, all of whose members have 4 bytes.
    let done = unsafe {
        gpu.driver.launch(compiled.function, grid.groups, grid.threads, stream, &mut args[..n_args])
    };
    done.map_err(|failure| failure.at_launch(kernel.entry))
}

/// Of every GPU.
const GROUPS_YZ_MAX: u32 = 65535;

/// A buffer that is only read and one that is written that share bytes: the compiler was told that
/// there are none.
fn overlap(kernel: &Kernel, buffers: &[Slice]) -> Option<(usize, usize)> {
    let bound = || kernel.signature.buffers().zip(buffers).enumerate();
    for (written, (access, w)) in bound() {
        if access != Access::ReadWrite {
            continue;
        }
        for (read, (access, r)) in bound() {
            let shared = access == Access::Read
                && r.buffer.id() == w.buffer.id()
                && r.offset < w.offset + w.len
                && w.offset < r.offset + r.len;
            if shared {
                return Some((read, written));
            }
        }
    }
    None
}
