//! GPU kernels in WGSL, and the expansion of their imports.
//!
//! A kernel is a file of the root directory, for a storage type (file `dtypes`), in the
//! default or another kernel variant (file `variants`). `cargo reflect` generates
//! `crates/core/src/op/params.rs` with parameters and tile sizes; a test fails if that file is out
//! of date.

#[cfg(any(test, feature = "reflect"))]
pub mod reflect;
mod source;

pub use source::{KernelSpec, KernelVariant, dtypes, expand, kernel_specs, standard, variants};

/// Name and text of all files, sorted by name.
pub static SOURCES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// Returns the text of a file of [`SOURCES`].
pub fn source(name: &str) -> Option<&'static str> {
    let at = SOURCES.binary_search_by_key(&name, |(name, _)| name).ok()?;
    Some(SOURCES[at].1)
}
