//! Test support: cases of every operation, their formulas in f64, random operands, and the code that
//! runs a case on a device.
//!
//! A development dependency of crates with devices; no product crate depends on it.

pub mod case;
pub mod cases;
pub mod fill;
pub mod formulas;
pub mod rig;
pub mod samplers;
