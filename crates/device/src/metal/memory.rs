//! Buffers in unified memory.

use super::driver;
use crate::{DeviceError, DeviceInfo, HostBytes, Memory, Slice};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLAllocation, MTLBuffer, MTLCommandQueue, MTLDevice, MTLResidencySet,
    MTLResidencySetDescriptor, MTLResource, MTLResourceOptions,
};
use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Pages of Apple silicon.
const PAGE_BYTES: usize = 16 << 10;

/// What keeps buffers in memory while nobody uses them, and the account of their bytes.
#[derive(Debug)]
pub(super) struct Residency {
    set: Option<Mutex<Set>>,
    used_bytes: AtomicU64,
}

#[derive(Debug)]
struct Set {
    inner: Retained<ProtocolObject<dyn MTLResidencySet>>,
    changed: bool,
}

// SAFETY: the set is only touched under the lock around it.
unsafe impl Send for Set {}

impl Residency {
    pub(super) fn new(
        device: &ProtocolObject<dyn MTLDevice>,
        queue: &ProtocolObject<dyn MTLCommandQueue>,
        wanted: bool,
    ) -> Result<Self, DeviceError> {
        let used_bytes = AtomicU64::new(0);
        if !wanted {
            return Ok(Self { set: None, used_bytes });
        }
        let descriptor = MTLResidencySetDescriptor::new();
        descriptor.setLabel(Some(&NSString::from_str("lily")));
        let inner = device
            .newResidencySetWithDescriptor_error(&descriptor)
            .map_err(|error| driver("newResidencySet", super::words(&error)))?;
        queue.addResidencySet(&inner);
        inner.requestResidency();
        Ok(Self { set: Some(Mutex::new(Set { inner, changed: false })), used_bytes })
    }

    fn change(&self, change: impl FnOnce(&ProtocolObject<dyn MTLResidencySet>)) {
        if let Some(set) = &self.set {
            let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
            change(&set.inner);
            set.changed = true;
        }
    }

    /// Before a command buffer is committed: residency is fixed at that moment.
    pub(super) fn commit(&self) {
        if let Some(set) = &self.set {
            let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
            if set.changed {
                set.inner.commit();
                set.changed = false;
            }
        }
    }
}

/// A buffer, and what it was imported from.
#[derive(Debug)]
pub(super) struct MetalMemory {
    buffer: Retained<ProtocolObject<dyn MTLBuffer>>,
    len_bytes: usize,
    label: String,
    residency: Arc<Residency>,
    /// Keeps the pages of a buffer without a copy.
    _host: Option<HostBytes>,
}

// SAFETY: Metal's buffers may be used from any thread; their contents are only touched by write and
// read, which wait for the device before.
unsafe impl Send for MetalMemory {}
// SAFETY: as above.
unsafe impl Sync for MetalMemory {}

impl MetalMemory {
    pub(super) fn alloc(
        device: &ProtocolObject<dyn MTLDevice>,
        residency: &Arc<Residency>,
        info: &DeviceInfo,
        len_bytes: usize,
        label: &str,
    ) -> Result<Self, DeviceError> {
        let len = len_bytes.max(1).next_multiple_of(16);
        check_room(residency, info, len, label)?;
        let buffer = device
            .newBufferWithLength_options(len, MTLResourceOptions::StorageModeShared)
            .ok_or_else(|| out_of_memory(residency, info, len, label))?;
        Ok(Self::keep(buffer, len_bytes, label, residency, None))
    }

