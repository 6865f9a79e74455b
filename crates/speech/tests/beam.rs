//! Beam searches compared with those of `openai-whisper`; `reference/beam.py` writes the golden file.

use tabla_speech::{BeamOptions, BeamSearch, Candidate};

const VOCAB: u32 = 12;
const EOT: u32 = 11;

/// Seed, beams, patience, length penalty, bias of eot, steps, tokens of all beams after each step,
/// tokens and sum of the best hypothesis.
type Case = (
    u32,
    u32,
    f32,
    Option<f32>,
    f32,
    usize,
    Vec<Vec<Vec<u32>>>,
    Vec<u32>,
    f32,
);

fn mix(x: u32) -> u32 {
    let x = (x ^ x >> 16).wrapping_mul(0x85EB_CA6B);
    x ^ x >> 13
}

/// The logits of `reference/beam.py`.
fn logits(seed: u32, sequence: &[u32], bias: f32) -> Vec<f32> {
    let next = |state: u32, token: &u32| mix(state.wrapping_mul(31).wrapping_add(token + 1));
    let state = sequence.iter().fold(seed, next);
    let hash = |i: u32| mix(state.wrapping_add(i.wrapping_mul(2_654_435_761)));
    let mut row: Vec<f32> = (0..VOCAB)
        .map(|i| (hash(i) >> 20) as f32 / 1024.0)
        .collect();
    row[EOT as usize] += if sequence.is_empty() {
        f32::NEG_INFINITY
    } else {
        bias
    };
    row
}

/// Candidates of all beams.
fn candidates(seed: u32, beams: &[Vec<u32>], bias: f32, count: usize) -> Vec<Candidate> {
    let mut all = vec![Candidate::default(); beams.len() * count];
    for (out, beam) in all.chunks_exact_mut(count).zip(beams) {
        top_candidates(&logits(seed, beam, bias), out);
    }
    all
}

#[test]
fn searches_are_those_of_openai() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("golden/beam.json")).unwrap();
    assert_eq!(cases.len(), 60);
    for case in cases {
        let (seed, beams, patience, length_penalty, bias, steps, trace, tokens, sum) = &case;
        let options = BeamOptions {
            beams: *beams,
            patience: *patience,
            length_penalty: *length_penalty,
            eot: EOT,
        };
        let mut search = BeamSearch::new(options, *steps).unwrap();
        let mut beams = vec![Vec::new()];
        for expected in trace {
            assert!(!search.is_complete(), "{case:?}");
            assert_eq!(beams.len(), search.live());
            let candidates = candidates(*seed, &beams, *bias, search.candidates());
            let next = search.step(&candidates).unwrap().iter();
            beams = next
                .map(|next| [&beams[next.parent as usize][..], &[next.token]].concat())
                .collect();
            assert_eq!(beams, *expected, "{case:?}");
        }
        assert!(search.is_complete() || trace.len() == *steps, "{case:?}");
        let best = search.best();
        assert_eq!(best.tokens, *tokens, "{case:?}");
        assert!((best.sum_logprob - sum).abs() < 1e-4, "{case:?}");
    }
}

/// Fills `out` with the most probable tokens of a row of logits, the first of equal ones first. Missing
/// ones have a log-probability of negative infinity.
#[expect(clippy::cast_possible_truncation, reason = "rounds a log-probability")]
fn top_candidates(logits: &[f32], out: &mut [Candidate]) {
    out.fill(Candidate {
        token: 0,
        logprob: f32::NEG_INFINITY,
    });
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if out.is_empty() || largest == f32::NEG_INFINITY {
        return;
    }
    for (token, &logit) in (0..).zip(logits) {
        let last = out.len() - 1;
        if logit > out[last].logprob {
            let at = out.partition_point(|c| c.logprob >= logit);
            out.copy_within(at..last, at + 1);
            out[at] = Candidate {
                token,
                logprob: logit,
            };
        }
    }
    let largest = f64::from(largest);
    let sum: f64 = logits.iter().map(|x| (f64::from(*x) - largest).exp()).sum();
    let log_sum = largest + sum.ln();
    for candidate in out {
        candidate.logprob = (f64::from(candidate.logprob) - log_sum) as f32;
    }
}
