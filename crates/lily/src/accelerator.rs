//! Opens the device that `--device` names.

use crate::args::Device;
use crate::machine::Machine;
use anyhow::{Context, Result, bail};
use lily_device::DeviceInfo;
use std::path::PathBuf;
use std::sync::Arc;

/// The GPU or the simulator; `None` stands for the CPU.
pub(crate) fn open(device: Device) -> Result<Option<Arc<dyn lily_device::Device>>> {
    match device {
        Device::Cpu => Ok(None),
        Device::Auto => Ok(best()),
        Device::Sim => sim().map(Some),
        Device::Cuda => cuda().map(Some),
        Device::Metal => metal().map(Some),
    }
}

/// The best that is known to work. Metal is not: its kernels ran in the simulator and on NVIDIA, but
/// its host code never did, so it has to be asked for.
fn best() -> Option<Arc<dyn lily_device::Device>> {
    match cuda() {
        Ok(device) => Some(device),
        Err(error) => {
            tracing::debug!("computing on the CPU: {error:#}");
            None
        }
    }
}

/// Tokens of a prompt that are read at once: a GPU wants many, while `cpu` keeps a CPU responsive.
pub(crate) fn chunk_tokens(device: Device, cpu: usize) -> usize {
    if is_gpu(device) { GPU_CHUNK_TOKENS } else { cpu }
}

fn is_gpu(device: Device) -> bool {
    match device {
        Device::Cpu | Device::Sim => false,
        Device::Auto => best().is_some(),
        Device::Cuda | Device::Metal => true,
    }
}

/// Memory for kept prompts, if `wanted` does not say. What sequences need goes before it.
pub(crate) fn cache_bytes(device: Device, wanted: Option<u64>) -> usize {
    let bytes = wanted.unwrap_or_else(|| {
        if is_gpu(device) {
            return GPU_CACHE_BYTES;
        }
        let free = Machine::look().memory_available_bytes;
        free.map_or(1 << 30, |free| (free / 8).min(CACHE_BYTES_MAX))
    });
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A hundred conversations with the real model.
const CACHE_BYTES_MAX: u64 = 8 << 30;
/// Snapshots on a GPU do not share their rows.
const GPU_CACHE_BYTES: u64 = 4 << 30;

/// Fills the tiles of 256 experts; 0.1 s on an H200.
const GPU_CHUNK_TOKENS: usize = 1024;

/// Name, version and memory: `NVIDIA H200, sm_90, …`.
pub(crate) fn line(info: &DeviceInfo) -> String {
    format!("{}, {}, {}", info.name, info.version, crate::output::bytes(info.memory_bytes))
}

#[cfg(unix)]
fn sim() -> Result<Arc<dyn lily_device::Device>> {
    use lily_device::sim::{SimDevice, SimOptions};
    let options = SimOptions {
        checked: false,
        threads: lily_cpu::physical_cores(),
        ..SimOptions::new(kernel_cache()?.join("sim"))
    };
    Ok(Arc::new(SimDevice::new(options).context("--device sim")?))
}

#[cfg(not(unix))]
fn sim() -> Result<Arc<dyn lily_device::Device>> {
    bail!("--device sim needs Linux or macOS; use --device cpu")
}

#[cfg(not(target_os = "macos"))]
fn cuda() -> Result<Arc<dyn lily_device::Device>> {
    use lily_device::cuda::{CudaDevice, CudaOptions};
    // Without a cache every start compiles again, which is slow but works.
    let cache_dir = kernel_cache().ok().map(|dir| dir.join("cuda"));
    let options = CudaOptions { ordinal: 0, cache_dir, check_each_launch: false };
    Ok(Arc::new(CudaDevice::open(&options).context("--device cuda")?))
}

#[cfg(target_os = "macos")]
fn cuda() -> Result<Arc<dyn lily_device::Device>> {
    bail!("--device cuda needs Linux with an NVIDIA GPU; use --device metal or cpu")
}

#[cfg(target_os = "macos")]
fn metal() -> Result<Arc<dyn lily_device::Device>> {
    use lily_device::metal::MetalDevice;
    Ok(Arc::new(MetalDevice::new().context("--device metal")?))
}

#[cfg(not(target_os = "macos"))]
fn metal() -> Result<Arc<dyn lily_device::Device>> {
    bail!("--device metal needs a Mac; use --device cpu (or auto)")
}

/// Where compiled kernels are kept between runs.
fn kernel_cache() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = match (set("XDG_CACHE_HOME"), std::env::home_dir()) {
        (Some(dir), _) => PathBuf::from(dir),
        (None, Some(home)) if cfg!(target_os = "macos") => home.join("Library/Caches"),
        (None, Some(home)) => home.join(".cache"),
        (None, None) => {
            bail!("there is no home directory for compiled kernels; set XDG_CACHE_HOME")
        }
    };
    Ok(cache.join("lily/kernels"))
}
