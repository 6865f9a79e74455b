//! Speech models in every file format, and conversions between them.

use crate::common::{convert, export, json_file, speech_model};
use crate::speech::{cpu, load, write};
use crate::speech_model::{CONTEXT, SHAPES, Shape, numbers, values};
use crate::temp_folder::{Folder, safetensors};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tabla::dtype::DType;
use tabla::format::write::Writer;
use tabla::text::{EncodeOptions, SpecialTokens, Tokenizer};
use tabla::tools::{QuantizeOptions, load_tokenizer, quantize, speech_logits};
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
        writer.tensor(&hf_name(&name), DType::F32, &dims, bytes);
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

/// Shapes and bytes of the tensors of an exported folder, by name.
fn tensors(folder: &Path) -> BTreeMap<String, (Vec<u64>, Vec<u8>)> {
    let file = tabla::format::open(folder).expect("a model");
    let tensors = file.tensors.iter();
    tensors
        .map(|t| (t.name.clone(), (t.dims.clone(), file.bytes(t).to_vec())))
        .collect()
}

/// Files that an exported folder has next to its weights.
const FILES: [&str; 5] = [
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
];

#[test]
fn exported_folders_are_equal() {
    for shape in SHAPES {
        let folder = Folder::new("speech-export");
        let original = write(&shape, &folder);
        let [first, ggml, gguf, second, third] =
            ["first", "model.bin", "model.gguf", "second", "third"].map(|name| folder.0.join(name));
        assert_eq!(export(&original, &first, Some(DType::F16)), [""; 0]);
        convert(&first, &ggml, None).expect("Hugging Face to ggml");
        convert(&first, &gguf, None).expect("Hugging Face to GGUF");
        export(&ggml, &second, Some(DType::F16));
        export(&gguf, &third, Some(DType::F16));
        let expected = logits(&first, &shape);
        assert_eq!(logits(&ggml, &shape), expected);
        let names = tensors(&first);
        for (name, dims) in shape.tensors() {
            let mut dims: Vec<u64> = dims.iter().rev().map(|n| *n as u64).collect();
            dims.retain(|n| *n > 1);
            assert_eq!(names[&hf_name(&name)].0, dims, "{name}");
        }
        for copy in [second, third] {
            assert!(tensors(&copy) == names, "the same tensors");
            assert_eq!(logits(&copy, &shape), expected);
            for name in FILES {
                let [copy, first] = [&copy, &first].map(|folder| json_file(&folder.join(name)));
                assert!(copy == first, "{name}");
            }
        }
    }
}

#[test]
fn exported_configurations_describe_the_model() {
    let folder = Folder::new("speech-configurations");
    let path = folder.0.join("exported");
    let shape = SHAPES[1];
    export(&write(&shape, &folder), &path, None);
    let [config, generation, front_end] =
        [FILES[0], FILES[1], FILES[2]].map(|name| json_file(&path.join(name)));
    for (name, value) in [
        ("architectures", json!(["WhisperForConditionalGeneration"])),
        ("model_type", json!("whisper")),
        ("d_model", json!(shape.dim)),
        ("encoder_layers", json!(2)),
        ("decoder_layers", json!(3)),
        ("decoder_attention_heads", json!(shape.heads)),
        ("encoder_ffn_dim", json!(4 * shape.dim)),
        ("decoder_ffn_dim", json!(4 * shape.dim)),
        ("num_mel_bins", json!(shape.mels)),
        ("max_source_positions", json!(CONTEXT)),
        ("max_target_positions", json!(64)),
        ("vocab_size", json!(shape.vocab)),
        ("decoder_start_token_id", json!(50_258)),
        ("eos_token_id", json!(50_257)),
        ("is_encoder_decoder", json!(true)),
        ("torch_dtype", json!("float32")),
    ] {
        assert_eq!(config[name], value, "{name}");
    }
    assert_eq!(generation["lang_to_id"]["<|yue|>"], 50_358);
    assert_eq!(generation["task_to_id"]["transcribe"], 50_360);
    assert_eq!(generation["no_timestamps_token_id"], 50_364);
    let heads: Vec<_> = (0..10).map(|i| json!([1 + i / 5, i % 5])).collect();
    assert_eq!(generation["alignment_heads"], json!(heads));
    assert_eq!(front_end["feature_size"], shape.mels);
    assert_eq!(front_end["nb_max_frames"], 2 * CONTEXT);
}

