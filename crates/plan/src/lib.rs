//! Planning: compiles a graph into a table for a device. Places
//! experts on the CPU, splits weights that exceed the binding limit, converts activations to the types that kernels read, assigns scratch buffers, selects
//! kernels and computes grids.

pub mod builder;
mod convert;
#[cfg(test)]
mod fixture;
pub mod operands;
mod place;
mod select;
mod slots;
mod split;
pub mod verify;

use builder::Graph;
use tabla_core::device::Profile;
use tabla_core::error::Result;
use tabla_core::op::table::Table;

/// Compiles a graph for a device.
///
/// # Errors
///
/// `Unsupported` if an operation has no kernel for a storage type, `TooLarge` if a grid exceeds the
/// device limit.
pub fn compile(mut graph: Graph, profile: &Profile) -> Result<Table> {
    if let Some(experts) = &profile.host_experts {
        place::place(&mut graph, experts.layers)?;
    }
    split::split(&mut graph, profile)?;
    convert::convert(&mut graph, profile)?;
    slots::assign_buffers(&mut graph);
    select::select(graph, profile)
}

/// Returns a device without kernel variants or tight limits.
#[cfg(test)]
fn plain_profile() -> Profile {
    use tabla_core::device::DeviceKind;
    Profile {
        kind: DeviceKind::Cpu,
        name: "test".into(),
        backend: "scalar".into(),
        driver: String::new(),
        threads: 1,
        cores: 0,
        cache_bytes: 0,
        grid_max: 65535,
        binding_bytes_max: 1 << 20,
        weight_bytes: |dtype, rows, cols| {
            let elements = u64::from(rows) * u64::from(cols);
            dtype.bytes(elements).unwrap_or_default()
        },
        bindings_max: 8,
        variants: Vec::new(),
        tuned_kernels: Vec::new(),
        chunk_tokens: 8,
        attention_part: 0,
        burst_tokens: 8,
        asynchronous: false,
        host_experts: None,
    }
}
