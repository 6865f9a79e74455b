//! What every other crate of Tabla builds on: errors, storage types, device facts, the list of
//! operations, tables and how they are planned, and the interface of an executor.

pub mod device;
pub mod dtype;
pub mod error;
pub mod exec;
pub mod op;
pub mod plan;
pub mod scales;