    pub(super) fn import(
        device: &ProtocolObject<dyn MTLDevice>,
        residency: &Arc<Residency>,
        info: &DeviceInfo,
        bytes: &HostBytes,
        label: &str,
    ) -> Result<Self, DeviceError> {
        let slice = bytes.as_slice();
        // A mapping of a file ends with its last page, not with its last byte.
        let len = slice.len().next_multiple_of(PAGE_BYTES);
        let fits = len as u64 <= info.buffer_bytes_max;
        let pointer = NonNull::from(slice).cast::<c_void>();
        if !pointer.addr().get().is_multiple_of(PAGE_BYTES) || slice.is_empty() || !fits {
            let memory = Self::alloc(device, residency, info, slice.len(), label)?;
            let from = NonNull::from(slice).cast::<u8>();
            // SAFETY: the buffer was made with at least this length and nobody uses it yet.
            unsafe { memory.contents().copy_from_nonoverlapping(from, slice.len()) };
            return Ok(memory);
        }
        check_room(residency, info, len, label)?;
        // SAFETY: the pages are mapped up to `len`, are only read by kernels (an imported slice is
        // bound to const arguments), and live as long as the buffer, which keeps their owner.
        let buffer = unsafe {
            device.newBufferWithBytesNoCopy_length_options_deallocator(
                pointer,
                len,
                MTLResourceOptions::StorageModeShared,
                None,
            )
        };
        let buffer = buffer.ok_or_else(|| out_of_memory(residency, info, len, label))?;
        Ok(Self::keep(buffer, slice.len(), label, residency, Some(bytes.clone())))
    }

    fn keep(
        buffer: Retained<ProtocolObject<dyn MTLBuffer>>,
        len_bytes: usize,
        label: &str,
        residency: &Arc<Residency>,
        host: Option<HostBytes>,
    ) -> Self {
        buffer.setLabel(Some(&NSString::from_str(label)));
        residency.used_bytes.fetch_add(buffer.length() as u64, Ordering::Relaxed);
        residency.change(|set| set.addAllocation(allocation(&buffer)));
        let residency = Arc::clone(residency);
        Self { buffer, len_bytes, label: label.to_owned(), residency, _host: host }
    }

    pub(super) fn buffer(&self) -> &ProtocolObject<dyn MTLBuffer> {
        &self.buffer
    }

    fn contents(&self) -> NonNull<u8> {
        self.buffer.contents().cast()
    }

    pub(super) fn write(&self, dst: &Slice, bytes: &[u8]) {
        assert!(bytes.len() <= dst.len, "{} bytes do not fit {}", bytes.len(), self.label);
        // SAFETY: slices lie inside their buffer.
        let to = unsafe { self.contents().add(dst.offset) };
        // SAFETY: the length was checked, and the device is idle.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    pub(super) fn read(&self, src: &Slice, out: &mut [u8]) {
        assert!(out.len() <= src.len, "{} has no {} bytes", self.label, out.len());
        // SAFETY: slices lie inside their buffer.
        let from = unsafe { self.contents().add(src.offset) };
        let len = out.len();
        // SAFETY: the length was checked, and the device is idle.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(out).cast(), len) };
    }
}

fn allocation(buffer: &ProtocolObject<dyn MTLBuffer>) -> &ProtocolObject<dyn MTLAllocation> {
    ProtocolObject::from_ref(buffer)
}

fn out_of_memory(
    residency: &Residency,
    info: &DeviceInfo,
    bytes: usize,
    label: &str,
) -> DeviceError {
    let used = residency.used_bytes.load(Ordering::Relaxed);
    DeviceError::OutOfMemory {
        label: label.to_owned(),
        bytes: bytes as u64,
        available: info.memory_bytes.saturating_sub(used).min(info.buffer_bytes_max),
        total: info.memory_bytes,
    }
}

fn check_room(
    residency: &Residency,
    info: &DeviceInfo,
    bytes: usize,
    label: &str,
) -> Result<(), DeviceError> {
    let used = residency.used_bytes.load(Ordering::Relaxed);
    let available = info.memory_bytes.saturating_sub(used).min(info.buffer_bytes_max);
    if bytes as u64 > available {
        return Err(out_of_memory(residency, info, bytes, label));
    }
    Ok(())
}

impl Drop for MetalMemory {
    fn drop(&mut self) {
        self.residency.used_bytes.fetch_sub(self.buffer.length() as u64, Ordering::Relaxed);
        self.residency.change(|set| set.removeAllocation(allocation(&self.buffer)));
    }
}

impl Memory for MetalMemory {
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
