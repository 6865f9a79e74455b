//! `tabla perplexity` as a user meets it, held against sums in f64 of what `tabla logits` writes.

use super::{Scratch, check_failure, tabla, tabla_with_input};
use serde_json::Value;

const TEXT: &str = "Once upon a time, there was a little fox who wished for a red kite. One day, the \
                    fox met an old owl in the forest and asked for help. The owl said that kites \
                    grow on no tree, and the fox laughed and ran home to its mother. Then they ate.\n";

const EXACT: [&str; 4] = ["--device", "cpu", "--precision", "exact"];

/// Tokens as `tabla tokenize` has them.
fn tokens() -> Vec<u32> {
    let object = tabla_with_input(&["tokenize", "--json"], TEXT).json();
    let ids = object["ids"].as_array().expect("ids").iter();
    ids.map(|id| u32::try_from(id.as_u64().expect("an id")).expect("an id"))
        .collect()
}

/// `-ln p` of each token from the `from`th on, from the logits of a window.
fn plain(window: &[u32], from: usize) -> Vec<f64> {
    let file = Scratch::new("perplexity.npy");
    let ids: Vec<String> = window.iter().map(u32::to_string).collect();
    let ids = ids.join(",");
    let args = ["logits", "--all", "-o", file.path(), "--tokens", &ids];
    assert_eq!(tabla(&[&args[..], &EXACT].concat()).text(), "");
    let bytes = std::fs::read(&file.0).expect("it was written");
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

/// The perplexity of tokens, its standard error, and how many they are.
fn of(nll: &[f64]) -> (f64, f64, usize) {
    let count = nll.len() as f64;
    let mean = nll.iter().sum::<f64>() / count;
    let squares: f64 = nll.iter().map(|x| (x - mean).powi(2)).sum();
    let error = (squares / count / (count - 1.0)).sqrt();
    (mean.exp(), mean.exp() * error, nll.len())
}

fn check(found: &Value, nll: &[f64]) {
    let (perplexity, error, count) = of(nll);
    assert_eq!(found["scored"], count, "{found}");
    for (name, expected) in [("perplexity", perplexity), ("error", error)] {
        let number = found[name].as_f64().expect("a number");
        let off = (number / expected - 1.0).abs();
        assert!(off < 1e-5, "{name}: {number} for {expected}");
    }
}

#[test]
fn windows_side_by_side_have_their_second_halves_scored() {
    let file = Scratch::holding("side.txt", TEXT.as_bytes());
    let tokens = tokens();
    let begins = tokens[0];
    let mut nll = Vec::new();
    for window in tokens.chunks_exact(24) {
        let mut window = window.to_vec();
        // The story model begins texts with a token of its own.
        window[0] = begins;
        nll.extend(plain(&window, 13));
    }
    assert!(nll.len() >= 22, "some windows: {}", nll.len());
    let args = ["perplexity", file.path(), "-c", "24"];
    let args = [&args[..], &EXACT].concat();
    check(&tabla(&[&args[..], &["--json"]].concat()).json(), &nll);
    let one = tabla(&[&args[..], &["--json", "--chunks", "1"]].concat()).json();
    check(&one, &nll[..11]);
    let said = tabla(&args);
    let number = said.text().split(' ').nth(1).expect("a number");
    let number: f64 = number.parse().expect("a number");
    assert!((number / of(&nll).0 - 1.0).abs() < 1e-4, "{}", said.text());
    assert!(said.stderr.contains("windows of 24"), "{}", said.stderr);
}

#[test]
fn overlapping_windows_score_each_token_once() {
    let tokens = tokens();
    let mut nll = Vec::new();
    let mut scored = 1;
    for start in (0..tokens.len()).step_by(16) {
        let end = tokens.len().min(start + 24);
        nll.extend(plain(&tokens[start..end], scored.max(start + 1) - start));
        scored = end;
        if end == tokens.len() {
            break;
        }
    }
    assert_eq!(nll.len(), tokens.len() - 1);
    let args = ["perplexity", "-", "-c", "24", "--stride", "16", "--json"];
    let found = tabla_with_input(&[&args[..], &EXACT].concat(), TEXT).json();
    check(&found, &nll);
    assert_eq!(found["stride"], 16);
}

#[test]
fn texts_that_are_too_short_say_what_helps() {
    let short = Scratch::holding("short.txt", b"Once");
    check_failure(&tabla(&["perplexity", short.path()]), "-c takes");
    let far = ["perplexity", short.path(), "-c", "24", "--stride", "25"];
    assert_eq!(tabla(&far).code, Some(2));
    check_failure(&tabla(&["perplexity", "no such file"]), "cannot read");
}
