//! Every kernel of the product, for compilers that run without the machine.
//!
//! `kernels cuda sm_80 sm_90` compiles them with NVRTC (`LILY_NVRTC` or the usual places);
//! `kernels texts DIR` writes the expanded sources for a Mac, ready for `kernels/shim/typecheck.h`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for developers")]

use lily_device::{DeviceInfo, DeviceKind, KernelSource, TileBody, source};
use lily_model::gpu::{Activations, all_kernels};
use lily_weights::Shape;
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.split_first() {
        Some((verb, rest)) if verb == "cuda" => cuda(rest),
        Some((verb, [dir])) if verb == "texts" => texts(dir),
        _ => Err("usage: kernels cuda ARCH… | kernels texts DIR".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Of a device that is not here, only what the kernels depend on.
fn described(kind: DeviceKind, tile: TileBody) -> DeviceInfo {
    DeviceInfo {
        kind,
        name: "described".to_owned(),
        version: String::new(),
        memory_bytes: 1 << 40,
        buffer_bytes_max: 1 << 40,
        unified_memory: kind == DeviceKind::Metal,
        n_cores: 0,
        tile,
    }
}

/// The 35B as people have it, and a sibling with other head sizes.
fn kernels(info: &DeviceInfo) -> Result<Vec<KernelSource>, Box<dyn Error>> {
    let small = Shape {
        hidden: 256,
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 64,
        rotary_dim: 16,
        n_k_heads: 4,
        n_v_heads: 8,
        k_head_dim: 32,
        v_head_dim: 32,
        n_experts: 16,
        n_experts_per_token: 4,
        expert_width: 64,
        shared_expert_width: 64,
        vocab_size: 4096,
        ..Shape::qwen36_35b()
    };
    let mut all: Vec<KernelSource> = Vec::new();
    for (shape, bits, activations) in [
        (Shape::qwen36_35b(), 4, Activations::Bf16),
        (Shape::qwen36_35b(), 16, Activations::Bf16),
        (small.clone(), 8, Activations::F32),
        (small, 6, Activations::Bf16),
    ] {
        let group = if bits == 16 { 32 } else { 64 };
        for source in all_kernels(info, &shape, bits, group, activations)? {
            if !all.contains(&source) {
                all.push(source);
            }
        }
    }
    Ok(all)
}

#[cfg(target_os = "macos")]
fn cuda(_: &[String]) -> Result<(), Box<dyn Error>> {
    Err("there is no NVRTC for macOS".into())
}

#[cfg(not(target_os = "macos"))]
fn cuda(archs: &[String]) -> Result<(), Box<dyn Error>> {
    use lily_device::cuda::CudaCompiler;
    let sources = kernels(&described(DeviceKind::Cuda, TileBody::Mma))?;
    let compiler = CudaCompiler::new(None)?;
    let done = compiler.compile_all(&sources, archs);
    let mut n_failed = 0;
    for compiled in &done {
        match &compiled.result {
            Ok(infos) => {
                for (kernel, info) in compiled.sources.iter().zip(infos) {
                    if info.spilled_bytes > 0 {
                        let (file, entry, arch) = (kernel.file, kernel.entry, &compiled.arch);
                        println!("{file}/{entry} {arch} spills: {info:?}");
                    }
                }
            }
            Err(error) => {
                n_failed += 1;
                eprintln!("{error}\nwith {:?}", compiled.sources[0].defines);
            }
        }
    }
    if n_failed > 0 {
        return Err(format!("{n_failed} of {} files do not compile", done.len()).into());
    }
    println!("{} kernels in {} files compiled for {}", sources.len(), done.len(), archs.join(", "));
    Ok(())
}

/// One file per kernel file and set of defines; kernels that share both share the file. Arrays in
/// threadgroup memory become what a C++ compiler accepts inside a function.
fn texts(dir: &str) -> Result<(), Box<dyn Error>> {
    let mut written: Vec<String> = Vec::new();
    let mut all = Vec::new();
    // Those of Metal 4 first: the last of a file is the one with the most in it.
    for tile in [TileBody::Tensor, TileBody::Simdgroup] {
        let with_tiles = |kernel: &KernelSource| {
            tile == TileBody::Simdgroup || ["gemm", "attention_prefill"].contains(&kernel.file)
        };
        all.extend(kernels(&described(DeviceKind::Metal, tile))?.into_iter().filter(with_tiles));
    }
    for kernel in all {
        let mut text = source::expand(&kernel, false)?;
        for array in source::threadgroup_arrays(&text).into_iter().rev() {
            let start = array.range.start;
            text.replace_range(start..start + "threadgroup".len(), "LILY_THREADGROUP_ARRAY");
        }
        if written.contains(&text) {
            continue;
        }
        let path = format!("{dir}/{:04}-{}.metal", written.len(), kernel.file);
        std::fs::write(path, format!("using namespace metal;\n{text}"))?;
        written.push(text);
    }
    println!("{} texts", written.len());
    Ok(())
}
