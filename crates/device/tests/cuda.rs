//! Opening a GPU. What a GPU computes is tried by the example `cuda_probe`, and that kernels
//! compile for it by `cargo xtask nvrtc`.

#![cfg(not(target_os = "macos"))]

use lily_device::cuda::{CudaCompiler, CudaDevice, CudaOptions, compile_only};
use lily_device::{Device, DeviceError, DeviceKind, KernelSource};
use std::path::Path;

#[test]
fn a_machine_without_cuda_says_what_is_missing() {
    let options = CudaOptions { ordinal: 0, cache_dir: None, check_each_launch: false };
    match CudaDevice::open(&options) {
        Ok(device) => assert_eq!(device.info().kind, DeviceKind::Cuda),
        Err(DeviceError::Unavailable { device, reason, remedy }) => {
            assert_eq!(device, "cuda");
            assert!(!reason.is_empty() && remedy.contains("install"), "{reason}; {remedy}");
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_gpu_that_is_not_there_is_unavailable() {
    let options = CudaOptions { ordinal: u32::MAX, cache_dir: None, check_each_launch: false };
    let error = CudaDevice::open(&options).expect_err("no machine has so many");
    assert!(matches!(error, DeviceError::Unavailable { .. }), "{error}");
}

#[test]
fn a_missing_compiler_is_unavailable() {
    let nowhere = Path::new("/nowhere/libnvrtc.so");
    let source = KernelSource::new("norm", "rms_norm");
    for error in [
        CudaCompiler::new(Some(nowhere)).err(),
        compile_only(&source, "sm_90", Some(nowhere)).err(),
    ] {
        let error = error.expect("there is no such file");
        assert!(matches!(error, DeviceError::Unavailable { .. }), "{error}");
    }
}
