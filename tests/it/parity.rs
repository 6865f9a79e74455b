//! Tiny random checkpoints against `transformers`: `tests/reference` made them.

use crate::common::{argmax, devices, golden, greedy, picks, session, worst};
use crate::npy::Npy;
use tabla::{LoadOptions, Precision, Session};

/// Greatest difference of a logit, absolute.
const TOLERANCE: f32 = 1e-4;

struct Golden {
    tokens: Vec<u32>,
    prompt: usize,
    greedy: Vec<u32>,
    logits: Npy,
}

fn read(name: &str) -> Golden {
    let text = std::fs::read_to_string(golden(&format!("{name}.json"))).expect("a golden file");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let ids = |key: &str| -> Vec<u32> {
        let list = json[key].as_array().expect("a list of ids");
        list.iter()
            .map(|id| u32::try_from(id.as_u64().expect("an id")).expect("an id"))
            .collect()
    };
    Golden {
        tokens: ids("tokens"),
        prompt: usize::try_from(json["prompt_len"].as_u64().expect("a length")).expect("small"),
        greedy: ids("greedy"),
        logits: Npy::read(&golden(&format!("{name}.npy"))),
    }
}

/// Prefill at once, prefill in chunks, decode: every row of logits; then the greedy continuation.
fn check(file: &str, reference: &str) {
    let golden_data = read(reference);
    for (device, options) in devices(Precision::Exact) {
        let name = format!("{file} on {device}");
        let mut s = session(&golden(file), &options);
        check_rows(&name, &mut s, &golden_data);
        check_steps(&name, &mut s, &golden_data);
        let prompt = &golden_data.tokens[..golden_data.prompt];
        let wanted = &golden_data.greedy;
        let count = u32::try_from(wanted.len()).expect("64");
        assert_eq!(
            &picks(&mut s, prompt, &greedy(count)),
            wanted,
            "{name}: greedy"
        );
    }
}

fn check_rows(name: &str, s: &mut Session, golden: &Golden) {
    let vocab = golden.logits.cols;
    let rows = golden.logits.data.len() / vocab;
    let mut out = vec![0.0; golden.logits.data.len()];
    s.prefill(&golden.tokens[..rows], &mut |_, _| {})
        .expect("it fits");
    s.logits_all(&mut out).expect("the room is right");
    let (at, difference) = worst(&out, &golden.logits.data);
    assert!(
        difference <= TOLERANCE,
        "{name}: all rows: {difference} at position {} token {}",
        at / vocab,
        at % vocab
    );
    let mut last = vec![0.0; vocab];
    s.logits(&mut last).expect("the room is right");
    let (_, difference) = worst(&last, &golden.logits.data[(rows - 1) * vocab..]);
    assert!(
        difference <= TOLERANCE,
        "{name}: last row of prefill: {difference}"
    );
}

/// Decode: a token at a time through the decode table, by forcing the sequence.
fn check_steps(name: &str, s: &mut Session, golden: &Golden) {
    let vocab = golden.logits.cols;
    let mut out = vec![0.0; vocab];
    s.reset();
    for (position, row) in golden.logits.data.chunks(vocab).enumerate() {
        s.force(golden.tokens[position])
            .expect("a token of the vocabulary");
        s.logits(&mut out).expect("the room is right");
        let (at, difference) = worst(&out, row);
        assert!(
            difference <= TOLERANCE,
            "{name}: decode: {difference} at position {position} token {at}"
        );
    }
}

#[test]
fn llama() {
    check("llama.gguf", "llama");
}

#[test]
fn llama_scaling_by_metadata() {
    check("llama_scaling.gguf", "llama");
}

#[test]
fn qwen2() {
    check("qwen2.gguf", "qwen2");
}

#[test]
fn qwen3() {
    check("qwen3.gguf", "qwen3");
}

#[test]
fn storage_types() {
    for dtype in ["f16", "bf16", "q8_0", "q4_0", "q4_1"] {
        check(&format!("quant_{dtype}.gguf"), &format!("quant_{dtype}"));
    }
}

/// Cached decode against recomputation of the whole sequence, in fast precision.
#[test]
fn cached_decode_equals_recomputation() {
    for file in ["llama.gguf", "qwen2.gguf", "qwen3.gguf", "quant_q8_0.gguf"] {
        let tokens = read(file.strip_suffix(".gguf").expect("a suffix")).tokens;
        for (device, options) in devices(Precision::Fast) {
            let options = LoadOptions {
                context: 64,
                ..options
            };
            let mut cached = session(&golden(file), &options);
            let mut whole = session(&golden(file), &options);
            let vocab = cached.facts().vocab as usize;
            let (mut a, mut b) = (vec![0.0; vocab], vec![0.0; vocab]);
            for (position, &token) in tokens.iter().take(16).enumerate() {
                cached.force(token).expect("a token of the vocabulary");
                cached.logits(&mut a).expect("the room is right");
                whole.reset();
                whole
                    .prefill(&tokens[..=position], &mut |_, _| {})
                    .expect("it fits");
                whole.logits(&mut b).expect("the room is right");
                let dot = |a: &[f32], b: &[f32]| -> f64 {
                    a.iter()
                        .zip(b)
                        .map(|(a, b)| f64::from(*a) * f64::from(*b))
                        .sum()
                };
                let cosine = dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt();
                assert!(
                    cosine > 0.99999,
                    "{file} on {device}: {position}: cosine {cosine}"
                );
                assert_eq!(argmax(&a), argmax(&b), "{file} on {device}: {position}");
            }
        }
    }
}
