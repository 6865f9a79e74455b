//! Files with `NVFP4` matrices, whose scales are tensors of their own.

use crate::common::{devices, golden, session, worst};
use crate::temp_folder::Folder;
use std::ops::ControlFlow;
use std::path::Path;
use tabla::Source;
use tabla::device::Precision;
use tabla::dtype::DType;
use tabla::format::write::Writer;
use tabla::format::{self, Directory, TensorInfo};
use tabla::load::LoadOptions;
use tabla::quant;
use tabla::tools::{QUANT_MIXES, QuantizeOptions};

/// Maximum absolute difference of a logit.
const TOLERANCE: f32 = 1e-4;

/// Bytes and elements of a block.
const BLOCK: (usize, u64) = (36, 64);

/// Returns blocks with varied codes, and scales from 0.5 to 1.
fn blocks(seed: usize, tensor: &TensorInfo) -> Vec<u8> {
    let count = usize::try_from(tensor.elements() / BLOCK.1).expect("a small tensor");
    let byte = |i: usize| {
        let random = (i + seed * 7919).wrapping_mul(2_654_435_761) >> 13;
        match i % BLOCK.0 {
            0..4 => 0x30 | random.to_le_bytes()[0] & 7,
            _ => random.to_le_bytes()[0],
        }
    };
    (0..count * BLOCK.0).map(byte).collect()
}

fn f32s(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Scale of a matrix, which depends on its name.
fn scale(name: &str) -> f32 {
    0.013 + 0.0007 * name.len() as f32
}

/// Writes a tiny Llama whose matrices with rows of whole blocks are `NVFP4` with scales, and the same
/// values as F32.
fn write(folder: &Folder) {
    let file = format::open(&golden("quant_bf16.gguf")).expect("a golden file");
    let (mut coded, mut plain) = (Writer::new(), Writer::new());
    for (key, value) in file.metadata.iter() {
        coded.copy(key, value);
        plain.copy(key, value);
    }
    let mut count = 0;
    for (seed, tensor) in file.tensors.iter().enumerate() {
        let TensorInfo { name, dims, .. } = tensor;
        if !(name.starts_with("blk.") && dims.len() == 2 && dims[0].is_multiple_of(BLOCK.1)) {
            for writer in [&mut coded, &mut plain] {
                writer.tensor(name, tensor.dtype, dims, file.bytes(tensor));
            }
            continue;
        }
        count += 1;
        let codes = blocks(seed, tensor);
        let mut values = vec![0.0; usize::try_from(tensor.elements()).expect("a small tensor")];
        quant::decode_row(DType::Nvfp4, &codes, &mut values);
        values.iter_mut().for_each(|x| *x *= scale(name));
        plain.tensor(name, DType::F32, dims, f32s(&values));
        coded.tensor(name, DType::Nvfp4, dims, codes);
        let module = name.strip_suffix("weight").expect("a weight");
        for (kind, value) in [("scale", scale(name)), ("input_scale", 9.0)] {
            coded.tensor(&format!("{module}{kind}"), DType::F32, &[1], f32s(&[value]));
        }
    }
    assert!(count >= 10, "only {count} matrices");
    folder.write("coded.gguf", &coded.finish().expect("a valid file"));
    folder.write("plain.gguf", &plain.finish().expect("a valid file"));
}

fn logits(path: &Path, options: &LoadOptions) -> Vec<f32> {
    let mut session = session(path, options);
    session.prefill(&[1, 5, 9, 30]).expect("the prompt fits");
    let mut logits = vec![0.0; session.facts().vocab as usize];
    session.logits(&mut logits).expect("logits are available");
    logits
}

fn quantize(from: &Path, to: &Path, mix: Option<&str>) -> Directory {
    let mix = mix.map(|name| QUANT_MIXES.iter().find(|mix| mix.name == name));
    let mix = mix.map(|mix| mix.expect("a known mix"));
    let options = QuantizeOptions::default().mix(mix).threads(1);
    let source = Source::Path(from.to_path_buf());
    let mut progress = |_, _| ControlFlow::Continue(());
    tabla::tools::quantize(&source, to, &options, &mut progress).expect("quantizes the model");
    format::open(to).expect("a valid file")
}

#[test]
fn scales_of_matrices_apply_on_all_devices() {
    let folder = Folder::new("nvfp4");
    write(&folder);
    let [coded, plain] = ["coded.gguf", "plain.gguf"].map(|name| folder.0.join(name));
    for (device, options) in devices(Precision::Exact) {
        let options = options.max_context(64).samplers(Vec::new());
        let (at, difference) = worst(&logits(&coded, &options), &logits(&plain, &options));
        assert!(
            difference <= TOLERANCE,
            "{device}: logit {at} differs by {difference}"
        );
    }
}

#[test]
fn conversion_keeps_or_applies_the_scales() {
    let folder = Folder::new("nvfp4-conversion");
    write(&folder);
    let [coded, plain] = ["coded.gguf", "plain.gguf"].map(|name| folder.0.join(name));
    let kept = quantize(&coded, &folder.0.join("kept.gguf"), None);
    let from = format::open(&coded).expect("a valid file");
    assert_eq!(kept.tensors.len(), from.tensors.len());
    for (a, b) in from.tensors.iter().zip(&kept.tensors) {
        assert_eq!((&a.name, a.dtype), (&b.name, b.dtype));
        assert!(from.bytes(a) == kept.bytes(b), "{}", a.name);
    }
    let applied = quantize(&coded, &folder.0.join("applied.gguf"), Some("F32"));
    let expected = quantize(&plain, &folder.0.join("expected.gguf"), Some("F32"));
    assert_eq!(applied.tensors.len(), expected.tensors.len());
    for (a, b) in expected.tensors.iter().zip(&applied.tensors) {
        assert_eq!((&a.name, a.dtype), (&b.name, b.dtype));
        let [x, y] = [expected.bytes(a), applied.bytes(b)].map(|bytes| {
            let numbers = bytes.as_chunks().0.iter();
            numbers.map(|n| f32::from_le_bytes(*n)).collect::<Vec<_>>()
        });
        let near = |(x, y): (&f32, &f32)| (x - y).abs() <= 3e-7 * x.abs();
        assert!(x.iter().zip(&y).all(near), "{}", a.name);
    }
}
