//! Log-probabilities of generations, and several generations from one prompt.

use crate::common::{devices, golden, picks, session};
use std::ops::ControlFlow;
use tabla::device::Precision;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::{ErrorKind, GenerateOptions, Logprob, Sampling, Session};

const PROMPT: [u32; 4] = [1, 17, 93, 40];

fn generation(seed: u64) -> GenerateOptions {
    GenerateOptions::default()
        .sampling(Sampling::default().temperature(1.0).min_p(0.0).seed(seed))
        .max_tokens(12)
        .ignore_eos(true)
}

/// A token, its log-probability, and the likeliest tokens.
type TokenLogprobs = (u32, Option<f32>, Vec<Logprob>);

fn logprobs_of(session: &mut Session, generation: &GenerateOptions) -> Vec<TokenLogprobs> {
    let mut tokens = Vec::new();
    let each = |piece: tabla::Piece<'_>| {
        tokens.push((piece.token, piece.logprob, piece.top_logprobs.to_vec()));
        ControlFlow::Continue(())
    };
    session
        .generate_with(generation, each)
        .expect("generation succeeds");
    // A final piece may contain held-back text.
    tokens.truncate(generation.max_tokens as usize);
    tokens
}

fn prompted(options: &LoadOptions) -> Session {
    let mut s = session(&golden("quant_f16.gguf"), options);
    s.prefill(&PROMPT).expect("prefill succeeds");
    s
}

/// Log-probabilities are those before samplers and biases, and do not change the tokens.
#[test]
fn logprobs_come_from_raw_logits() {
    for (name, options) in devices(Precision::Fast) {
        let plain = generation(7);
        let with_logprobs = plain.clone().logprobs(5).logit_bias(vec![(77, 3.0)]);
        let mut s = prompted(&options);
        let actual = logprobs_of(&mut s, &with_logprobs);
        assert_eq!(actual.len(), 12);
        let mut other = session(&golden("quant_f16.gguf"), &options);
        let biased = with_logprobs.clone().logprobs(None);
        let expected = picks(&mut other, &PROMPT, &biased);
        assert_eq!(s.tokens()[PROMPT.len()..], expected, "{name}");

        other.reset();
        other.prefill(&PROMPT).expect("prefill succeeds");
        let mut logits = vec![0.0; other.facts().vocab as usize];
        for (token, logprob, likeliest) in &actual {
            other.logits(&mut logits).expect("logits are available");
            let sum: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
            let close = |token: u32, actual: f32| {
                let expected = f64::from(logits[token as usize]) - sum.ln();
                let error = (f64::from(actual) - expected).abs();
                assert!(
                    error < 1e-4,
                    "{name}: token {token}: expected {expected}, got {actual}"
                );
            };
            close(*token, logprob.expect("log-probabilities are requested"));
            let mut order: Vec<u32> = (0..other.facts().vocab).collect();
            order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
            let ids: Vec<u32> = likeliest.iter().map(|likely| likely.token).collect();
            assert_eq!(ids, order[..5], "{name}");
            likeliest.iter().for_each(|l| close(l.token, l.logprob));
            other.force(*token).expect("prefill succeeds");
        }
    }
}

/// Checks the numbers of likeliest tokens: none, 0 and the maximum.
#[test]
fn returns_requested_number_of_logprobs() {
    let options = LoadOptions::default().device(DeviceChoice::Cpu);
    let mut s = prompted(&options);
    for (logprobs, count) in [(None, 0), (Some(0), 0), (Some(20), 20)] {
        let generation = generation(1).logprobs(logprobs);
        for (_, logprob, likeliest) in logprobs_of(&mut s, &generation) {
            assert_eq!(logprob.is_some(), logprobs.is_some());
            assert_eq!(likeliest.len(), count);
        }
    }
    let more = generation(1).logprobs(21);
    let error = s.generate(&more).expect_err("one too many");
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert_eq!(error.message(), "logprobs must be at most 20, got 21");
}

/// Forks that generate at the same time give the tokens that each gives alone.
#[test]
fn forks_generate_independently() {
    for (name, options) in devices(Precision::Fast) {
        let options = options.sequences(4).max_context(64);
        let prompt = prompted(&options);
        let generation_for = |seed: u64| generation(seed).logprobs((seed == 42).then_some(3));
        let mut forks: Vec<Session> = (0..4)
            .map(|_| prompt.fork().expect("fork succeeds"))
            .collect();
        let together: Vec<Vec<TokenLogprobs>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (40..)
                .zip(&mut forks)
                .map(|(seed, fork)| scope.spawn(move || logprobs_of(fork, &generation_for(seed))))
                .collect();
            let ends = threads.into_iter().map(|t| t.join().expect("thread ends"));
            ends.collect()
        });
        for (seed, together) in (40..).zip(&together) {
            let alone = logprobs_of(&mut prompted(&options), &generation_for(seed));
            assert_eq!(&alone, together, "{name}: seed {seed}");
        }
        let mut distinct: Vec<&[u32]> = forks.iter().map(Session::tokens).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 4, "{name}: seeds give different tokens");
    }
}
