//! Compares BF16 checkpoints with the shapes of real models, one layer each, with `transformers`.
//! `tests/reference/bf16.py` creates them in a separate folder, because they are large.

use crate::common::{devices, print, skip, worst};
use crate::npy::Npy;
use std::path::PathBuf;
use tabla::Source;
use tabla::device::Precision;

/// Maximum difference from `transformers` in float32: absolute, or relative to the largest value if
/// that is over 1.
const F32: f32 = 1e-4;

/// Maximum and mean difference from `transformers` in bfloat16.
const BF16: (f32, f32) = (1e-2, 1e-3);

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("TABLA_BF16").map(PathBuf::from);
    if folder.is_none() {
        skip("BF16 checkpoints: TABLA_BF16 is not set");
    }
    folder
}

/// Returns the maximum and the mean difference.
fn gaps(a: &[f32], b: &[f32]) -> (f32, f32) {
    let sum: f64 = a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).sum();
    #[expect(clippy::cast_possible_truncation, reason = "a mean of f32")]
    let mean = (sum / a.len() as f64) as f32;
    (worst(a, b).1, mean)
}

fn check(name: &str) {
    let Some(folder) = folder() else {
        return;
    };
    let folder = folder.join(name);
    let tokens = std::fs::read_to_string(folder.join("tokens.json")).expect("tokens");
    let tokens: Vec<u32> = serde_json::from_str(&tokens).expect("ids");
    let exact = Npy::read(&folder.join("f32.npy")).data;
    let rounded = Npy::read(&folder.join("bf16.npy")).data;
    let largest = exact.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let source = Source::Path(folder.join("hf"));
    let moved = gaps(&rounded, &exact);
    print(&format!(
        "{name}: largest {largest:.2}; transformers in bf16 moves by {:.2e}, mean {:.2e}",
        moved.0, moved.1
    ));
    for (device, options) in devices(Precision::Exact) {
        let options = options.max_context(64);
        let found = tabla::tools::hidden_states(&source, &options, std::slice::from_ref(&tokens))
            .expect("the model runs");
        let [found] = &found.layers[..] else {
            panic!("{name} has one layer");
        };
        let (of_exact, of_rounded) = (gaps(found, &exact), gaps(found, &rounded));
        print(&format!(
            "{name} on {device}: f32 {:.2e} mean {:.2e}, bf16 {:.2e} mean {:.2e}",
            of_exact.0, of_exact.1, of_rounded.0, of_rounded.1
        ));
        let slack = F32 * largest.max(1.0);
        assert!(of_exact.0 <= slack, "{name} on {device}: {of_exact:?}");
        for (found, moved, bound) in [
            (of_rounded.0, moved.0, BF16.0),
            (of_rounded.1, moved.1, BF16.1),
        ] {
            // If the bf16 reference differs from the f32 reference by more than the bound, that
            // difference is the bound.
            let bound = bound.max(moved + slack);
            assert!(found <= bound, "{name} on {device}: {of_rounded:?}");
        }
    }
}

#[test]
fn llama_layer_matches_transformers() {
    check("llama");
}

#[test]
fn qwen3_layer_matches_transformers() {
    check("qwen3");
}

#[test]
fn gemma3_layer_matches_transformers() {
    check("gemma3");
}
