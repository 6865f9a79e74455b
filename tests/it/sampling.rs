//! The sampled table draws from softmax(logits / T) with its filters applied: a chi-square test.

use crate::common::{devices, golden, greedy, has_gpu, picks, session};
use tabla::{
    DeviceChoice, ErrorKind, GenerateOptions, LoadOptions, Precision, SamplerKind, Sampling,
    Session, Source,
};

/// What comes before the drawn token.
const PROMPT: [u32; 4] = [1, 17, 93, 40];

fn softmax(logits: &[f64]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights = logits.iter().map(|x| (x - largest).exp());
    let total: f64 = weights.clone().sum();
    weights.map(|w| w / total).collect()
}

fn entropy(p: &[f64]) -> f64 {
    let some = p.iter().filter(|p| **p > 0.0);
    some.map(|p| -p * p.ln()).sum()
}

/// Takes away what `keeps` does not keep of a logit and its probability.
fn filter(logits: &mut [f64], keeps: impl Fn(f64, f64) -> bool) {
    let p = softmax(logits);
    let gone = logits.iter_mut().zip(p).filter(|(x, p)| !keeps(**x, *p));
    gone.for_each(|(x, _)| *x = f64::NEG_INFINITY);
}

/// The greatest of `far` in the smallest set with the smallest of them that has this share.
fn reach(logits: &[f64], share: f64, far: impl Fn(f64, f64) -> f64) -> f64 {
    let p = softmax(logits);
    let mut all: Vec<(f64, f64)> = logits.iter().zip(p).map(|(x, p)| (far(*x, p), p)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut mass = 0.0;
    let last = all.iter().find(|(_, p)| {
        mass += p;
        mass >= share - 1e-9
    });
    last.expect("the mass of all is all").0
}

fn penalise(logits: &mut [f64], s: &Sampling) {
    let recent = &PROMPT[PROMPT.len().saturating_sub(s.repeat_last as usize)..];
    for token in recent {
        let x = &mut logits[*token as usize];
        let repeat = f64::from(s.repeat_penalty);
        *x = if *x > 0.0 { *x / repeat } else { *x * repeat };
        *x -= f64::from(s.frequency_penalty) + f64::from(s.presence_penalty);
    }
}

/// The probabilities that the samplers leave, as `docs/sampling.md` has them.
fn expected(logits: &[f32], s: &Sampling) -> Vec<f64> {
    let mut x: Vec<f64> = logits.iter().map(|x| f64::from(*x)).collect();
    penalise(&mut x, s);
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if s.top_n_sigma > 0.0 {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let squares = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        let sigma = (squares / x.len() as f64).sqrt();
        filter(&mut x, |x, _| {
            x >= largest - f64::from(s.top_n_sigma) * sigma
        });
    }
    if s.top_k > 0 {
        let mut sorted = x.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let least = sorted[s.top_k as usize - 1];
        filter(&mut x, |x, _| x >= least);
    }
    if s.typical_p < 1.0 {
        let typical = entropy(&softmax(&x));
        let far = |_: f64, p: f64| (-p.ln() - typical).abs();
        let last = reach(&x, f64::from(s.typical_p), far);
        filter(&mut x, |x, p| far(x, p) <= last);
    }
    if s.top_p < 1.0 {
        let last = reach(&x, f64::from(s.top_p), |x, _| -x);
        filter(&mut x, |x, _| -x <= last);
    }
    let peak = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    filter(&mut x, |x, _| (x - peak).exp() >= f64::from(s.min_p));
    let mut taken = x.clone();
    let tops = softmax(&x)
        .into_iter()
        .filter(|p| *p >= f64::from(s.xtc_threshold));
    let last = tops.fold(f64::INFINITY, f64::min);
    filter(&mut taken, |_, p| p <= last);
    let chance = f64::from(s.xtc_probability);
    let pairs = tempered(x, s).into_iter().zip(tempered(taken, s));
    pairs
        .map(|(x, taken)| (1.0 - chance) * x + chance * taken)
        .collect()
}

/// The probabilities at the temperature, and what Mirostat leaves of them at first.
fn tempered(mut x: Vec<f64>, s: &Sampling) -> Vec<f64> {
    let [middle, range] = [s.temperature, s.dynatemp_range].map(f64::from);
    let count = x.iter().filter(|x| x.is_finite()).count();
    let mut temperature = middle;
    if range > 0.0 && count > 1 {
        let part = entropy(&softmax(&x)) / (count as f64).ln();
        let low = (middle - range).max(0.0);
        temperature = low + (middle + range - low) * part.powf(f64::from(s.dynatemp_exponent));
    }
    x.iter_mut().for_each(|x| *x /= temperature);
    if s.mirostat_tau > 0.0 {
        let mu = 2.0 * f64::from(s.mirostat_tau);
        let likeliest = softmax(&x).into_iter().fold(0.0, f64::max);
        filter(&mut x, |_, p| -p.log2() <= mu || p == likeliest);
    }
    softmax(&x)
}

/// Draws with one seed after another, and Pearson's statistic against what is expected.
fn chi_square(s: &mut Session, sampling: &Sampling, draws: u32) -> (f64, usize) {
    s.reset();
    s.prefill(&PROMPT, &mut |_, _| {}).expect("it fits");
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
    ..Sampling::GREEDY
};

/// What the second tail draws from.
const USUAL: [Sampling; 4] = [
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
];

/// What takes the third one, or penalties.
const OTHERS: [Sampling; 4] = [
    Sampling {
        repeat_penalty: 1.4,
        frequency_penalty: -0.5,
        presence_penalty: 0.2,
        repeat_last: 2,
        dynatemp_range: 0.5,
        dynatemp_exponent: 1.5,
        ..OFF
    },
    Sampling {
        top_n_sigma: 2.0,
        typical_p: 0.7,
        temperature: 1.2,
        ..OFF
    },
    Sampling {
        top_k: 30,
        xtc_probability: 0.4,
        xtc_threshold: 0.03,
        ..OFF
    },
    Sampling {
        mirostat_tau: 3.9,
        temperature: 0.8,
        ..OFF
    },
];

fn check(s: &mut Session, [usual, others]: [u32; 2]) {
    let usual = USUAL.iter().map(|sampling| (sampling, usual));
    let others = OTHERS.iter().map(|sampling| (sampling, others));
    for (sampling, draws) in usual.chain(others) {
        let (statistic, freedom) = chi_square(s, sampling, draws);
        assert!(freedom > 2, "{sampling:?}: nearly nothing is left");
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
    let options = LoadOptions {
        device,
        precision: Precision::Exact,
        ..LoadOptions::default()
    };
    check(
        &mut session(&golden("quant_f16.gguf"), &options),
        [100_000, 20_000],
    );
}

#[test]
fn the_gpu_draws_from_the_softmax() {
    if has_gpu() {
        let options = LoadOptions {
            device: DeviceChoice::Gpu,
            ..LoadOptions::default()
        };
        check(
            &mut session(&golden("quant_f16.gguf"), &options),
            [2_000; 2],
        );
    }
}

/// What an answer adds to logits, and tokens that come too early.
#[test]
fn biases_ban_and_force_and_a_text_does_not_end_too_early() {
    for (_, options) in devices(Precision::Fast) {
        let mut s = session(&golden("quant_f16.gguf"), &options);
        let plain = picks(&mut s, &PROMPT, &greedy(12));
        let with = |logit_bias: &[(u32, f32)]| GenerateOptions {
            logit_bias: logit_bias.to_vec(),
            ..greedy(12)
        };
        let banned = picks(&mut s, &PROMPT, &with(&[(plain[0], f32::NEG_INFINITY)]));
        assert!(
            !banned.contains(&plain[0]),
            "{banned:?} without {}",
            plain[0]
        );
        assert_eq!(picks(&mut s, &PROMPT, &with(&[])), plain, "they are off");
        let forced = picks(&mut s, &PROMPT, &with(&[(77, 50.0), (77, 50.0)]));
        assert_eq!(forced, [77; 12]);
        let error = s
            .answer(&with(&[(u32::MAX, 1.0)]))
            .expect_err("no such token");
        assert_eq!(error.kind(), ErrorKind::Argument);

        let early = |min_tokens| GenerateOptions {
            stop_tokens: vec![plain[0], plain[1], plain[2]],
            min_tokens,
            max_tokens: 12,
            ..greedy(12)
        };
        let ended = picks(&mut s, &PROMPT, &early(0));
        assert_eq!(ended, plain[..1], "it ends with its first token");
        let longer = picks(&mut s, &PROMPT, &early(5));
        assert!(longer.len() >= 5, "{longer:?}");
        let before = longer.iter().take(5);
        assert!(
            !before.clone().any(|token| plain[..3].contains(token)),
            "{longer:?}"
        );
    }
}

/// DRY keeps a text from going round.
#[test]
fn a_text_that_repeats_itself_stops_doing_so() {
    for (_, options) in devices(Precision::Fast) {
        let mut s = session(&golden("quant_f16.gguf"), &options);
        let round: Vec<u32> = [5, 6, 7, 8].repeat(6);
        let with = |dry_multiplier: f32, dry_breakers: &[&str]| GenerateOptions {
            sampling: Sampling {
                dry_multiplier,
                ..Sampling::GREEDY
            },
            logit_bias: vec![(5, 20.0)],
            dry_breakers: Some(dry_breakers.iter().map(ToString::to_string).collect()),
            ..greedy(1)
        };
        assert_eq!(picks(&mut s, &round, &with(0.0, &[])), [5]);
        assert_ne!(picks(&mut s, &round, &with(5.0, &[])), [5]);
        // Nothing repeats what a breaker ended.
        let breaker = s.tokenizer().token_bytes(8).to_vec();
        let breaker = String::from_utf8(breaker).expect("a piece of text");
        assert_eq!(picks(&mut s, &round, &with(5.0, &[&breaker])), [5]);
        // The next answer does not have it.
        assert_ne!(picks(&mut s, &round, &with(5.0, &[])), [5]);
    }
}

/// A model that was loaded without samplers has none of them in its tables.
#[test]
fn samplers_that_are_left_out_have_no_say() {
    let options = |samplers| LoadOptions {
        device: DeviceChoice::Cpu,
        samplers: Some(samplers),
        ..LoadOptions::default()
    };
    let mut s = session(
        &golden("quant_f16.gguf"),
        &options(vec![SamplerKind::Temperature]),
    );
    let plain = GenerateOptions {
        sampling: Sampling { seed: 4, ..OFF },
        ..greedy(12)
    };
    let all = GenerateOptions {
        sampling: Sampling {
            seed: 4,
            top_k: 1,
            min_p: 1.0,
            dry_multiplier: 5.0,
            typical_p: 0.1,
            repeat_penalty: 2.0,
            repeat_last: 64,
            ..OFF
        },
        ..greedy(12)
    };
    let wanted = picks(&mut s, &PROMPT, &plain);
    assert_eq!(picks(&mut s, &PROMPT, &all), wanted);

    let twice = options(vec![SamplerKind::TopK; 2]);
    let source = Source::Path(golden("quant_f16.gguf"));
    let error = tabla::load(&source, &twice, &mut |_| {}).expect_err("a sampler is listed twice");
    assert!(
        error.message().contains("duplicate sampler top_k"),
        "{error}"
    );
}
