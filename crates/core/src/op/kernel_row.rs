//! Row type of the list of kernels in `params.rs`, which `cargo reflect` generates.

use super::list::Op;
use crate::dtype::DType;

/// Kernels of an operation in one kernel variant, one per storage type: a row of
/// [`KERNELS`](super::params::KERNELS).
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    /// Operation.
    pub op: Op,
    /// [`KernelVariant::name`](crate::device::KernelVariant::name); `None` for the default kernels,
    /// which run on every device.
    pub variant: Option<&'static str>,
    /// [`DType::name`] of each storage type; empty if one kernel serves all.
    pub dtypes: &'static [&'static str],
    /// Work units (rows or elements) per workgroup.
    pub units: u32,
    /// Tokens per workgroup.
    pub tokens: u32,
}

impl Kernels {
    /// Returns whether the row has a kernel of an operation for a storage type.
    pub(super) fn has(&self, op: Op, dtype: Option<DType>) -> bool {
        let listed = match dtype {
            Some(dtype) => self.dtypes.contains(&dtype.name()),
            None => self.dtypes.is_empty(),
        };
        self.op == op && listed
    }
}
