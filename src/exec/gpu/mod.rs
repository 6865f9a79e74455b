//! The GPU: tables replayed through wgpu on whatever adapter there is.
//!
//! A way in has four steps: [`adapters`] lists, [`open`] takes one, [`shaders`] checks what it
//! will compile, [`link`] gives tables their buffers, pipelines and bind groups. What is left
//! for a token is to encode one compute pass of prebuilt objects and to submit it.

mod arena;
mod device;
mod layout;
mod link;
mod pipelines;
mod readback;
mod run;
pub mod source;
mod upload;

pub use device::{Device, Options, adapters, open};
pub use link::link;
pub use pipelines::shaders;
