//! What answers tell beside text, and several answers to one prompt.

use crate::common::{devices, golden, picks, session};
use tabla::{
    DeviceChoice, ErrorKind, Flow, GenerateOptions, LoadOptions, LogProb, Precision, Sampling,
    Session,
};

const PROMPT: [u32; 4] = [1, 17, 93, 40];

fn how(seed: u64) -> GenerateOptions {
    GenerateOptions {
        sampling: Sampling {
            temperature: 1.0,
            min_p: 0.0,
            seed,
            ..Sampling::default()
        },
        max_tokens: 12,
        ignore_stops: true,
        ..GenerateOptions::default()
    }
}

/// A token, how likely it was, and the likeliest.
type Told = (u32, Option<f32>, Vec<LogProb>);

fn told(session: &mut Session, how: &GenerateOptions) -> Vec<Told> {
    let mut told = Vec::new();
    let mut each = |piece: tabla::Piece<'_>| {
        told.push((piece.token, piece.log_prob, piece.likeliest.to_vec()));
        Flow::Continue
    };
    session.generate(how, &mut each).expect("it generates");
    // The last bytes of a text may be one more piece.
    told.truncate(how.max_tokens as usize);
    told
}

fn prompted(options: &LoadOptions) -> Session {
    let mut s = session(&golden("quant_f16.gguf"), options);
    s.prefill(&PROMPT, &mut |_, _| {}).expect("it fits");
    s
}

/// They are those of the logits that no sampler has touched, and change no token.
#[test]
fn log_probs_are_of_the_raw_logits() {
    for (name, options) in devices(Precision::Fast) {
        let plain = how(7);
        let telling = GenerateOptions {
            log_probs: Some(5),
            logit_bias: vec![(77, 3.0)],
            ..plain.clone()
        };
        let mut s = prompted(&options);
        let found = told(&mut s, &telling);
        assert_eq!(found.len(), 12);
        let mut other = session(&golden("quant_f16.gguf"), &options);
        let biased = GenerateOptions {
            log_probs: None,
            ..telling.clone()
        };
        let wanted = picks(&mut other, &PROMPT, &biased);
        assert_eq!(s.tokens()[PROMPT.len()..], wanted, "{name}");

        other.reset();
        other.prefill(&PROMPT, &mut |_, _| {}).expect("it fits");
        let mut logits = vec![0.0; other.facts().vocab as usize];
        for (token, log_prob, likeliest) in &found {
            other.logits(&mut logits).expect("the room is right");
            let sum: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
            let close = |token: u32, found: f32| {
                let wanted = f64::from(logits[token as usize]) - sum.ln();
                let error = (f64::from(found) - wanted).abs();
                assert!(error < 1e-4, "{name}: {found} and {wanted} of {token}");
            };
            close(*token, log_prob.expect("it was asked for"));
            let mut order: Vec<u32> = (0..other.facts().vocab).collect();
            order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
            let ids: Vec<u32> = likeliest.iter().map(|likely| likely.token).collect();
            assert_eq!(ids, order[..5], "{name}");
            likeliest.iter().for_each(|l| close(l.token, l.log_prob));
            other.force(*token).expect("it fits");
        }
    }
}

/// Nobody is told what nobody asked for, a token alone can be, and no more than there is room for.
#[test]
fn so_many_are_told_as_were_asked_for() {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        ..LoadOptions::default()
    };
    let mut s = prompted(&options);
    for (log_probs, count) in [(None, 0), (Some(0), 0), (Some(20), 20)] {
        let how = GenerateOptions {
            log_probs,
            ..how(1)
        };
        for (_, log_prob, likeliest) in told(&mut s, &how) {
            assert_eq!(log_prob.is_some(), log_probs.is_some());
            assert_eq!(likeliest.len(), count);
        }
    }
    let more = GenerateOptions {
        log_probs: Some(21),
        ..how(1)
    };
    let error = s.answer(&more).expect_err("one too many");
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert_eq!(error.message(), "log_probs must be at most 20, got 21");
}

/// Forks of a session, each with a seed of its own, answer together what each answers alone.
#[test]
fn several_answers_to_one_prompt() {
    for (name, options) in devices(Precision::Fast) {
        let options = LoadOptions {
            sequences: 4,
            context: 64,
            ..options
        };
        let prompt = prompted(&options);
        let wish = |seed: u64| GenerateOptions {
            log_probs: (seed == 42).then_some(3),
            ..how(seed)
        };
        let mut forks: Vec<Session> = (0..4)
            .map(|_| prompt.fork().expect("there is memory"))
            .collect();
        let together: Vec<Vec<Told>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (40..)
                .zip(&mut forks)
                .map(|(seed, fork)| scope.spawn(move || told(fork, &wish(seed))))
                .collect();
            let ends = threads.into_iter().map(|t| t.join().expect("it ends"));
            ends.collect()
        });
        for (seed, together) in (40..).zip(&together) {
            let alone = told(&mut prompted(&options), &wish(seed));
            assert_eq!(&alone, together, "{name}: seed {seed}");
        }
        let mut distinct: Vec<&[u32]> = forks.iter().map(Session::tokens).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 4, "{name}: seeds are unlike");
    }
}
