//! Conversion of the LM head to another storage type while loading.

use crate::common::{argmax, devices, fast_devices, golden, picks, session, story, worst};
use crate::temp_folder::Folder;
use serde_json::Value;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tabla::device::Precision;
use tabla::dtype::DType;
use tabla::load::{DeviceChoice, LoadOptions, WeightMemory};
use tabla::tools::QUANT_MIXES;
use tabla::tools::QuantizeOptions;
use tabla::{ErrorKind, GenerateOptions, Model, Sampling, Source};

/// Tokens that exist in every vocabulary.
const TOKENS: [u32; 6] = [1, 5, 9, 30, 64, 200];

fn arch(name: &str) -> PathBuf {
    golden("arch").join(name)
}

fn with_lm_head(options: &LoadOptions, lm_head_type: DType) -> LoadOptions {
    options.clone().lm_head_type(lm_head_type)
}

fn logits(path: &Path, options: &LoadOptions) -> Vec<f32> {
    let mut session = session(path, options);
    session.prefill(&TOKENS).expect("prefill succeeds");
    let mut logits = vec![0.0; session.facts().vocab as usize];
    session.logits(&mut logits).expect("logits are available");
    logits
}

fn refusal(path: &Path, lm_head_type: DType) -> (ErrorKind, String) {
    let cpu = devices(Precision::Fast).remove(0).1;
    let options = with_lm_head(&cpu, lm_head_type);
    let error = Model::builder(path).options(options).load();
    let error = error.expect_err("error");
    (error.kind(), error.to_string())
}

/// Writes a copy of a model with these types.
fn quantized(from: &Source, to: &Path, mix: Option<&str>, output: Option<DType>) {
    let mix = mix.map(|name| QUANT_MIXES.iter().find(|mix| mix.name == name));
    let options = QuantizeOptions::default()
        .mix(mix.map(|mix| mix.expect("it is one of the mixes")))
        .output(output)
        .embedding(None)
        .choose(&|_| None)
        .importance(None)
        .threads(1);
    tabla::tools::quantize(from, to, &options, &mut |_, _| ControlFlow::Continue(()))
        .expect("quantize succeeds");
}

/// Models whose rows are whole blocks, their reference, the type, and the maximum change of logits
/// relative to the largest. `fast` rounds activations before the BF16 head of the folder, so its
/// F16 twin is the reference for the change by the new type alone.
const CASES: [(&str, &str, DType, f32); 4] = [
    (
        "falcon_e/model.gguf",
        "falcon_e/model.gguf",
        DType::Q8_0,
        0.01,
    ),
    ("falcon_e/hf", "falcon_e/model.gguf", DType::Q8_0, 0.01),
    (
        "bitnet_tq/model.gguf",
        "bitnet_tq/model.gguf",
        DType::Q8_0,
        0.01,
    ),
    (
        "bitnet_tq/model.gguf",
        "bitnet_tq/model.gguf",
        DType::Q6K,
        0.04,
    ),
];

#[test]
fn converted_lm_head_changes_logits_slightly() {
    for precision in [Precision::Exact, Precision::Fast] {
        for (device, options) in fast_devices(precision) {
            for (name, reference, dtype, bound) in CASES {
                let what = format!("{name} as {dtype} on {device}, {precision:?}");
                let before = logits(&arch(reference), &options);
                let after = logits(&arch(name), &with_lm_head(&options, dtype));
                let largest = before.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                let (_, moved) = worst(&before, &after);
                assert!(moved > 0.0, "{what}: logits are unchanged");
                assert!(moved <= bound * largest, "{what}: {moved} of {largest}");
                assert_eq!(argmax(&before), argmax(&after), "{what}");
            }
        }
    }
}

#[test]
fn matches_lm_head_written_by_quantize() {
    let folder = Folder::new("head");
    let (from, to) = (arch("falcon_e/model.gguf"), folder.0.join("q8_0.gguf"));
    quantized(&Source::Path(from.clone()), &to, None, Some(DType::Q8_0));
    for (device, options) in devices(Precision::Fast) {
        let expected = logits(&to, &options);
        let found = logits(&from, &with_lm_head(&options, DType::Q8_0));
        assert_eq!(found, expected, "{device}");
    }
}

#[test]
fn thread_count_does_not_change_encoding() {
    let cpu = devices(Precision::Fast).remove(0).1;
    let by = |threads| with_lm_head(&cpu, DType::Q6K).threads(threads);
    let path = arch("bitnet_tq/model.gguf");
    assert_eq!(logits(&path, &by(1)), logits(&path, &by(3)));
}

