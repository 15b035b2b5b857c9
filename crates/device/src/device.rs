//! The boundary between forward passes and machines.

use crate::{Buffer, Commands, DeviceError, HostBytes, Kernel, KernelSource, Slice};
use std::any::Any;
use std::fmt::Debug;
use std::time::Duration;

/// One GPU, or the simulator.
///
/// Everything that is submitted runs in the order of submission.
pub trait Device: Debug + Send + Sync {
    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// Memory of `len_bytes`, at least 1, aligned to at least 256 bytes. Its contents are
    /// undefined; the simulator fills it with a signalling pattern and knows that it is undefined.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], before anything was allocated.
    fn alloc(&self, len_bytes: usize, label: &str) -> Result<Buffer, DeviceError>;

    /// Read-only memory with the contents of `bytes`: the same pages where memory is unified and
    /// `bytes` are page-aligned, a copy elsewhere.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    fn import(&self, bytes: &HostBytes, label: &str) -> Result<Buffer, DeviceError>;

    /// Compiles a kernel, or takes it from the cache.
    ///
    /// # Errors
    /// [`DeviceError::Compile`], [`DeviceError::Dialect`].
    fn kernel(&self, source: &KernelSource) -> Result<Kernel, DeviceError>;

    /// Copies `bytes` to the start of `dst`, after what was submitted before.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn write(&self, dst: &Slice, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Copies the start of `src` to `out`, after waiting for everything submitted before.
    ///
    /// # Errors
    /// [`DeviceError::Fault`] if something submitted before failed.
    fn read(&self, src: &Slice, out: &mut [u8]) -> Result<(), DeviceError>;

    /// Runs a command list once.
    ///
    /// # Errors
    /// [`DeviceError::Driver`]; faults of the kernels may only show in [`Device::wait`].
    fn submit(&self, commands: &Commands) -> Result<Ticket, DeviceError>;

    /// Makes a command list cheap to submit many times: a CUDA graph; elsewhere the list itself.
    ///
    /// # Errors
    /// [`DeviceError::Driver`].
    fn prepare(&self, commands: Commands) -> Result<Program, DeviceError>;

    /// Runs a prepared list.
    ///
    /// # Errors
    /// As [`Device::submit`].
    fn replay(&self, program: &Program) -> Result<Ticket, DeviceError>;

    /// Waits for a submission and everything before it; returns the time it took on the device,
    /// where the device can tell, else the time from submission to completion.
    ///
    /// # Errors
    /// [`DeviceError::Fault`] if it failed.
    fn wait(&self, ticket: Ticket) -> Result<Duration, DeviceError>;
}

/// Number of a submission, counted from 1 per device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A prepared command list.
#[derive(Debug)]
pub struct Program {
    inner: Box<dyn Prepared>,
}

trait Prepared: Any + Debug + Send + Sync {}
impl<T: Any + Debug + Send + Sync> Prepared for T {}

impl Program {
    /// Wraps what a device prepared.
    pub fn new(inner: impl Any + Debug + Send + Sync) -> Self {
        Self { inner: Box::new(inner) }
    }

    /// The device's own type; `None` for a program of another device.
    pub fn downcast<T: 'static>(&self) -> Option<&T> {
        let inner: &dyn Any = &*self.inner;
        inner.downcast_ref()
    }
}

/// The kinds of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// Apple silicon.
    Metal,
    /// NVIDIA.
    Cuda,
    /// The kernels as C++ on the CPU, with every access checked.
    Sim,
}

impl DeviceKind {
    /// As in `--device`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metal => "metal",
            Self::Cuda => "cuda",
            Self::Sim => "sim",
        }
    }
}

/// Which hardware multiplies tiles; see `kernels/tile.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileBody {
    /// `simdgroup_matrix`, 8 x 8: M1 to M4.
    Simdgroup,
    /// Metal 4 tensor operations: M5 and later, macOS 26.
    Tensor,
    /// `mma.sync`: NVIDIA, compute capability 8.0 and later.
    Mma,
}

impl TileBody {
    /// The value of `LILY_TILE` in the kernels.
    pub fn define(self) -> &'static str {
        match self {
            Self::Simdgroup => "1",
            Self::Tensor => "2",
            Self::Mma => "3",
        }
    }
}

/// What a device is.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Metal, CUDA or simulator.
    pub kind: DeviceKind,
    /// As the driver calls it.
    pub name: String,
    /// Architecture and driver or OS: `sm_90`, `macOS 15.1`.
    pub version: String,
    /// Memory that Lily may use.
    pub memory_bytes: u64,
    /// The largest single buffer.
    pub buffer_bytes_max: u64,
    /// Whether [`Device::import`] shares the pages of the host.
    pub unified_memory: bool,
    /// Cores or multiprocessors, 0 if unknown.
    pub n_cores: u32,
    /// How tiles are multiplied.
    pub tile: TileBody,
}
