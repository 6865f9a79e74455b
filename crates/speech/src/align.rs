//! Alignment of tokens with audio, from the decoder's cross-attention, as `whisper/timing.py` of OpenAI
//! computes it.

use crate::dtw::dtw;
use std::ops::Range;
use tabla_core::error::{Result, bail};

/// Columns of the median filter.
const FILTER: usize = 7;

/// What the numbers of an [`Attention`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKind {
    /// Products of queries and keys, scaled, before the softmax.
    Scores,
    /// Probabilities, after the softmax over all columns.
    Probabilities,
}

/// Cross-attention of the alignment heads, `[heads, rows, columns]`.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Numbers of all heads.
    pub values: &'a [f32],
    /// What the numbers are.
    pub kind: AttentionKind,
    /// Number of tokens.
    pub rows: usize,
    /// Number of encoder positions, 20 ms each: 1500.
    pub columns: usize,
}

/// Returns the column at which each token of `rows` starts, that is, at which its row does.
///
/// The tokens are the start of the transcript, `notimestamps`, the text and `eot`. The row of a token
/// predicts the next one, so `rows` goes from `notimestamps` to the last text token, and the result
/// is the start of each text token and the end of the last. `frames` is the number of spectrogram
/// frames of the window; columns after them are ignored.
///
/// Probabilities are normalized over the tokens of a column, filtered by a median of 7 columns, and
/// averaged over heads; dynamic time warping finds the path. A column that is equal for all tokens
/// becomes 0, where OpenAI's code has NaN.
///
/// # Errors
///
/// `Argument` if the sizes do not fit together or are 0.
pub fn align(attention: &Attention<'_>, frames: u32, rows: Range<usize>) -> Result<Vec<u32>> {
    let size = attention.rows * attention.columns;
    let columns = attention.columns.min(frames as usize / 2);
    let values = attention.values;
    if columns == 0 || values.is_empty() || !values.len().is_multiple_of(size) {
        bail!(
            Argument,
            "attention of {} numbers and {frames} frames: expected heads of {} tokens and {} columns",
            values.len(),
            attention.rows,
            attention.columns
        );
    }
    if rows.is_empty() || rows.end > attention.rows {
        bail!(
            Argument,
            "rows {rows:?} of an attention of {} tokens",
            attention.rows
        );
    }
    let mut costs = vec![0.0; rows.len() * columns];
    let mut head = vec![0.0; attention.rows * columns];
    let mut filtered = vec![0.0; columns];
    for values in values.chunks_exact(size) {
        let from = values.chunks_exact(attention.columns);
        for (to, from) in head.chunks_exact_mut(columns).zip(from) {
            to.copy_from_slice(&from[..columns]);
            to_probabilities(to, attention.kind);
        }
        normalize_columns(&mut head, columns);
        let wanted = head.chunks_exact(columns).skip(rows.start);
        for (costs, row) in costs.chunks_exact_mut(columns).zip(wanted) {
            median_filter(row, &mut filtered);
            costs.iter_mut().zip(&filtered).for_each(|(c, x)| *c -= x);
        }
    }
    let heads = (values.len() / size) as f32;
    costs.iter_mut().for_each(|cost| *cost /= heads);
    Ok(dtw(&costs, columns))
}

/// Makes the sum of a row 1.
#[expect(clippy::cast_possible_truncation, reason = "rounds a sum")]
fn to_probabilities(row: &mut [f32], kind: AttentionKind) {
    if kind == AttentionKind::Scores {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter_mut().for_each(|x| *x = (*x - largest).exp());
    }
    let sum: f64 = row.iter().map(|x| f64::from(*x)).sum();
    if sum > 0.0 {
        row.iter_mut().for_each(|x| *x /= sum as f32);
    }
}

/// Makes the mean of each column 0 and its population standard deviation 1.
#[expect(clippy::cast_possible_truncation, reason = "rounds sums")]
fn normalize_columns(values: &mut [f32], columns: usize) {
    let rows = (values.len() / columns) as f64;
    let mut means = vec![0.0f64; columns];
    let mut squares = vec![0.0f64; columns];
    for row in values.chunks_exact(columns) {
        means
            .iter_mut()
            .zip(row)
            .for_each(|(m, x)| *m += f64::from(*x) / rows);
    }
    for row in values.chunks_exact(columns) {
        for ((square, mean), x) in squares.iter_mut().zip(&means).zip(row) {
            let difference = f64::from(*x) - mean;
            *square += difference * difference / rows;
        }
    }
    for row in values.chunks_exact_mut(columns) {
        for ((square, mean), x) in squares.iter().zip(&means).zip(row) {
            let deviation = square.sqrt();
            let difference = f64::from(*x) - mean;
            *x = if deviation > 0.0 {
                (difference / deviation) as f32
            } else {
                0.0
            };
        }
    }
}

