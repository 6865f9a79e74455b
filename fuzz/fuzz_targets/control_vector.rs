//! The target `control_vector`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tabla_fuzz::run("control_vector", input));
