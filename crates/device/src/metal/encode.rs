//! A command list as Metal's encoders take it.

use super::memory::MetalMemory;
use super::{MetalKernel, driver};
use crate::{Command, Commands, DeviceError, Grid, Kernel, Slice};
use objc2::Message;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSRange, NSString};
use objc2_metal::{
    MTLBarrierScope, MTLBlitCommandEncoder, MTLCommandBuffer, MTLCommandEncoder,
    MTLComputeCommandEncoder, MTLDispatchType, MTLSize,
};
use std::ptr::NonNull;

/// Metal binds buffers at these.
const OFFSET_ALIGNMENT: usize = 4;

/// An encoder that is ended even if encoding fails: releasing one that was not ended aborts the
/// program.
struct Open<T: MTLCommandEncoder + Message>(Retained<T>);

impl<T: MTLCommandEncoder + Message> Drop for Open<T> {
    fn drop(&mut self) {
        self.0.endEncoding();
    }
}

type Compute = Open<ProtocolObject<dyn MTLComputeCommandEncoder>>;
type Blit = Open<ProtocolObject<dyn MTLBlitCommandEncoder>>;

enum Encoder {
    None,
    Compute(Compute),
    Blit(Blit),
}

pub(super) fn encode(
    buffer: &ProtocolObject<dyn MTLCommandBuffer>,
    commands: &Commands,
) -> Result<(), DeviceError> {
    let mut encoder = Encoder::None;
    for command in commands.iter() {
        match command {
            Command::Dispatch { kernel, buffers, params, grid } => {
                let compute = compute(buffer, &mut encoder)?;
                dispatch(&compute.0, kernel, buffers, params, *grid)?;
            }
            Command::Copy { src, dst } => {
                let blit = blit(buffer, &mut encoder)?;
                let (from, to) = (memory(src)?.buffer(), memory(dst)?.buffer());
                // SAFETY: slices lie inside their buffers, and both have one length.
                unsafe {
                    blit.0.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                        from, src.offset, to, dst.offset, src.len,
                    );
                }
            }
            Command::Zero { dst } => {
                let blit = blit(buffer, &mut encoder)?;
                let range = NSRange::new(dst.offset, dst.len);
                blit.0.fillBuffer_range_value(memory(dst)?.buffer(), range, 0);
            }
            // Encoders order each other; inside one, only this does.
            Command::Barrier => {
                if let Encoder::Compute(compute) = &encoder {
                    compute.0.memoryBarrierWithScope(MTLBarrierScope::Buffers);
                }
            }
            Command::Label(label) => {
                if let Encoder::Compute(compute) = &encoder {
                    compute.0.insertDebugSignpost(&NSString::from_str(label));
                }
            }
        }
    }
    Ok(())
}

fn compute<'a>(
    buffer: &ProtocolObject<dyn MTLCommandBuffer>,
    encoder: &'a mut Encoder,
) -> Result<&'a Compute, DeviceError> {
    if !matches!(encoder, Encoder::Compute(_)) {
        // The other one has to end before this one begins.
        *encoder = Encoder::None;
        let compute = buffer
            .computeCommandEncoderWithDispatchType(MTLDispatchType::Concurrent)
            .ok_or_else(|| driver("computeCommandEncoder", "none was returned"))?;
        *encoder = Encoder::Compute(Open(compute));
    }
    match encoder {
        Encoder::Compute(compute) => Ok(compute),
        _ => unreachable!("it was just opened"),
    }
}

fn blit<'a>(
    buffer: &ProtocolObject<dyn MTLCommandBuffer>,
    encoder: &'a mut Encoder,
) -> Result<&'a Blit, DeviceError> {
    if !matches!(encoder, Encoder::Blit(_)) {
        *encoder = Encoder::None;
        let blit = buffer
            .blitCommandEncoder()
            .ok_or_else(|| driver("blitCommandEncoder", "none was returned"))?;
        *encoder = Encoder::Blit(Open(blit));
    }
    match encoder {
        Encoder::Blit(blit) => Ok(blit),
        _ => unreachable!("it was just opened"),
    }
}

fn memory(slice: &Slice) -> Result<&MetalMemory, DeviceError> {
    slice
        .buffer
        .downcast::<MetalMemory>()
        .ok_or_else(|| driver("setBuffer", format!("{} is foreign memory", slice.buffer.label())))
}

fn dispatch(
    encoder: &ProtocolObject<dyn MTLComputeCommandEncoder>,
    kernel: &Kernel,
    buffers: &[Slice],
    params: &[u32],
    grid: Grid,
) -> Result<(), DeviceError> {
    let compiled = kernel
        .downcast::<MetalKernel>()
        .ok_or_else(|| driver("setComputePipelineState", "the kernel is another device's"))?;
    let fault = |fault: String| DeviceError::Fault {
        kernel: kernel.entry.to_owned(),
        device: "metal",
        fault,
    };
    let threads = grid.threads as usize;
    if threads > compiled.threads_max {
        let most = compiled.threads_max;
        return Err(fault(format!("{threads} threads, but its registers allow {most}")));
    }
    encoder.setComputePipelineState(&compiled.pipeline);
    for (index, slice) in buffers.iter().enumerate() {
        if !slice.offset.is_multiple_of(OFFSET_ALIGNMENT) {
            let label = slice.buffer.label();
            return Err(fault(format!("{label} is bound at byte {}", slice.offset)));
        }
        let buffer = memory(slice)?.buffer();
        // SAFETY: the index is one of the kernel's signature, and the slice lies in the buffer.
        unsafe { encoder.setBuffer_offset_atIndex(Some(buffer), slice.offset, index) };
    }
    if !params.is_empty() {
        let bytes = NonNull::from(params).cast();
        // SAFETY: the words are copied; the kernel's struct has exactly these members.
        unsafe { encoder.setBytes_length_atIndex(bytes, params.len() * 4, buffers.len()) };
    }
    let [width, height, depth] = grid.groups.map(|n| n as usize);
    encoder.dispatchThreadgroups_threadsPerThreadgroup(
        MTLSize { width, height, depth },
        MTLSize { width: threads, height: 1, depth: 1 },
    );
    Ok(())
}
