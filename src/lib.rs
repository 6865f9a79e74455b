//! Tabla loads a language model from the file a user already has, compiles it once into flat
//! tables of [`DispatchCmd`](op::table::DispatchCmd)s, and replays a table per token.

pub mod device;
pub mod dtype;
pub mod error;
pub mod exec;
pub mod format;
pub mod op;
pub mod plan;
pub mod quant;
pub mod text;
