//! Bodies of the fuzz targets of `fuzz_targets`. `tests/it/fuzz.rs` runs them with the inputs of `corpus`.

use tabla_capi as _; // C code calls it.

mod memory;
mod targets;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// Runs a target with an input of the fuzzer.
///
/// # Panics
///
/// Panics if a check of the target fails, or if there is no such target.
pub fn run(target: &str, input: &[u8]) {
    let found = targets::TARGETS.iter().find(|(name, _)| *name == target);
    found.expect("a target of the list").1(input);
}
