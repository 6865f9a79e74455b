//! Planning: compiles a draft into a table for a device. Fuses small commands into products, places
//! experts on the CPU, splits weights that exceed the binding limit, assigns scratch buffers, selects
//! kernels and computes grids.

mod fuse;
mod place;
mod select;
mod slots;
mod split;

use crate::device::Profile;
use crate::error::Result;
use crate::op::builder::Draft;
use crate::op::table::Table;

/// Compiles a draft for a device.
///
/// # Errors
///
/// `Unsupported` if an operation has no kernel for a storage type, `TooLarge` if a grid exceeds the
/// device limit.
pub fn compile(mut draft: Draft, profile: &Profile) -> Result<Table> {
    fuse::fuse(&mut draft, profile.fusion)?;
    if let Some(experts) = &profile.host_experts {
        place::place(&mut draft, experts.layers)?;
    }
    split::split(&mut draft, profile)?;
    slots::assign_buffers(&mut draft);
    select::select(draft, profile)
}
