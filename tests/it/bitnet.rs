//! Compares BitNet b1.58 2B-4T with recorded logits if `TABLA_BITNET` is the path of
//! `ggml-model-i2_s.gguf` of `microsoft/bitnet-b1.58-2B-4T-gguf`. A tiny model runs the same
//! comparison everywhere.

use crate::common::{devices, golden, session, skip};
use crate::npy::Npy;
use crate::temp_folder::Folder;
use std::path::{Path, PathBuf};
use tabla::device::Precision;
use tabla::load::{DeviceChoice, LoadOptions};

/// Recorded logits.
#[derive(Default)]
struct Recorded {
    tokens: Vec<u32>,
    /// Most likely ids with their logits, for each position; may be empty.
    top: Vec<Vec<(usize, f64)>>,
    /// Mean of each row.
    means: Vec<f64>,
    /// First logits of the first row.
    first: Vec<f64>,
}

/// Minimum correlation with the recorded logits. Absolute values are not compared: two references
/// differ by half a logit.
const CORRELATION: f64 = 0.998;
/// Maximum difference of a top logit after subtracting the mean difference.
const TOP_DIFFERENCE: f64 = 0.6;

/// Returns Pearson's correlation.
fn correlation(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len());
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let (mx, my) = (mean(x), mean(y));
    let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| f(x - mx, y - my)).sum()
    };
    sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
}

/// Compares a model with recorded logits.
fn compare(path: &Path, recorded: &Recorded) -> Result<(), String> {
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .precision(Precision::Exact)
        .max_context(32);
    let mut session = session(path, &options);
    let vocab = session.facts().vocab as usize;
    let mut logits = vec![0.0; recorded.tokens.len() * vocab];
    session.prefill(&recorded.tokens).expect("the tokens fit");
    session
        .logits_all(&mut logits)
        .expect("the buffer has the right size");
    let rows: Vec<Vec<f64>> = logits
        .chunks(vocab)
        .map(|row| row.iter().map(|x| f64::from(*x)).collect())
        .collect();

    for (position, (row, top)) in rows.iter().zip(&recorded.top).enumerate() {
        compare_top(row, top).map_err(|e| format!("position {position}: {e}"))?;
    }
    let means: Vec<f64> = rows
        .iter()
        .map(|row| row.iter().sum::<f64>() / vocab as f64)
        .collect();
    let first = &rows[0][..recorded.first.len()];
    for (what, actual, expected) in [
        ("means of the rows", &means[..], &recorded.means),
        ("first logits", first, &recorded.first),
    ] {
        let r = correlation(actual, expected);
        if r.is_nan() || r < CORRELATION {
            return Err(format!("{what}: correlation {r}: {actual:?}"));
        }
    }
    Ok(())
}

/// Compares the most likely tokens of a row: nearly the same set, with similar differences.
fn compare_top(row: &[f64], top: &[(usize, f64)]) -> Result<(), String> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
    let likeliest = &order[..top.len()];
    let common = top.iter().filter(|(id, _)| likeliest.contains(id)).count();
    if !order[..3].contains(&top[0].0) || common + 2 < top.len() {
        return Err(format!(
            "most likely tokens: expected {top:?}, got {likeliest:?}"
        ));
    }
    let differences = top.iter().map(|(id, expected)| row[*id] - expected);
    let offset = differences.clone().sum::<f64>() / top.len() as f64;
    let worst = differences.fold(0.0f64, |m, d| m.max((d - offset).abs()));
    if worst > TOP_DIFFERENCE {
        return Err(format!("top logits differ by {worst}"));
    }
    Ok(())
}

