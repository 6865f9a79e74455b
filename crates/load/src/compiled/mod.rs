//! Compiled model files.

pub mod check;
pub mod tables;

#[cfg(test)]
mod table_tests;
