//! What this machine has and what can be used.

use crate::args::{DoctorArgs, VERSION};
use crate::load;
use crate::machine::Machine;
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
}

#[derive(Serialize)]
struct DeviceReport {
    device: &'static str,
    usable: bool,
    note: &'static str,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let report = Report {
        version: VERSION,
        machine: Machine::look(),
        devices: vec![
            DeviceReport { device: "cpu", usable: true, note: "the default" },
            DeviceReport { device: "metal", usable: false, note: "not built in this version" },
            DeviceReport { device: "cuda", usable: false, note: "not built in this version" },
            DeviceReport { device: "sim", usable: false, note: "not built in this version" },
        ],
        hub_cache: load::hub_cache().ok().map(|path| path.display().to_string()),
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
    if let Some(mode) = &machine.huge_pages {
        let note = if mode == "never" { "; large weights are read a little slower" } else { "" };
        writeln!(out, "huge pages  {mode}{note}")?;
    }
    for device in &report.devices {
        let state = if device.usable { "usable" } else { "no" };
        writeln!(out, "{:<11} {state}: {}", device.device, device.note)?;
    }
    writeln!(out, "hub cache   {}", report.hub_cache.as_deref().unwrap_or("none"))?;
    Ok(out)
}
