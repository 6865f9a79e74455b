//! `tabla bench -npl`: text generation with parallel sequences, in total tokens per second.

use super::args::BenchArgs;
use super::single::{Machine, Test, model_name, tokens};
use crate::commands::common::open;
use crate::commands::common::probe::Probe;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use std::time::Instant;
use tabla::op::params::PAGE;
use tabla::{GenerateOptions, Sampling, Session};

/// Runs the tests of `-npl`; repetitions take turns, as for one sequence.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let mut tests = tests(args);
    if tests.is_empty() {
        let message = "no tests: -n is 0".to_string();
        return Err(Failure::Usage(message));
    }
    let source = args.model.source(terminal::note)?;
    // One more page per sequence: generation copies the last page of the prompt. Without a free page
    // the prompt of another sequence would be evicted and recomputed during the measurement.
    let positions = tests.iter().map(Test::positions).max().unwrap_or(1) + PAGE;
    let mut options = args.device.options(positions)?;
    options.sequences = args.n_parallel.iter().copied().max().unwrap_or(1);
    let loaded = open::model(&source, &options)?;
    let profile = loaded.profile.clone();
    let sessions = (0..options.sequences).map(|_| Session::new(loaded.model.clone()));
    let mut sessions: Vec<Session> = sessions.collect();
    let mut probe = Probe::new(&profile, &options)?;
    let turns = u64::from(args.repetitions) + u64::from(!args.no_warmup);
    let bar = Progress::new("measuring", turns * tests.len() as u64);
    for turn in 0..turns {
        for test in &mut tests {
            probe.round()?;
            let (seconds, computed) = measure(test, &mut sessions)?;
            test.check_computed(computed)?;
            if turn > 0 || args.no_warmup {
                test.seconds.push(seconds);
                test.computed.push(computed);
            }
            bar.set_position(bar.position() + 1);
        }
    }
    probe.round()?;
    drop(bar);
    let machine = Machine {
        facts: loaded.model.facts(),
        model: model_name(loaded.model.facts()),
        source: &source,
        profile,
        probe,
        peak: None,
    };
    machine.print(&tests, args.format)
}

/// Returns the tests: all combinations of depth, length and number of sequences.
fn tests(args: &BenchArgs) -> Vec<Test> {
    let lengths = args.n_gen.iter().filter(|n| **n > 0);
    let tests = args.n_depth.iter().flat_map(|&depth| {
        lengths.clone().flat_map(move |&generate| {
            let sequences = args.n_parallel.iter();
            sequences.map(move |&sequences| Test::new(sequences, depth, [0, generate]))
        })
    });
    tests.collect()
}

/// Runs a test once; the sequences have different prompts. Returns the seconds and the number of
/// computed tokens of generation.
fn measure(test: &Test, sessions: &mut [Session]) -> Result<(f64, u64), Failure> {
    let sessions = &mut sessions[..test.sequences as usize];
    for (first, session) in (0..).zip(&mut *sessions) {
        let vocab = session.facts().vocab;
        let mut prompt = tokens(test.depth.max(1), vocab, first.into());
        prompt[0] = first % vocab;
        session.reset();
        session.prefill(&prompt)?;
        // The sampled token is pending, so that one token is computed per generated token.
        session.step(&Sampling::GREEDY)?;
    }
    let computed =
        |sessions: &[Session]| sessions.iter().map(Session::computed_tokens).sum::<u64>();
    let before = computed(sessions);
    let start = Instant::now();
    let options = GenerateOptions::default()
        .sampling(Sampling::GREEDY)
        .max_tokens(test.generate)
        .ignore_eos(true);
    let answers = sessions
        .iter_mut()
        .map(|session| session.generate(&options));
    let mut answers = answers.collect::<tabla::Result<Vec<_>>>()?;
    // Takes one token of each sequence in turn, as the scheduler computes them in one batch.
    while !answers.is_empty() {
        let mut active = Vec::with_capacity(answers.len());
        for mut answer in answers {
            if answer.next_piece()?.is_some() {
                active.push(answer);
            }
        }
        answers = active;
    }
    let seconds = start.elapsed().as_secs_f64();
    drop(answers);
    Ok((seconds, computed(sessions) - before))
}
