//! Cases of mixture of experts: routing, grouping, products, weighted sums.

use super::common::{rows, wide};
use super::{Expected, Tested};
use crate::case::Case;
use crate::rig::Outcome;
use tabla_core::dtype::DType;
use tabla_core::op::functions::ExpertScore;
use tabla_core::op::kind;
use tabla_core::op::params;
use tabla_plan::builder::{Router, RouterVectors};

macro_rules! experts_case {
    ($name:literal, $dtype:ident, $experts:literal x $rows:literal x $cols:literal, $k:literal, $x:literal, $tokens:literal, $live:literal) => {
        Case::new(
            concat!($name, " ", stringify!($dtype)),
            $tokens,
            $live,
            |b| {
                let w = b.weight("w", $experts * $rows, $cols);
                let logits = b.input("router", $experts);
                let x = b.input("x", $x);
                let (routes, _) = b.route(logits, Router::softmax($k), RouterVectors::default());
                b.experts("y", w, x, routes);
            },
        )
        .weights(&[("w", DType::$dtype, $experts * $rows, $cols)])
    };
}

macro_rules! add_expert_bias_case {
    ($name:literal, $experts:literal x $dim:literal, $k:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let bias = b.vector("b", $experts * $dim);
            let logits = b.input("router", $experts);
            let y = b.input("y", $k * $dim);
            let (routes, _) = b.route(logits, Router::softmax($k), RouterVectors::default());
            b.add_expert_bias(bias, routes, y);
        })
        .weights(&[("b", DType::F32, 1, $experts * $dim)])
    };
}

impl Tested for kind::AddExpertBias {
    /// All and some of few and of many experts.
    const CASES: &'static [Case] = &[
        add_expert_bias_case!("one", 1 x 1, 1, 1, 1),
        add_expert_bias_case!("primes", 7 x 37, 3, 5, 3),
        add_expert_bias_case!("many", 32 x 67, 4, 35, 33),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::add_expert_bias::Params = o.params();
        let (b, ids, y) = (o.numbers("b"), o.numbers("ids"), o.numbers("y"));
        let [k, dim] = [p.k, p.dim].map(|n| n as usize);
        rows(o, live, |t, i| {
            let id = ids[t * k + i / dim] as usize;
            // An id out of range has no effect.
            let bias = b.get(id * dim + i % dim);
            wide(y[t * k * dim + i]) + bias.map_or(0.0, |bias| wide(*bias))
        })
    }
}

macro_rules! route_case {
    ($name:literal, $experts:literal, $router:expr, $tokens:literal, $live:literal $(, $vector:literal)*) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", $experts);
            let mut vector = |name| b.has(name).then(|| b.vector(name, $experts));
            let (bias, scales) = (vector("bias"), vector("scales"));
            b.route(x, $router, RouterVectors { bias, scales });
        })
        .weights(&[$(($vector, DType::F32, 1, $experts)),*])
    };
}

const SIGMOID: Router = Router {
    score: ExpertScore::Sigmoid,
    normalize: true,
    eps: 1e-6,
    scale: 2.5,
    ..Router::softmax(1)
};

const MIXER: Router = Router {
    score: ExpertScore::SparseMixer,
    eps: 0.5,
    ..Router::softmax(1)
};

