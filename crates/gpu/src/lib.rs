//! The GPU: tables replayed through wgpu on whatever adapter there is.
//!
//! A way in has four steps: [`adapters`] lists, [`open`] takes one, [`shaders`] checks what it
//! will compile, [`link`] gives tables their buffers, pipelines and bind groups. What is left
//! for a token is to submit what was recorded for its table, or, where nothing can be recorded, to
//! encode one compute pass of prebuilt objects.

mod adapter;
mod arena;
mod clock;
mod destroy;
mod device;
mod forms;
mod layout;
mod link;
mod memory;
mod options;
mod parts;
mod pipeline_cache;
mod pipelines;
mod probe;
mod readback;
mod timings;
// wgpu's Vulkan is built for these.
#[cfg_attr(
    not(any(
        windows,
        target_os = "linux",
        target_os = "android",
        target_os = "freebsd"
    )),
    path = "unrecorded.rs"
)]
mod recorded;
mod run;
mod trial;
mod upload;

pub use adapter::{adapters, open};
pub use device::Device;
pub use link::link;
pub use memory::planned_bytes;
pub use options::Options;
pub use pipelines::shaders;
pub use probe::Probe;
