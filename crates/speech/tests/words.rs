//! Alignment and words compared with those of `openai-whisper`; `reference/words.py` writes the golden
//! file.

#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

use serde::de::DeserializeOwned;
use serde_json::Value;
use tabla_speech::{
    Attention, AttentionKind, Language, SpecialTokens, TokenWord, align, dtw, split_words,
    suppressed, time_words,
};

const HEADS: usize = 3;
const COLUMNS: usize = 200;

/// Columns, costs, first column of each row.
type Path = (usize, Vec<f32>, Vec<u32>);
/// Language, bytes of tokens, number of tokens of each word.
type Split = (String, String, Vec<usize>);
/// Seed, frames, bytes of tokens, and text, number of tokens, start, end and probability of each word.
type Alignment = (u32, u32, String, Vec<(String, usize, f64, f64, f64)>);

fn golden<T: DeserializeOwned>(part: &str) -> Vec<T> {
    let all: Value = serde_json::from_str(include_str!("golden/words.json")).expect("JSON");
    serde_json::from_value(all[part].clone()).expect(part)
}

fn noise(count: usize, seed: u32) -> impl Iterator<Item = f32> {
    (0..count).map(move |id| {
        let mut x = (id as u32).wrapping_mul(2_654_435_761);
        x = x.wrapping_add(seed.wrapping_mul(0x9E37_79B9));
        x ^= x >> 16;
        x = x.wrapping_mul(0x85EB_CA6B);
        x ^= x >> 13;
        (x >> 23) as f32 / 256.0 - 1.0
    })
}

/// Splits the tokens whose bytes are in hexadecimal.
fn split(pieces: &str, language: &str) -> Vec<TokenWord> {
    let hex = |digits: &str| -> Vec<u8> {
        let pairs = (0..digits.len()).step_by(2);
        let bytes =
            pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits"));
        bytes.collect()
    };
    let pieces: Vec<Vec<u8>> = pieces.split(' ').map(hex).collect();
    let tokens: Vec<u32> = (0..).take(pieces.len()).collect();
    let decode = |tokens: &[u32]| -> Vec<u8> {
        let bytes = tokens.iter().map(|t| pieces[*t as usize].clone());
        bytes.collect::<Vec<_>>().concat()
    };
    split_words(&tokens, &decode, Language::find(language).expect(language))
}

#[test]
fn paths_are_those_of_openai() {
    let cases = golden::<Path>("dtw");
    assert_eq!(cases.len(), 60);
    for (columns, costs, expected) in cases {
        assert_eq!(dtw(&costs, columns), expected, "{costs:?}");
    }
}

#[test]
fn words_are_those_of_openai() {
    let cases = golden::<Split>("split");
    assert!(cases.len() > 30);
    for (language, pieces, expected) in cases {
        let words = split(&pieces, &language);
        let found: Vec<usize> = words.iter().map(|w| w.tokens.len()).collect();
        assert_eq!(found, expected, "{words:?}");
    }
}

#[test]
fn alignment_is_that_of_openai() {
    for (seed, frames, pieces, expected) in golden::<Alignment>("align") {
        let words = split(&pieces, "en");
        let count = words.last().unwrap().tokens.end;
        let rows = count + 5;
        let cell = |(at, noise): (usize, f32)| {
            let (row, column) = (at / COLUMNS % rows, at % COLUMNS);
            let near = 8.0 - (column as f32 - row as f32 * 9.0).abs();
            near.max(0.0) * 0.5 + noise
        };
        let size = HEADS * rows * COLUMNS;
        let values: Vec<f32> = noise(size, seed).enumerate().map(cell).collect();
        let attention = Attention {
            values: &values,
            kind: AttentionKind::Scores,
            rows,
            columns: COLUMNS,
        };
        let starts = align(&attention, frames, 3..rows - 1).unwrap();
        let probability = |at: usize| {
            let e = f32::exp(8.0 + (at % 7) as f32);
            e / (e + 50_256.0)
        };
        let probabilities: Vec<f32> = (0..count).map(probability).collect();
        let timed = time_words(words, &starts, &probabilities).unwrap();
        assert_eq!(timed.len(), expected.len());
        for (word, (text, tokens, start, end, probability)) in timed.into_iter().zip(expected) {
            let expected = (&text, tokens, start, end);
            assert_eq!((&word.text, word.tokens, word.start, word.end), expected);
            // OpenAI's f32 softmax over 50257 tokens is off by up to 2e-5.
            assert!((word.probability - probability).abs() < 1e-4);
        }
    }
}

#[test]
fn suppressed_tokens_are_those_of_openai() {
    for (expected, vocab) in golden::<Vec<u32>>("suppressed")
        .iter()
        .zip([51_864, 51_865])
    {
        let tokens = SpecialTokens::of(vocab).unwrap();
        assert_eq!(suppressed(&tokens), *expected);
    }
}
