//! GPU.
pub mod source;
