//! Files that targets change, and models that they use.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::{Model, Result, Session, Source};

/// A quantized model of Llama's architecture.
pub(crate) const LLAMA: &[u8] = include_bytes!("../../../tests/golden/quant_q4_0.gguf");

/// Returns the path of a file or folder of `tests/golden`.
pub(crate) fn golden(name: &str) -> PathBuf {
    // The test is in a package of the root, the fuzzer in one of a folder.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let roots = [package, package.parent().unwrap_or(package)];
    let mut found = roots
        .into_iter()
        .map(|root| root.join("tests/golden").join(name));
    found.find(|path| path.exists()).expect("a golden file")
}

pub(crate) fn options() -> LoadOptions {
    LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .threads(1)
        .max_context(64)
        .chunk_tokens(4)
}

pub(crate) fn load(source: impl Into<Source>) -> Result<Model> {
    Model::builder(source).options(options()).load()
}

/// The model of [`LLAMA`], loaded once.
pub(crate) fn llama() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| load(Source::bytes(LLAMA)).expect("a valid model"))
}

/// Computes a short prompt. Returns whether that succeeded; an error must be one of the model.
pub(crate) fn computes(session: &mut Session) -> bool {
    let vocab = session.facts().vocab;
    let mut logits = vec![0.0; vocab as usize];
    let tokens = [1, 2, 3].map(|token| token % vocab.max(1));
    let done = session
        .prefill(&tokens)
        .and_then(|()| session.logits(&mut logits));
    done.map_err(|error| super::errors::check(&error)).is_ok()
}
