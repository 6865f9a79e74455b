//! Compares a checkpoint of each storage type, and one whose metadata scale the rotation, with `transformers`; generated
//! by `tests/reference`.

use crate::common::{argmax, devices_for, golden, session};
use crate::reference::Reference;
use tabla::device::Precision;

fn read(name: &str) -> Reference {
    let file = |extension| golden(&format!("{name}.{extension}"));
    Reference::read(&file("json"), &file("npy"))
}

fn check(file: &str, reference: &str) {
    let reference = read(reference);
    for (device, options) in devices_for(file, &["quant_q8_0.gguf"], Precision::Exact) {
        let name = format!("{file} on {device}");
        let mut s = session(&golden(file), &options);
        reference.check_rows(&name, &mut s);
        reference.check_decode(&name, &mut s, 0);
        reference.check_greedy(&name, &mut s, reference.greedy.len());
    }
}

#[test]
fn llama_scaling_by_metadata() {
    check("llama_scaling.gguf", "llama");
}

#[test]
fn storage_types() {
    for dtype in ["f16", "bf16", "q8_0", "q4_0", "q4_1"] {
        check(&format!("quant_{dtype}.gguf"), &format!("quant_{dtype}"));
    }
}

/// Compares cached decoding with recomputation of the whole sequence, with fast precision.
#[test]
fn cached_decode_equals_recomputation() {
    for file in ["llama.gguf", "qwen2.gguf", "qwen3.gguf", "quant_q8_0.gguf"] {
        let tokens = read(file.strip_suffix(".gguf").expect("a suffix")).tokens;
        for (device, options) in devices_for(file, &["quant_q8_0.gguf"], Precision::Fast) {
            let options = options.max_context(64);
            let mut cached = session(&golden(file), &options);
            let mut whole = session(&golden(file), &options);
            let vocab = cached.facts().vocab as usize;
            let (mut a, mut b) = (vec![0.0; vocab], vec![0.0; vocab]);
            for (position, &token) in tokens.iter().take(16).enumerate() {
                cached.force(token).expect("a token of the vocabulary");
                cached
                    .logits(&mut a)
                    .expect("the buffer has the right size");
                whole.reset();
                whole.prefill(&tokens[..=position]).expect("the tokens fit");
                whole.logits(&mut b).expect("the buffer has the right size");
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