/// One of one, all, and some of few and of many; every score, with and without vectors and groups.
#[rustfmt::skip]
impl Tested for kind::Route {
    const CASES: &'static [Case] = &[
        route_case!("one", 1, Router::softmax(1), 1, 1),
        route_case!("all", 7, Router::softmax(7), 3, 2),
        route_case!("some", 37, Router { normalize: true, ..Router::softmax(5) }, 5, 5),
        route_case!("the first", 64, Router { normalize: true, ..Router::softmax(1) }, 2, 1),
        route_case!("many", 131, Router::softmax(8), 67, 61),
        route_case!("scaled", 70, Router { normalize: true, scale: 0.75, ..Router::softmax(4) }, 5, 4, "scales"),
        route_case!("softmax with bias", 67, Router { eps: 0.25, normalize: true, ..Router::softmax(6) }, 3, 3, "bias"),
        route_case!("softmax in groups", 66, Router { groups: 6, groups_used: 2, ..Router::softmax(5) }, 5, 5),
        route_case!("pairs in groups", 48, Router { groups: 16, groups_used: 3, group_best: 2, ..Router::softmax(9) }, 4, 4),
        route_case!("sigmoid", 70, Router { k: 3, ..SIGMOID }, 5, 5),
        route_case!("sigmoid without sum", 9, Router { k: 9, normalize: false, ..SIGMOID }, 2, 2),
        route_case!("sigmoid with bias", 131, Router { k: 8, ..SIGMOID }, 35, 33, "bias", "scales"),
        route_case!("sigmoid in groups", 128, Router { k: 8, groups: 64, groups_used: 5, group_best: 2, ..SIGMOID }, 9, 9, "bias"),
        route_case!("largest in groups", 60, Router { k: 1, groups: 4, groups_used: 1, ..SIGMOID }, 3, 3, "bias"),
        route_case!("softplus", 65, Router { k: 5, score: ExpertScore::SqrtSoftplus, ..SIGMOID }, 7, 6, "bias"),
        route_case!("sparse mixer", 16, Router { k: 2, ..MIXER }, 40, 39),
        route_case!("sparse mixer of many", 131, Router { k: 7, scale: 0.5, ..MIXER }, 3, 3, "scales"),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::route::Params = o.params();
        let (x, mut ids, mut y) = (o.numbers("x"), o.numbers("ids"), o.numbers("y"));
        let (experts, k) = (p.experts as usize, p.k as usize);
        let [bias, scales] = ["bias", "scales"].map(|name| o.numbers(name));
        for t in 0..live {
            let x: Vec<f64> = x[t * experts..][..experts]
                .iter()
                .map(|x| wide(*x))
                .collect();
            let scores = scores(&p, &x);
            let mut choices = scores.clone();
            if p.biased == 1 {
                choices
                    .iter_mut()
                    .zip(&bias)
                    .for_each(|(c, b)| *c += wide(*b));
            }
            let order: Vec<usize> = descending(&choices);
            let used = used_groups(&p, &choices);
            let in_used = |e: &usize| used.contains(&(e * p.groups as usize / experts));
            let chosen: Vec<usize> = order.into_iter().filter(in_used).take(k).collect();
            let weight = |s: usize| match p.score {
                3 => mixed(&x, &chosen[..=s], wide(p.eps)),
                _ => scores[chosen[s]],
            };
            let sum: f64 = (0..k).map(weight).sum();
            let total = if p.normalize == 1 {
                sum + wide(p.eps)
            } else {
                1.0
            };
            for (s, &e) in chosen.iter().enumerate() {
                let scale = if p.scaled == 1 { wide(scales[e]) } else { 1.0 };
                ids[t * k + s] = e as f32;
                y[t * k + s] = (weight(s) / total * wide(p.scale) * scale) as f32;
            }
        }
        vec![("ids", ids), ("y", y)]
    }
}

impl Tested for kind::Experts {
    /// One row per token and one per expert. Random ids are below 50, so ids are out of range in cases
    /// with fewer experts.
    const CASES: &'static [Case] = &[
        experts_case!("one", F32, 1 x 1 x 1, 1, 1, 1, 1),
        experts_case!("primes", F32, 50 x 7 x 37, 3, 37, 1, 1),
        experts_case!("a row per expert", F32, 50 x 5 x 13, 3, 39, 2, 2),
        experts_case!("some out of range", F16, 31 x 6 x 67, 4, 67, 5, 3),
        experts_case!("some out of range", Q8_0, 40 x 9 x 96, 2, 192, 7, 7),
        experts_case!("chunks", Q4K, 50 x 5 x 512, 3, 512, 3, 2),
        experts_case!("partial chunk", Q4_0, 50 x 3 x 352, 2, 704, 4, 4),
        experts_case!("partial chunk", Mxfp4, 50 x 2 x 288, 5, 288, 1, 1),
        experts_case!("partial chunk", Nvfp4, 50 x 2 x 320, 5, 320, 2, 1),
        experts_case!("many tokens per expert", Bf16, 50 x 11 x 33, 8, 33, 16, 15),
        experts_case!("panels, one token", Mxfp4, 47 x 32 x 96, 5, 480, 1, 1),
        experts_case!("panels", Q4K, 50 x 48 x 512, 3, 512, 4, 3),
        experts_case!("panels", Q6K, 4 x 16 x 768, 2, 768, 21, 20),
        experts_case!("panels, several groups", Q8_0, 1 x 32 x 640, 1, 640, 32, 31),
        experts_case!("panels, a row per expert", Q4_1, 7 x 16 x 64, 6, 384, 17, 17),
        experts_case!("panels of other types", Iq3S, 20 x 16 x 512, 3, 1536, 9, 9),
        experts_case!("panels of groups", Affine4, 6 x 32 x 128, 4, 512, 3, 3),
        experts_case!("groups smaller than a block", E2m1, 9 x 16 x 96, 2, 96, 2, 2),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::experts::Params = o.params();
        experts(o, live, [p.experts, p.k, p.per_expert])
    }
}

