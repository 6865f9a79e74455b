//! Device memory required by tables, computed before allocation.

use super::arena::sizes;
use super::readback::READBACK_BYTES;
use tabla_core::device::Profile;
use tabla_core::op::table::{self, Table};

/// Returns the size in bytes of the buffers of the tables and of the readback buffers. The upload
/// of weights temporarily uses up to 64 MiB more.
pub fn planned_bytes(tables: &[Table], profile: &Profile) -> u64 {
    let buffers = table::buffers(tables).into_values();
    let buffers: u64 = buffers.map(|slot| sizes(slot, profile)[1]).sum();
    buffers + READBACK_BYTES as u64
}
