//! The target `safetensors_index`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tabla_fuzz::run("safetensors_index", input));
