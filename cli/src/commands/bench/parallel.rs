//! `tabla bench -npl`: sequences that generate together, and the tokens per second of all.

use super::args::BenchArgs;
use super::single::{Machine, Test, model_name, tokens};
use crate::commands::common::open;
use crate::commands::common::probe::Probe;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use std::time::Instant;
use tabla::op::pages::PAGE;
use tabla::{GenerateOptions, Sampling, Session};

/// Runs the tests of `-npl` in turns, as those of one sequence are.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let mut tests = tests(args);
    if tests.is_empty() {
        let message = "nothing to measure: -ntg is 0".to_string();
        return Err(Failure::Usage(message));
    }
    let source = args.model.source(terminal::note)?;
    // A page more for each sequence: what starts to generate copies the last page of its prompt, and
    // without a free one the prompt of another sequence would be computed again in the measurement.
    let positions = tests.iter().map(Test::positions).max().unwrap_or(1) + PAGE;
    let mut options = args.device.options(positions)?;
    options.sequences = args.n_parallel.iter().copied().max().unwrap_or(1);
    let opened = open::model(&source, &options)?;
    let profile = opened.profile.clone();
    let sessions = (0..options.sequences).map(|_| Session::new(opened.model.clone()));
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
            bar.at(bar.position() + 1);
        }
    }
    probe.round()?;
    drop(bar);
    let machine = Machine {
        facts: opened.model.facts(),
        model: model_name(opened.model.facts()),
        source: &source,
        profile,
        probe,
        peak: None,
    };
    machine.print(&tests, args.output)
}

/// Every number of sequences at every depth and length.
fn tests(args: &BenchArgs) -> Vec<Test> {
    let answers = args.n_gen.iter().filter(|n| **n > 0);
    let tests = args.n_depth.iter().flat_map(|&depth| {
        answers.clone().flat_map(move |&generate| {
            let sequences = args.n_parallel.iter();
            sequences.map(move |&sequences| Test::new(sequences, depth, [0, generate]))
        })
    });
    tests.collect()
}

/// Runs a test once, every sequence after tokens of its own. Returns seconds and the number of computed
/// tokens; only generation is measured.
fn measure(test: &Test, sessions: &mut [Session]) -> Result<(f64, u64), Failure> {
    let sessions = &mut sessions[..test.sequences as usize];
    for (first, session) in (0..).zip(&mut *sessions) {
        let vocab = session.facts().vocab;
        let mut prompt = tokens(test.depth.max(1), vocab, first.into());
        prompt[0] = first % vocab;
        session.reset();
        session.prefill(&prompt, &mut |_, _| {})?;
        // It has yet to run, so that as many run as are picked behind it.
        session.step(&Sampling::GREEDY)?;
    }
    let computed =
        |sessions: &[Session]| sessions.iter().map(Session::computed_tokens).sum::<u64>();
    let before = computed(sessions);
    let start = Instant::now();
    let options = GenerateOptions {
        sampling: Sampling::GREEDY,
        max_tokens: test.generate,
        ignore_stops: true,
        ..GenerateOptions::default()
    };
    let answers = sessions.iter_mut().map(|session| session.answer(&options));
    let mut answers = answers.collect::<tabla::Result<Vec<_>>>()?;
    // A token of each in turn, as all come together.
    while !answers.is_empty() {
        let mut going = Vec::with_capacity(answers.len());
        for mut answer in answers {
            if answer.next()?.is_some() {
                going.push(answer);
            }
        }
        answers = going;
    }
    let seconds = start.elapsed().as_secs_f64();
    drop(answers);
    Ok((seconds, computed(sessions) - before))
}
