//! Speech models in every file format, and conversions between them.

use crate::common::convert;
use crate::speech::{cpu, load, write};
use crate::speech_model::{CONTEXT, SHAPES, Shape, numbers, values};
use crate::temp_folder::{Folder, safetensors};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tabla::format::write::Writer;
use tabla::tools::{QuantizeOptions, quantize, speech_logits};
use tabla::{ErrorKind, Source};

/// Tokens whose logits are compared.
const TOKENS: [u32; 3] = [50_257, 7, 300];

/// Parts of names: of OpenAI, and of Hugging Face.
const HF_NAMES: [(&str, &str); 13] = [
    ("cross_attn_ln", "encoder_attn_layer_norm"),
    ("attn_ln", "self_attn_layer_norm"),
    ("mlp_ln", "final_layer_norm"),
    ("cross_attn.", "encoder_attn."),
    (".attn.", ".self_attn."),
    ("query", "q_proj"),
    ("value", "v_proj"),
    ("mlp.0", "fc1"),
    ("mlp.2", "fc2"),
    ("blocks.", "layers."),
    ("positional_embedding", "embed_positions.weight"),
    ("token_embedding", "embed_tokens"),
    ("ln_post", "layer_norm"),
];

fn hf_name(name: &str) -> String {
    let name = HF_NAMES
        .iter()
        .fold(name.to_string(), |name, (from, to)| name.replace(from, to));
    let name = name
        .replace("_attn.key", "_attn.k_proj")
        .replace("_attn.out", "_attn.out_proj");
    format!(
        "model.{}",
        name.replace("decoder.ln.", "decoder.layer_norm.")
    )
}

/// A tokenizer of a single token: these tests compare logits only.
const TOKENIZER: &str = r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;

/// A program whose files are written.
#[derive(Clone, Copy, PartialEq)]
enum Files {
    HuggingFace,
    Mlx,
}

/// Writes the model as a folder of Hugging Face, or of MLX, whose convolutions have the channels last.
fn folder(shape: &Shape, files: Files, folder: &Folder) -> PathBuf {
    let mlx = files == Files::Mlx;
    let tensors = shape.tensors().into_iter().map(|(name, mut dims)| {
        let mut x = values(&name, dims.iter().product());
        if name.contains(".conv") && name.ends_with("bias") {
            dims.truncate(1);
        }
        if mlx && name.contains(".conv") && name.ends_with("weight") {
            let width = 3 * dims[1];
            let rows = x.chunks(width);
            x = rows
                .flat_map(|row| (0..width).map(|i| row[i % dims[1] * 3 + i / dims[1]]))
                .collect();
            dims.swap(1, 2);
        }
        let name = match mlx {
            true => name.replace("mlp.0", "mlp1").replace("mlp.2", "mlp2"),
            false => hf_name(&name),
        };
        let bytes = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        (name, "F32", dims.iter().map(|n| *n as u64).collect(), bytes)
    });
    let tensors: Vec<_> = tensors.collect();
    folder.write("model.safetensors", &safetensors(&tensors));
    let (v, m, d, h) = (shape.vocab, shape.mels, shape.dim, shape.heads);
    let config = match mlx {
        true => format!(
            r#"{{"model_type": "whisper", "n_vocab": {v}, "n_mels": {m}, "n_audio_ctx": {CONTEXT},
            "n_audio_state": {d}, "n_audio_head": {h}, "n_audio_layer": 2, "n_text_ctx": 64,
            "n_text_state": {d}, "n_text_head": {h}, "n_text_layer": 3}}"#
        ),
        // The maximum length of a fine-tune may be shorter than the positions of the file.
        false => format!(
            r#"{{"model_type": "whisper", "vocab_size": {v}, "num_mel_bins": {m}, "d_model": {d},
            "max_source_positions": {CONTEXT}, "max_target_positions": 32, "encoder_layers": 2,
            "decoder_layers": 3, "encoder_attention_heads": {h}, "decoder_attention_heads": {h},
            "encoder_ffn_dim": {f}, "decoder_ffn_dim": {f}}}"#,
            f = 4 * d
        ),
    };
    folder.write("config.json", config.as_bytes());
    folder.write("tokenizer.json", TOKENIZER.as_bytes());
    folder.0.clone()
}

