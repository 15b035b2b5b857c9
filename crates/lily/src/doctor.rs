//! What this machine has, what can be used, and whether it computes the right thing.

mod device;

use crate::accelerator;
use crate::args::{Device, DoctorArgs, VERSION};
use crate::hub;
use crate::machine::Machine;
use crate::output;
use anyhow::{Result, ensure};
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
    note: String,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    if let Some(device) = args.device {
        let test = device::run(device, args)?;
        if args.json {
            output::json(&test)?;
        } else {
            output::print(&test.text())?;
        }
        ensure!(test.passed(), "the device does not compute what it should");
        return Ok(());
    }
    let cache = hub::cache().ok();
    let report = Report {
        version: VERSION,
        machine: Machine::look(),
        devices: [Device::Cpu, Device::Metal, Device::Cuda, Device::Sim].map(look).into(),
        hub_cache_exists: cache.as_ref().is_some_and(|path| path.is_dir()),
        hub_cache: cache.map(|path| path.display().to_string()),
    };
    if args.json { output::json(&report) } else { output::print(&table(&report)?) }
}

/// Whether a device can be opened, and what it is.
fn look(device: Device) -> DeviceReport {
    let name = match device {
        Device::Auto | Device::Cpu => "cpu",
        Device::Metal => "metal",
        Device::Cuda => "cuda",
        Device::Sim => "sim",
    };
    match accelerator::open(device) {
        Ok(None) => DeviceReport { device: name, usable: true, note: "the default".to_owned() },
        Ok(Some(opened)) => {
            let note = accelerator::line(opened.info());
            DeviceReport { device: name, usable: true, note }
        }
        Err(error) => {
            // The root cause: the context only repeats the flag.
            let note = error.root_cause().to_string();
            DeviceReport { device: name, usable: false, note }
        }
    }
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