/// Reads `bitnet_2b4t.json`.
fn recorded() -> Vec<Recorded> {
    let text = std::fs::read_to_string(golden("bitnet_2b4t.json")).expect("a file");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let numbers = |list: &serde_json::Value| -> Vec<f64> {
        let list = list.as_array().expect("a list").iter();
        list.map(|n| n.as_f64().expect("a number")).collect()
    };
    let id = |n: &serde_json::Value| n.as_u64().expect("an id");
    let prompts = json["prompts"].as_array().expect("a list").iter();
    let of = |prompt: &serde_json::Value| {
        let tokens = prompt["tokens"].as_array().expect("a list").iter();
        let top = prompt["top"].as_array().expect("a list").iter();
        let pair = |pair: &serde_json::Value| {
            let logit = pair[1].as_f64().expect("a logit");
            (usize::try_from(id(&pair[0])).expect("small"), logit)
        };
        Recorded {
            tokens: tokens
                .map(|n| u32::try_from(id(n)).expect("small"))
                .collect(),
            top: top
                .map(|row| row.as_array().expect("a list").iter().map(pair).collect())
                .collect(),
            means: numbers(&prompt["means"]),
            first: numbers(&prompt["first"]),
        }
    };
    prompts.map(of).collect()
}

#[test]
fn logits_of_the_real_model_match() {
    let all = recorded();
    assert!(all.iter().all(|r| r.means.len() == r.tokens.len()));
    let Some(path) = std::env::var_os("TABLA_BITNET") else {
        skip("BitNet 2B-4T: TABLA_BITNET is not set to its ggml-model-i2_s.gguf");
        return;
    };
    for recorded in &all {
        if let Err(e) = compare(&PathBuf::from(&path), recorded) {
            panic!("tokens {:?}: {e}", recorded.tokens);
        }
    }
}

/// A tiny model of the same architecture and type.
#[test]
fn logits_of_a_tiny_model_match() {
    let folder = golden("arch").join("bitnet");
    let logits = Npy::read(&folder.join("logits.npy"));
    let text = std::fs::read_to_string(folder.join("golden.json")).expect("a file");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let list = json["tokens"].as_array().expect("a list").iter().take(8);
    let tokens: Vec<u32> = list
        .map(|n| u32::try_from(n.as_u64().expect("an id")).expect("small"))
        .collect();
    let rows: Vec<Vec<f64>> = logits
        .data
        .chunks(logits.cols)
        .take(8)
        .map(|row| row.iter().map(|x| f64::from(*x)).collect())
        .collect();
    let top = |row: &Vec<f64>| {
        let mut order: Vec<_> = row.iter().copied().enumerate().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        order[..10].to_vec()
    };
    // A constant offset, as in the references of the real model.
    let mean = |row: &Vec<f64>| row.iter().sum::<f64>() / row.len() as f64 + 0.5;
    let mut recorded = Recorded {
        tokens,
        top: rows.iter().map(top).collect(),
        means: rows.iter().map(mean).collect(),
        first: rows[0][..30].iter().map(|x| x + 0.5).collect(),
    };
    let path = folder.join("model.gguf");
    assert_eq!(compare(&path, &recorded), Ok(()));
    recorded.first.swap(0, 1);
    let e = compare(&path, &recorded).expect_err("two logits are swapped");
    assert!(e.starts_with("first logits"), "{e}");
    recorded.means.swap(0, 1);
    let e = compare(&path, &recorded).expect_err("two means are swapped");
    assert!(e.starts_with("means of the rows"), "{e}");
    recorded.top.swap(0, 1);
    let e = compare(&path, &recorded).expect_err("two lists are swapped");
    assert!(e.starts_with("position 0"), "{e}");
}

/// Weights of training are rounded with the configuration of the published folder and without one.
#[test]
fn online_quantization_can_be_configured() {
    let golden = golden("arch").join("bitnet_master");
    let folder = Folder::new("bitnet-online");
    folder.copy(&golden.join("hf"));
    let config = std::fs::read(golden.join("config_online.json")).expect("a file");
    folder.write("config.json", &config);
    let [expected, found] = [golden.join("hf"), folder.0.clone()].map(|path| {
        let options = devices(Precision::Exact).remove(0).1;
        let mut s = session(&path, &options.samplers(Vec::new()));
        s.prefill(&[1, 5, 9, 30]).expect("the tokens fit");
        let mut logits = vec![0.0; s.facts().vocab as usize];
        s.logits(&mut logits).expect("logits are available");
        logits
    });
    assert!(expected == found);
}
