//! Chi-square tests: sampling draws from softmax(logits / T) with its filters applied.

use crate::common::{devices, exhaustive, golden, greedy, has_gpu, picks, session};
use tabla::device::Precision;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::op::sampler::SamplerKind;
use tabla::{ErrorKind, Model, Sampling, Session, Source};

/// Tokens before the sampled token.
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

/// Removes logits for which `keep(logit, probability)` is false.
fn filter(logits: &mut [f64], keep: impl Fn(f64, f64) -> bool) {
    let p = softmax(logits);
    let gone = logits.iter_mut().zip(p).filter(|(x, p)| !keep(**x, *p));
    gone.for_each(|(x, _)| *x = f64::NEG_INFINITY);
}

/// Sorts tokens by `distance`, and returns the distance of the last token of the smallest set that
/// holds the probability `share`.
fn cutoff(logits: &[f64], share: f64, distance: impl Fn(f64, f64) -> f64) -> f64 {
    let p = softmax(logits);
    let mut all: Vec<(f64, f64)> = logits
        .iter()
        .zip(p)
        .map(|(x, p)| (distance(*x, p), p))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut mass = 0.0;
    let last = all.iter().find(|(_, p)| {
        mass += p;
        mass >= share - 1e-9
    });
    last.expect("probabilities sum to 1").0
}

fn penalize(logits: &mut [f64], s: &Sampling) {
    let recent = &PROMPT[PROMPT.len().saturating_sub(s.repeat_last_n as usize)..];
    for token in recent {
        let x = &mut logits[*token as usize];
        let repeat = f64::from(s.repetition_penalty);
        *x = if *x > 0.0 { *x / repeat } else { *x * repeat };
        *x -= f64::from(s.frequency_penalty) + f64::from(s.presence_penalty);
    }
}

/// Returns the probabilities after all samplers, as defined in `docs/sampling.md`.
fn expected(logits: &[f32], s: &Sampling) -> Vec<f64> {
    let mut x: Vec<f64> = logits.iter().map(|x| f64::from(*x)).collect();
    penalize(&mut x, s);
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
        let distance = |_: f64, p: f64| (-p.ln() - typical).abs();
        let last = cutoff(&x, f64::from(s.typical_p), distance);
        filter(&mut x, |x, p| distance(x, p) <= last);
    }
    if s.top_p < 1.0 {
        let last = cutoff(&x, f64::from(s.top_p), |x, _| -x);
        filter(&mut x, |x, _| -x <= last);
    }
    let peak = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    filter(&mut x, |x, _| (x - peak).exp() >= f64::from(s.min_p));
    let mut xtc = x.clone();
    let tops = softmax(&x)
        .into_iter()
        .filter(|p| *p >= f64::from(s.xtc_threshold));
    let last = tops.fold(f64::INFINITY, f64::min);
    filter(&mut xtc, |_, p| p <= last);
    let chance = f64::from(s.xtc_probability);
    let pairs = tempered(x, s).into_iter().zip(tempered(xtc, s));
    pairs
        .map(|(x, xtc)| (1.0 - chance) * x + chance * xtc)
        .collect()
}

/// Applies the temperature and the first Mirostat step.
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

/// Samples with consecutive seeds, and returns Pearson's chi-square statistic and the degrees of
/// freedom.
fn chi_square(s: &mut Session, sampling: &Sampling, draws: u32) -> (f64, usize) {
    s.reset();
    s.prefill(&PROMPT).expect("prefill succeeds");
    let mut logits = vec![0.0; s.facts().vocab as usize];
    s.logits(&mut logits).expect("logits are available");
    let expected = expected(&logits, sampling);
    let mut counts = vec![0u32; logits.len()];
    for seed in 0..draws {
        let sampling = sampling.seed(u64::from(seed) << 7 | 5);
        let token = s.draw(&sampling).expect("a token");
        counts[token as usize] += 1;
    }
    let mut statistic = 0.0;
    let (mut bins, mut rest) = (0, (0.0, 0.0));
    for (&count, &p) in counts.iter().zip(&expected) {
        let expected_count = p * f64::from(draws);
        assert!(
            p > 0.0 || count == 0,
            "a filtered token was drawn {count} times"
        );
        // Rare tokens share a bin, because the test requires at least five expected samples per
        // bin.
        if expected_count < 5.0 {
            rest = (rest.0 + f64::from(count), rest.1 + expected_count);
            continue;
        }
        statistic += (f64::from(count) - expected_count).powi(2) / expected_count;
        bins += 1;
    }
    if rest.1 >= 5.0 {
        statistic += (rest.0 - rest.1).powi(2) / rest.1;
        bins += 1;
    }
    (statistic, bins - 1)
}

/// Returns the 99.9 % quantile of chi-square with `k` degrees of freedom (Wilson and Hilferty).
fn quantile(k: usize) -> f64 {
    let k = k as f64;
    let t = 2.0 / (9.0 * k);
    k * (1.0 - t + 3.0902 * t.sqrt()).powi(3)
}

const OFF: Sampling = Sampling::GREEDY.temperature(1.0);

/// Samplings for the `sampled` stage.
const SAMPLED: [Sampling; 4] = [
    OFF,
    OFF.temperature(0.7).top_k(20),
    OFF.temperature(1.3).top_p(0.8),
    OFF.temperature(0.9).top_k(40).top_p(0.9).min_p(0.2),
];

/// Samplings for the `full` stage, or with penalties.
const FULL: [Sampling; 4] = [
    OFF.repetition_penalty(1.4)
        .frequency_penalty(-0.5)
        .presence_penalty(0.2)
        .repeat_last_n(2)
        .dynatemp_range(0.5)
        .dynatemp_exponent(1.5),
    OFF.top_n_sigma(2.0).typical_p(0.7).temperature(1.2),
    OFF.top_k(30).xtc_probability(0.4).xtc_threshold(0.03),
    OFF.mirostat_tau(3.9).temperature(0.8),
];

