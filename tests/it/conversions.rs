//! Converts every golden checkpoint of Hugging Face to GGUF and compares tokens, logits, embeddings and scores with
//! those of the folder. `docs/models.md` lists the folders that cannot be converted.

use crate::common::{convert, golden, json_file, session, worst};
use crate::temp_folder::{Folder, Tensor, safetensors};
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tabla::device::Precision;
use tabla::dtype::DType;
use tabla::embed::{ClassifyInput, ClassifyOptions, EmbedOptions};
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::text::{EncodeOptions, SpecialTokens};
use tabla::tools::load_tokenizer;
use tabla::{ErrorKind, Session, Source};

/// Maximum difference of a logit of a decoder, relative to the largest if that is over 1. GGUF files have permuted
/// rows of Q and K, which changes the order of sums.
const TOLERANCE: f32 = 1e-4;

/// Maximum RMS of the differences of a quantized model, relative to the RMS of its results. The weights are random,
/// and their matrices have few columns.
const QUANTIZED_TOLERANCE: f32 = 0.1;

/// A folder with ternary matrices whose rows are not whole blocks of `I2_S`: they become F16, without int8 activations,
/// and a note says so. Only its tokens are compared.
const ROUNDED: &str = "arch/bitnet_master";

/// Texts that tokenizers treat differently: white space at the ends, cases, accents, scripts, numbers, long words.
pub(crate) const TEXTS: [&str; 9] = [
    "The river runs to the sea, and the rain is on the hill.",
    "  two  spaces\tand\n\na line \r\n",
    "MiXeD Case, caf\u{e9} na\u{ef}ve e\u{301}t\u{e9} \u{130}\u{df}",
    "\u{65e5}\u{672c}\u{8a9e}\u{306e}\u{30c6}\u{30ad}\u{30b9}\u{30c8} \u{d55c}\u{ad6d}\u{c5b4} \u{43f}\u{440}\u{438}",
    "1234567 12.5% \u{661}\u{662} \u{b2}\u{bd} $9.99 don't (a)[b]{c}",
    "\u{1f642}\u{200d}\u{fe0f} \u{fb01} \u{ff21}\u{33a5} a\u{0}b\u{ad}c",
    "",
    " ",
    concat!(
        "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
        "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabc",
    ),
];

/// Returns all folders, and their names.
fn folders() -> Vec<(String, PathBuf)> {
    let mut all = Vec::new();
    for group in ["arch", "cross_encoder", "hf", "."] {
        for entry in golden(group).read_dir().expect("golden files") {
            let entry = entry.expect("a golden file");
            let name = format!("{group}/{}", entry.file_name().display());
            let folder = match group {
                "hf" => entry.path(),
                _ => entry.path().join("hf"),
            };
            if folder.join("config.json").is_file() {
                all.push((name, folder));
            }
        }
    }
    all.sort();
    assert!(all.len() >= 80, "{} folders", all.len());
    all
}

/// Parts of the errors of folders that cannot be converted, from the table of `docs/models.md`.
fn documented_errors() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/models.md");
    let text = std::fs::read_to_string(path).expect("the document");
    let (_, rest) = text
        .split_once("## Conversion to GGUF\n")
        .expect("the section");
    let section = rest.split("\n## ").next().expect("a section");
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let errors = rows.filter_map(|row| row.split('|').nth(2)?.trim().strip_prefix('`'));
    errors
        .map(|error| error.trim_end_matches('`').to_string())
        .collect()
}

fn options() -> LoadOptions {
    LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .precision(Precision::Exact)
        .max_context(128)
        .chunk_tokens(32)
        .samplers(Vec::new())
}

/// Compares the tokens of texts, of special tokens with white space around them, and the end tokens.
fn check_tokens(name: &str, folder: &Path, file: &Path) {
    let [a, b] =
        [folder, file].map(|path| load_tokenizer(&Source::from(path)).expect("a tokenizer"));
    let mut spaced = String::new();
    let size = u32::try_from(a.vocab_size()).expect("few tokens");
    for id in (0..size).filter(|id| a.is_control(*id)) {
        let token = String::from_utf8_lossy(a.token_bytes_with_special(id)).into_owned();
        write!(spaced, "x{token}y {token} z\n{token}\u{a0}\t{token}\r\n  ").expect("memory");
    }
    for text in TEXTS.iter().copied().chain([&*spaced]) {
        for specials in [SpecialTokens::Text, SpecialTokens::Tokens] {
            let options = EncodeOptions::default()
                .add_special(true)
                .specials(specials);
            let [a, b] = [&a, &b].map(|t| t.encode(text, options).ok());
            assert_eq!(a, b, "{name}: {text:?}");
        }
    }
    assert!(
        a.stops().iter().all(|id| b.is_stop(*id)),
        "{name}: {:?} {:?}",
        a.stops(),
        b.stops()
    );
}

