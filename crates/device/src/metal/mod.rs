//! Apple GPUs.
//!
//! Type-checked, linted and linked on Linux; it has not run on a Mac yet. The kernels have, in the
//! simulator and on NVIDIA.
//!
//! One command buffer a list, with a concurrent encoder and barriers where [`crate::Commands`] put
//! them. Hazard tracking is left on: it orders encoders and command buffers, which barriers inside
//! an encoder do not, and there are only some hundred buffers to track.

mod encode;
mod memory;

use crate::metal_plan::{Language, MetalPlan, plan, tile_probe};
use crate::{
    Buffer, Command, Commands, Device, DeviceError, DeviceInfo, DeviceKind, HostBytes, Kernel,
    KernelSource, Program, Slice, Ticket, TileBody, source,
};
use memory::{MetalMemory, Residency};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSError, NSProcessInfo, NSString};
use objc2_metal::{
    MTLCommandBuffer, MTLCommandBufferStatus, MTLCommandQueue, MTLCompileOptions,
    MTLComputePipelineState, MTLCreateSystemDefaultDevice, MTLDevice, MTLLanguageVersion,
    MTLLibrary, MTLMathMode,
};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threadgroup memory that every Apple GPU has.
const THREADGROUP_BYTES_MAX: usize = 32 << 10;
/// Submissions whose duration is remembered.
const DURATIONS_KEPT: usize = 1024;

/// An Apple GPU.
#[derive(Debug)]
pub struct MetalDevice {
    info: DeviceInfo,
    plan: MetalPlan,
    device: Retained<ProtocolObject<dyn MTLDevice>>,
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    residency: Arc<Residency>,
    /// Compiled libraries by their text: the kernels of a file share one.
    libraries: Mutex<HashMap<String, Retained<ProtocolObject<dyn MTLLibrary>>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    submissions: u64,
    in_flight: VecDeque<(u64, CommandBuffer)>,
    durations: VecDeque<(u64, Duration)>,
    /// The first failure: whatever came after it computed on garbage.
    failed: Option<String>,
}

/// A committed command buffer.
#[derive(Debug)]
struct CommandBuffer {
    inner: Retained<ProtocolObject<dyn MTLCommandBuffer>>,
    label: &'static str,
}

// SAFETY: after its commit a command buffer is only waited for and asked for its status, which
// Metal allows from any thread.
unsafe impl Send for CommandBuffer {}

/// A kernel of this device.
#[derive(Debug)]
struct MetalKernel {
    pipeline: Retained<ProtocolObject<dyn MTLComputePipelineState>>,
    /// More registers than expected lower this below 1024.
    threads_max: usize,
}

fn driver(call: &'static str, reason: impl Into<String>) -> DeviceError {
    DeviceError::Driver { device: "metal", call, reason: reason.into() }
}

fn words(error: &NSError) -> String {
    error.localizedDescription().to_string()
}

