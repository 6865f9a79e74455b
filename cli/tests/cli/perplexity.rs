//! Tests of `tabla perplexity`, compared with f64 sums over the output of `tabla logits`.

use super::{Scratch, check_failure, tabla, tabla_with_input};
use serde_json::Value;

const TEXT: &str = "Once upon a time, there was a little fox who wished for a red kite. One day, the \
                    fox met an old owl in the forest and asked for help. The owl said that kites \
                    grow on no tree, and the fox laughed and ran home to its mother. Then they ate.\n";

const EXACT: [&str; 4] = ["--device", "cpu", "--precision", "exact"];

/// Returns the output of `tabla tokenize`.
fn tokens() -> Vec<u32> {
    let object = tabla_with_input(&["tokenize", "--json"], TEXT).json();
    let ids = object["ids"].as_array().expect("ids").iter();
    ids.map(|id| u32::try_from(id.as_u64().expect("an id")).expect("an id"))
        .collect()
}

/// Returns `-ln p` of each token from index `from`, from the logits of a window.
fn nll_of(window: &[u32], from: usize) -> Vec<f64> {
    let file = Scratch::new("perplexity.npy");
    let ids: Vec<String> = window.iter().map(u32::to_string).collect();
    let ids = ids.join(",");
    let args = ["logits", "--all", "-o", file.path(), "--tokens", &ids];
    assert_eq!(tabla(&[&args[..], &EXACT].concat()).text(), "");
    let bytes = std::fs::read(&file.path).expect("output file");
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let numbers = bytes[header..].as_chunks().0.iter();
    let numbers: Vec<f64> = numbers.map(|b| f64::from(f32::from_le_bytes(*b))).collect();
    let rows = numbers.chunks_exact(numbers.len() / window.len());
    let rows = rows.zip(&window[1..]).skip(from - 1);
    rows.map(|(row, token)| {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        sum.ln() - row[*token as usize]
    })
    .collect()
}

/// Returns the perplexity, its standard error and the number of tokens.
fn perplexity(nll: &[f64]) -> (f64, f64, usize) {
    let count = nll.len() as f64;
    let mean = nll.iter().sum::<f64>() / count;
    let squares: f64 = nll.iter().map(|x| (x - mean).powi(2)).sum();
    let error = (squares / count / (count - 1.0)).sqrt();
    (mean.exp(), mean.exp() * error, nll.len())
}

fn check(object: &Value, nll: &[f64]) {
    let (perplexity, error, count) = perplexity(nll);
    assert_eq!(object["scored"], count, "{object}");
    for (name, expected) in [("perplexity", perplexity), ("error", error)] {
        let number = object[name].as_f64().expect("a number");
        let off = (number / expected - 1.0).abs();
        assert!(off < 1e-5, "{name}: {number} for {expected}");
    }
}

#[test]
fn scores_second_halves_of_windows_without_overlap() {
    let file = Scratch::with_bytes("side.txt", TEXT.as_bytes());
    let tokens = tokens();
    let bos = tokens[0];
    let mut nll = Vec::new();
    for window in tokens.chunks_exact(24) {
        let mut window = window.to_vec();
        // The story model uses BOS.
        window[0] = bos;
        nll.extend(nll_of(&window, 13));
    }
    assert!(nll.len() >= 22, "some windows: {}", nll.len());
    let args = ["perplexity", file.path(), "-c", "24"];
    let args = [&args[..], &EXACT].concat();
    check(&tabla(&[&args[..], &["--json"]].concat()).json(), &nll);
    let one = tabla(&[&args[..], &["--json", "--chunks", "1"]].concat()).json();
    check(&one, &nll[..11]);
    let ran = tabla(&args);
    let number = ran.text().split(' ').nth(1).expect("a number");
    let number: f64 = number.parse().expect("a number");
    assert!(
        (number / perplexity(&nll).0 - 1.0).abs() < 1e-4,
        "{}",
        ran.text()
    );
    assert!(ran.stderr.contains("windows of 24"), "{}", ran.stderr);
}

#[test]
fn overlapping_windows_score_each_token_once() {
    let tokens = tokens();
    let mut nll = Vec::new();
    let mut scored = 1;
    for start in (0..tokens.len()).step_by(16) {
        let end = tokens.len().min(start + 24);
        nll.extend(nll_of(&tokens[start..end], scored.max(start + 1) - start));
        scored = end;
        if end == tokens.len() {
            break;
        }
    }
    assert_eq!(nll.len(), tokens.len() - 1);
    let args = ["perplexity", "-", "-c", "24", "--stride", "16", "--json"];
    let object = tabla_with_input(&[&args[..], &EXACT].concat(), TEXT).json();
    check(&object, &nll);
    assert_eq!(object["stride"], 16);
}

#[test]
fn rejects_short_texts_and_large_strides() {
    let short = Scratch::with_bytes("short.txt", b"Once");
    check_failure(
        &tabla(&["perplexity", short.path()]),
        "reduce the window size with -c",
    );
    let too_large = ["perplexity", short.path(), "-c", "24", "--stride", "25"];
    assert_eq!(tabla(&too_large).code, Some(2));
    check_failure(&tabla(&["perplexity", "no such file"]), "cannot read");
}
