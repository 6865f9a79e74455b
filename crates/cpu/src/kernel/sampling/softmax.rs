//! The softmax of a row of logits, for samplers.
//!
//! Weights are `e^(v - peak)`; NaN and logits far below the peak have a negligible weight.

use crate::simd::math;

/// Normalization of the softmax of a row.
#[derive(Clone, Copy, Debug)]
pub struct Softmax {
    /// Largest logit.
    pub peak: f32,
    /// Sum of all weights.
    pub total: f32,
}

impl Softmax {
    /// Softmax of a row; `None` if the largest logit is infinite or all are NaN.
    #[inline(always)]
    pub fn of(y: &[f32]) -> Option<Self> {
        // A single sum over a long row would round small terms away.
        Self::of_parts(math::max(y), y.chunks(1024))
    }

    /// Softmax of a row in parts with this largest logit; `None` if it is infinite.
    #[inline(always)]
    pub fn of_parts<'a>(peak: f32, parts: impl Iterator<Item = &'a [f32]>) -> Option<Self> {
        if !peak.is_finite() {
            return None;
        }
        let total = sum(parts, |y| math::exp(-distance(y, peak)));
        Some(Self { peak, total })
    }

    /// Weight of a logit.
    #[inline(always)]
    pub(crate) fn weight(self, y: f32) -> f32 {
        math::exp(-distance(y, self.peak))
    }

    /// Entropy of the distribution of the row.
    #[inline(always)]
    pub fn entropy<'a>(self, parts: impl Iterator<Item = &'a [f32]>) -> f32 {
        let distances = sum(parts, |y| self.weight(y) * distance(y, self.peak));
        math::ln(self.total) + distances / self.total
    }

    /// Logit of a token with probability 1.
    #[inline(always)]
    pub(super) fn log_sum(self) -> f32 {
        self.peak + math::ln(self.total)
    }
}

/// Sum of `f` over the parts of a row.
#[inline(always)]
pub(crate) fn sum<'a>(parts: impl Iterator<Item = &'a [f32]>, f: impl Fn(f32) -> f32) -> f32 {
    parts.map(|y| math::sum(y, &f)).sum()
}

#[inline(always)]
fn distance(y: f32, peak: f32) -> f32 {
    let distance = peak - y;
    if distance < 87.0 { distance } else { 87.0 }
}
