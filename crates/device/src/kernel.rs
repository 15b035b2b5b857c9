//! Which kernel, and the compiled thing.

use crate::source::Signature;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// A kernel by name, with the constants it is compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelSource {
    /// File below `kernels/`, without `.metal`.
    pub file: &'static str,
    /// The kernel function.
    pub entry: &'static str,
    /// `#define`s put before the file, in order.
    pub defines: Vec<(&'static str, String)>,
}

impl KernelSource {
    /// A kernel without constants.
    pub fn new(file: &'static str, entry: &'static str) -> Self {
        Self { file, entry, defines: Vec::new() }
    }

    /// Adds a constant.
    #[must_use]
    pub fn define(mut self, name: &'static str, value: impl std::fmt::Display) -> Self {
        self.defines.push((name, value.to_string()));
        self
    }
}

/// A kernel that a device has compiled. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The kernel function.
    pub entry: &'static str,
    /// Its arguments.
    pub signature: Arc<Signature>,
    compiled: Arc<dyn Compiled>,
}

/// Anything a device keeps for a compiled kernel.
trait Compiled: Any + Debug + Send + Sync {}
impl<T: Any + Debug + Send + Sync> Compiled for T {}

impl Kernel {
    /// Wraps what a device compiled.
    pub fn new(
        entry: &'static str,
        signature: Arc<Signature>,
        compiled: impl Any + Debug + Send + Sync,
    ) -> Self {
        Self { entry, signature, compiled: Arc::new(compiled) }
    }

    /// The device's own type; `None` for a kernel of another device.
    pub fn downcast<T: 'static>(&self) -> Option<&T> {
        let compiled: &dyn Any = &*self.compiled;
        compiled.downcast_ref()
    }
}
