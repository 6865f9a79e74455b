//! The table: the list of operations, the commands made of them, and their listing.

pub mod builder;
pub mod kernel;
mod kernel_row;
pub mod list;
pub mod listing;
pub mod operands;
pub mod pages;
#[expect(missing_docs, reason = "fields are named as in the shaders, which describe them")]
#[rustfmt::skip]
pub mod params;
pub mod sampler;
pub mod sampling;
pub mod table;
pub mod verify;