impl MetalDevice {
    /// Opens the GPU of this Mac.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] without a GPU or on a system that is too old.
    pub fn new() -> Result<Self, DeviceError> {
        let device = MTLCreateSystemDefaultDevice().ok_or(DeviceError::Unavailable {
            device: "metal",
            reason: "there is no Metal device".to_owned(),
            remedy: "use --device cpu",
        })?;
        let version = NSProcessInfo::processInfo().operatingSystemVersion();
        let part = |n: isize| u32::try_from(n).unwrap_or(0);
        let macos = (part(version.majorVersion), part(version.minorVersion));
        let architecture = device.architecture().name().to_string();
        let plan = plan(macos, &architecture)?;
        let queue = device
            .newCommandQueue()
            .ok_or_else(|| driver("newCommandQueue", "no queue was returned"))?;
        let residency = Arc::new(Residency::new(&device, &queue, plan.residency_sets)?);
        let info = DeviceInfo {
            kind: DeviceKind::Metal,
            name: device.name().to_string(),
            version: format!(
                "{architecture}, macOS {}.{}, Metal {:?}",
                macos.0, macos.1, plan.language
            ),
            memory_bytes: device.recommendedMaxWorkingSetSize(),
            buffer_bytes_max: device.maxBufferLength() as u64,
            unified_memory: true,
            n_cores: 0,
            tile: TileBody::Simdgroup,
        };
        let (libraries, state) = (Mutex::default(), Mutex::default());
        let mut device = Self { info, plan, device, queue, residency, libraries, state };
        let probe = || device.kernel(&tile_probe()).map(drop).map_err(|error| error.to_string());
        let (tile, said) = device.plan.tile(probe);
        device.info.tile = tile;
        device.info.version.push_str(&said);
        Ok(device)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn library(
        &self,
        source: &KernelSource,
        text: &str,
    ) -> Result<Retained<ProtocolObject<dyn MTLLibrary>>, DeviceError> {
        let lock = || self.libraries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = lock().get(text) {
            return Ok(library.clone());
        }
        let options = MTLCompileOptions::new();
        options.setLanguageVersion(match self.plan.language {
            Language::V3_1 => MTLLanguageVersion::Version3_1,
            Language::V3_2 => MTLLanguageVersion::Version3_2,
            Language::V4_0 => MTLLanguageVersion::Version4_0,
        });
        // Infinities mark what is masked; fast maths may assume that there are none.
        if self.plan.language >= Language::V3_2 {
            options.setMathMode(MTLMathMode::Safe);
        } else {
            // macOS 14 has only the older switch.
            #[expect(deprecated, reason = "mathMode came with macOS 15")]
            options.setFastMathEnabled(false);
        }
        let library = self
            .device
            .newLibraryWithSource_options_error(&NSString::from_str(text), Some(&options))
            .map_err(|error| DeviceError::Compile {
                kernel: format!("{}.metal", source.file),
                target: self.info.version.clone(),
                log: words(&error),
            })?;
        lock().insert(text.to_owned(), library.clone());
        Ok(library)
    }

    /// Waits until everything up to `ticket` is complete.
    fn wait_for(&self, ticket: u64) -> Result<(), DeviceError> {
        let mut state = self.state();
        while let Some((number, buffer)) = state.in_flight.pop_front() {
            if number > ticket {
                state.in_flight.push_front((number, buffer));
                break;
            }
            buffer.inner.waitUntilCompleted();
            let seconds = buffer.inner.GPUEndTime() - buffer.inner.GPUStartTime();
            let duration = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            state.durations.push_back((number, duration));
            if state.durations.len() > DURATIONS_KEPT {
                state.durations.pop_front();
            }
            // An ignored status looks like stale output.
            if buffer.inner.status() != MTLCommandBufferStatus::Completed {
                let reason = buffer
                    .inner
                    .error()
                    .map_or_else(|| "it did not complete".to_owned(), |error| words(&error));
                state.failed.get_or_insert_with(|| format!("{}: {reason}", buffer.label));
            }
        }
        match &state.failed {
            None => Ok(()),
            Some(fault) => Err(DeviceError::Fault {
                kernel: "a command list".to_owned(),
                device: "metal",
                fault: fault.clone(),
            }),
        }
    }

    fn wait_for_all(&self) -> Result<(), DeviceError> {
        let submissions = self.state().submissions;
        self.wait_for(submissions)
    }
}

fn memory(slice: &Slice) -> Result<&MetalMemory, DeviceError> {
    slice
        .buffer
        .downcast::<MetalMemory>()
        .ok_or_else(|| driver("downcast", format!("{} is foreign memory", slice.buffer.label())))
}

impl Device for MetalDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, len_bytes: usize, label: &str) -> Result<Buffer, DeviceError> {
        let memory =
            MetalMemory::alloc(&self.device, &self.residency, &self.info, len_bytes, label)?;
        Ok(Buffer::new(Arc::new(memory)))
    }

    fn import(&self, bytes: &HostBytes, label: &str) -> Result<Buffer, DeviceError> {
        let memory = MetalMemory::import(&self.device, &self.residency, &self.info, bytes, label)?;
        Ok(Buffer::new(Arc::new(memory)))
    }

    fn kernel(&self, source: &KernelSource) -> Result<Kernel, DeviceError> {
        let file = format!("{}.metal", source.file);
        let text = source::expand(source, true)?;
        let found = source::kernels(&file, &text)?;
        let found =
            found.into_iter().find(|found| found.name == source.entry).ok_or_else(|| {
                DeviceError::Dialect {
                    file,
                    problem: format!("there is no kernel {}", source.entry),
                }
            })?;
        let compile = |log: String| DeviceError::Compile {
            kernel: format!("{}.{}", source.file, source.entry),
            target: self.info.version.clone(),
            log,
        };
        autoreleasepool(|_| {
            let library = self.library(source, &text)?;
            let function = library
                .newFunctionWithName(&NSString::from_str(source.entry))
                .ok_or_else(|| compile("the library has no such function".to_owned()))?;
            let pipeline = self
                .device
                .newComputePipelineStateWithFunction_error(&function)
                .map_err(|error| compile(words(&error)))?;
            let width = pipeline.threadExecutionWidth();
            if width != 32 {
                return Err(compile(format!("SIMD groups have {width} lanes instead of 32")));
            }
            let bytes = pipeline.staticThreadgroupMemoryLength();
            if bytes > THREADGROUP_BYTES_MAX {
                return Err(compile(format!("it needs {bytes} bytes of threadgroup memory")));
            }
            let threads_max = pipeline.maxTotalThreadsPerThreadgroup();
            let kernel = MetalKernel { pipeline, threads_max };
            Ok(Kernel::new(source.entry, Arc::new(found.signature), kernel))
        })
    }

    fn write(&self, dst: &Slice, bytes: &[u8]) -> Result<(), DeviceError> {
        // Shared memory must not be touched while a command buffer uses it.
        self.wait_for_all()?;
        memory(dst)?.write(dst, bytes);
        Ok(())
    }

    fn read(&self, src: &Slice, out: &mut [u8]) -> Result<(), DeviceError> {
        self.wait_for_all()?;
        memory(src)?.read(src, out);
        Ok(())
    }

    fn submit(&self, commands: &Commands) -> Result<Ticket, DeviceError> {
        autoreleasepool(|_| {
            let buffer = self
                .queue
                .commandBuffer()
                .ok_or_else(|| driver("commandBuffer", "none was left"))?;
            let label = commands.iter().find_map(|command| match command {
                Command::Label(label) => Some(*label),
                _ => None,
            });
            encode::encode(&buffer, commands)?;
            self.residency.commit();
            let mut state = self.state();
            buffer.commit();
            state.submissions += 1;
            let number = state.submissions;
            let label = label.unwrap_or("a command list");
            state.in_flight.push_back((number, CommandBuffer { inner: buffer, label }));
            Ok(Ticket(number))
        })
    }

    /// Command buffers cannot be replayed; encoding costs about 0.15 us a dispatch, some 40 us for
    /// a decode step of several milliseconds.
    fn prepare(&self, commands: Commands) -> Result<Program, DeviceError> {
        Ok(Program::new(commands))
    }

    fn replay(&self, program: &Program) -> Result<Ticket, DeviceError> {
        let commands = program
            .downcast::<Commands>()
            .ok_or_else(|| driver("replay", "the program is another device's"))?;
        self.submit(commands)
    }

    fn wait(&self, ticket: Ticket) -> Result<Duration, DeviceError> {
        self.wait_for(ticket.0)?;
        let state = self.state();
        let found = state.durations.iter().find(|(number, _)| *number >= ticket.0);
        Ok(found.map_or(Duration::ZERO, |(_, duration)| *duration))
    }
}
