//! Test support: test cases of all operations, reference formulas in f64, random operands, and a
//! runner for devices.
//!
//! Only a development dependency.

pub mod added_tables;
pub mod case;
pub mod cases;
pub mod fill;
pub mod formulas;
pub mod json;
pub mod rig;
pub mod samplers;
