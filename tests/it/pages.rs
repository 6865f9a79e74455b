//! The KV cache: sliding windows lose nothing, and `q8_0` little.

use crate::common::{devices, golden, print, session, worst};
use std::path::Path;
use tabla::dtype::DType;
use tabla::{DeviceChoice, ErrorKind, LoadOptions, Precision, Session, Source};

/// What it answers to these tokens.
fn logits(s: &mut Session, tokens: &[u32]) -> Vec<f32> {
    let held = s.tokens().len();
    s.prefill(&tokens[held..], &mut |_, _| {})
        .expect("they fit");
    let mut out = vec![0.0; s.facts().vocab as usize];
    s.logits(&mut out).expect("there is a sequence");
    out
}

#[test]
fn rings_answer_as_caches_that_keep_every_position() {
    const CONTEXT: u32 = 250;
    let tokens: Vec<u32> = (0..CONTEXT).map(|i| 5 + i * 37 % 200).collect();
    for name in ["gemma2", "gemma3", "gemma4"] {
        for (device, options) in devices(Precision::Exact) {
            let of = |chunk_tokens| {
                let options = LoadOptions {
                    context: CONTEXT,
                    chunk_tokens,
                    ..options.clone()
                };
                session(&golden("arch").join(name).join("model.gguf"), &options)
            };
            // No ring that is shorter than the context takes passes as long as that.
            let (mut ring, mut whole) = (of(7), of(CONTEXT));
            let bytes = [&ring, &whole].map(|s| s.facts().cache_bytes);
            assert!(bytes[0] < bytes[1], "{name}: {bytes:?}");
            // Over the end of a page and of the ring, and where the window leaves a page; then back
            // by less than the ring has beyond its window, and by more.
            let on = [0, 60, 64, 65, 79, 80, 81, 128, 129, 192, 193, 250];
            let on = on.windows(2).map(|ends| (ends[0], ends[1]));
            for (keep, end) in on.chain([(210, 230), (120, 200), (3, 249)]) {
                let tokens = &tokens[..end];
                let [found, wanted] = [&mut ring, &mut whole].map(|s| {
                    s.truncate(keep);
                    logits(s, tokens)
                });
                let (at, difference) = worst(&found, &wanted);
                assert!(
                    difference <= 1e-4,
                    "{name} on {device}: {difference} at {at} behind {end}"
                );
            }
        }
    }
}

/// How far the logits of a cache in `q8_0` are from those of one in f16: the root of their mean squared
/// difference over their deviation, at worst.
fn apart(path: &Path, options: &LoadOptions, tokens: &[u32]) -> f32 {
    let of = |cache_type| {
        let options = LoadOptions {
            context: 160,
            cache_type: Some(cache_type),
            ..options.clone()
        };
        session(path, &options)
    };
    let [mut coded, mut plain] = [DType::Q8_0, DType::F16].map(of);
    let bytes = [&coded, &plain].map(|s| s.facts().cache_bytes);
    assert_eq!(32 * bytes[0], 17 * bytes[1]);
    let ends = [1, 40, 65, tokens.len()].map(|end| {
        let [found, wanted] = [&mut coded, &mut plain].map(|s| logits(s, &tokens[..end]));
        let mean = wanted.iter().sum::<f32>() / wanted.len() as f32;
        let deviation: f32 = wanted.iter().map(|x| (x - mean).powi(2)).sum();
        let pairs = found.iter().zip(&wanted);
        let difference: f32 = pairs.map(|(x, y)| (x - y).powi(2)).sum();
        (difference / deviation).sqrt()
    });
    ends.into_iter().fold(0.0, f32::max)
}

#[test]
fn a_cache_of_codes_answers_nearly_as_one_of_f16() {
    let tokens: Vec<u32> = (0..130).map(|i| 5 + i * 37 % 200).collect();
    for (device, options) in devices(Precision::Fast) {
        let path = golden("arch").join("bitnet_tq").join("model.gguf");
        let apart = apart(&path, &options, &tokens);
        print(&format!("a cache of codes on {device}: {apart:.1e}"));
        assert!(apart > 0.0 && apart < 0.05, "{device}: {apart}");
    }
}

#[test]
fn caches_that_cannot_be_are_refused() {
    let refused = |model: &str, cache_type, words: &str| {
        let options = LoadOptions {
            device: DeviceChoice::Cpu,
            cache_type: Some(cache_type),
            ..LoadOptions::default()
        };
        let source = Source::Path(golden("arch").join(model).join("model.gguf"));
        let error = tabla::load(&source, &options, &mut |_| {}).expect_err(words);
        assert!(error.message().contains(words), "{error}");
        error.kind()
    };
    let heads = "heads of a multiple of 64 elements, not of";
    assert_eq!(refused("llama", DType::Q8_0, heads), ErrorKind::Unsupported);
    let known = "known types are f16, f32, q8_0";
    assert_eq!(
        refused("bitnet_tq", DType::Q4_0, known),
        ErrorKind::Argument
    );
}
