//! Rules of timestamps, as `whisper/decoding.py` of OpenAI applies them. Devices apply them as the
//! operation `speech_filter`, whose tests compare it with this file.

use crate::special::SpecialTokens;
use std::ops::Range;

/// Suppresses tokens. Ids outside of the row are ignored.
fn suppress(logits: &mut [f32], ids: &[u32]) {
    for &id in ids {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Applies the rules of timestamps to a row of logits.
///
/// `generated` holds the tokens of this window so far, without the prompt. `max_initial` is the
/// number of the largest timestamp that the first token may be. The rules:
///
/// 1. `notimestamps` is forbidden.
/// 2. Timestamps come in pairs, the end of a segment and the start of the next, except for the first
///    and the last: after a pair or a first timestamp, text follows; after text and a timestamp, a
///    timestamp or `eot`.
/// 3. Timestamps do not decrease, and a segment is longer than 0.
/// 4. The first token is a timestamp, at most `max_initial`.
/// 5. If timestamps together are more probable than each other token, a timestamp follows.
///
/// Rule 5 adds probabilities in f64. OpenAI's f32 sums may decide differently where both sides are
/// equal to about 1e-6.
pub fn apply_timestamp_rules(
    logits: &mut [f32],
    generated: &[u32],
    tokens: &SpecialTokens,
    max_initial: Option<u32>,
) {
    suppress(logits, &[tokens.notimestamps]);
    apply_order(logits, generated, tokens);
    if generated.is_empty() {
        forbid(logits, 0..tokens.first_timestamp);
        if let Some(max) = max_initial {
            let end = tokens.first_timestamp.saturating_add(max);
            forbid(logits, end.saturating_add(1)..u32::MAX);
        }
    }
    if prefers_timestamp(logits, tokens) {
        forbid(logits, 0..tokens.first_timestamp);
    }
}

/// Rules 2 and 3.
fn apply_order(logits: &mut [f32], generated: &[u32], tokens: &SpecialTokens) {
    let is_timestamp = |token: &u32| tokens.is_timestamp(*token);
    let mut last = generated.iter().rev();
    let ends_in_timestamp = last.next().is_some_and(is_timestamp);
    let follows_text = last.next().is_some_and(|token| !is_timestamp(token));
    if ends_in_timestamp {
        forbid(
            logits,
            if follows_text {
                0..tokens.eot
            } else {
                tokens.first_timestamp..u32::MAX
            },
        );
    }
    if let Some(&largest) = generated.iter().rfind(|token| is_timestamp(token)) {
        // A segment may start where the one before ends, but not end where it starts.
        let is_end = ends_in_timestamp && follows_text;
        let first_allowed = largest.saturating_add(u32::from(!is_end));
        forbid(logits, tokens.first_timestamp..first_allowed);
    }
}

/// Rule 5, divided by the probability of the most probable token that is not a timestamp.
fn prefers_timestamp(logits: &[f32], tokens: &SpecialTokens) -> bool {
    let middle = logits.len().min(tokens.first_timestamp as usize);
    let (others, timestamps) = logits.split_at(middle);
    let largest = others.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if largest == f32::NEG_INFINITY {
        return false;
    }
    let ratio = |logit: &f32| (f64::from(*logit) - f64::from(largest)).exp();
    timestamps.iter().map(ratio).sum::<f64>() > 1.0
}

/// Forbids a range of ids, cut to the row.
fn forbid(logits: &mut [f32], ids: Range<u32>) {
    let end = logits.len().min(ids.end as usize);
    let start = end.min(ids.start as usize);
    logits[start..end].fill(f32::NEG_INFINITY);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First allowed id, last allowed id and their number, for equal logits with one that is larger.
    fn allowed(generated: &[u32], raised: u32) -> (usize, usize, usize) {
        let tokens = SpecialTokens::of(51_864).unwrap();
        let mut logits = vec![0.0; 51_864];
        logits[raised as usize] = 20.0;
        apply_timestamp_rules(&mut logits, generated, &tokens, Some(50));
        let ids = (0..logits.len()).filter(|id| logits[*id].is_finite());
        let ids: Vec<usize> = ids.collect();
        (ids[0], ids[ids.len() - 1], ids.len())
    }

    #[test]
    fn timestamps_are_paired_and_ordered() {
        let t0 = 50_363;
        let (text, eot) = (1000, 50_256);
        // First token, raised text is of no effect.
        assert_eq!(allowed(&[], text), (50_363, 50_413, 51));
        // After the first timestamp: no timestamps.
        assert_eq!(allowed(&[t0], text), (0, 50_361, 50_362));
        // After text: all but earlier timestamps and the same one.
        let (first, last, count) = allowed(&[t0 + 10, text], text);
        assert_eq!((first, last), (0, 51_863));
        assert_eq!(count, 51_864 - 1 - 11);
        // At the end of a segment: no text, the same timestamp is allowed, eot too.
        let (first, last, count) = allowed(&[t0, text, t0 + 20], eot);
        assert_eq!((first, last), (eot as usize, 51_863));
        assert_eq!(count, 51_864 - 50_256 - 1 - 20);
        // After a pair: text.
        assert_eq!(
            allowed(&[t0, text, t0 + 20, t0 + 20], text),
            (0, 50_361, 50_362)
        );
    }

    #[test]
    fn timestamps_win_together() {
        let tokens = SpecialTokens::of(51_864).unwrap();
        let generated = [tokens.first_timestamp, 1000];
        let mut logits = vec![0.0; 51_864];
        // 1500 timestamps are left; text needs a logit above ln 1500 = 7.313.
        for (logit, is_timestamp) in [(7.31, true), (7.32, false)] {
            logits.fill(0.0);
            logits[5] = logit;
            apply_timestamp_rules(&mut logits, &generated, &tokens, None);
            assert_eq!(logits[5] == f32::NEG_INFINITY, is_timestamp, "{logit}");
        }
    }

    #[test]
    fn odd_rows_do_not_panic() {
        let tokens = SpecialTokens::of(51_865).unwrap();
        for mut logits in [vec![], vec![f32::NAN; 10], vec![f32::NEG_INFINITY; 51_865]] {
            for generated in [&[][..], &[u32::MAX], &[5, u32::MAX]] {
                apply_timestamp_rules(&mut logits, generated, &tokens, Some(u32::MAX));
            }
        }
    }
}