/// Writes a GGUF file with names of Hugging Face and without any metadata, as candle reads it. All
/// published models have heads of 64, which this one needs.
fn bare_gguf(shape: &Shape, folder: &Folder) -> PathBuf {
    let mut writer = Writer::new();
    for (name, shape) in shape.tensors() {
        let x = values(&name, shape.iter().product());
        let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut dims: Vec<u64> = shape.iter().rev().map(|n| *n as u64).collect();
        if name.contains(".conv") && name.ends_with("bias") {
            dims.remove(0);
        }
        writer.tensor(&hf_name(&name), tabla::dtype::DType::F32, &dims, bytes);
    }
    folder.write("tokenizer.json", TOKENIZER.as_bytes());
    folder.write("bare.gguf", &writer.finish().expect("a small file"))
}

fn logits(path: &Path, shape: &Shape) -> Vec<f32> {
    let model = load(&path.to_path_buf(), &cpu());
    let mel = numbers("mel", 2 * CONTEXT * shape.mels);
    speech_logits(&model, &mel, &TOKENS)
        .expect("it runs")
        .logits
}

/// Root mean square of the difference, relative to the values.
fn error(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected);
    let square = |x: f32| f64::from(x).powi(2);
    let difference: f64 = pairs.map(|(x, y)| square(x - y)).sum();
    (difference / expected.iter().map(|x| square(*x)).sum::<f64>()).sqrt()
}

#[test]
fn all_formats_compute_the_same() {
    let shape = &SHAPES[0];
    let [ggml, hf, mlx] = ["ggml", "hf", "mlx"].map(|name| Folder::new(&format!("speech-{name}")));
    let original = write(shape, &ggml);
    let expected = logits(&original, shape);
    assert_eq!(
        logits(&folder(shape, Files::HuggingFace, &hf), shape),
        expected,
        "Hugging Face"
    );
    assert_eq!(
        logits(&folder(shape, Files::Mlx, &mlx), shape),
        expected,
        "MLX"
    );
    let [gguf, again] = ["model.gguf", "again.bin"].map(|name| ggml.0.join(name));
    convert(&original, &gguf, None).expect("ggml to GGUF");
    assert_eq!(logits(&gguf, shape), expected, "GGUF");
    convert(&gguf, &again, None).expect("GGUF to ggml");
    let bytes = |path: &Path| std::fs::read(path).expect("a file");
    assert_eq!(bytes(&again), bytes(&original), "the same file");
    for (mix, tolerance) in [("Q8_0", 0.02), ("F16", 2e-3), ("Q5_1", 0.1)] {
        for name in ["quantized.gguf", "quantized.bin"] {
            let path = ggml.0.join(name);
            convert(&original, &path, Some(mix)).expect(mix);
            let error = error(&logits(&path, shape), &expected);
            assert!((1e-6..tolerance).contains(&error), "{mix} {name}: {error}");
        }
    }
}

#[test]
fn files_without_metadata_are_read() {
    let shape = Shape {
        dim: 64,
        heads: 1,
        ..SHAPES[0]
    };
    let folder = Folder::new("speech-bare");
    let expected = logits(&write(&shape, &folder), &shape);
    assert_eq!(logits(&bare_gguf(&shape, &folder), &shape), expected);
}

#[test]
fn conversions_that_do_not_exist_are_errors() {
    let folder = Folder::new("speech-errors");
    let original = write(&SHAPES[0], &folder);
    let story = folder.0.join("story.bin");
    let options = QuantizeOptions::default();
    let mut go_on = |_, _| ControlFlow::Continue(());
    let error = quantize(&Source::BuiltIn, &story, &options, &mut go_on).expect_err("no speech");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("speech models only"), "{error}");
    let error = convert(&original, &folder.0.join("new.bin"), Some("BF16")).expect_err("no type");
    assert!(error.message().contains("have no type"), "{error}");
    assert!(!folder.0.join("new.bin").exists());
}