macro_rules! head_ids_case {
    ($name:literal, $heads:literal, $tokens:literal/$live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            b.head_routes($heads);
        })
        .tolerance(0.0)
    };
}

impl Tested for kind::HeadIds {
    const CASES: &'static [Case] = &[
        head_ids_case!("one", 1, 1 / 1),
        head_ids_case!("odd", 37, 5 / 3),
        head_ids_case!("many", 130, 3 / 3),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let heads = o.slots["ids"].cols as usize;
        let mut ids = o.numbers("ids");
        for (i, id) in ids[..live * heads].iter_mut().enumerate() {
            *id = (i % heads) as f32;
        }
        vec![("ids", ids)]
    }
}

macro_rules! group_by_expert_case {
    ($name:literal, $experts:literal, $k:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let x = b.input("x", $experts);
            b.route(x, Router::softmax($k), RouterVectors::default());
        })
    };
}

impl Tested for kind::GroupByExpert {
    /// All pairs for one expert, a few per expert, and most with ids out of range: random ids are below
    /// 50.
    const CASES: &'static [Case] = &[
        group_by_expert_case!("one expert", 1, 1, 33, 33),
        group_by_expert_case!("some out of range", 31, 3, 43, 42),
        group_by_expert_case!("full tiles", 50, 50, 67, 61),
        group_by_expert_case!("most without pairs", 600, 8, 35, 34),
        group_by_expert_case!("one token of many", 64, 7, 34, 1),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::group_by_expert::Params = o.params();
        let (ids, all) = (o.numbers("ids"), o.slots["tiles"].rows as usize);
        let mut tiles = Vec::new();
        let row = 2 + p.tile as usize;
        for expert in 0..=p.experts {
            let of_it = |pair: &usize| (ids[*pair] as u32).min(p.experts) == expert;
            let pairs: Vec<usize> = (0..live * p.k as usize).filter(of_it).collect();
            for pairs in pairs.chunks(p.tile as usize) {
                tiles.extend([expert as f32, pairs.len() as f32]);
                tiles.extend(pairs.iter().map(|pair| *pair as f32));
                tiles.resize(tiles.len().next_multiple_of(row), 0.0);
            }
        }
        while tiles.len() < all * row {
            tiles.push(p.experts as f32);
            tiles.resize(tiles.len().next_multiple_of(row), 0.0);
        }
        vec![("tiles", tiles)]
    }
}

impl Tested for kind::GroupedGemm {
    /// As `EXPERTS`: one row per token and one per expert, and ids out of range.
    const CASES: &'static [Case] = &[
        experts_case!("one expert", F32, 1 x 1 x 1, 1, 1, 33, 33),
        experts_case!("primes", F32, 50 x 7 x 37, 3, 37, 35, 27),
        experts_case!("a row per expert", F32, 50 x 5 x 13, 3, 39, 34, 34),
        experts_case!("most out of range", F16, 2 x 131 x 67, 2, 67, 41, 33),
        experts_case!("some out of range", Q8_0, 40 x 9 x 96, 2, 192, 33, 1),
        experts_case!("chunks", Q4K, 50 x 5 x 512, 3, 512, 39, 38),
        experts_case!("partial chunk", Q4_0, 50 x 3 x 352, 2, 704, 33, 4),
        experts_case!("partial chunk", Mxfp4, 50 x 2 x 288, 5, 288, 36, 36),
        experts_case!("many tokens per expert", Bf16, 50 x 11 x 33, 8, 33, 67, 61),
        experts_case!("panels", Mxfp4, 50 x 32 x 96, 4, 384, 40, 39),
        experts_case!("panels, full tiles", Q4K, 3 x 48 x 512, 2, 512, 67, 66),
        experts_case!("panels, some out of range", Nvfp4, 30 x 16 x 640, 3, 640, 37, 33),
        experts_case!("panels of other types", Q3K, 20 x 16 x 256, 3, 256, 35, 35),
        experts_case!("panels of groups", Affine8, 5 x 16 x 64, 3, 192, 34, 33),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let p: params::grouped_gemm::Params = o.params();
        experts(o, live, [p.experts, p.k, p.per_expert])
    }
}

