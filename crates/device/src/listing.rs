//! A device that computes nothing and remembers which kernels were asked for.
//!
//! With it a forward pass lists the kernels it needs, for compilers that run without the machine.

use crate::source::{expand, kernels};
use crate::{
    Buffer, Commands, Device, DeviceError, DeviceInfo, HostBytes, Kernel, KernelSource, Memory,
    Program, Slice, Ticket,
};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub struct ListingDevice {
    info: DeviceInfo,
    listed: Mutex<Vec<KernelSource>>,
}

impl ListingDevice {
    /// A device that claims to be `info`.
    pub fn new(info: DeviceInfo) -> Self {
        Self { info, listed: Mutex::new(Vec::new()) }
    }

    /// The kernels asked for so far, each once, in order.
    pub fn listed(&self) -> Vec<KernelSource> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Memory without bytes.
#[derive(Debug)]
struct Nothing {
    len_bytes: usize,
    label: String,
}

impl Memory for Nothing {
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Device for ListingDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, len_bytes: usize, label: &str) -> Result<Buffer, DeviceError> {
        Ok(Buffer::new(Arc::new(Nothing { len_bytes, label: label.to_owned() })))
    }

    fn import(&self, bytes: &HostBytes, label: &str) -> Result<Buffer, DeviceError> {
        self.alloc(bytes.as_slice().len(), label)
    }

    fn kernel(&self, source: &KernelSource) -> Result<Kernel, DeviceError> {
        let file = format!("{}.metal", source.file);
        let found = kernels(&file, &expand(source, false)?)?;
        let found =
            found.into_iter().find(|found| found.name == source.entry).ok_or_else(|| {
                DeviceError::Dialect {
                    file,
                    problem: format!("there is no kernel {}", source.entry),
                }
            })?;
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if !listed.contains(source) {
            listed.push(source.clone());
        }
        Ok(Kernel::new(source.entry, Arc::new(found.signature), ()))
    }

    fn write(&self, _: &Slice, _: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read(&self, _: &Slice, out: &mut [u8]) -> Result<(), DeviceError> {
        out.fill(0);
        Ok(())
    }

    fn submit(&self, _: &Commands) -> Result<Ticket, DeviceError> {
        Ok(Ticket(0))
    }

    fn prepare(&self, commands: Commands) -> Result<Program, DeviceError> {
        Ok(Program::new(commands))
    }

    fn replay(&self, _: &Program) -> Result<Ticket, DeviceError> {
        Ok(Ticket(0))
    }

    fn wait(&self, _: Ticket) -> Result<Duration, DeviceError> {
        Ok(Duration::ZERO)
    }
}
