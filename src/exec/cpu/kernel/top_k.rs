//! `y[i] = -inf` where fewer than all but the `top_k` largest are smaller; ties with the last one stay

use super::{Launch, PLAIN, Request};
use crate::error::Result;
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd, math};
use crate::op::shaders::top_k::Params;

struct TopK;

impl Kernel for TopK {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let k = args.state(1).top_k as usize;
        let vocab = p.vocab as usize;
        if k == 0 || k >= vocab {
            return;
        }
        let mut y = args.open::<f32>(0);
        let y = &mut y.whole()[..vocab];
        let mut scratch = args.open::<f32>(2);
        if let Some(threshold) = threshold(y, k, scratch.whole()) {
            for y in y {
                *y = if *y < threshold { f32::NEG_INFINITY } else { *y };
            }
        }
    }
}

/// The `k`-th largest of `y`, NaN aside; `None` where there are fewer numbers.
///
/// The `k`-th largest of the maxima of stretches is a bound: `k` stretches have a number that is
/// as large. Few numbers reach it, and only these are ordered.
#[inline(always)]
fn threshold(y: &[f32], k: usize, scratch: &mut [f32]) -> Option<f32> {
    let stretch = (y.len() / (8 * k)).clamp(1, 256);
    let stretches = y.len().div_ceil(stretch);
    for (max, y) in scratch.iter_mut().zip(y.chunks(stretch)) {
        *max = math::max(y);
    }
    let bound = kth(&mut scratch[..stretches], k)?;
    let mut found = 0;
    for y in y.chunks(stretch) {
        if math::max(y) >= bound {
            for y in y.iter().filter(|y| **y >= bound) {
                scratch[found] = *y;
                found += 1;
            }
        }
    }
    kth(&mut scratch[..found], k)
}

fn kth(x: &mut [f32], k: usize) -> Option<f32> {
    if x.len() < k {
        return None;
    }
    let (_, kth, _) = x.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    Some(*kth)
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    Ok(Launch {
        scratch: p.vocab as usize * size_of::<f32>(),
        ..request.alone::<TopK>()
    })
}

macro_rules! case {
    ($name:literal, $vocab:literal, $k:literal) => {
        Case {
            name: $name,
            emit: |b| b.pick_sampled($vocab),
            state: |state| state.top_k = $k,
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Off, one, nearly all, more than all.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 1),
    case!("off", 37, 0),
    case!("the largest", 37, 1),
    case!("all but one", 131, 130),
    case!("more than all", 131, 500),
    case!("forty", 5003, 40),
    case!("half", 1009, 500),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_that_of_sorting() {
        let mut seed = 1u32;
        let y: Vec<f32> = (0..3001)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Few distinct numbers, so that there are ties.
                (seed >> 22) as f32
            })
            .collect();
        let mut sorted = y.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let mut scratch = vec![0.0; y.len()];
        for k in [1, 2, 3, 39, 40, 41, 300, 1500, 3000] {
            assert_eq!(threshold(&y, k, &mut scratch), Some(sorted[k - 1]), "{k}");
        }
    }
}