macro_rules! combine_case {
    ($name:literal, $k:literal x $dim:literal, $tokens:literal, $live:literal) => {
        Case::new($name, $tokens, $live, |b| {
            let (x, w) = (b.input("x", $k * $dim), b.input("w", $k));
            let y = b.input("y", $dim);
            b.combine(x, w, y);
        })
    };
}

impl Tested for kind::Combine {
    /// Odd widths.
    const CASES: &'static [Case] = &[
        combine_case!("one", 1 x 1, 1, 1),
        combine_case!("primes", 3 x 37, 5, 3),
        combine_case!("partial vector", 8 x 257, 2, 2),
        combine_case!("wide", 4 x 4099, 1, 1),
        combine_case!("many", 2 x 131, 67, 61),
    ];

    fn expected(o: &Outcome, live: usize) -> Expected {
        let (x, w, y) = (o.numbers("x"), o.numbers("w"), o.numbers("y"));
        let [k, dim] = ["w", "y"].map(|name| o.slots[name].cols as usize);
        rows(o, live, |t, i| {
            let terms = (t * k..(t + 1) * k).map(|s| wide(w[s]) * wide(x[s * dim + i]));
            wide(y[t * dim + i]) + terms.sum::<f64>()
        })
    }
}

/// Returns the scores of all experts. The order of `SparseMixer` is that of the logits.
fn scores(p: &params::route::Params, x: &[f64]) -> Vec<f64> {
    let all: f64 = x.iter().map(|x| x.exp()).sum();
    let score = |x: &f64| match p.score {
        0 => x.exp() / all,
        1 => 1.0 / (1.0 + (-x).exp()),
        2 => x.exp().ln_1p().sqrt(),
        _ => *x,
    };
    x.iter().map(score).collect()
}

/// Returns the indices of the largest numbers first. The sort is stable: ties by lowest index.
fn descending(numbers: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[b].total_cmp(&numbers[a]));
    order
}

/// Returns the groups from which experts are selected.
fn used_groups(p: &params::route::Params, choices: &[f64]) -> Vec<usize> {
    let groups = choices.chunks_exact(choices.len() / p.groups as usize);
    let score = |group: &[f64]| -> f64 {
        let best = descending(group).into_iter().take(p.group_best as usize);
        best.map(|i| group[i]).sum()
    };
    let groups: Vec<f64> = groups.map(score).collect();
    let mut best = descending(&groups);
    best.truncate(p.groups_used as usize);
    best
}

/// Returns `SparseMixer`'s weight of the last of `ids`.
fn mixed(x: &[f64], ids: &[usize], distance: f64) -> f64 {
    let (last, before) = ids.split_last().expect("at least one");
    let best = x[*last];
    let rest = (0..x.len()).filter(|e| !before.contains(e));
    let near = rest.filter(|e| (best - x[*e]) <= distance * x[*e].abs().max(best));
    1.0 / near.map(|e| (x[e] - best).exp()).sum::<f64>()
}

fn experts(o: &Outcome, live: usize, numbers: [u32; 3]) -> Expected {
    let (w, x, ids) = (o.numbers("w"), o.numbers("x"), o.numbers("ids"));
    let [experts, k, per_expert] = numbers.map(|n| n as usize);
    let [rows_of_all, cols] = [o.slots["w"].rows, o.slots["w"].cols].map(|n| n as usize);
    let rows_per_expert = rows_of_all / experts;
    rows(o, live, |t, i| {
        let (s, r) = (i / rows_per_expert, i % rows_per_expert);
        let id = ids[t * k + s] as usize;
        let from = if per_expert == 1 { t * k + s } else { t };
        let pairs = x[from * cols..][..cols]
            .iter()
            .zip(w.iter().skip((id * rows_per_expert + r) * cols));
        pairs.map(|(x, w)| wide(*x) * wide(*w)).sum()
    })
}