/// Returns what a model computes: scores and embeddings of an encoder, otherwise logits.
pub(crate) fn results(path: &Path, options: &LoadOptions) -> Vec<f32> {
    let mut s = session(path, options);
    if s.model().classifier().is_some() {
        return scores(&mut s);
    }
    if s.model().is_encoder() {
        return embeddings(&mut s);
    }
    let vocab = s.facts().vocab as usize;
    let tokens: Vec<u32> = (5..29).collect();
    s.prefill(&tokens).expect("the tokens fit");
    let mut all = vec![0.0; tokens.len() * vocab];
    s.logits_all(&mut all).expect("logits");
    all
}

fn scores(s: &mut Session) -> Vec<f32> {
    let mut inputs: Vec<_> = TEXTS[..4]
        .iter()
        .map(|text| ClassifyInput::Text(text))
        .collect();
    inputs.push(ClassifyInput::Pair("a river", TEXTS[0]));
    let options = ClassifyOptions::default().truncate(true);
    s.classify(&inputs, &options, &mut |_, _| {})
        .expect("scores")
}

fn embeddings(s: &mut Session) -> Vec<f32> {
    let options = EmbedOptions::default().truncate(true);
    let dim = s.embedding_dim(&options).expect("a number");
    let texts = &TEXTS[..5];
    let mut out = vec![0.0; texts.len() * dim];
    s.embed(texts, &options, &mut out, &mut |_, _| {})
        .expect("embeddings");
    out
}

/// Returns the RMS of the differences, relative to the RMS of `b`.
fn relative(a: &[f32], b: &[f32]) -> f32 {
    let square = |sum: f32, x: f32| sum + x * x;
    let differences = a.iter().zip(b).map(|(a, b)| a - b).fold(0.0, square);
    (differences / b.iter().copied().fold(0.0, square)).sqrt()
}

/// Returns whether a model has experts: with rounded weights, routers choose others for some tokens, so that results are
/// far from those of the unquantized model.
fn has_experts(path: &Path) -> bool {
    let file = tabla::tools::open_directory(&Source::from(path)).expect("a file");
    let mut tensors = file.tensors.iter();
    tensors.any(|tensor| tensor.name.contains("_exps"))
}

/// Returns the errors of a folder with tokenizers that GGUF cannot express: a regex without a name, and a normalizer
/// that changes ordinary text.
fn tokenizer_errors() -> [String; 2] {
    let folder = Folder::new("tokenizers");
    folder.copy(&golden("hf/bf16"));
    let file = folder.0.join("model.gguf");
    let regex = json_file(&golden("tokenizers/byte_level.json"));
    let mut lowercase = json_file(&golden("tokenizers/spm_bpe.json"));
    let steps = [
        json!({ "type": "Lowercase" }),
        lowercase["normalizer"].take(),
    ];
    lowercase["normalizer"] = json!({ "type": "Sequence", "normalizers": steps });
    [regex, lowercase].map(|tokenizer| {
        folder.write("tokenizer.json", tokenizer.to_string().as_bytes());
        let error = convert(&folder.0, &file, None).expect_err("no keys have these settings");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(!file.exists(), "no file is left");
        error.message().to_string()
    })
}

#[test]
fn converted_folders_give_the_same_results() {
    let documented = documented_errors();
    let mut found = vec![false; documented.len()];
    for (name, golden) in folders() {
        let folder = Folder::new("conversion");
        folder.copy(&golden);
        if !golden.join("tokenizer.json").is_file() {
            let other = crate::common::golden("hf/bf16/tokenizer.json");
            folder.write(
                "tokenizer.json",
                &std::fs::read(other).expect("a tokenizer"),
            );
        }
        let files = Folder::new("converted");
        let file = files.0.join("model.gguf");
        if let Err(e) = convert(&folder.0, &file, None) {
            assert_eq!(e.kind(), ErrorKind::Unsupported, "{name}: {e}");
            let known = documented
                .iter()
                .position(|part| e.message().contains(part));
            found[known.unwrap_or_else(|| panic!("{name}: {e}"))] = true;
            continue;
        }
        check_tokens(&name, &folder.0, &file);
        if name == ROUNDED {
            continue;
        }
        let [expected, actual] = [&folder.0, &file].map(|path| results(path, &options()));
        let largest = expected.iter().fold(1.0f32, |m, x| m.max(x.abs()));
        let (at, difference) = worst(&actual, &expected);
        assert!(
            difference <= TOLERANCE * largest,
            "{name}: {difference} at {at}"
        );
        let quantized = files.0.join("model-Q8_0.gguf");
        convert(&folder.0, &quantized, Some("Q8_0")).expect("the folder can be converted");
        let quantized = results(&quantized, &options());
        if has_experts(&file) {
            let other = files.0.join("file-Q8_0.gguf");
            convert(&file, &other, Some("Q8_0")).expect("the file can be converted");
            assert_eq!(
                quantized,
                results(&other, &options()),
                "{name}: as of the file"
            );
            continue;
        }
        let far = relative(&quantized, &expected);
        assert!(far <= QUANTIZED_TOLERANCE, "{name}: {far} from unquantized");
    }
    for error in tokenizer_errors() {
        let known = documented.iter().position(|part| error.contains(part));
        found[known.unwrap_or_else(|| panic!("{error}"))] = true;
    }
    let unused = documented.iter().zip(found).filter(|(_, found)| !found);
    assert_eq!(
        unused.count(),
        0,
        "{documented:?} has errors that no folder gives"
    );
}

