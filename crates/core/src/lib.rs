//! Types that all other crates of Tabla share: errors, storage types, device profiles, the list of
//! operations, tables, and the executor interface.

pub mod device;
pub mod dtype;
pub mod error;
pub mod exec;
pub mod op;
pub mod options;
pub mod reserve;
pub mod scales;
pub mod utf8;
