//! `ids[t, :]` = the k largest of `p + bias` in the best groups, lowest id first on ties;
//! `y[t, s] = scale scales[ids[t, s]] p[ids[t, s]] / total`

use crate::kernel::elementwise::activation::{ActivationFn, Sigmoid};
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::functions::{EXPERT_GROUPS_MAX, EXPERTS_MAX, ExpertScore};
use tabla_core::op::kind;
use tabla_core::op::operands::route::AT;
use tabla_core::op::params::route::Params;

const SOFTMAX: u32 = ExpertScore::Softmax as u32;
const SIGMOID: u32 = ExpertScore::Sigmoid as u32;
const SQRT_SOFTPLUS: u32 = ExpertScore::SqrtSoftplus as u32;
const SPARSE_MIXER: u32 = ExpertScore::SparseMixer as u32;

impl Kernel for kind::Route {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let (experts, k) = (p.experts as usize, p.k as usize);
        let x = args.f32s(AT.x);
        let bias = (p.biased != 0).then(|| args.f32s(AT.bias));
        let scales = (p.scaled != 0).then(|| args.f32s(AT.scales));
        let mut ids = args.open::<u32>(AT.ids);
        let mut y = args.open::<f32>(AT.y);
        let mut choices = [0.0; EXPERTS_MAX as usize];
        let choices = &mut choices[..experts];
        for t in args.range() {
            let x = &x[t * experts..][..experts];
            let (ids, y) = (ids.unit(t, k), y.unit(t, k));
            let mass = Mass::of(x, &p);
            choices.copy_from_slice(x);
            if by_score(&p) {
                let of = |x: f32| mass.score(&p, x) / mass.all;
                choices.iter_mut().for_each(|choice| *choice = of(*choice));
            }
            if let Some(bias) = bias {
                choices.iter_mut().zip(bias).for_each(|(c, b)| *c += b);
            }
            if p.groups > 1 {
                exclude_groups(choices, &p);
            }
            largest(choices, ids);
            for (s, y) in y.iter_mut().enumerate() {
                *y = match p.score {
                    SPARSE_MIXER => 1.0 / near_mass(x, &ids[..=s], p.eps),
                    _ => mass.score(&p, x[ids[s] as usize]),
                };
            }
            let total = match p.normalize {
                0 => mass.all,
                _ => math::sum(y, |y| y) + p.eps * mass.all,
            };
            for (y, id) in y.iter_mut().zip(&*ids) {
                *y = *y / total * p.scale * scales.map_or(1.0, |scales| scales[*id as usize]);
            }
        }
    }
}

/// Returns whether experts are selected by their scores. Otherwise they are selected by their logits,
/// which have the same order.
#[inline(always)]
fn by_score(p: &Params) -> bool {
    p.biased != 0 || p.group_best > 1
}

/// Largest logit of a token, and the sum of the exponentials of all relative to it; 1 for scores that do
/// not depend on other logits, and where the sum is not used.
struct Mass {
    best: f32,
    all: f32,
}

impl Mass {
    #[inline(always)]
    fn of(x: &[f32], p: &Params) -> Self {
        if p.score != SOFTMAX {
            return Self {
                best: 0.0,
                all: 1.0,
            };
        }
        let best = math::max(x);
        let is_used = p.normalize == 0 || p.eps != 0.0 || by_score(p);
        let all = if is_used {
            math::sum(x, |x| math::exp(x - best))
        } else {
            1.0
        };
        Self { best, all }
    }

    /// Returns the score of an expert, for softmax times [`Self::all`].
    #[inline(always)]
    fn score(&self, p: &Params, x: f32) -> f32 {
        match p.score {
            SIGMOID => Sigmoid::of(x),
            SQRT_SOFTPLUS => softplus(x).sqrt(),
            _ => math::exp(x - self.best),
        }
    }
}

/// `ln(1 + exp(x))`; the series of `ln(1 + t)` is exact where `1 + t` rounds.
#[inline(always)]
fn softplus(x: f32) -> f32 {
    let t = math::exp(-x.abs());
    let near_one = t * (1.0 - t * (0.5 - t * (1.0 / 3.0)));
    x.max(0.0)
        + if t < 0.01 {
            near_one
        } else {
            math::ln(1.0 + t)
        }
}

/// Returns the sum of `exp(logit - x)` over the near logits of experts that were not selected before the
/// last of `ids`, with the logit `x`.
#[inline(always)]
fn near_mass(logits: &[f32], ids: &[u32], distance: f32) -> f32 {
    let (last, before) = ids.split_last().expect("at least one expert");
    let x = logits[*last as usize];
    let rest = (0u32..).zip(logits).filter(|(id, _)| !before.contains(id));
    let near = rest.filter(|(_, y)| x - **y <= distance * y.abs().max(x));
    near.map(|(_, y)| math::exp(y - x)).sum()
}

/// Replaces the choices of groups from which no expert is selected by NaN, which sorts last.
#[inline(always)]
fn exclude_groups(choices: &mut [f32], p: &Params) {
    let groups = p.groups as usize;
    let size = choices.len() / groups;
    let mut scores = [0.0; EXPERT_GROUPS_MAX as usize];
    let scores = &mut scores[..groups];
    for (score, group) in scores.iter_mut().zip(choices.chunks_exact(size)) {
        let mut best = [f32::NEG_INFINITY; 2];
        for &choice in group {
            if choice > best[0] {
                best = [choice, best[0]];
            } else if choice > best[1] {
                best[1] = choice;
            }
        }
        *score = if p.group_best > 1 {
            best[0] + best[1]
        } else {
            best[0]
        };
    }
    let mut used = [0; EXPERT_GROUPS_MAX as usize];
    let used = &mut used[..p.groups_used as usize];
    largest(scores, used);
    for (group, choices) in (0..).zip(choices.chunks_exact_mut(size)) {
        if !used.contains(&group) {
            choices.fill(f32::NAN);
        }
    }
}

/// Returns the indices of the largest numbers in descending order, the lowest index first on ties,
/// NaN last.
#[inline(always)]
pub fn largest(x: &[f32], ids: &mut [u32]) {
    let ranks = || x.iter().zip(0u32..).map(|(x, id)| rank(*x, id));
    let mut last = u64::MAX;
    for id in ids {
        last = ranks().filter(|rank| *rank < last).max().unwrap_or(0);
        let [low, ..] = bytemuck::cast::<u64, [u32; 2]>(last.to_le());
        *id = !low;
    }
}

/// Integer that orders like the pair (number, id descending); unique per id.
#[inline(always)]
fn rank(x: f32, id: u32) -> u64 {
    // Maps -0 to 0.
    let bits = (x + 0.0).to_bits();
    let key = match bits >> 31 {
        _ if x.is_nan() => 0,
        0 => bits | 0x8000_0000,
        _ => !bits,
    };
    u64::from(key) << 32 | u64::from(!id)
}

impl Link for kind::Route {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let launch = request.launch::<Self>(Split::Rows(1), p.tokens);
        Ok(launch.single_thread_if_small([p.tokens, p.experts, p.k]))
    }
}
