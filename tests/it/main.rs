//! Integration tests, one binary.

mod formulas;
mod kernels;