/// Returns `count` numbers from -1 to 1.
fn noise(seed: u32, count: u64) -> Vec<f32> {
    let mut state = seed;
    let next = (0..count).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).expect("16 bits")) / 32768.0 - 1.0
    });
    next.collect()
}

/// Creates a folder with the names and the configuration of 1bitLLM: weights of training, which are rounded to
/// ternary values while loading.
fn one_bit_folder() -> Folder {
    let folder = Folder::new("1bitLLM");
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut add = |name: String, shape: &[u64]| {
        let seed = u32::try_from(tensors.len()).expect("few tensors") + 1;
        let numbers = noise(seed, shape.iter().product());
        // Norms are near 1.
        let base = if shape.len() == 1 { 1.0 } else { 0.0 };
        let bytes = numbers.iter().flat_map(|x| (base + 0.1 * x).to_le_bytes());
        tensors.push((name, "F32", shape.to_vec(), bytes.collect()));
    };
    add("model.embed_tokens.weight".into(), &[288, 64]);
    add("model.norm.weight".into(), &[64]);
    for layer in 0..2 {
        for (name, shape) in [
            ("input_layernorm", &[64][..]),
            ("post_attention_layernorm", &[64]),
            ("self_attn.q_proj", &[64, 64]),
            ("self_attn.k_proj", &[64, 64]),
            ("self_attn.v_proj", &[64, 64]),
            ("self_attn.o_proj", &[64, 64]),
            ("self_attn.inner_attn_ln", &[64]),
            ("mlp.gate_proj", &[96, 64]),
            ("mlp.up_proj", &[96, 64]),
            ("mlp.down_proj", &[64, 96]),
            ("mlp.ffn_layernorm", &[96]),
        ] {
            add(format!("model.layers.{layer}.{name}.weight"), shape);
        }
    }
    folder.write("model.safetensors", &safetensors(&tensors));
    let config = r#"{"architectures": ["BitnetForCausalLM"], "attention_bias": false, "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 64, "input_bits": 8, "intermediate_size": 96,
        "max_position_embeddings": 128, "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
        "vocab_size": 288, "weight_bits": 1}"#;
    folder.write("config.json", config.as_bytes());
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        let text = std::fs::read(golden("hf/bf16").join(name)).expect("a file");
        folder.write(name, &text);
    }
    folder
}

#[test]
fn ternary_weights_of_training_keep_their_values() {
    let folder = one_bit_folder();
    let file = folder.0.join("model.gguf");
    convert(&folder.0, &file, None).expect("the folder can be converted");
    let written = tabla::tools::open_directory(&Source::from(&file)).expect("a file");
    let arch = written.metadata.str("general.architecture");
    assert_eq!(arch.expect("a text"), Some("bitnet"), "llama.cpp's name");
    let matrix = written.tensor("blk.1.ffn_down.weight").expect("a matrix");
    assert_eq!(matrix.dtype.known(), Some(DType::I2S));
    let [expected, actual] = [&folder.0, &file].map(|path| results(path, &options()));
    assert_eq!(actual, expected);
    for mix in ["I2_S", "TQ2_0"] {
        let quantized = folder.0.join(format!("{mix}.gguf"));
        convert(&folder.0, &quantized, Some(mix)).expect("the folder can be quantized");
        let far = relative(&results(&quantized, &options()), &expected);
        assert!(far <= QUANTIZED_TOLERANCE, "{mix}: {far}");
    }
    folder.edit("config.json", "\"input_bits\": 8", "\"input_bits\": 4");
    let error = convert(&folder.0, &file, None).expect_err("other activations");
    assert!(
        error.message().contains("unsupported input_bits: 4"),
        "{error}"
    );
}

#[test]
fn prompts_are_kept() {
    let folder = Folder::new("prompts");
    folder.copy(&golden("arch/bert/hf"));
    let prompts =
        r#"{"prompts": {"query": "find: ", "document": ""}, "default_prompt_name": "query"}"#;
    folder.write("config_sentence_transformers.json", prompts.as_bytes());
    let file = folder.0.join("model.gguf");
    convert(&folder.0, &file, None).expect("the folder can be converted");
    let [expected, actual] = [&folder.0, &file].map(|path| {
        let s = session(path, &options());
        (
            s.embedding().prompts.clone(),
            format!("{:?}", s.embedding()),
        )
    });
    assert_eq!(expected.0.len(), 2);
    assert_eq!(actual, expected);
}
