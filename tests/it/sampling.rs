//! The sampled table draws from softmax(logits / T) with its filters applied: a chi-square test.

use crate::common::{golden, has_gpu, session};
use tabla::{DeviceChoice, Options, Precision, Sampling, Session};

/// The probabilities that the filters leave, as the documentation has them.
fn expected(logits: &[f32], s: &Sampling) -> Vec<f64> {
    let logits: Vec<f64> = logits.iter().map(|x| f64::from(*x)).collect();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    let largest = logits[order[0]];
    if s.top_k > 0 {
        order.truncate(s.top_k as usize);
    }
    let weight = |i: usize| (logits[i] - largest).exp();
    let total: f64 = order.iter().map(|&i| weight(i)).sum();
    let mut mass = 0.0;
    let keep_p = order.iter().position(|&i| {
        mass += weight(i) / total;
        mass >= f64::from(s.top_p)
    });
    order.truncate(keep_p.map_or(order.len(), |n| n + 1));
    order.retain(|&i| weight(i) >= f64::from(s.min_p));
    let weight = |i: usize| ((logits[i] - largest) / f64::from(s.temperature)).exp();
    let total: f64 = order.iter().map(|&i| weight(i)).sum();
    let mut out = vec![0.0; logits.len()];
    for i in order {
        out[i] = weight(i) / total;
    }
    out
}

/// Draws with one seed after another, and Pearson's statistic against what is expected.
fn chi_square(s: &mut Session, sampling: &Sampling, draws: u32) -> (f64, usize) {
    s.reset();
    s.prefill(&[1, 17, 93, 40], &mut |_, _| {})
        .expect("it fits");
    let mut logits = vec![0.0; s.facts().vocab as usize];
    s.logits(&mut logits).expect("the room is right");
    let expected = expected(&logits, sampling);
    let mut counts = vec![0u32; logits.len()];
    for seed in 0..draws {
        let sampling = Sampling {
            seed: u64::from(seed) << 7 | 5,
            ..*sampling
        };
        let token = s.draw(&sampling).expect("a token");
        counts[token as usize] += 1;
    }
    let mut statistic = 0.0;
    let (mut bins, mut rest) = (0, (0.0, 0.0));
    for (&count, &p) in counts.iter().zip(&expected) {
        let wanted = p * f64::from(draws);
        assert!(
            p > 0.0 || count == 0,
            "a filtered token was drawn {count} times"
        );
        // Rare tokens share a bin, as the test asks for at least five expected a bin.
        if wanted < 5.0 {
            rest = (rest.0 + f64::from(count), rest.1 + wanted);
            continue;
        }
        statistic += (f64::from(count) - wanted).powi(2) / wanted;
        bins += 1;
    }
    if rest.1 >= 5.0 {
        statistic += (rest.0 - rest.1).powi(2) / rest.1;
        bins += 1;
    }
    (statistic, bins - 1)
}

/// The 99.9 % quantile of chi-square with `k` degrees of freedom, by Wilson and Hilferty.
fn quantile(k: usize) -> f64 {
    let k = k as f64;
    let t = 2.0 / (9.0 * k);
    k * (1.0 - t + 3.0902 * t.sqrt()).powi(3)
}

const OFF: Sampling = Sampling {
    temperature: 1.0,
    top_k: 0,
    top_p: 1.0,
    min_p: 0.0,
    repeat_penalty: 1.0,
    repeat_last: 0,
    seed: 0,
};

fn check(s: &mut Session, draws: u32) {
    for sampling in [
        OFF,
        Sampling {
            temperature: 0.7,
            top_k: 20,
            ..OFF
        },
        Sampling {
            temperature: 1.3,
            top_p: 0.8,
            ..OFF
        },
        Sampling {
            temperature: 0.9,
            top_k: 40,
            top_p: 0.9,
            min_p: 0.2,
            ..OFF
        },
    ] {
        let (statistic, freedom) = chi_square(s, &sampling, draws);
        let limit = quantile(freedom);
        assert!(
            statistic < limit,
            "{sampling:?}: {statistic} of {limit}, {freedom} degrees"
        );
    }
}

#[test]
fn the_cpu_draws_from_the_softmax() {
    let device = DeviceChoice::Cpu;
    let options = Options {
        device,
        precision: Precision::Exact,
        ..Options::default()
    };
    check(&mut session(&golden("quant_f16.gguf"), &options), 100_000);
}

#[test]
fn the_gpu_draws_from_the_softmax() {
    if has_gpu() {
        let options = Options {
            device: DeviceChoice::Gpu,
            ..Options::default()
        };
        check(&mut session(&golden("quant_f16.gguf"), &options), 2_000);
    }
}
