//! From the expanded text of a kernel file to CUDA C++.
//!
//! What a macro could do is in `kernels/shim/cuda.h`. Here is the rest: argument lists, threadgroup
//! arrays, and the address space words, which C++ does not have and which cannot be macros, since
//! CUDA's own `__device__` expands to a word `device`. Lines stay where they are, so that the
//! compiler reports the lines of the kernel files.

use crate::DeviceError;
use crate::source::{self, Access, Arg, ArgKind, Found};
use std::ops::Range;

/// The vocabulary that is put in front.
const SHIM: &str = include_str!("../../../../kernels/shim/cuda.h");

/// A kernel file as CUDA C++.
#[derive(Debug)]
pub(super) struct CudaSource {
    /// What NVRTC compiles.
    pub(super) text: String,
    /// The kernels in it.
    pub(super) kernels: Vec<Found>,
}

/// Rewrites `text`, the expanded text of `file`.
pub(super) fn rewrite(file: &str, text: &str) -> Result<CudaSource, DeviceError> {
    let kernels = source::kernels(file, text)?;
    let clean = source::blank_comments(text);
    let bounded = clean.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("#define") && words.next() == Some("LILY_THREADS")
    });

    let mut edits = Vec::new();
    for kernel in &kernels {
        let header = kernel.header.clone();
        let brace = header.end
            + clean[header.end..].find('{').ok_or_else(|| DeviceError::Dialect {
                file: file.to_owned(),
                problem: format!("kernel {} has no body", kernel.name),
            })?;
        let written = keep_lines(&signature(kernel, bounded), &text[header.clone()]);
        edits.push(Edit { range: header, text: written });
        edits.push(Edit { range: brace + 1..brace + 1, text: built_ins(&kernel.signature.args) });
    }
    for array in source::threadgroup_arrays(text) {
        // Aligned for vectors, as Metal aligns them.
        let written =
            format!("__shared__ __align__(16) {} {}{};", array.ty, array.name, array.dims);
        edits.push(Edit {
            text: keep_lines(&written, &text[array.range.clone()]),
            range: array.range,
        });
    }
    let taken: Vec<Range<usize>> = edits.iter().map(|edit| edit.range.clone()).collect();
    for (word, replacement) in WORDS {
        let mut at = 0;
        while let Some(start) = source::find_word(&clean, word, at) {
            let range = start..start + word.len();
            at = range.end;
            if !taken.iter().any(|edit| edit.start <= range.start && range.end <= edit.end) {
                // `tensor<threadgroup act, …>` is a pointer too; only Metal compiles it.
                let is_argument = clean[..range.start].trim_end().ends_with('<');
                if *word == "threadgroup" && !is_argument {
                    check_is_pointer(file, &clean[at..])?;
                }
                edits.push(Edit { range, text: (*replacement).to_owned() });
            }
        }
    }
    Ok(CudaSource { text: format!("{SHIM}{}", apply(text, edits)), kernels })
}

/// A word `threadgroup` that is left belongs to a pointer or a reference. Anything else, such as a
/// variable that is no array, would become a variable of each thread without a word.
fn check_is_pointer(file: &str, rest: &str) -> Result<(), DeviceError> {
    let end = rest.find([';', ',', '(', ')', '=', '{', '*', '&']).unwrap_or(rest.len());
    if rest[end..].starts_with(['*', '&']) {
        return Ok(());
    }
    Err(DeviceError::Dialect {
        file: file.to_owned(),
        problem: format!(
            "`threadgroup{}` is neither an array, one a statement, nor a pointer",
            &rest[..end]
        ),
    })
}

/// Address spaces are one in CUDA. Functions are inlined always, since pointers to registers
/// (`thread float*`) would otherwise put these into memory.
const WORDS: &[(&str, &str)] = &[
    ("device", ""),
    ("threadgroup", ""),
    ("thread", ""),
    ("constant", "const"),
    ("inline", "__device__ __forceinline__"),
];

#[derive(Debug)]
struct Edit {
    range: Range<usize>,
    text: String,
}

fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut out = String::with_capacity(text.len() + 64 * edits.len());
    let mut at = 0;
    for edit in edits {
        out.push_str(&text[at..edit.range.start]);
        out.push_str(&edit.text);
        at = edit.range.end;
    }
    out.push_str(&text[at..]);
    out
}

/// `written` on as many lines as `original`.
fn keep_lines(written: &str, original: &str) -> String {
    let lines = original.matches('\n').count();
    format!("{written}{}", "\n".repeat(lines))
}

fn signature(kernel: &Found, bounded: bool) -> String {
    let arguments: Vec<String> = kernel
        .signature
        .args
        .iter()
        .filter_map(|arg| match arg.kind {
            // Never written by the kernel: a dispatch whose read and written slices overlap is
            // refused, so the compiler may move these loads across stores.
            ArgKind::Buffer { access: Access::Read, .. } => {
                Some(format!("{} __restrict__ {}", arg.ty, arg.name))
            }
            ArgKind::Buffer { access: Access::ReadWrite, .. } => {
                Some(format!("{} {}", arg.ty, arg.name))
            }
            ArgKind::Params { .. } => Some(format!("const {} {}", arg.ty, arg.name)),
            _ => None,
        })
        .collect();
    let bounds = if bounded { "__launch_bounds__(LILY_THREADS) " } else { "" };
    format!("extern \"C\" __global__ void {bounds}{}({})", kernel.name, arguments.join(", "))
}

