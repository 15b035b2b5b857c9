//! What this machine has and what can be used.

use crate::args::{DoctorArgs, VERSION};
use crate::hub;
use crate::machine::{Machine, has_nvidia_driver};
use crate::output;
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write as _;

#[derive(Serialize)]
struct Report {
    version: &'static str,
    machine: Machine,
    devices: Vec<DeviceReport>,
    hub_cache: Option<String>,
    hub_cache_exists: bool,
}

#[derive(Serialize)]
struct DeviceReport {
    device: &'static str,
    usable: bool,
    note: &'static str,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let cuda = if has_nvidia_driver() {
        "an NVIDIA driver is here, but CUDA is not built in this version"
    } else {
        "not built in this version"
    };
    let cache = hub::cache().ok();
    let report = Report {
        version: VERSION,
        machine: Machine::look(),
        devices: vec![
            DeviceReport { device: "cpu", usable: true, note: "the default" },
            DeviceReport { device: "metal", usable: false, note: "not built in this version" },
            DeviceReport { device: "cuda", usable: false, note: cuda },
            DeviceReport { device: "sim", usable: false, note: "not built in this version" },
        ],
        hub_cache_exists: cache.as_ref().is_some_and(|path| path.is_dir()),
        hub_cache: cache.map(|path| path.display().to_string()),
    };
    if args.json { output::json(&report) } else { output::print(&table(&report)?) }
}

fn table(report: &Report) -> Result<String> {
    let machine = &report.machine;
    let mut out = String::new();
    writeln!(out, "lily        {}", report.version)?;
    writeln!(out, "system      {} {}", machine.os, machine.arch)?;
    writeln!(out, "cpu         {}", machine.cpu.as_deref().unwrap_or("unknown"))?;
    writeln!(
        out,
        "cores       {} physical, {} logical",
        machine.physical_cores, machine.logical_cores
    )?;
    writeln!(out, "simd        {}", machine.simd.join(" "))?;
    let bytes = |n: Option<u64>| n.map_or_else(|| "unknown".to_owned(), output::bytes);
    writeln!(
        out,
        "memory      {}, {} available",
        bytes(machine.memory_bytes),
        bytes(machine.memory_available_bytes)
    )?;
    writeln!(out, "page cache  {}", bytes(machine.page_cache_bytes))?;
    if let Some(mode) = &machine.huge_pages {
        let note = if mode == "never" { "; large weights are read a little slower" } else { "" };
        writeln!(out, "huge pages  {mode}{note}")?;
    }
    for device in &report.devices {
        let state = if device.usable { "usable" } else { "no" };
        writeln!(out, "{:<11} {state}: {}", device.device, device.note)?;
    }
    let note = if report.hub_cache_exists { "" } else { " (not there yet)" };
    writeln!(out, "hub cache   {}{note}", report.hub_cache.as_deref().unwrap_or("none"))?;
    Ok(out)
}
