//! The target `tables`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    // Panics of kernels are caught; libFuzzer would end at them.
    init: std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))),
    |input: &[u8]| tabla_fuzz::run("tables", input)
);
