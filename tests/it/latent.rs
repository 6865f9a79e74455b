//! Latent attention in the form of early GGUF files: keys and values of all heads in one matrix, sizes of whole heads.

use crate::common::{golden, session};
use crate::temp_folder::Folder;
use std::path::{Path, PathBuf};
use tabla::dtype::DType;
use tabla::format::write::Writer;
use tabla::format::{self, Directory};
use tabla::load::{DeviceChoice, LoadOptions};

/// Keys that early files lack.
const LATER: [&str; 2] = [".key_length_mla", ".value_length_mla"];

/// Sizes of a test model.
struct Sizes {
    heads: usize,
    rank: usize,
    plain: usize,
    rope: usize,
    value: usize,
}

impl Sizes {
    fn of(file: &Directory) -> Self {
        let number = |key: &str| {
            let value = file.metadata.u32(&format!("deepseek2.{key}"));
            value.expect("a number").expect("the key exists") as usize
        };
        let rope = number("rope.dimension_count");
        Self {
            heads: number("attention.head_count"),
            rank: number("attention.kv_lora_rank"),
            plain: number("attention.key_length_mla") - rope,
            rope,
            value: number("attention.value_length_mla"),
        }
    }

    /// Returns the matrix of keys and values of elements of two bytes. The matrices of keys are transposed.
    fn joined(&self, keys: &[u8], values: &[u8]) -> Vec<u8> {
        let Self {
            heads,
            rank,
            plain,
            value,
            ..
        } = *self;
        let mut all = Vec::new();
        for head in 0..heads {
            let keys = &keys[2 * head * rank * plain..];
            for row in 0..plain {
                for col in 0..rank {
                    all.extend(&keys[2 * (col * plain + row)..][..2]);
                }
            }
            all.extend(&values[2 * head * value * rank..][..2 * value * rank]);
        }
        all
    }
}

/// Writes a model in the form of early files.
fn in_early_form(path: &Path, to: &Folder) -> PathBuf {
    let file = format::open(path).expect("a valid file");
    let sizes = Sizes::of(&file);
    let size = |key: &str| match key {
        "deepseek2.attention.head_count_kv" => Some(sizes.heads),
        "deepseek2.attention.key_length" => Some(sizes.plain + sizes.rope),
        "deepseek2.attention.value_length" => Some(sizes.value),
        _ => None,
    };
    let mut w = Writer::new();
    for (key, value) in file.metadata.iter() {
        match size(key) {
            Some(size) => _ = w.set(key, u32::try_from(size).expect("small")),
            None if LATER.iter().any(|later| key.ends_with(later)) => {}
            None => _ = w.copy(key, value),
        }
    }
    for tensor in &file.tensors {
        let bytes = file.bytes(tensor);
        if tensor.name.ends_with(".attn_v_b.weight") {
            continue;
        }
        let Some(layer) = tensor.name.strip_suffix(".attn_k_b.weight") else {
            w.tensor(&tensor.name, tensor.dtype, &tensor.dims, bytes.to_vec());
            continue;
        };
        assert_eq!(tensor.dtype.known(), Some(DType::Bf16));
        let values = file.tensor(&format!("{layer}.attn_v_b.weight"));
        let joined = sizes.joined(bytes, file.bytes(values.expect("the tensor exists")));
        let rows = sizes.heads * (sizes.plain + sizes.value);
        let dims = [sizes.rank as u64, rows as u64];
        w.tensor(
            &format!("{layer}.attn_kv_b.weight"),
            tensor.dtype,
            &dims,
            joined,
        );
    }
    to.write("model.gguf", &w.finish().expect("encodes the file"))
}

#[test]
fn early_files_give_the_same_bits() {
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .max_context(96);
    let tokens: Vec<u32> = (0..40).map(|i| 3 + i * 7 % 250).collect();
    for name in ["deepseek_v2", "deepseek_v3"] {
        let path = golden("arch").join(name).join("model.gguf");
        let scratch = Folder::new("early");
        let early = in_early_form(&path, &scratch);
        let [recent, early] = [path, early].map(|path| {
            let mut session = session(&path, &options);
            session.prefill(&tokens).expect("prefill succeeds");
            let mut logits = vec![0.0; session.facts().vocab as usize];
            session.logits(&mut logits).expect("logits are available");
            logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        });
        assert_eq!(recent, early, "{name}");
    }
}