/// Computes the median of each number and three on both sides, reflected at the ends. A row of at most
/// three numbers is copied.
fn median_filter(row: &[f32], out: &mut [f32]) {
    let half = FILTER / 2;
    if row.len() <= half {
        out.copy_from_slice(row);
        return;
    }
    for (at, out) in out.iter_mut().enumerate() {
        *out = median(std::array::from_fn(|i| {
            let place = (at + i).abs_diff(half);
            row[place.min((2 * row.len() - 2).saturating_sub(place))]
        }));
    }
}

/// Exchanges that leave the median of seven numbers at position 3.
const MEDIAN: [(usize, usize); 13] = [
    (0, 5),
    (0, 3),
    (1, 6),
    (2, 4),
    (0, 1),
    (3, 5),
    (2, 6),
    (2, 3),
    (3, 6),
    (4, 5),
    (1, 4),
    (1, 3),
    (3, 4),
];

fn median(mut x: [f32; FILTER]) -> f32 {
    for (a, b) in MEDIAN {
        (x[a], x[b]) = (x[a].min(x[b]), x[a].max(x[b]));
    }
    x[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_exact() {
        // A network that is right for all zeros and ones is right for all numbers.
        for bits in 0u32..128 {
            let x = std::array::from_fn(|i| f32::from(u8::from(bits >> i & 1 == 1)));
            let expected = f32::from(u8::from(bits.count_ones() > 3));
            assert_eq!(median(x), expected, "{bits:07b}");
        }
    }

    #[test]
    fn filter_reflects() {
        let row = [9.0, 1.0, 5.0, 7.0, 3.0];
        let mut out = [0.0; 5];
        median_filter(&row, &mut out);
        // 7 5 1 9 1 5 7, 5 1 9 1 5 7 3, 1 9 1 5 7 3 7, 9 1 5 7 3 7 5, 1 5 7 3 7 5 1
        assert_eq!(out, [5.0, 5.0, 5.0, 5.0, 5.0]);
        let mut out = [0.0; 4];
        median_filter(&[4.0, 1.0, 2.0, 3.0], &mut out);
        // 3 2 1 4 1 2 3, 2 1 4 1 2 3 2, 1 4 1 2 3 2 1, 4 1 2 3 2 1 4
        assert_eq!(out, [2.0, 2.0, 2.0, 2.0]);
        let mut out = [0.0; 3];
        median_filter(&[9.0, 1.0, 5.0], &mut out);
        assert_eq!(out, [9.0, 1.0, 5.0]);
    }

    #[test]
    fn follows_attention() {
        // Two heads, five tokens, 20 columns; token `r` attends to columns from 4 r on.
        let cell = |i: usize| {
            let (row, column) = (i / 20 % 5, i % 20);
            if column / 4 == row { 5.0 } else { 0.0 }
        };
        let values: Vec<f32> = (0..200).map(cell).collect();
        let mut attention = Attention {
            values: &values,
            kind: AttentionKind::Scores,
            rows: 5,
            columns: 20,
        };
        assert_eq!(align(&attention, 3000, 1..4).unwrap()[1..], [8, 12]);
        let scores = align(&attention, 40, 0..5).unwrap();
        assert_eq!(scores, [0, 4, 8, 12, 16]);
        attention.kind = AttentionKind::Probabilities;
        assert_eq!(align(&attention, 40, 0..5).unwrap(), scores);
        for (frames, rows) in [(1, 0..5), (40, 2..2), (40, 0..6)] {
            align(&attention, frames, rows).unwrap_err();
        }
        attention.rows = 7;
        align(&attention, 40, 0..5).unwrap_err();
        attention.rows = 0;
        align(&attention, 40, 0..5).unwrap_err();
    }

    #[test]
    fn equal_attention_has_a_path() {
        for value in [0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let attention = Attention {
                values: &[value; 60],
                kind: AttentionKind::Scores,
                rows: 3,
                columns: 20,
            };
            assert_eq!(align(&attention, 40, 0..3).unwrap().len(), 3);
        }
    }
}
