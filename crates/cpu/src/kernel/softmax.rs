//! The softmax of a row of logits, as samplers need it.
//!
//! Weights are `e^(v - peak)`; what is far below the peak or no number weighs next to nothing.

use crate::simd::math;

/// What a row's probabilities are made of.
#[derive(Clone, Copy, Debug)]
pub struct Softmax {
    /// The largest number.
    pub peak: f32,
    /// The sum of all weights.
    pub total: f32,
}

impl Softmax {
    /// That of a row; `None` where the largest is infinite, or nothing is a number.
    #[inline(always)]
    pub fn of(y: &[f32]) -> Option<Self> {
        let peak = math::max(y);
        if !peak.is_finite() {
            return None;
        }
        let total = sum(y, |y| math::exp(-distance(y, peak)));
        Some(Self { peak, total })
    }

    /// The weight of a number.
    #[inline(always)]
    pub(super) fn weight(self, y: f32) -> f32 {
        math::exp(-distance(y, self.peak))
    }

    /// The entropy of the row that it is of.
    #[inline(always)]
    pub fn entropy(self, y: &[f32]) -> f32 {
        let distances = sum(y, |y| self.weight(y) * distance(y, self.peak));
        math::ln(self.total) + distances / self.total
    }

    /// What the logit of a token of probability 1 would be.
    #[inline(always)]
    pub(super) fn log_sum(self) -> f32 {
        self.peak + math::ln(self.total)
    }
}

/// The sum of `f` over a row, stretch by stretch: a long row would round small numbers away.
#[inline(always)]
pub(super) fn sum(y: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    const STRETCH: usize = 1024;
    y.chunks(STRETCH).map(|y| math::sum(y, &f)).sum()
}

#[inline(always)]
fn distance(y: f32, peak: f32) -> f32 {
    let distance = peak - y;
    if distance < 87.0 { distance } else { 87.0 }
}
