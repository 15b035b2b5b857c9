//! What a forward pass tells a device: plain data, with barriers only where data flows.

use crate::source::{Access, ArgKind};
use crate::{Kernel, Slice};
use std::ops::Range;

/// Threadgroups and threads of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Threadgroups along x, y and z.
    pub groups: [u32; 3],
    /// Threads of a threadgroup, a multiple of 32, at most 1024.
    pub threads: u32,
}

impl Grid {
    /// A row of `groups` threadgroups.
    pub fn linear(groups: usize, threads: u32) -> Self {
        Self::new([groups, 1, 1], threads)
    }

    /// A box of threadgroups.
    ///
    /// # Panics
    /// If a side is 0 or beyond `u32`, or the thread count is no multiple of 32 up to 1024.
    pub fn new(groups: [usize; 3], threads: u32) -> Self {
        let side = |n: usize| match u32::try_from(n) {
            Ok(n) if n > 0 => n,
            _ => panic!("a grid of {groups:?} threadgroups"),
        };
        assert!(
            threads > 0 && threads <= 1024 && threads.is_multiple_of(32),
            "a threadgroup of {threads} threads"
        );
        Self { groups: groups.map(side), threads }
    }
}

/// One entry of a command list.
#[derive(Clone, Debug)]
pub enum Command {
    /// Runs a kernel.
    Dispatch {
        /// Which.
        kernel: Kernel,
        /// One per `[[buffer(n)]]` pointer, in order.
        buffers: Vec<Slice>,
        /// Members of the params struct, as bits; bound after the last buffer.
        params: Vec<u32>,
        /// How many threads.
        grid: Grid,
    },
    /// Copies the bytes of `src` to `dst`; both have one length and do not overlap.
    Copy {
        /// From.
        src: Slice,
        /// To.
        dst: Slice,
    },
    /// Sets every byte of `dst` to zero.
    Zero {
        /// What.
        dst: Slice,
    },
    /// Everything before it is complete and visible before anything after it starts. Commands
    /// between two barriers may run in any order and at once.
    Barrier,
    /// Names what follows, for traces.
    Label(&'static str),
}

/// How much a command list asks of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Kernel launches, copies and fills.
    pub dispatches: usize,
    /// Points where the device must drain.
    pub barriers: usize,
}

/// A list of commands that puts barriers where one command needs the results of another.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    list: Vec<Command>,
    /// Bytes touched since the last barrier.
    open: Vec<Touched>,
}

#[derive(Clone, Debug)]
struct Touched {
    buffer: usize,
    range: Range<usize>,
    writes: bool,
}

impl Touched {
    fn new(slice: &Slice, writes: bool) -> Self {
        Self { buffer: slice.buffer.id(), range: slice.range(), writes }
    }

    fn conflicts(&self, other: &Self) -> bool {
        (self.writes || other.writes)
            && self.buffer == other.buffer
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

impl Commands {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// A list as it is written, with the barriers that it has: for tests of devices.
    #[doc(hidden)]
    pub fn from_list(list: Vec<Command>) -> Self {
        Self { list, open: Vec::new() }
    }

    /// Adds a kernel launch. `params` names every member of the kernel's params struct in order;
    /// floats are given by [`f32::to_bits`].
    ///
    /// # Panics
    /// If the buffers or parameters are not those of the kernel's signature.
    pub fn dispatch(
        &mut self,
        kernel: &Kernel,
        grid: Grid,
        buffers: &[Slice],
        params: &[(&str, u32)],
    ) {
        let signature = &kernel.signature;
        let accesses: Vec<Access> = signature.buffers().collect();
        assert_eq!(
            buffers.len(),
            accesses.len(),
            "kernel {} has {} buffers",
            kernel.entry,
            accesses.len()
        );
        let names: Vec<&str> = params.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, signature.params, "parameters of kernel {}", kernel.entry);
        debug_assert!(signature.args.iter().all(|arg| !matches!(arg.kind, ArgKind::Unknown)));

        let touched: Vec<Touched> = buffers
            .iter()
            .zip(&accesses)
            .map(|(slice, access)| Touched::new(slice, *access == Access::ReadWrite))
            .collect();
        self.push(
            touched,
            Command::Dispatch {
                kernel: kernel.clone(),
                buffers: buffers.to_vec(),
                params: params.iter().map(|(_, value)| *value).collect(),
                grid,
            },
        );
    }

    /// Adds a copy.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy(&mut self, src: Slice, dst: Slice) {
        assert_eq!(
            src.len,
            dst.len,
            "a copy between {} and {}",
            src.buffer.label(),
            dst.buffer.label()
        );
        let touched = vec![Touched::new(&src, false), Touched::new(&dst, true)];
        self.push(touched, Command::Copy { src, dst });
    }

    /// Adds a fill with zeros.
    pub fn zero(&mut self, dst: Slice) {
        self.push(vec![Touched::new(&dst, true)], Command::Zero { dst });
    }

    /// Names what follows.
    pub fn label(&mut self, name: &'static str) {
        self.list.push(Command::Label(name));
    }

    fn push(&mut self, touched: Vec<Touched>, command: Command) {
        let conflict = touched.iter().any(|new| self.open.iter().any(|old| old.conflicts(new)));
        if conflict {
            self.list.push(Command::Barrier);
            self.open.clear();
        }
        self.open.extend(touched);
        self.list.push(command);
    }

    /// The commands in order.
    pub fn iter(&self) -> impl Iterator<Item = &Command> {
        self.list.iter()
    }

    /// Launches and barriers.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for command in &self.list {
            match command {
                Command::Dispatch { .. } | Command::Copy { .. } | Command::Zero { .. } => {
                    counts.dispatches += 1;
                }
                Command::Barrier => counts.barriers += 1,
                Command::Label(_) => {}
            }
        }
        counts
    }
}
