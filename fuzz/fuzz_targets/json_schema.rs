//! The target `json_schema`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tabla_fuzz::run("json_schema", input));
