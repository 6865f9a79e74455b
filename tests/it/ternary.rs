//! `I2_S` files in each of the layouts that builds of bitnet.cpp write.

use crate::common::{devices, golden, session};
use crate::scratch::Folder;
use std::ops::ControlFlow;
use std::path::Path;
use tabla::dtype::DType;
use tabla::format::{self, TensorType};
use tabla::quant::i2_s::Layout;
use tabla::{ErrorKind, LoadOptions, MIXES, Precision, Quantize, Source};

/// A tiny Llama as `I2_S`, in the usual layout.
fn ternary(folder: &Folder) -> Vec<u8> {
    let path = folder.0.join("usual.gguf");
    let mix = MIXES.iter().find(|mix| mix.name == "I2_S");
    let how = Quantize {
        mix: Some(mix.expect("it is one of the mixes")),
        output: None,
        embedding: None,
        choose: &|_| None,
        importance: None,
        threads: 1,
    };
    let source = Source::Path(golden("quant_f16.gguf"));
    tabla::quantize(&source, &path, &how, &mut |_, _| ControlFlow::Continue(()))
        .expect("it can be written");
    std::fs::read(path).expect("it was written")
}

/// The file with the codes of every ternary tensor where `place` puts element `i` of rows of
/// `cols`: byte and shift.
fn rearranged(file: &[u8], place: impl Fn(usize, usize) -> (usize, usize)) -> Vec<u8> {
    let directory = format::open_bytes("usual", file.to_vec()).expect("it is sound");
    let mut file = file.to_vec();
    let mut count = 0;
    for tensor in &directory.tensors {
        if tensor.dtype != TensorType::Known(DType::I2S) {
            continue;
        }
        count += 1;
        let usual = directory.bytes(tensor);
        let codes = usual.len() - DType::I2S.facts().tail;
        let at = usize::try_from(tensor.offset).expect("a small file");
        let cols = usize::try_from(tensor.cols()).expect("a small file");
        file[at..at + codes].fill(0);
        for i in 0..4 * codes {
            let (block, part) = (i / 128, i % 128);
            let code = usual[32 * block + part % 32] >> (6 - 2 * (part / 32)) & 3;
            let (byte, shift) = place(i, cols);
            file[at + byte] |= code << shift;
        }
    }
    assert!(count > 0, "no tensor is ternary");
    file
}

fn logits(path: &Path, options: &LoadOptions) -> Vec<f32> {
    let mut session = session(path, options);
    session
        .prefill(&[1, 5, 9, 30], &mut |_, _| {})
        .expect("it fits");
    let mut logits = vec![0.0; session.facts().vocab as usize];
    session.logits(&mut logits).expect("there was a pass");
    logits
}

#[test]
fn each_layout_gives_the_same_logits() {
    let folder = Folder::new("ternary");
    let usual = ternary(&folder);
    let by_64 = |i: usize, _: usize| (i / 64 * 16 + i % 16, 6 - 2 * (i % 64 / 16));
    let by_rows = |i: usize, cols: usize| {
        let (row, col) = (i / cols, i % cols);
        (row / 4 * cols + col, 6 - 2 * (row % 4))
    };
    let layouts = [
        (Layout::Blocks128, usual.clone()),
        (Layout::Blocks64, rearranged(&usual, by_64)),
        (Layout::Rows4, rearranged(&usual, by_rows)),
    ];
    for (name, device) in devices(Precision::Exact) {
        let mut wanted = None;
        for (layout, bytes) in &layouts {
            let path = folder.write("layout.gguf", bytes);
            let options = LoadOptions {
                i2s_layout: *layout,
                ..device.clone()
            };
            let found = logits(&path, &options);
            let wanted = wanted.get_or_insert_with(|| found.clone());
            assert!(found.iter().all(|x| x.is_finite()), "{name}");
            assert_eq!(&found, wanted, "{layout:?} on {name}");
        }
        // Nothing in the file says so: the wrong one is read without a word.
        let path = folder.write("layout.gguf", &layouts[1].1);
        assert_ne!(Some(logits(&path, &device)), wanted, "{name}");
    }
}

#[test]
fn a_layout_that_a_tensor_cannot_have_is_refused() {
    let folder = Folder::new("ternary");
    let path = folder.write("usual.gguf", &ternary(&folder));
    let mut bytes = std::fs::read(&path).expect("it was written");
    // A row more or less is no longer four of them: the tensor of the file is [rows, cols] as its
    // header says, so a header that says so is made to say it.
    let directory = format::open_bytes("usual", bytes.clone()).expect("it is sound");
    let tensor = directory
        .tensors
        .iter()
        .find(|t| t.dtype == TensorType::Known(DType::I2S));
    let name = tensor.expect("one is ternary").name.clone();
    let at = bytes.windows(name.len()).position(|w| w == name.as_bytes());
    let dims = at.expect("the header has the name") + name.len() + 4;
    let [cols, rows] =
        [0, 8].map(|i| u64::from_le_bytes(bytes[dims + i..][..8].try_into().expect("eight bytes")));
    bytes[dims..][..8].copy_from_slice(&(cols * rows / 2).to_le_bytes());
    bytes[dims + 8..][..8].copy_from_slice(&2u64.to_le_bytes());
    let path = folder.write("two-rows.gguf", &bytes);
    let options = LoadOptions {
        i2s_layout: Layout::Rows4,
        ..devices(Precision::Exact)[0].1.clone()
    };
    let error = tabla::load(&Source::Path(path), &options, &mut |_| {}).expect_err("two rows");
    assert_eq!(error.kind(), ErrorKind::Format);
    let text = error.to_string();
    assert!(
        text.contains(&name) && text.contains("not a multiple of four rows"),
        "{text}"
    );
}