/// A tied embedding is kept in the file for lookups. An untied head is replaced.
#[test]
fn facts_count_converted_bytes() {
    let cpu = devices(Precision::Exact).remove(0).1;
    let facts = |name: &str, options: &LoadOptions| session(&arch(name), options).facts().clone();
    let estimate = |name: &str, options: &LoadOptions| {
        tabla::tools::estimate(&Source::Path(arch(name)), options).expect("prefill succeeds")
    };
    for (name, dtype) in [
        ("falcon_e/model.gguf", DType::Q8_0),
        ("bitnet_tq/model.gguf", DType::Q6K),
    ] {
        let other = with_lm_head(&cpu, dtype);
        let (before, after) = (facts(name, &cpu), facts(name, &other));
        let elements = u64::from(before.vocab) * u64::from(before.dim);
        let [f16, small] = [DType::F16, dtype].map(|t| t.bytes(elements).expect("whole blocks"));
        assert_eq!(
            after.token_bytes,
            before.token_bytes - f16 + small,
            "{name}"
        );
        assert_eq!(after.parameters, before.parameters, "{name}");
        assert_eq!(after.file_bytes, before.file_bytes, "{name}");
        let mapped = |options: &LoadOptions| options.clone().weights(WeightMemory::Mapped);
        let [before, after] =
            [&cpu, &other].map(|options| estimate(name, &mapped(options)).weight_bytes);
        assert_eq!(after, before - f16 + small, "{name}");
    }
}

#[test]
fn residual_stream_is_unchanged() {
    let cpu = devices(Precision::Exact).remove(0).1;
    let source = Source::Path(arch("bitnet_tq/model.gguf"));
    let layers = |options: &LoadOptions| {
        let found = tabla::tools::hidden_states(&source, options, &[TOKENS.to_vec()]);
        found.expect("the model runs").layers
    };
    assert_eq!(layers(&cpu), layers(&with_lm_head(&cpu, DType::Q6K)));
}

/// The built-in model with an `f16` head, converted back to `q8_0`, gives the same story.
#[test]
fn built_in_story_is_unchanged() {
    let folder = Folder::new("head");
    let path = folder.0.join("f16.gguf");
    quantized(&Source::BuiltIn, &path, Some("F16"), None);
    let json = concat!(env!("CARGO_MANIFEST_DIR"), "/models/story.json");
    let json = std::fs::read_to_string(json).expect("a file");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let golden = &json["goldens"][0];
    let ids = |key: &str| -> Vec<u32> {
        let list = golden[key].as_array().expect("a list of ids");
        let id = |id: &Value| u32::try_from(id.as_u64().expect("an id")).expect("an id");
        list.iter().map(id).collect()
    };
    let (prompt, expected) = (ids("prompt_ids"), ids("greedy_ids"));
    let options = GenerateOptions::default()
        .sampling(Sampling::GREEDY)
        .max_tokens(u32::try_from(expected.len()).expect("short"));
    let cpu = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .precision(Precision::Exact);
    let mut plain = session(&path, &cpu);
    let mut small = session(&path, &with_lm_head(&cpu, DType::Q8_0));
    assert!(small.facts().token_bytes < plain.facts().token_bytes);
    assert_eq!(picks(&mut plain, &prompt, &options), expected);
    assert_eq!(picks(&mut small, &prompt, &options), expected);
}

#[test]
fn same_type_is_not_converted() {
    let plain = story(LoadOptions::default());
    let same = story(with_lm_head(&LoadOptions::default(), DType::Q8_0));
    assert_eq!(plain.facts().token_bytes, same.facts().token_bytes);
}

#[test]
fn rejects_unsupported_types() {
    let whole = "expected a multiple of the block size";
    for (name, dtype, parts) in [
        (
            "llama/model.gguf",
            DType::Q8_0,
            ["token_embd.weight", whole],
        ),
        (
            "llama/hf",
            DType::Q8_0,
            ["model.embed_tokens.weight", whole],
        ),
        ("falcon_e/model.gguf", DType::Q6K, ["output.weight", whole]),
        (
            "falcon_e/hf",
            DType::Q6K,
            ["lm_head.weight", "block size 256"],
        ),
    ] {
        let (kind, text) = refusal(&arch(name), dtype);
        assert_eq!(kind, ErrorKind::Unsupported, "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    for dtype in [DType::F16, DType::F32, DType::Q4_0, DType::Q5K, DType::I2S] {
        let (kind, text) = refusal(&arch("falcon_e/model.gguf"), dtype);
        assert_eq!(kind, ErrorKind::Argument, "{text}");
        assert!(
            text.ends_with(&format!(
                "unsupported lm_head type {dtype}; supported types are q8_0, q6_k"
            )),
            "{text}"
        );
    }
    let (kind, text) = refusal(&arch("bert/model.gguf"), DType::Q8_0);
    assert_eq!(kind, ErrorKind::Argument, "{text}");
    assert!(
        text.contains("bert models have no output projection"),
        "{text}"
    );
}
