//! Probabilities of single tokens, from rows of logits.

use crate::special::SpecialTokens;

/// Returns the probability of a token: the softmax of a row of logits, computed in f64. 0 for an id
/// outside of the row.
///
/// The probability of no speech is that of `nospeech` in the unfiltered row of `startoftranscript`. That
/// of a token of a word is among the logits of text alone, ids below `eot`.
#[expect(clippy::cast_possible_truncation, reason = "rounds a probability")]
pub fn probability(logits: &[f32], token: u32) -> f32 {
    let Some(&logit) = logits.get(token as usize) else {
        return 0.0;
    };
    let logit = f64::from(logit);
    let ratios = logits.iter().map(|x| (f64::from(*x) - logit).exp());
    (1.0 / ratios.sum::<f64>()) as f32
}

/// Returns the probabilities of all languages, in the order of their tokens, from the logits after
/// `startoftranscript` alone. Empty if the row has no language tokens.
pub fn language_probabilities(logits: &[f32], tokens: &SpecialTokens) -> Vec<f32> {
    let first = tokens.sot as usize + 1;
    let languages = logits.get(first..first + tokens.languages as usize);
    let languages = languages.unwrap_or_default();
    let ids = (0..tokens.languages).take(languages.len());
    ids.map(|id| probability(languages, id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_a_softmax() {
        let row = [1.0, 2.0, f32::NEG_INFINITY, 0.0];
        let sum: f32 = [1.0f32, 2.0, 0.0].iter().map(|x| x.exp()).sum();
        for (id, expected) in [(0, 1f32.exp() / sum), (1, 2f32.exp() / sum), (4, 0.0)] {
            assert!((probability(&row, id) - expected).abs() < 1e-7, "{id}");
        }
        assert!(probability(&[-800.0, 800.0], 0) < 1e-30);
        assert_eq!(probability(&[-800.0, 800.0], 1), 1.0);
    }

    #[test]
    fn languages_are_compared_with_each_other() {
        let tokens = SpecialTokens::of(51_866).unwrap();
        let mut row = vec![50.0; 51_866];
        let languages = tokens.sot as usize + 1..tokens.translate as usize;
        row[languages.clone()].fill(0.0);
        row[languages.start + 2] = 99f32.ln();
        let found = language_probabilities(&row, &tokens);
        assert_eq!(found.len(), 100);
        assert!((found[2] - 0.5).abs() < 1e-6);
        assert!((found.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        assert!(language_probabilities(&row[..100], &tokens).is_empty());
    }
}