/// Declarations for the built-in arguments, at the start of the body.
fn built_ins(args: &[Arg]) -> String {
    let declaration = |arg: &Arg| {
        let value = match arg.kind {
            ArgKind::ThreadgroupPosition => "make_uint3(blockIdx.x, blockIdx.y, blockIdx.z)",
            ArgKind::ThreadIndex => "threadIdx.x",
            ArgKind::SimdgroupIndex => "threadIdx.x / 32u",
            ArgKind::Lane => "threadIdx.x % 32u",
            ArgKind::Buffer { .. } | ArgKind::Params { .. } | ArgKind::Unknown => return None,
        };
        Some(format!(" {} {} = {value};", arg.ty, arg.name))
    };
    args.iter().filter_map(declaration).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rewritten text without the shim.
    fn rewritten(text: &str) -> String {
        let out = rewrite("x.metal", text).expect("a good file").text;
        out.strip_prefix(SHIM).expect("the shim comes first").to_owned()
    }

    const FILE: &str = "\
struct P { uint n; float eps; };
constant constexpr uint ROWS = 4; // device memory
inline float first(device const float* x, thread float* y, constant P& p, threadgroup float* t) { return x[0]; }
kernel void scale(device const float* x [[buffer(0)]],   // device in
                  device float* y [[buffer(1)]],
                  constant P& p [[buffer(2)]],
                  uint3 tg [[threadgroup_position_in_grid]],
                  uint tid [[thread_index_in_threadgroup]],
                  uint sg [[simdgroup_index_in_threadgroup]],
                  uint lane [[thread_index_in_simdgroup]])
{
    threadgroup float t[32][ROWS];
    threadgroup float* flat = (threadgroup float*)t;
    threadgroup_barrier(mem_flags::mem_device);
    y[tid] = first(x, y, p, flat) * p.eps;
}
";

    #[test]
    fn a_kernel_becomes_cuda() {
        assert_eq!(
            rewritten(FILE),
            "\
struct P { uint n; float eps; };
const constexpr uint ROWS = 4; // device memory
__device__ __forceinline__ float first( const float* x,  float* y, const P& p,  float* t) { return x[0]; }
extern \"C\" __global__ void scale(const float* __restrict__ x, float* y, const P p)





\n{ uint3 tg = make_uint3(blockIdx.x, blockIdx.y, blockIdx.z); uint tid = threadIdx.x; uint sg = threadIdx.x / 32u; uint lane = threadIdx.x % 32u;
    __shared__ __align__(16) float t[32][ROWS];
     float* flat = ( float*)t;
    threadgroup_barrier(mem_flags::mem_device);
    y[tid] = first(x, y, p, flat) * p.eps;
}
"
        );
    }

    #[test]
    fn lines_stay_where_they_are() {
        let out = rewritten(FILE);
        assert_eq!(out.lines().count(), FILE.lines().count());
        let line_of = |text: &str| text.lines().position(|line| line.contains("y[tid] ="));
        assert_eq!(line_of(&out), line_of(FILE));
    }

    #[test]
    fn launch_bounds_come_from_a_define() {
        let text = "#define LILY_THREADS 128\nkernel void a(device float* x [[buffer(0)]]) {}\n";
        assert!(
            rewritten(text).contains("void __launch_bounds__(LILY_THREADS) a(float* x)"),
            "{}",
            rewritten(text)
        );
        let commented = text.replace("#define", "// #define");
        assert!(!rewritten(&commented).contains("__launch_bounds__"));
    }

    #[test]
    fn the_products_kernels_are_rewritten() {
        for file in source::kernel_files() {
            let name = format!("{file}.metal");
            let text =
                source::expand(&crate::KernelSource::new(file, ""), false).expect("includes exist");
            let out = rewrite(&name, &text).expect("a file in the dialect");
            assert!(!out.kernels.is_empty(), "{name} has a kernel");
            let clean = source::blank_comments(&out.text);
            for word in ["device", "threadgroup", "thread", "constant", "kernel", "inline"] {
                assert_eq!(source::find_word(&clean, word, 0), None, "`{word}` is left in {name}");
            }
        }
    }

    #[test]
    fn a_threadgroup_variable_must_be_an_array() {
        for body in ["threadgroup float t;", "threadgroup float t = 0;", "threadgroup int a, b[2];"]
        {
            let text = format!("kernel void a(device float* x [[buffer(0)]]) {{ {body} }}\n");
            let error = rewrite("x.metal", &text).expect_err(body);
            assert!(error.to_string().contains("neither an array"), "{error}");
        }
    }

    #[test]
    fn a_kernel_without_a_body_is_refused() {
        let error = rewrite("x.metal", "kernel void a(device float* x [[buffer(0)]]);\n")
            .expect_err("no body");
        assert!(error.to_string().contains("no body"), "{error}");
    }
}