fn check(s: &mut Session, [sampled, full]: [u32; 2]) {
    let sampled = SAMPLED.iter().map(|sampling| (sampling, sampled));
    let full = FULL.iter().map(|sampling| (sampling, full));
    for (sampling, draws) in sampled.chain(full) {
        let (statistic, freedom) = chi_square(s, sampling, draws);
        assert!(freedom > 2, "{sampling:?}: too few tokens remain");
        let limit = quantile(freedom);
        assert!(
            statistic < limit,
            "{sampling:?}: {statistic} of {limit}, {freedom} degrees"
        );
    }
}

#[test]
fn cpu_samples_match_expected_distribution() {
    let device = DeviceChoice::Cpu;
    let options = LoadOptions::default()
        .device(device)
        .precision(Precision::Exact);
    let sampled = if exhaustive() { 100_000 } else { 20_000 };
    check(
        &mut session(&golden("quant_f16.gguf"), &options),
        [sampled, 20_000],
    );
}

#[test]
fn gpu_samples_match_expected_distribution() {
    if has_gpu() {
        let options = LoadOptions::default().device(DeviceChoice::Gpu);
        check(
            &mut session(&golden("quant_f16.gguf"), &options),
            [2_000; 2],
        );
    }
}

/// Logit biases, and stop tokens before `min_tokens`.
#[test]
fn logit_bias_bans_and_forces_and_min_tokens_delays_stop() {
    for (_, options) in devices(Precision::Fast) {
        let mut s = session(&golden("quant_f16.gguf"), &options);
        let plain = picks(&mut s, &PROMPT, &greedy(12));
        let with = |logit_bias: &[(u32, f32)]| greedy(12).logit_bias(logit_bias.to_vec());
        let banned = picks(&mut s, &PROMPT, &with(&[(plain[0], f32::NEG_INFINITY)]));
        assert!(
            !banned.contains(&plain[0]),
            "{banned:?} without {}",
            plain[0]
        );
        assert_eq!(picks(&mut s, &PROMPT, &with(&[])), plain, "no biases");
        let forced = picks(&mut s, &PROMPT, &with(&[(77, 50.0), (77, 50.0)]));
        assert_eq!(forced, [77; 12]);
        let error = s
            .generate(&with(&[(u32::MAX, 1.0)]))
            .expect_err("token is out of range");
        assert_eq!(error.kind(), ErrorKind::Argument);

        let early = |min_tokens| {
            greedy(12)
                .stop_token_ids(vec![plain[0], plain[1], plain[2]])
                .min_tokens(min_tokens)
                .max_tokens(12)
        };
        let ended = picks(&mut s, &PROMPT, &early(0));
        assert_eq!(ended, plain[..1], "ends with the first token");
        let longer = picks(&mut s, &PROMPT, &early(5));
        assert!(longer.len() >= 5, "{longer:?}");
        let before = longer.iter().take(5);
        assert!(
            !before.clone().any(|token| plain[..3].contains(token)),
            "{longer:?}"
        );
    }
}

/// DRY penalizes repetitions.
#[test]
fn dry_prevents_repetition() {
    for (_, options) in devices(Precision::Fast) {
        let mut s = session(&golden("quant_f16.gguf"), &options);
        let repetition: Vec<u32> = [5, 6, 7, 8].repeat(6);
        let with = |dry_multiplier: f32, dry_sequence_breakers: &[&str]| {
            greedy(1)
                .sampling(Sampling::GREEDY.dry_multiplier(dry_multiplier))
                .logit_bias(vec![(5, 20.0)])
                .dry_sequence_breakers(
                    dry_sequence_breakers
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>(),
                )
        };
        assert_eq!(picks(&mut s, &repetition, &with(0.0, &[])), [5]);
        assert_ne!(picks(&mut s, &repetition, &with(5.0, &[])), [5]);
        // A breaker ends the repetition.
        let breaker = s.tokenizer().token_bytes(8).to_vec();
        let breaker = String::from_utf8(breaker).expect("a piece of text");
        assert_eq!(picks(&mut s, &repetition, &with(5.0, &[&breaker])), [5]);
        // The next generation has no breakers.
        assert_ne!(picks(&mut s, &repetition, &with(5.0, &[])), [5]);
    }
}

/// Samplers that the model was loaded without have no effect.
#[test]
fn omitted_samplers_have_no_effect() {
    let options = |samplers| {
        LoadOptions::default()
            .device(DeviceChoice::Cpu)
            .samplers(samplers)
    };
    let mut s = session(
        &golden("quant_f16.gguf"),
        &options(vec![SamplerKind::Temperature]),
    );
    let plain = greedy(12).sampling(OFF.seed(4));
    let all = greedy(12).sampling(
        OFF.seed(4)
            .top_k(1)
            .min_p(1.0)
            .dry_multiplier(5.0)
            .typical_p(0.1)
            .repetition_penalty(2.0)
            .repeat_last_n(64),
    );
    let expected = picks(&mut s, &PROMPT, &plain);
    assert_eq!(picks(&mut s, &PROMPT, &all), expected);

    let twice = options(vec![SamplerKind::TopK; 2]);
    let source = Source::Path(golden("quant_f16.gguf"));
    let error = Model::builder(source)
        .options(twice)
        .load()
        .expect_err("duplicate sampler");
    assert!(
        error.message().contains("duplicate sampler top_k"),
        "{error}"
    );
}
