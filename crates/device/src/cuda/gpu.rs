//! One GPU: its context, its one stream, and its memory.

use super::driver::{Driver, Failure, Opaque, unavailable};
use super::pool::Pool;
use crate::{DeviceError, Memory};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// Left alone by every allocation: the driver takes memory of its own for local arrays of kernels,
/// graphs and modules, and fails in odd places when there is none.
const MARGIN_BYTES: usize = 256 << 20;

/// Allocations up to this size share chunks: the driver hands out 2 MiB at least, which would waste
/// half of the memory of small tensors.
const POOLED_BYTES_MAX: usize = 8 << 20;
const CHUNK_BYTES: usize = 64 << 20;

/// Granularity of the driver's own allocations.
const DRIVER_PAGE_BYTES: usize = 2 << 20;

// Values of `CUdevice_attribute`.
const MULTIPROCESSORS: i32 = 16;
const CAPABILITY_MAJOR: i32 = 75;
const CAPABILITY_MINOR: i32 = 76;

/// A GPU. Everything that lives on it keeps it.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) driver: Driver,
    device: i32,
    context: Opaque,
    /// All work is on this stream, and so in the order of submission.
    pub(super) stream: Opaque,
    pool: Mutex<Pool>,
}

/// What is worth knowing about a GPU.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) name: String,
    /// 90 for compute capability 9.0.
    pub(super) capability: i32,
    /// 13000 for CUDA 13.0.
    pub(super) driver_version: i32,
    pub(super) n_cores: u32,
    /// Free now, less the margin.
    pub(super) memory_bytes: u64,
}

impl Gpu {
    pub(super) fn open(ordinal: u32) -> Result<(Arc<Self>, Facts), DeviceError> {
        let driver = Driver::load()?;
        let count = driver.device_count()?;
        let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
        if ordinal >= count {
            return Err(unavailable(
                format!("there is no GPU {ordinal}; the driver shows {count}"),
                "choose another GPU, or check CUDA_VISIBLE_DEVICES",
            ));
        }
        let device = driver.device(ordinal)?;
        let capability = 10 * driver.device_attribute(device, CAPABILITY_MAJOR)?
            + driver.device_attribute(device, CAPABILITY_MINOR)?;
        let name = driver.device_name(device)?;
        if capability < 80 {
            return Err(unavailable(
                format!("{name} has compute capability {}.{}", capability / 10, capability % 10),
                "a GPU of compute capability 8.0 or later is needed: Ampere, 2020, or newer",
            ));
        }
        let n_cores = u32::try_from(driver.device_attribute(device, MULTIPROCESSORS)?).unwrap_or(0);
        let driver_version = driver.version()?;
        let context = driver.context_retain(device)?;
        driver.context_set(context)?;
        let stream = driver.stream_create()?;
        let gpu = Self { driver, device, context, stream, pool: Mutex::default() };
        let (free, _) = gpu.driver.memory_info()?;
        let memory_bytes = free.saturating_sub(MARGIN_BYTES) as u64;
        let facts = Facts { name, capability, driver_version, n_cores, memory_bytes };
        Ok((Arc::new(gpu), facts))
    }

    /// Makes the GPU that of the calling thread. Every path into the driver begins with it.
    pub(super) fn bind(&self) -> Result<(), Failure> {
        self.driver.context_set(self.context)
    }

    pub(super) fn alloc(
        self: &Arc<Self>,
        len_bytes: usize,
        label: &str,
    ) -> Result<CudaMemory, DeviceError> {
        assert!(len_bytes > 0, "a buffer of 0 bytes for {label}");
        self.bind()?;
        let (address, is_pooled) = match self.take_from_pool(len_bytes)? {
            Some(address) => (address, true),
            None => (self.alloc_pages(len_bytes, label)?, false),
        };
        let label = label.to_owned();
        Ok(CudaMemory { gpu: Arc::clone(self), address, len_bytes, label, is_pooled })
    }

    fn take_from_pool(&self, len_bytes: usize) -> Result<Option<u64>, DeviceError> {
        if len_bytes > POOLED_BYTES_MAX {
            return Ok(None);
        }
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = pool.take(len_bytes) {
            return Ok(Some(address));
        }
        match self.alloc_pages(CHUNK_BYTES, "a chunk of small buffers") {
            Ok(base) => pool.add(base, CHUNK_BYTES),
            // There may still be room for this one alone.
            Err(DeviceError::OutOfMemory { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok(pool.take(len_bytes))
    }

    fn alloc_pages(&self, len_bytes: usize, label: &str) -> Result<u64, DeviceError> {
        let (free, total) = self.driver.memory_info()?;
        let available = free.saturating_sub(MARGIN_BYTES);
        let out_of_memory = |available: usize| DeviceError::OutOfMemory {
            label: label.to_owned(),
            bytes: len_bytes as u64,
            available: available as u64,
            total: total as u64,
        };
        let taken = len_bytes.checked_next_multiple_of(DRIVER_PAGE_BYTES);
        if taken.is_none_or(|taken| taken > available) {
            return Err(out_of_memory(available));
        }
        self.driver.memory_alloc(len_bytes).map_err(|failure| {
            if failure.is_out_of_memory() {
                // Somebody else was faster, or no range is large enough.
                let free = self.driver.memory_info().map_or(0, |(free, _)| free);
                out_of_memory(free.saturating_sub(MARGIN_BYTES))
            } else {
                failure.into()
            }
        })
    }

    /// Work that was submitted may still use the memory. In the pool this does no harm: whoever
    /// gets it next uses it on the same stream, and so later.
    fn free(&self, address: u64, len_bytes: usize, is_pooled: bool) -> Result<(), Failure> {
        let address = if is_pooled {
            let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
            match pool.give(address, len_bytes) {
                Some(chunk) => chunk,
                None => return Ok(()),
            }
        } else {
            address
        };
        self.bind()?;
        self.driver.stream_wait(self.stream)?;
        self.driver.memory_free(address)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Errors can only repeat what the last call said: nobody is left to tell.
        let _ = self.bind();
        let _ = self.driver.stream_wait(self.stream);
        let pool = self.pool.get_mut().unwrap_or_else(PoisonError::into_inner);
        for base in pool.chunks() {
            let _ = self.driver.memory_free(base);
        }
        let _ = self.driver.stream_destroy(self.stream);
        let _ = self.driver.context_release(self.device);
    }
}

/// Memory of a GPU.
#[derive(Debug)]
pub(super) struct CudaMemory {
    gpu: Arc<Gpu>,
    pub(super) address: u64,
    len_bytes: usize,
    label: String,
    is_pooled: bool,
}

impl Memory for CudaMemory {
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        // A lost context takes its memory with it.
        let _ = self.gpu.free(self.address, self.len_bytes, self.is_pooled);
    }
}
