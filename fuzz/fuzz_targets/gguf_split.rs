//! The target `gguf_split`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tabla_fuzz::run("gguf_split", input));
