//! The functions of libcuda that Lily needs, loaded at run time.
//!
//! Written by hand rather than taken from a binding crate: these are forty functions whose binary
//! interface NVIDIA keeps from CUDA 11 on, and their absence must be an error with a remedy, not a
//! failed start. Handles are plain numbers here; the types that own them are in `gpu.rs`,
//! `staging.rs`, `queue.rs` and `modules.rs`, and each gives its own back exactly once.

use crate::DeviceError;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt::Debug;
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};

/// Declares a table of C functions and the code that fills it from a library.
macro_rules! functions {
    ($table:ident { $($field:ident = $symbol:literal ($($ty:ty),* $(,)?);)* }) => {
        pub(super) struct $table {
            $($field: unsafe extern "system" fn($($ty),*) -> std::ffi::c_int,)*
        }

        impl $table {
            fn load(
                library: &libloading::Library,
            ) -> std::result::Result<Self, libloading::Error> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the type is that of NVIDIA's header for this symbol.
                        let symbol = unsafe { library.get($symbol) }?;
                        *symbol
                    },)*
                })
            }
        }
    };
}
pub(super) use functions;

type Handle = *mut c_void;

functions! { Functions {
    init = "cuInit"(c_uint);
    driver_version = "cuDriverGetVersion"(*mut c_int);
    error_name = "cuGetErrorName"(c_int, *mut *const c_char);
    error_string = "cuGetErrorString"(c_int, *mut *const c_char);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device = "cuDeviceGet"(*mut c_int, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    context_retain = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2"(c_int);
    context_set = "cuCtxSetCurrent"(Handle);
    memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    memory_alloc = "cuMemAlloc_v2"(*mut u64, usize);
    memory_free = "cuMemFree_v2"(u64);
    host_alloc = "cuMemHostAlloc"(*mut Handle, usize, c_uint);
    host_free = "cuMemFreeHost"(Handle);
    copy_to_device = "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, Handle);
    copy_to_host = "cuMemcpyDtoHAsync_v2"(Handle, u64, usize, Handle);
    copy_on_device = "cuMemcpyDtoDAsync_v2"(u64, u64, usize, Handle);
    fill = "cuMemsetD8Async"(u64, u8, usize, Handle);
    stream_create = "cuStreamCreate"(*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2"(Handle);
    stream_wait = "cuStreamSynchronize"(Handle);
    capture_begin = "cuStreamBeginCapture_v2"(Handle, c_uint);
    capture_end = "cuStreamEndCapture"(Handle, *mut Handle);
    graph_destroy = "cuGraphDestroy"(Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags"(*mut Handle, Handle, u64);
    graph_launch = "cuGraphLaunch"(Handle, Handle);
    graph_exec_destroy = "cuGraphExecDestroy"(Handle);
    event_create = "cuEventCreate"(*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2"(Handle);
    event_record = "cuEventRecord"(Handle, Handle);
    event_wait = "cuEventSynchronize"(Handle);
    event_elapsed = "cuEventElapsedTime"(*mut f32, Handle, Handle);
    module_load = "cuModuleLoadData"(*mut Handle, *const c_void);
    module_unload = "cuModuleUnload"(Handle);
    module_function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
    function_attribute = "cuFuncGetAttribute"(*mut c_int, c_int, Handle);
    launch = "cuLaunchKernel"(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle,
        *mut *mut c_void, *mut *mut c_void,
    );
}}

/// A call that failed.
#[derive(Debug)]
pub(super) struct Failure {
    call: &'static str,
    code: c_int,
    reason: String,
}

/// `CUresult` values that mean that a kernel went wrong; the context is lost then.
const FAULTS: &[c_int] = &[214, 700, 702, 710, 714, 715, 716, 717, 718, 719];
const OUT_OF_MEMORY: c_int = 2;
const OUT_OF_RESOURCES: c_int = 701;

impl Failure {
    pub(super) fn is_out_of_memory(&self) -> bool {
        self.code == OUT_OF_MEMORY
    }

    /// The error when `kernel` is, or may be, what was running.
    pub(super) fn during(self, kernel: &str) -> DeviceError {
        if FAULTS.contains(&self.code) {
            DeviceError::Fault { kernel: kernel.to_owned(), device: "cuda", fault: self.reason }
        } else {
            DeviceError::Driver { device: "cuda", call: self.call, reason: self.reason }
        }
    }

    /// The error when the launch of `kernel` was refused.
    pub(super) fn at_launch(self, kernel: &str) -> DeviceError {
        let fault = match self.code {
            OUT_OF_RESOURCES => format!(
                "{}: it uses too many registers for its threads; define LILY_THREADS",
                self.reason
            ),
            code if FAULTS.contains(&code) => format!("{}, in it or before it", self.reason),
            _ => self.reason,
        };
        DeviceError::Fault { kernel: kernel.to_owned(), device: "cuda", fault }
    }
}

impl From<Failure> for DeviceError {
    fn from(failure: Failure) -> Self {
        failure.during("(submitted before)")
    }
}

type Result<T> = std::result::Result<T, Failure>;

/// A handle of the driver. As a number it may go to any thread, as CUDA allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opaque(usize);

impl Opaque {
    fn raw(self) -> Handle {
        std::ptr::with_exposed_provenance_mut(self.0)
    }

    fn new(raw: Handle) -> Self {
        Self(raw.expose_provenance())
    }
}

/// libcuda. It is never unloaded: the driver does not support that.
pub(super) struct Driver {
    f: Functions,
    _library: ManuallyDrop<Library>,
}

impl Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driver")
    }
}

/// The driver's name or description of an error code.
fn words(
    function: unsafe extern "system" fn(c_int, *mut *const c_char) -> c_int,
    code: c_int,
) -> String {
    let mut text = std::ptr::null();
    // SAFETY: `text` may be written.
    let known = unsafe { function(code, &raw mut text) };
    if known != 0 || text.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: the driver returns static strings that end in NUL.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

const REMEDY: &str = "install NVIDIA's driver 525 or newer, or use --device cpu";

/// That CUDA cannot be used, and what would help.
pub(super) fn unavailable(reason: impl Into<String>, remedy: &'static str) -> DeviceError {
    DeviceError::Unavailable { device: "cuda", reason: reason.into(), remedy }
}

impl Driver {
    /// Loads and initialises the driver.
    pub(super) fn load() -> std::result::Result<Self, DeviceError> {
        const NAMES: &[&str] = if cfg!(windows) {
            &["nvcuda.dll"]
        } else {
            // The loader's own paths, then those of containers, WSL and NixOS.
            &[
                "libcuda.so.1",
                "libcuda.so",
                "/usr/local/nvidia/lib64/libcuda.so.1",
                "/usr/lib/wsl/lib/libcuda.so.1",
                "/run/opengl-driver/lib/libcuda.so.1",
            ]
        };
        let library = NAMES
            .iter()
            .find_map(|name| {
                // SAFETY: the initialisers of NVIDIA's driver library have no preconditions.
                unsafe { Library::new(*name) }.ok()
            })
            .ok_or_else(|| unavailable(format!("{} was not found", NAMES[0]), REMEDY))?;
        let f = Functions::load(&library)
            .map_err(|error| unavailable(format!("the driver is too old: {error}"), REMEDY))?;
        let driver = Self { f, _library: ManuallyDrop::new(library) };
        // SAFETY: takes flags, which must be 0.
        let code = unsafe { (driver.f.init)(0) };
        driver.check("cuInit", code).map_err(|failure| unavailable(failure.reason, REMEDY))?;
        Ok(driver)
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let name = words(self.f.error_name, code);
        let text = words(self.f.error_string, code);
        Err(Failure { call, code, reason: format!("{text} ({name}, {code})") })
    }

    /// 13000 for CUDA 13.0.
    pub(super) fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: `version` may be written.
        let code = unsafe { (self.f.driver_version)(&raw mut version) };
        self.check("cuDriverGetVersion", code).map(|()| version)
    }

    pub(super) fn device_count(&self) -> Result<i32> {
        let mut count = 0;
        // SAFETY: `count` may be written.
        let code = unsafe { (self.f.device_count)(&raw mut count) };
        self.check("cuDeviceGetCount", code).map(|()| count)
    }

    pub(super) fn device(&self, ordinal: i32) -> Result<i32> {
        let mut device = 0;
        // SAFETY: `device` may be written.
        let code = unsafe { (self.f.device)(&raw mut device, ordinal) };
        self.check("cuDeviceGet", code).map(|()| device)
    }

    pub(super) fn device_name(&self, device: i32) -> Result<String> {
        const LEN: u8 = 255;
        let mut name = [0u8; LEN as usize];
        // SAFETY: `name` has the length that is given; the driver ends it with NUL.
        let code = unsafe { (self.f.device_name)(name.as_mut_ptr().cast(), LEN.into(), device) };
        self.check("cuDeviceGetName", code)?;
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    pub(super) fn device_attribute(&self, device: i32, attribute: i32) -> Result<i32> {
        let mut value = 0;
        // SAFETY: `value` may be written.
        let code = unsafe { (self.f.device_attribute)(&raw mut value, attribute, device) };
        self.check("cuDeviceGetAttribute", code).map(|()| value)
    }

    pub(super) fn context_retain(&self, device: i32) -> Result<Opaque> {
        let mut context = null_mut();
        // SAFETY: `context` may be written.
        let code = unsafe { (self.f.context_retain)(&raw mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", code).map(|()| Opaque::new(context))
    }

    pub(super) fn context_release(&self, device: i32) -> Result<()> {
        // SAFETY: called once for each retain.
        let code = unsafe { (self.f.context_release)(device) };
        self.check("cuDevicePrimaryCtxRelease", code)
    }

    /// Makes the context that of the calling thread; everything below needs it.
    pub(super) fn context_set(&self, context: Opaque) -> Result<()> {
        // SAFETY: the context is retained for as long as its owner lives.
        let code = unsafe { (self.f.context_set)(context.raw()) };
        self.check("cuCtxSetCurrent", code)
    }

    /// Free and total bytes.
    pub(super) fn memory_info(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both may be written.
        let code = unsafe { (self.f.memory_info)(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo", code).map(|()| (free, total))
    }

    pub(super) fn memory_alloc(&self, len: usize) -> Result<u64> {
        let mut address = 0;
        // SAFETY: `address` may be written.
        let code = unsafe { (self.f.memory_alloc)(&raw mut address, len) };
        self.check("cuMemAlloc", code).map(|()| address)
    }

    pub(super) fn memory_free(&self, address: u64) -> Result<()> {
        // SAFETY: the owner of the address frees it once, after all work on it.
        let code = unsafe { (self.f.memory_free)(address) };
        self.check("cuMemFree", code)
    }

    /// Page-locked memory of the host.
    pub(super) fn host_alloc(&self, len: usize) -> Result<NonNull<u8>> {
        let mut address = null_mut();
        // SAFETY: `address` may be written; no flags.
        let code = unsafe { (self.f.host_alloc)(&raw mut address, len, 0) };
        self.check("cuMemHostAlloc", code)?;
        Ok(NonNull::new(address.cast()).expect("a successful allocation has an address"))
    }

    pub(super) fn host_free(&self, address: NonNull<u8>) -> Result<()> {
        // SAFETY: the owner frees it once, after all copies from and to it.
        let code = unsafe { (self.f.host_free)(address.as_ptr().cast()) };
        self.check("cuMemFreeHost", code)
    }

    /// # Safety
    /// `src` stays as it is until the copy is done, and `dst` is device memory of `len` bytes.
    pub(super) unsafe fn copy_to_device(
        &self,
        dst: u64,
        src: NonNull<u8>,
        len: usize,
        stream: Opaque,
    ) -> Result<()> {
        // SAFETY: as the caller promises.
        let code = unsafe { (self.f.copy_to_device)(dst, src.as_ptr().cast(), len, stream.raw()) };
        self.check("cuMemcpyHtoDAsync", code)
    }

    /// # Safety
    /// Nothing else touches `dst` until the copy is done; `src` is device memory of `len` bytes.
    pub(super) unsafe fn copy_to_host(
        &self,
        dst: NonNull<u8>,
        src: u64,
        len: usize,
        stream: Opaque,
    ) -> Result<()> {
        // SAFETY: as the caller promises.
        let code = unsafe { (self.f.copy_to_host)(dst.as_ptr().cast(), src, len, stream.raw()) };
        self.check("cuMemcpyDtoHAsync", code)
    }

    pub(super) fn copy_on_device(
        &self,
        dst: u64,
        src: u64,
        len: usize,
        stream: Opaque,
    ) -> Result<()> {
        // SAFETY: touches device memory only, whose bounds `Slice` has checked.
        let code = unsafe { (self.f.copy_on_device)(dst, src, len, stream.raw()) };
        self.check("cuMemcpyDtoDAsync", code)
    }

    pub(super) fn fill_with_zeros(&self, dst: u64, len: usize, stream: Opaque) -> Result<()> {
        // SAFETY: touches device memory only, whose bounds `Slice` has checked.
        let code = unsafe { (self.f.fill)(dst, 0, len, stream.raw()) };
        self.check("cuMemsetD8Async", code)
    }

    /// A stream that does not wait for the legacy default stream.
    pub(super) fn stream_create(&self) -> Result<Opaque> {
        const NON_BLOCKING: c_uint = 1;
        let mut stream = null_mut();
        // SAFETY: `stream` may be written.
        let code = unsafe { (self.f.stream_create)(&raw mut stream, NON_BLOCKING) };
        self.check("cuStreamCreate", code).map(|()| Opaque::new(stream))
    }

    pub(super) fn stream_destroy(&self, stream: Opaque) -> Result<()> {
        // SAFETY: the owner destroys it once.
        let code = unsafe { (self.f.stream_destroy)(stream.raw()) };
        self.check("cuStreamDestroy", code)
    }

    pub(super) fn stream_wait(&self, stream: Opaque) -> Result<()> {
        // SAFETY: the stream is alive.
        let code = unsafe { (self.f.stream_wait)(stream.raw()) };
        self.check("cuStreamSynchronize", code)
    }

    /// From here on, work on the stream is recorded and not run.
    pub(super) fn capture_begin(&self, stream: Opaque) -> Result<()> {
        /// Other threads, and allocations of this one, are not our concern.
        const RELAXED: c_uint = 2;
        // SAFETY: the stream is alive.
        let code = unsafe { (self.f.capture_begin)(stream.raw(), RELAXED) };
        self.check("cuStreamBeginCapture", code)
    }

    /// What was recorded, as a graph.
    pub(super) fn capture_end(&self, stream: Opaque) -> Result<Opaque> {
        let mut graph = null_mut();
        // SAFETY: the stream is alive and `graph` may be written.
        let code = unsafe { (self.f.capture_end)(stream.raw(), &raw mut graph) };
        self.check("cuStreamEndCapture", code).map(|()| Opaque::new(graph))
    }

    pub(super) fn graph_destroy(&self, graph: Opaque) -> Result<()> {
        // SAFETY: the owner destroys it once.
        let code = unsafe { (self.f.graph_destroy)(graph.raw()) };
        self.check("cuGraphDestroy", code)
    }

    pub(super) fn graph_instantiate(&self, graph: Opaque) -> Result<Opaque> {
        let mut exec = null_mut();
        // SAFETY: the graph is alive and `exec` may be written.
        let code = unsafe { (self.f.graph_instantiate)(&raw mut exec, graph.raw(), 0) };
        self.check("cuGraphInstantiate", code).map(|()| Opaque::new(exec))
    }

    pub(super) fn graph_launch(&self, exec: Opaque, stream: Opaque) -> Result<()> {
        // SAFETY: both are alive, and so is the memory that the graph names: its program keeps it.
        let code = unsafe { (self.f.graph_launch)(exec.raw(), stream.raw()) };
        self.check("cuGraphLaunch", code)
    }

    pub(super) fn graph_exec_destroy(&self, exec: Opaque) -> Result<()> {
        // SAFETY: the owner destroys it once, after its last run.
        let code = unsafe { (self.f.graph_exec_destroy)(exec.raw()) };
        self.check("cuGraphExecDestroy", code)
    }

    pub(super) fn event_create(&self) -> Result<Opaque> {
        let mut event = null_mut();
        // SAFETY: `event` may be written; no flags: it keeps the time.
        let code = unsafe { (self.f.event_create)(&raw mut event, 0) };
        self.check("cuEventCreate", code).map(|()| Opaque::new(event))
    }

    pub(super) fn event_destroy(&self, event: Opaque) -> Result<()> {
        // SAFETY: the owner destroys it once.
        let code = unsafe { (self.f.event_destroy)(event.raw()) };
        self.check("cuEventDestroy", code)
    }

    pub(super) fn event_record(&self, event: Opaque, stream: Opaque) -> Result<()> {
        // SAFETY: both are alive.
        let code = unsafe { (self.f.event_record)(event.raw(), stream.raw()) };
        self.check("cuEventRecord", code)
    }

    pub(super) fn event_wait(&self, event: Opaque) -> Result<()> {
        // SAFETY: the event is alive.
        let code = unsafe { (self.f.event_wait)(event.raw()) };
        self.check("cuEventSynchronize", code)
    }

    /// Milliseconds between two events that have passed.
    pub(super) fn event_elapsed_ms(&self, start: Opaque, end: Opaque) -> Result<f32> {
        let mut ms = 0.0;
        // SAFETY: both are alive and `ms` may be written.
        let code = unsafe { (self.f.event_elapsed)(&raw mut ms, start.raw(), end.raw()) };
        self.check("cuEventElapsedTime", code).map(|()| ms)
    }

    /// Loads a cubin, or PTX that ends in NUL.
    pub(super) fn module_load(&self, image: &[u8]) -> Result<Opaque> {
        let mut module = null_mut();
        // SAFETY: the image carries its own length (ELF, or text with NUL), checked when it was
        // read from the cache; `module` may be written.
        let code = unsafe { (self.f.module_load)(&raw mut module, image.as_ptr().cast()) };
        self.check("cuModuleLoadData", code).map(|()| Opaque::new(module))
    }

    pub(super) fn module_unload(&self, module: Opaque) -> Result<()> {
        // SAFETY: the owner unloads it once, after the last launch from it.
        let code = unsafe { (self.f.module_unload)(module.raw()) };
        self.check("cuModuleUnload", code)
    }

    pub(super) fn module_function(&self, module: Opaque, entry: &CStr) -> Result<Opaque> {
        let mut function = null_mut();
        // SAFETY: the module is alive, the name ends in NUL, `function` may be written.
        let code =
            unsafe { (self.f.module_function)(&raw mut function, module.raw(), entry.as_ptr()) };
        self.check("cuModuleGetFunction", code).map(|()| Opaque::new(function))
    }

    /// The most threads of a block that the function's registers allow.
    pub(super) fn function_threads_max(&self, function: Opaque) -> Result<u32> {
        const MAX_THREADS_PER_BLOCK: c_int = 0;
        let mut threads = 0;
        // SAFETY: the function's module is alive and `threads` may be written.
        let code = unsafe {
            (self.f.function_attribute)(&raw mut threads, MAX_THREADS_PER_BLOCK, function.raw())
        };
        self.check("cuFuncGetAttribute", code)?;
        Ok(u32::try_from(threads).unwrap_or(0))
    }

    /// # Safety
    /// `args` point to values of the kernel's parameter types, one each, in order.
    pub(super) unsafe fn launch(
        &self,
        function: Opaque,
        groups: [u32; 3],
        threads: u32,
        stream: Opaque,
        args: &mut [*mut c_void],
    ) -> Result<()> {
        let [x, y, z] = groups;
        // SAFETY: as the caller promises; shared memory is static, so its dynamic size is 0.
        let code = unsafe {
            (self.f.launch)(
                function.raw(),
                x,
                y,
                z,
                threads,
                1,
                1,
                0,
                stream.raw(),
                args.as_mut_ptr(),
                null_mut(),
            )
        };
        self.check("cuLaunchKernel", code)
    }
}
