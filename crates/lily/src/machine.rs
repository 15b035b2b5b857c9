//! Facts of this machine.

use serde::Serialize;

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
    pub(crate) huge_pages: Option<String>,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let (memory_bytes, memory_available_bytes) = memory();
        Self {
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            cpu: cpu_name(),
            physical_cores: lily_cpu::physical_cores(),
            logical_cores: std::thread::available_parallelism().map_or(1, usize::from),
            simd: simd(),
            memory_bytes,
            memory_available_bytes,
            huge_pages: huge_pages(),
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

/// (total, available), from the kernel on Linux and from `sysctl` on macOS.
fn memory() -> (Option<u64>, Option<u64>) {
    if let Some(text) = read("/proc/meminfo") {
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            Some(kib * 1024)
        };
        return (field("MemTotal:"), field("MemAvailable:"));
    }
    (sysctl("hw.memsize").and_then(|text| text.parse().ok()), None)
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
    check!("avx2", "fma", "avx512f", "avx512bw", "avx512vnni", "avx512bf16");
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