/// A folder of MLX, whose convolutions have the channels last, and without the positions that follow
/// from their number.
#[test]
fn settings_of_a_folder_are_kept() {
    let folder = Folder::new("speech-settings");
    let [first, second] = ["first", "second"].map(|name| folder.0.join(name));
    export(&write(&SHAPES[0], &folder), &first, None);
    let mut config = json_file(&first.join("config.json"));
    let vocab = config["vocab_size"].clone();
    for (key, value) in [
        ("dropout", json!(0.1)),
        ("max_length", json!(100)),
        ("suppress_tokens", json!([])),
        ("dtype", json!("float64")),
        ("vocab_size", json!(7)),
    ] {
        config[key] = value;
    }
    folder.write("first/config.json", config.to_string().as_bytes());
    std::fs::remove_file(first.join("generation_config.json")).expect("it was written");
    export(&first, &second, None);
    let config = json_file(&second.join("config.json"));
    assert_eq!(config["dropout"], 0.1);
    assert_eq!(config["vocab_size"], vocab, "the tensors decide");
    assert!(config["dtype"].is_null());
    let generation = json_file(&second.join("generation_config.json"));
    assert_eq!(generation["max_length"], 100);
    assert_eq!(generation["suppress_tokens"], json!([]));
}

#[test]
fn mlx_folders_are_converted() {
    let shape = &SHAPES[0];
    let [mlx, out] = ["mlx", "out"].map(|name| Folder::new(&format!("speech-{name}")));
    let source = folder(shape, Files::Mlx, &mlx);
    let file = tabla::format::open(&source).expect("a model");
    let kept = file.tensors.iter().filter(|t| t.name != POSITIONS);
    let kept: Vec<_> = kept
        .map(|t| {
            let dims = t.dims.iter().rev().copied().collect();
            (t.name.clone(), "F32", dims, file.bytes(t).to_vec())
        })
        .collect();
    let bytes = safetensors(&kept);
    drop(file);
    mlx.write("model.safetensors", &bytes);
    let expected = logits(&source, shape);
    let copied = r#"{"alignment_heads": [[2, 0]], "is_multilingual": false}"#;
    mlx.write("generation_config.json", copied.as_bytes());
    let hf = out.0.join("hf");
    export(&source, &hf, None);
    assert_eq!(logits(&hf, shape), expected);
    assert_eq!(tensors(&hf)[&hf_name(CONVOLUTION)].0, [3, 80, 96]);
    for (name, copied) in [
        ("generation_config.json", copied),
        ("tokenizer.json", TOKENIZER),
    ] {
        let text = std::fs::read_to_string(hf.join(name)).expect("a file");
        assert_eq!(text, copied, "{name}");
    }
    assert_eq!(json_file(&hf.join(FILES[2]))["feature_size"], 80);
    let gguf = out.0.join("mlx.gguf");
    convert(&source, &gguf, None).expect("MLX to GGUF");
    assert_eq!(logits(&gguf, shape), expected);
}

const POSITIONS: &str = "encoder.positional_embedding";
const CONVOLUTION: &str = "encoder.conv1.weight";

