//! The GPU: tables replayed through wgpu on whatever adapter there is.
//!
//! A way in has four steps: [`adapters`] lists, [`open`] takes one, [`shaders`] checks what it
//! will compile, [`link`] gives tables their buffers, pipelines and bind groups. What is left
//! for a token is to submit what was recorded for its table, or, where nothing can be recorded, to
//! encode one compute pass of prebuilt objects.

mod arena;
mod clock;
mod device;
mod forms;
mod kept;
mod laps;
mod layout;
mod link;
mod pipelines;
mod probe;
mod readback;
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

pub use arena::planned_bytes;
pub use device::{Device, Options, adapters, open};
pub use link::link;
pub use pipelines::shaders;
pub use probe::Probe;
