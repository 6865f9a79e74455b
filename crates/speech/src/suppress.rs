//! Tokens that transcripts do not contain: symbols of annotations and special tokens.
//!
//! Annotations describe sounds, as in `[MUSIC]` or `♪♪♪`. OpenAI's `tokenizer.py` derives the ids from
//! the symbols, HF's `generation_config.json` lists them.

use crate::special::SpecialTokens;

/// The token of a space, in both vocabularies. It is no first token of a transcript, like `eot`.
pub const BLANK: u32 = 220;

/// Tokens that begin an annotation, English vocabulary.
#[rustfmt::skip]
const NON_SPEECH_ENGLISH: [u32; 84] = [
    1, 2, 7, 8, 9, 10, 14, 25, 26, 27, 28, 29, 31, 58, 59, 60, 61, 62, 63, 90, 91, 92, 93, 357,
    366, 438, 532, 685, 705, 796, 930, 1058, 1220, 1267, 1279, 1303, 1343, 1377, 1391, 1635,
    1782, 1875, 2162, 2361, 2488, 3467, 4008, 4211, 4600, 4808, 5299, 5855, 6329, 7203, 9609,
    9959, 10563, 10786, 11420, 11709, 11907, 13163, 13697, 13700, 14808, 15306, 16410, 16791,
    17992, 19203, 19510, 20724, 22305, 22935, 27007, 30109, 30420, 33409, 34949, 40283, 40493,
    40549, 47282, 49146,
];

/// Tokens that begin an annotation, multilingual vocabulary.
#[rustfmt::skip]
const NON_SPEECH_MULTILINGUAL: [u32; 82] = [
    1, 2, 7, 8, 9, 10, 14, 25, 26, 27, 28, 29, 31, 58, 59, 60, 61, 62, 63, 90, 91, 92, 93, 359,
    503, 522, 542, 873, 893, 902, 918, 922, 931, 1350, 1853, 1982, 2460, 2627, 3246, 3253, 3268,
    3536, 3846, 3961, 4183, 4667, 6585, 6647, 7273, 9061, 9383, 10428, 10929, 11938, 12033,
    12331, 12562, 13793, 14157, 14635, 15265, 15618, 16553, 16604, 18362, 18956, 20075, 21675,
    22520, 26130, 26161, 26435, 28279, 29464, 31650, 32302, 32470, 36865, 42863, 47425, 49870,
    50254,
];

/// Returns the tokens that are suppressed at every step, in ascending order: tokens of annotations,
/// and special tokens except `eot`, languages, `notimestamps` and timestamps.
pub fn suppressed(tokens: &SpecialTokens) -> Vec<u32> {
    let mut all = non_speech(tokens).to_vec();
    all.extend(control_tokens(tokens));
    all.sort_unstable();
    all
}

/// Returns the special tokens of [`suppressed`]. They are suppressed even if annotations are allowed.
fn control_tokens(tokens: &SpecialTokens) -> [u32; 6] {
    [
        tokens.sot,
        tokens.translate,
        tokens.transcribe,
        tokens.startoflm,
        tokens.startofprev,
        tokens.nospeech,
    ]
}

fn non_speech(tokens: &SpecialTokens) -> &'static [u32] {
    if tokens.is_multilingual() {
        &NON_SPEECH_MULTILINGUAL
    } else {
        &NON_SPEECH_ENGLISH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_the_lengths_of_published_configurations() {
        for (vocab, count) in [(51_864, 90), (51_865, 88), (51_866, 88)] {
            let tokens = SpecialTokens::of(vocab).unwrap();
            let all = suppressed(&tokens);
            assert_eq!(all.len(), count);
            assert!(all.is_sorted_by(|a, b| a < b));
            assert!(all.contains(&tokens.nospeech) && !all.contains(&tokens.eot));
            assert!(!all.contains(&(tokens.sot + 1)) && !all.contains(&tokens.notimestamps));
        }
    }
}
