//! BF16 checkpoints in the shapes of real models against `transformers`, one layer each.
//! `tests/reference/bf16.py` makes them, in a folder of its own: they are large.

use crate::common::{devices, print, skip, worst};
use crate::npy::Npy;
use std::path::PathBuf;
use tabla::{LoadOptions, Precision, Source};

/// Greatest difference from `transformers` in float32: absolute, or relative to the largest number
/// where that is over 1.
const F32: f32 = 1e-4;

/// Greatest and mean difference from `transformers` in bfloat16.
const BF16: (f32, f32) = (1e-2, 1e-3);

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("TABLA_BF16").map(PathBuf::from);
    if folder.is_none() {
        skip("BF16 checkpoints: TABLA_BF16 names no folder of them");
    }
    folder
}

/// The greatest and the mean difference.
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
        let options = LoadOptions {
            context: 64,
            ..options
        };
        let found = tabla::hidden_states(&source, &options, std::slice::from_ref(&tokens))
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
            // Where the reference itself moves by more than the bound, by no more than that.
            let bound = bound.max(moved + slack);
            assert!(found <= bound, "{name} on {device}: {of_rounded:?}");
        }
    }
}

#[test]
fn a_layer_of_llama() {
    check("llama");
}

#[test]
fn a_layer_of_qwen3() {
    check("qwen3");
}

#[test]
fn a_layer_of_gemma3() {
    check("gemma3");
}
