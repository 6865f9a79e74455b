//! GPU backend: replays dispatch tables through wgpu.
//!
//! Setup has four steps: [`adapters`] lists the GPUs, [`open`] opens one, [`shaders`] validates
//! custom shaders, and [`link`] creates buffers, pipelines and bind groups for the tables. For each
//! token, the executor submits the command buffers recorded for its table on Vulkan, or encodes one
//! compute pass of prebuilt objects on other backends.

mod adapter;
mod arena;
mod clock;
mod destroy;
mod device;
mod encoded;
mod executor;
mod link;
mod link_plan;
mod memory;
mod options;
mod pipeline_cache;
mod pipelines;
mod probe;
mod readback;
mod timings;
mod variants;
// The targets where wgpu supports Vulkan.
#[cfg_attr(
    not(any(
        windows,
        target_os = "linux",
        target_os = "android",
        target_os = "freebsd"
    )),
    path = "recorded_stub.rs"
)]
mod recorded;
mod self_test;
mod upload;

pub use adapter::{adapters, open};
pub use device::Device;
pub use link::link;
pub use memory::planned_bytes;
pub use options::DeviceOptions;
pub use pipelines::shaders;
pub use probe::Probe;
pub use upload::stored_sections;

/// What recorded replay compiles kernels with, for developer tools that compile without executing.
#[cfg(any(
    windows,
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd"
))]
#[doc(hidden)]
pub mod compilation {
    pub use super::adapter::requested_features;
    pub use super::recorded::spirv::{compile_built_in, options_of};
    pub use super::recorded::subgroups::SubgroupSizes;
}
