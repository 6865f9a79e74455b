//! Device memory that tables need, computed before it is allocated.

use super::arena::sizes;
use super::readback::READBACK_BYTES;
use tabla_core::device::Profile;
use tabla_core::op::table::{self, Table};

/// Bytes of the buffers that tables will have on a device of this profile, and of those that the
/// host reads from. While weights go there, what they pass through comes on top: 64 MiB at most.
pub fn planned_bytes(tables: &[Table], profile: &Profile) -> u64 {
    let places = table::places(tables).into_values();
    let places: u64 = places.map(|slot| sizes(slot, profile)[1]).sum();
    places + READBACK_BYTES as u64
}
