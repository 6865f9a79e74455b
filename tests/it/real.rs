//! Compares token ids and text of real models in `TABLA_TESTDATA` with references.

use crate::common::{argmax, picks, session, story, testdata};
use serde_json::Value;
use tabla::device::Precision;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::text::{DecodeOptions, EncodeOptions};
use tabla::{GenerateOptions, Sampling, Session};

fn ids(json: &Value) -> Vec<u32> {
    let list = json.as_array().expect("a list of ids");
    list.iter()
        .map(|id| u32::try_from(id.as_u64().expect("an id")).expect("an id"))
        .collect()
}

fn cpu(precision: Precision) -> LoadOptions {
    LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .precision(precision)
}

fn text(s: &Session, ids: &[u32]) -> String {
    String::from_utf8(
        s.tokenizer()
            .decode(ids, DecodeOptions::default())
            .expect("known ids"),
    )
    .expect("whole characters")
}

/// Compares the greedy token ids of every case.
fn check(model: &str, reference: &str) {
    let (Some(model), Some(reference)) = (testdata(model), testdata(reference)) else {
        return;
    };
    let json = std::fs::read_to_string(reference).expect("a golden file");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let cases = json["cases"].as_array().expect("cases");
    let mut exact = session(&model, &cpu(Precision::Exact));
    let mut fast = session(&model, &cpu(Precision::Fast));
    let mut compared = 0;
    for case in cases.iter().filter(|case| case["prompt"].is_string()) {
        let prompt = case["prompt"].as_str().expect("filtered");
        let prompt_ids = ids(&case["ids"]);
        let encoded = exact
            .tokenizer()
            .encode(prompt, EncodeOptions::PROMPT)
            .expect("text");
        assert_eq!(encoded, prompt_ids, "{prompt:?}");
        let expected = ids(&case["greedy"]);
        let options = GenerateOptions::default()
            .sampling(Sampling::GREEDY)
            .max_tokens(u32::try_from(expected.len()).expect("short"));
        let picked = picks(&mut exact, &prompt_ids, &options);
        assert_eq!(picked, expected, "{prompt:?}: {}", text(&exact, &picked));
        let options = options.max_tokens(1);
        let first = picks(&mut fast, &prompt_ids, &options);
        assert_eq!(
            first,
            expected[..1],
            "{prompt:?}: the first token in fast precision"
        );
        check_top(&mut exact, &prompt_ids, &case["top10"]);
        compared += 1;
    }
    assert!(compared > 0, "{}: no case with a prompt", model.display());
}

/// Compares the ten largest logits after the prompt, if the file has them.
fn check_top(s: &mut Session, prompt: &[u32], top: &Value) {
    let Some(top) = top.as_array() else { return };
    s.reset();
    s.prefill(prompt).expect("the tokens fit");
    let mut logits = vec![0.0; s.facts().vocab as usize];
    s.logits(&mut logits)
        .expect("the buffer has the right size");
    assert_eq!(argmax(&logits) as u64, top[0][0].as_u64().expect("an id"));
    for pair in top {
        let id = usize::try_from(pair[0].as_u64().expect("an id")).expect("an id");
        let expected = pair[1].as_f64().expect("a logit");
        let difference = (f64::from(logits[id]) - expected).abs();
        assert!(
            difference < 1e-3,
            "token {id}: expected {expected}, got {}",
            logits[id]
        );
    }
}

#[test]
fn stories() {
    check("gguf/stories260K.gguf", "golden/stories260K_golden.json");
}

#[test]
fn smollm2() {
    check(
        "gguf/SmolLM2-135M-Instruct.Q4_1.gguf",
        "golden/smollm2_golden.json",
    );
}

/// Compares the built-in model with PyTorch results written by `models/make.py`.
#[test]
fn built_in() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/models/story.json");
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON");
    let mut s = story(cpu(Precision::Exact));
    for golden in json["goldens"].as_array().expect("goldens") {
        let prompt = golden["prompt"].as_str().expect("a prompt");
        let prompt_ids = ids(&golden["prompt_ids"]);
        let encoded = s
            .tokenizer()
            .encode(prompt, EncodeOptions::PROMPT)
            .expect("text");
        assert_eq!(encoded, prompt_ids, "{prompt:?}");
        let expected = ids(&golden["greedy_ids"]);
        let max_tokens = u32::try_from(expected.len()).expect("short");
        let options = GenerateOptions::default()
            .sampling(Sampling::GREEDY)
            .max_tokens(max_tokens);
        assert_eq!(picks(&mut s, &prompt_ids, &options), expected, "{prompt:?}");
    }
}
