//! The table: the list of operations, the commands made of them, and their listing.

pub mod builder;
pub mod list;
pub mod listing;
pub mod pages;
pub mod sampler;
pub mod table;
pub mod verify;

/// What `build.rs` reflects from `shaders/`: every kernel's text, bindings and parameters.
pub mod shaders {
    #![allow(
        missing_docs,
        unused,
        clippy::all,
        reason = "generated from the shaders"
    )]
    include!(concat!(env!("OUT_DIR"), "/shaders.rs"));
}
