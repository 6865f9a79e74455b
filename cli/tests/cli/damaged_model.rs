//! A small model with a weight that is not finite.

use std::path::{Path, PathBuf};

/// Copies `model`, with NaN as the first number of a tensor in BF16, to the temporary folder of the tests.
pub(crate) fn model_with_nan(model: &Path, tensor: &str) -> PathBuf {
    let file = tabla::format::open(model).expect("a model");
    let offset = file.tensor(tensor).expect("the tensor exists").offset;
    let offset = usize::try_from(offset).expect("small");
    let mut bytes = std::fs::read(model).expect("readable");
    bytes[offset..offset + 2].copy_from_slice(&[0xc0, 0x7f]);
    let name = format!("not-finite-{}.gguf", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).expect("writable");
    path
}
