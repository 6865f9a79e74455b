//! Test support: test cases of all operations with formulas in f64, random operands, and a runner for
//! devices.
//!
//! Only a development dependency.

pub mod added_tables;
pub mod case;
pub mod changes;
pub mod failing;
pub mod fill;
pub mod json;
pub mod ops;
pub mod rig;
pub mod samplers;
