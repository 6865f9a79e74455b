//! A row of the list of kernels, which `cargo reflect` writes to `params.rs`.

use super::list::Op;
use crate::dtype::DType;

/// The kernels of an operation in one form, one for each storage type: a row of
/// [`KERNELS`](super::params::KERNELS), which is reflected from the shaders.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    /// The operation.
    pub op: Op,
    /// [`KernelVariant::name`](crate::device::KernelVariant::name); `None` for the plain kernels, which run on every device.
    pub form: Option<&'static str>,
    /// [`DType::name`] of each storage type; empty where the operation has one kernel for all.
    pub variants: &'static [&'static str],
    /// Units of work (rows or elements) of one workgroup.
    pub units: u32,
    /// Tokens of one workgroup.
    pub tokens: u32,
}

impl Kernels {
    /// Whether these are the kernels of an operation for a storage type.
    pub(super) fn has(&self, op: Op, variant: Option<DType>) -> bool {
        let listed = match variant {
            Some(variant) => self.variants.contains(&variant.name()),
            None => self.variants.is_empty(),
        };
        self.op == op && listed
    }
}
