//! Operations, tables of commands, and their listing.

pub mod fields;
pub mod functions;
pub mod hooks;
mod kernel;
mod kernel_row;
pub mod kind;
pub mod list;
pub mod listing;
pub mod operands;
pub mod pages;
#[expect(missing_docs, reason = "the shaders document the fields")]
#[rustfmt::skip]
pub mod params;
pub mod sampler;
pub mod table;
