//! Compiler statistics of the GPU kernels, without a GPU.
//!
//! Mesa's RADV compiles for AMD GPUs that are not there (a null device). [`main`] opens such a device,
//! compiles kernels as recorded replay does, and reports the statistics of the compiler and what its
//! machine code costs: [`isa`] parses it, [`loops`] finds the inner loop of a product, and the roofline
//! compares the loop with the rates of a card ([`cards`]).

#[cfg(target_os = "linux")]
mod budget;
pub mod cards;
#[cfg(target_os = "linux")]
mod compiler;
pub mod isa;
#[cfg(target_os = "linux")]
mod kernels;
pub mod loops;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod roofline;
#[cfg(target_os = "linux")]
mod row;
#[cfg(target_os = "linux")]
mod workload;

#[cfg(target_os = "linux")]
pub use program::main;
