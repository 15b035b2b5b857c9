//! Facts of this machine.

use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;

/// What matters for running a model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) os: &'static str,
    pub(crate) arch: &'static str,
    pub(crate) cpu: Option<String>,
    pub(crate) physical_cores: usize,
    pub(crate) logical_cores: usize,
    pub(crate) simd: Vec<&'static str>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) memory_available_bytes: Option<u64>,
    /// Files that the system keeps in memory, such as weights that were read before.
    pub(crate) page_cache_bytes: Option<u64>,
    pub(crate) huge_pages: Option<String>,
    /// Over the last minute: above the usual it says that other programs compute as well.
    pub(crate) load_average: Option<f64>,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let memory = Memory::look();
        Self {
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            cpu: cpu_name(),
            physical_cores: lily_cpu::physical_cores(),
            logical_cores: std::thread::available_parallelism().map_or(1, usize::from),
            simd: simd(),
            memory_bytes: memory.total,
            memory_available_bytes: memory.available,
            page_cache_bytes: memory.page_cache,
            huge_pages: huge_pages(),
            load_average: load_average(),
        }
    }

    /// "AMD EPYC, 2 cores, avx512f avx512vnni"
    pub(crate) fn line(&self) -> String {
        let cpu = self.cpu.as_deref().unwrap_or(self.arch);
        format!("{cpu}, {} cores, {}", self.physical_cores, self.simd.join(" "))
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Memory {
    total: Option<u64>,
    available: Option<u64>,
    page_cache: Option<u64>,
}

impl Memory {
    /// From the kernel on Linux, where a container may have less than the machine, and from
    /// `sysctl` on macOS.
    fn look() -> Self {
        if let Some(text) = read("/proc/meminfo") {
            let group = |name: &str| read(&format!("/sys/fs/cgroup/{name}"))?.trim().parse().ok();
            return Self::parse(&text).within(group("memory.max"), group("memory.current"));
        }
        let total = sysctl("hw.memsize").and_then(|text| text.parse().ok());
        Self { total, ..Self::default() }
    }

    fn parse(meminfo: &str) -> Self {
        let field = |name: &str| {
            let line = meminfo.lines().find(|line| line.starts_with(name))?;
            let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            Some(kib * 1024)
        };
        Self {
            total: field("MemTotal:"),
            available: field("MemAvailable:"),
            page_cache: field("Cached:"),
        }
    }

    /// Under the limit of a control group that uses `used` of it.
    fn within(self, limit: Option<u64>, used: Option<u64>) -> Self {
        let Some(limit) = limit else { return self };
        let least = |have: Option<u64>, bound| have.map(|have: u64| have.min(bound));
        // Cached files count as used, but make room when asked.
        let free = limit.saturating_sub(used.unwrap_or(0)) + self.page_cache.unwrap_or(0);
        Self {
            total: least(self.total, limit),
            available: least(self.available, free.min(limit)),
            ..self
        }
    }
}

fn load_average() -> Option<f64> {
    read("/proc/loadavg")?.split_whitespace().next()?.parse().ok()
}

/// The most memory that this process ever held.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    let status = read("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Bytes to stream through: more than any cache holds, but a part of what is there.
const READ_BYTES_MAX: u64 = 1 << 30;

/// How fast `n_threads` read memory, in GB/s: the best of some passes over a buffer that is larger
/// than the caches. `None` if there is too little memory for one.
pub(crate) fn read_gb_per_s(machine: &Machine, n_threads: usize) -> Option<f64> {
    let bytes = (machine.memory_available_bytes? / 4).min(READ_BYTES_MAX);
    let n_words = usize::try_from(bytes / 8).ok().filter(|&n| n >= 1 << 23)?;
    let words: Vec<u64> = (0..n_words as u64).collect();
    let part = n_words.div_ceil(n_threads);
    let pass = || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for words in words.chunks(part) {
                scope.spawn(move || black_box(words.iter().fold(0, |sum: u64, x| sum ^ x)));
            }
        });
        start.elapsed().as_secs_f64()
    };
    let best = (0..5).map(|_| pass()).fold(f64::INFINITY, f64::min);
    Some((n_words * 8) as f64 / best / 1e9)
}

fn cpu_name() -> Option<String> {
    if let Some(text) = read("/proc/cpuinfo") {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        return Some(line.split_once(':')?.1.trim().to_owned());
    }
    sysctl("machdep.cpu.brand_string")
}

fn sysctl(name: &str) -> Option<String> {
    if !cfg!(target_os = "macos") {
        return None;
    }
    let output = std::process::Command::new("sysctl").args(["-n", name]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The active word of `always [madvise] never`.
fn huge_pages() -> Option<String> {
    let text = read("/sys/kernel/mm/transparent_hugepage/enabled")?;
    let start = text.find('[')? + 1;
    Some(text[start..].split(']').next()?.to_owned())
}

#[cfg(target_arch = "x86_64")]
fn simd() -> Vec<&'static str> {
    let mut found = Vec::new();
    macro_rules! check {
        ($($name:tt),*) => { $(if is_x86_feature_detected!($name) { found.push($name); })* };
    }
    check!("avx2", "fma", "avxvnni", "avx512f", "avx512bw", "avx512vnni", "avx512bf16");
    found
}

#[cfg(target_arch = "aarch64")]
fn simd() -> Vec<&'static str> {
    vec!["neon"]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn simd() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    800 kB\n\
        Buffers: 1 kB\nCached:          100 kB\nSwapCached: 7 kB\n";

    #[test]
    fn memory_is_what_the_kernel_and_the_container_allow() {
        let kib = |n: u64| Some(n * 1024);
        let whole = || Memory::parse(MEMINFO);
        let expected = Memory { total: kib(1000), available: kib(800), page_cache: kib(100) };
        assert_eq!(whole(), expected);
        assert_eq!(whole().within(None, kib(5)), expected);
        let limited = whole().within(kib(500), kib(200));
        assert_eq!((limited.total, limited.available), (kib(500), kib(400)));
        assert_eq!(whole().within(kib(9_000), kib(200)), expected);
        assert_eq!(Memory::parse("nonsense"), Memory::default());
    }
}
