//! Timestamp rules compared with those of `openai-whisper`; `reference/rules.py` writes the golden file.

use tabla_speech::{SpecialTokens, apply_timestamp_rules};

/// Vocabulary, seed, bias of timestamps, tokens so far, largest first timestamp, ranges of allowed ids.
type Case = (u32, u32, f32, Vec<u32>, Option<u32>, Vec<[u32; 2]>);

/// The logits of `reference/rules.py`.
fn logits(seed: u32, count: u32) -> Vec<f32> {
    let hash = |id: u32| {
        let mut x = id.wrapping_mul(2_654_435_761);
        x = x.wrapping_add(seed.wrapping_mul(0x9E37_79B9));
        x ^= x >> 16;
        x = x.wrapping_mul(0x85EB_CA6B);
        x ^= x >> 13;
        (x >> 8) as f32 / 1_048_576.0 - 8.0
    };
    (0..count).map(hash).collect()
}

/// Ranges of the ids that are allowed.
fn ranges(logits: &[f32]) -> Vec<[u32; 2]> {
    let mut ranges: Vec<[u32; 2]> = Vec::new();
    for (id, _) in (0..).zip(logits).filter(|(_, x)| x.is_finite()) {
        match ranges.last_mut() {
            Some([_, end]) if *end == id => *end += 1,
            _ => ranges.push([id, id + 1]),
        }
    }
    ranges
}

#[test]
fn rules_allow_the_tokens_of_openai() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("golden/rules.json")).unwrap();
    assert_eq!(cases.len(), 240);
    for case in cases {
        let (vocab, seed, bias, generated, max_initial, expected) = &case;
        let tokens = SpecialTokens::of(*vocab).unwrap();
        let mut row = logits(*seed, tokens.vocab);
        for logit in &mut row[tokens.first_timestamp as usize..] {
            *logit += bias;
        }
        apply_timestamp_rules(&mut row, generated, &tokens, *max_initial);
        assert_eq!(ranges(&row), *expected, "{case:?}");
    }
}