#[test]
fn files_without_a_vocabulary_are_exported_with_the_tokenizer_next_to_them() {
    let shape = Shape {
        dim: 64,
        heads: 1,
        ..SHAPES[0]
    };
    let folder = Folder::new("speech-bare-export");
    let bare = bare_gguf(&shape, &folder);
    let [with, without] = ["with", "without"].map(|name| folder.0.join(name));
    assert_eq!(export(&bare, &with, None), [""; 0]);
    assert_eq!(logits(&with, &shape), logits(&bare, &shape));
    folder.remove("tokenizer.json");
    let notes = export(&bare, &without, None);
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].starts_with("no tokenizer.json: the source has none"),
        "{notes:?}"
    );
}

/// The value of a key of both files is equal, except for keys of `transformers` itself.
fn check_equal_keys(exported: &Value, original: &Value, ignored: &[&str]) {
    let exported = exported.as_object().expect("an object");
    let shared = exported
        .iter()
        .filter(|(name, _)| !ignored.contains(&name.as_str()))
        .filter_map(|(name, value)| Some((name, value, original.get(name)?)));
    let mut count = 0;
    for (name, value, original) in shared {
        assert_eq!(value, original, "{name}");
        count += 1;
    }
    assert!(count >= 10, "{count} keys");
}

/// The folder of tiny.en that follows from the published ggml file, and the published folder.
#[test]
fn exported_tiny_is_the_published_folder() {
    let (Some(ggml), Some(original)) = (
        speech_model("ggml-tiny.en.bin"),
        speech_model("whisper-tiny.en"),
    ) else {
        return;
    };
    let folder = Folder::new("speech-tiny");
    let exported = folder.0.join("tiny.en");
    assert_eq!(export(&ggml, &exported, Some(DType::F16)), [""; 0]);
    assert!(tensors(&exported) == tensors(&original), "the same tensors");
    for name in &FILES[..3] {
        let [exported, original] = [&exported, &original].map(|f| json_file(&f.join(name)));
        check_equal_keys(&exported, &original, &[]);
    }
    let read = |folder: &Path| {
        let text = std::fs::read_to_string(folder.join("tokenizer.json")).expect("a file");
        let config = std::fs::read_to_string(folder.join("tokenizer_config.json"));
        Tokenizer::from_json(&text, Some(&config.expect("a file"))).expect("a tokenizer")
    };
    let [exported_tokenizer, original_tokenizer] = [&exported, &original].map(|f| read(f));
    let ggml_tokenizer = load_tokenizer(&Source::from(&ggml)).expect("a tokenizer");
    for id in 0..51_864 {
        let text = |t: &Tokenizer| t.token_bytes_with_special(id).to_vec();
        // OpenAI renamed two tokens: <|iw|> and <|nocaptions|>.
        if ![50_278, 50_361].contains(&id) {
            assert_eq!(text(&exported_tokenizer), text(&original_tokenizer), "{id}");
        }
        let kind = |t: &Tokenizer| t.is_control(id);
        assert_eq!(kind(&exported_tokenizer), kind(&original_tokenizer), "{id}");
    }
    let [exported, original] =
        [&exported, &original].map(|folder| json_file(&folder.join("tokenizer.json")));
    assert!(
        exported["model"]["merges"] == original["model"]["merges"],
        "the same merges"
    );
    for text in [
        " And so my fellow Americans, it's 1961: don't ask!",
        "\u{65e5}\u{672c}\u{8a9e} na\u{ef}ve \u{1f642}\n\n  two  spaces <|0.00|> <|en|>",
    ] {
        for specials in [SpecialTokens::Text, SpecialTokens::Tokens] {
            let options = EncodeOptions::default()
                .add_special(true)
                .specials(specials);
            let ids = [&exported_tokenizer, &original_tokenizer]
                .map(|tokenizer| tokenizer.encode(text, options).expect("tokens"));
            assert_eq!(ids[0], ids[1], "{text}");
        }
        // The ggml file has no ids before and after a text.
        let text = text.replace("<|0.00|>", "");
        let ids = [&ggml_tokenizer, &original_tokenizer]
            .map(|t| t.encode(&text, EncodeOptions::default()).expect("tokens"));
        assert_eq!(ids[0], ids[1], "{text}");
    }
}
