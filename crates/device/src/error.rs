//! What can go wrong below the forward pass.

/// Errors of devices, kernels and command lists.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The machine has no such device, or a library that it needs is missing.
    #[error("{device} cannot be used here: {reason}; {remedy}")]
    Unavailable {
        /// "metal", "cuda" or "sim".
        device: &'static str,
        /// What was looked for and not found.
        reason: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// A kernel did not compile.
    #[error("kernel {kernel} does not compile for {target}:\n{log}")]
    Compile {
        /// File and entry.
        kernel: String,
        /// Architecture or language version.
        target: String,
        /// What the compiler said.
        log: String,
    },
    /// A kernel file breaks a rule of the dialect.
    #[error("kernels/{file}: {problem}")]
    Dialect {
        /// File below `kernels/`.
        file: String,
        /// Which rule, and where.
        problem: String,
    },
    /// More memory than the device has left.
    #[error("{label} needs {bytes} bytes, but the device has {available} left of {total}")]
    OutOfMemory {
        /// What the memory is for.
        label: String,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that could still be allocated.
        available: u64,
        /// Memory of the device.
        total: u64,
    },
    /// A kernel did something that no device allows; found by the simulator or by the driver.
    #[error("kernel {kernel} failed on {device}: {fault}")]
    Fault {
        /// Entry of the kernel, or the label of the submission if the driver does not say which.
        kernel: String,
        /// The device's name.
        device: &'static str,
        /// What happened, as precisely as the device tells.
        fault: String,
    },
    /// A call of the driver failed.
    #[error("{device}: {call} failed: {reason}")]
    Driver {
        /// The device's name.
        device: &'static str,
        /// Function of the driver.
        call: &'static str,
        /// Its own words or its error code.
        reason: String,
    },
}
