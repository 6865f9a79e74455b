//! Loads a compiled model with changed bytes and computes a prompt with it. The digest of its header is made correct
//! again, as a forger would. The input is a list of changes: three bytes of the place, one of the value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::{Model, Session, Source};

const MODEL: &[u8] = include_bytes!("../../tests/golden/quant_q4_0.gguf");

fn options() -> LoadOptions {
    LoadOptions::default().device(DeviceChoice::Cpu).threads(1).max_context(64).chunk_tokens(4)
}

/// A compiled model, the size of its header and the place of the digest.
fn compiled() -> &'static (Vec<u8>, usize, usize) {
    static COMPILED: OnceLock<(Vec<u8>, usize, usize)> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("tabla-fuzz-{}.tabla", std::process::id()));
        let mut go_on = |_, _| ControlFlow::Continue(());
        let (source, devices) = (Source::bytes(MODEL), [DeviceChoice::Cpu]);
        tabla::tools::compile_model(&source, &path, &devices, &options(), &mut go_on).expect("compiles");
        let directory = tabla::tools::open_directory(&Source::from(&path)).expect("opens");
        let digest = directory.tensor("tabla.digest").expect("a digest").offset as usize;
        let bytes = std::fs::read(&path).expect("a file");
        std::fs::remove_file(&path).expect("removes the file");
        (bytes, directory.head().len(), digest)
    })
}

fuzz_target!(|changes: &[u8]| {
    let (bytes, head, digest) = compiled();
    let mut forged = bytes.clone();
    for [a, b, c, value] in changes.as_chunks::<4>().0 {
        let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % forged.len();
        forged[at] = *value;
    }
    let hash = blake3::hash(&forged[..*head]);
    forged[*digest..*digest + 32].copy_from_slice(hash.as_bytes());
    if let Ok(model) = Model::builder(Source::bytes(forged)).options(options()).load() {
        let _ = Session::new(model).prefill(&[1, 2, 3]);
    }
});
