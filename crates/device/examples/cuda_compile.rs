//! Compiles kernels for NVIDIA GPUs on a machine that has none, and prints what they cost.
//!
//! `cargo run -p lily-device --example cuda_compile [sm_80 sm_90 …]`; NVRTC is taken from
//! `LILY_NVRTC` or from the usual places.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for developers")]

use std::process::ExitCode;

#[cfg(target_os = "macos")]
fn main() -> ExitCode {
    eprintln!("there is no NVRTC for macOS");
    ExitCode::FAILURE
}

#[cfg(not(target_os = "macos"))]
fn main() -> ExitCode {
    match elsewhere::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "macos"))]
mod elsewhere {
    use lily_device::cuda::CudaCompiler;
    use lily_device::{KernelSource, source};
    use std::error::Error;

    /// The kernels of the product that are compiled.
    fn kernels() -> Vec<KernelSource> {
        ["float", "bfloat"]
            .map(|act| {
                KernelSource::new("norm", "rms_norm")
                    .define("LILY_ACT", act)
                    .define("HIDDEN", 2048)
                    .define("RMS_EPS", "1e-6f")
            })
            .to_vec()
    }

    pub(super) fn run() -> Result<(), Box<dyn Error>> {
        let mut archs: Vec<String> = std::env::args().skip(1).collect();
        if archs.is_empty() {
            archs = vec!["sm_80".to_owned(), "sm_90".to_owned()];
        }
        let compiler = CudaCompiler::new(None)?;
        let (major, minor) = compiler.version();
        println!("NVRTC {major}.{minor}");
        a_broken_kernel_names_its_line(&compiler, &archs[0])?;
        for arch in &archs {
            vocabulary(&compiler, arch)?;
        }

        let done = compiler.compile_all(&kernels(), &archs);
        let mut n_failed = 0;
        for compiled in &done {
            match &compiled.result {
                Ok(infos) => {
                    for (kernel, info) in compiled.sources.iter().zip(infos) {
                        println!("{}/{} {}: {info:?}", kernel.file, kernel.entry, compiled.arch);
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
        println!("{} files compiled", done.len());
        Ok(())
    }

    /// Or else every other error is hard to find.
    fn a_broken_kernel_names_its_line(
        compiler: &CudaCompiler,
        arch: &str,
    ) -> Result<(), Box<dyn Error>> {
        let broken = include_str!("../tests/kernels/cuda_broken.metal");
        let text = format!("#line 1 \"cuda_broken.metal\"\n{broken}");
        let error = compiler.compile_text("cuda_broken", "broken", &text, arch).err();
        let message = error.ok_or("a broken kernel was accepted")?.to_string();
        if message.contains("cuda_broken.metal(5)") {
            return Ok(());
        }
        Err(format!("the error of a broken kernel does not name its line:\n{message}").into())
    }

    /// The test kernels, which use every word of lily.h.
    fn vocabulary(compiler: &CudaCompiler, arch: &str) -> Result<(), Box<dyn Error>> {
        let lily = source::file("lily.h")?;
        for (file, entry, text) in [
            ("dialect", "lanes", include_str!("../tests/kernels/dialect.metal")),
            ("qmv", "qmv_q4", include_str!("../tests/kernels/qmv.metal")),
            ("gdn_step", "gdn_step", include_str!("../tests/kernels/gdn_step.metal")),
            ("cuda_probe", "outside", include_str!("../tests/kernels/cuda_probe.metal")),
        ] {
            let text = text.replace("#include \"lily.h\"", lily);
            let info = compiler.compile_text(file, entry, &text, arch)?;
            println!("{file}/{entry} {arch}: {info:?}");
        }
        Ok(())
    }
}
