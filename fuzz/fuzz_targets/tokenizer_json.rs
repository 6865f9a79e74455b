//! The target `tokenizer_json`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tabla_fuzz::run("tokenizer_json", input));
