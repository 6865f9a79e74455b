//! From a draft to a table: small commands go into the products that read them, weights over what a
//! device binds are split, slots share memory, operations become kernels, work becomes grids.

mod fuse;
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
/// `Unsupported` where an operation has no kernel for a storage type, `TooLarge` where a grid
/// does not fit the device.
pub fn compile(mut draft: Draft, profile: &Profile) -> Result<Table> {
    fuse::fuse(&mut draft, profile.fusion)?;
    split::split(&mut draft, profile)?;
    slots::share(&mut draft);
    select::select(draft, profile)
}
