//! `I2_S` files in all layouts written by bitnet.cpp.

use crate::common::{devices, golden, session};
use crate::temp_folder::Folder;
use std::ops::ControlFlow;
use std::path::Path;
use tabla::device::Precision;
use tabla::dtype::DType;
use tabla::format::{self, TensorType};
use tabla::load::LoadOptions;
use tabla::quant::i2_s::Layout;
use tabla::tools::{QUANT_MIXES, QuantizeOptions};
use tabla::{ErrorKind, Model, Source};

/// Returns a tiny Llama as `I2_S`, in the default layout.
fn ternary(folder: &Folder) -> Vec<u8> {
    let path = folder.0.join("default.gguf");
    let mix = QUANT_MIXES.iter().find(|mix| mix.name == "I2_S");
    let options = QuantizeOptions::default()
        .mix(mix.expect("a known mix"))
        .threads(1);
    let source = Source::Path(golden("quant_f16.gguf"));
    let mut progress = |_, _| ControlFlow::Continue(());
    tabla::tools::quantize(&source, &path, &options, &mut progress).expect("quantizes the model");
    std::fs::read(path).expect("reads the file")
}

/// Rearranges the codes of every ternary tensor. `place` returns byte and shift of element `i` for
/// rows of `cols` columns.
fn rearranged(file: &[u8], place: impl Fn(usize, usize) -> (usize, usize)) -> Vec<u8> {
    let directory = format::open_bytes("default", file.to_vec()).expect("a valid file");
    let mut file = file.to_vec();
    let mut count = 0;
    for tensor in &directory.tensors {
        if tensor.dtype != TensorType::Known(DType::I2S) {
            continue;
        }
        count += 1;
        let original = directory.bytes(tensor);
        let codes = original.len() - DType::I2S.facts().tail;
        let at = usize::try_from(tensor.offset).expect("a small file");
        let cols = usize::try_from(tensor.cols()).expect("a small file");
        file[at..at + codes].fill(0);
        for i in 0..4 * codes {
            let (block, part) = (i / 128, i % 128);
            let code = original[32 * block + part % 32] >> (6 - 2 * (part / 32)) & 3;
            let (byte, shift) = place(i, cols);
            file[at + byte] |= code << shift;
        }
    }
    assert!(count > 0, "no ternary tensors");
    file
}

fn logits(path: &Path, options: &LoadOptions) -> Vec<f32> {
    let mut session = session(path, options);
    session.prefill(&[1, 5, 9, 30]).expect("the prompt fits");
    let mut logits = vec![0.0; session.facts().vocab as usize];
    session.logits(&mut logits).expect("logits are available");
    logits
}

#[test]
fn all_layouts_give_the_same_logits() {
    let folder = Folder::new("ternary");
    let default = ternary(&folder);
    let by_64 = |i: usize, _: usize| (i / 64 * 16 + i % 16, 6 - 2 * (i % 64 / 16));
    let by_rows = |i: usize, cols: usize| {
        let (row, col) = (i / cols, i % cols);
        (row / 4 * cols + col, 6 - 2 * (row % 4))
    };
    let layouts = [
        (Layout::Blocks128, default.clone()),
        (Layout::Blocks64, rearranged(&default, by_64)),
        (Layout::Rows4, rearranged(&default, by_rows)),
    ];
    for (name, device) in devices(Precision::Exact) {
        let mut expected = None;
        for (layout, bytes) in &layouts {
            let path = folder.write("layout.gguf", bytes);
            let options = device.clone().i2s_layout(*layout);
            let actual = logits(&path, &options);
            let expected = expected.get_or_insert_with(|| actual.clone());
            assert!(actual.iter().all(|x| x.is_finite()), "{name}");
            assert_eq!(&actual, expected, "{layout:?} on {name}");
        }
        // The file does not record the layout, so a wrong one loads without an error.
        let path = folder.write("layout.gguf", &layouts[1].1);
        assert_ne!(Some(logits(&path, &device)), expected, "{name}");
    }
}

#[test]
fn rejects_a_tensor_that_does_not_fit_the_layout() {
    let folder = Folder::new("ternary");
    let path = folder.write("default.gguf", &ternary(&folder));
    let mut bytes = std::fs::read(&path).expect("reads the file");
    // Changes the shape of a tensor to two rows, which is no multiple of four.
    let directory = format::open_bytes("default", bytes.clone()).expect("a valid file");
    let tensor = directory
        .tensors
        .iter()
        .find(|t| t.dtype == TensorType::Known(DType::I2S));
    let name = tensor.expect("a ternary tensor").name.clone();
    let at = bytes.windows(name.len()).position(|w| w == name.as_bytes());
    let dims = at.expect("the header contains the name") + name.len() + 4;
    let [cols, rows] =
        [0, 8].map(|i| u64::from_le_bytes(bytes[dims + i..][..8].try_into().expect("eight bytes")));
    bytes[dims..][..8].copy_from_slice(&(cols * rows / 2).to_le_bytes());
    bytes[dims + 8..][..8].copy_from_slice(&2u64.to_le_bytes());
    let path = folder.write("two-rows.gguf", &bytes);
    let options = devices(Precision::Exact)[0]
        .1
        .clone()
        .i2s_layout(Layout::Rows4);
    let error = Model::builder(path)
        .options(options)
        .load()
        .expect_err("two rows");
    assert_eq!(error.kind(), ErrorKind::Format);
    let text = error.to_string();
    assert!(
        text.contains(&name) && text.contains("not a multiple of four rows"),
        "{text}"
    );
}
