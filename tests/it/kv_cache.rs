//! The KV cache: sliding windows are exact, `q8_0` is nearly exact.

use crate::common::{devices, devices_for, golden, print, session, worst};
use std::path::Path;
use tabla::device::Precision;
use tabla::dtype::DType;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::{ErrorKind, Model, Session, Source};

/// Computes the logits after these tokens.
fn logits(s: &mut Session, tokens: &[u32]) -> Vec<f32> {
    let cached = s.tokens().len();
    s.prefill(&tokens[cached..]).expect("prefill succeeds");
    let mut out = vec![0.0; s.facts().vocab as usize];
    s.logits(&mut out).expect("logits are available");
    out
}

#[test]
fn sliding_window_cache_matches_full_cache() {
    const CONTEXT: u32 = 250;
    let tokens: Vec<u32> = (0..CONTEXT).map(|i| 5 + i * 37 % 200).collect();
    for name in ["gemma2", "gemma3", "gemma4"] {
        for (device, options) in devices_for(name, &["gemma4"], Precision::Exact) {
            let of = |chunk_tokens| {
                let options = options
                    .clone()
                    .max_context(CONTEXT)
                    .chunk_tokens(chunk_tokens);
                session(&golden("arch").join(name).join("model.gguf"), &options)
            };
            // With a chunk as long as the context, the cache keeps every position.
            let (mut windowed, mut full) = (of(7), of(CONTEXT));
            let bytes = [&windowed, &full].map(|s| s.facts().cache_bytes);
            assert!(bytes[0] < bytes[1], "{name}: {bytes:?}");
            // Positions at the ends of pages and of the window; then truncations by less and by
            // more than the window keeps.
            let on = [0, 60, 64, 65, 79, 80, 81, 128, 129, 192, 193, 250];
            let on = on.windows(2).map(|ends| (ends[0], ends[1]));
            for (keep, end) in on.chain([(210, 230), (120, 200), (3, 249)]) {
                let tokens = &tokens[..end];
                let [found, expected] = [&mut windowed, &mut full].map(|s| {
                    s.truncate(keep);
                    logits(s, tokens)
                });
                let (at, difference) = worst(&found, &expected);
                assert!(
                    difference <= 1e-4,
                    "{name} on {device}: {difference} at {at} after {end} tokens"
                );
            }
        }
    }
}

/// Returns the maximum relative error of the logits with a `q8_0` cache against an f16 cache: the
/// root mean square difference over the standard deviation.
fn relative_error(path: &Path, options: &LoadOptions, tokens: &[u32]) -> f32 {
    let of = |cache_type| {
        let options = options.clone().max_context(160).cache_type(cache_type);
        session(path, &options)
    };
    let [mut coded, mut plain] = [DType::Q8_0, DType::F16].map(of);
    let bytes = [&coded, &plain].map(|s| s.facts().cache_bytes);
    assert_eq!(32 * bytes[0], 17 * bytes[1]);
    let ends = [1, 40, 65, tokens.len()].map(|end| {
        let [found, expected] = [&mut coded, &mut plain].map(|s| logits(s, &tokens[..end]));
        let mean = expected.iter().sum::<f32>() / expected.len() as f32;
        let deviation: f32 = expected.iter().map(|x| (x - mean).powi(2)).sum();
        let pairs = found.iter().zip(&expected);
        let difference: f32 = pairs.map(|(x, y)| (x - y).powi(2)).sum();
        (difference / deviation).sqrt()
    });
    ends.into_iter().fold(0.0, f32::max)
}

#[test]
fn q8_0_cache_is_close_to_f16() {
    let tokens: Vec<u32> = (0..130).map(|i| 5 + i * 37 % 200).collect();
    for (device, options) in devices(Precision::Fast) {
        let path = golden("arch").join("bitnet_tq").join("model.gguf");
        let relative_error = relative_error(&path, &options, &tokens);
        print(&format!(
            "q8_0 cache on {device}: relative error {relative_error:.1e}"
        ));
        assert!(
            relative_error > 0.0 && relative_error < 0.05,
            "{device}: {relative_error}"
        );
    }
}

#[test]
fn rejects_unsupported_cache_types() {
    let refused = |model: &str, cache_type, words: &str| {
        let options = LoadOptions::default()
            .device(DeviceChoice::Cpu)
            .cache_type(cache_type);
        let source = Source::Path(golden("arch").join(model).join("model.gguf"));
        let error = Model::builder(source)
            .options(options)
            .load()
            .expect_err(words);
        assert!(error.message().contains(words), "{error}");
        error.kind()
    };
    let heads = "requires a head dimension that is a multiple of 64";
    assert_eq!(refused("llama", DType::Q8_0, heads), ErrorKind::Unsupported);
    let known = "supported types are f16, f32, q8_0";
    assert_eq!(
        refused("bitnet_tq", DType::Q4_0, known),
        ErrorKind::Argument
    );
}
