//! The kernels of GPUs: WGSL files, and how the text of one kernel is put together from them.
//!
//! A kernel is a file of the root, for a storage type (`variants`) and in a form (`forms`). What
//! Rust needs to know of kernels, their parameters and tiles, is reflected by `cargo reflect` into
//! `crates/core/src/op/params.rs`; a test fails where that file is not what the shaders say.

#[cfg(any(test, feature = "reflect"))]
pub mod reflect;
mod source;

pub use source::{Form, Which, expand, forms, variants};

/// Name and text of every file, sorted by name.
pub static SOURCES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// The text of a file of [`SOURCES`].
pub fn source(name: &str) -> Option<&'static str> {
    let at = SOURCES.binary_search_by_key(&name, |(name, _)| name).ok()?;
    Some(SOURCES[at].1)
}
