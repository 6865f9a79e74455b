//! `tabla bench -npl`: sequences that generate together, and the tokens per second of all.

use crate::args::BenchArgs;
use crate::bench::{Machine, Test, model_name, tokens};
use crate::failure::Failure;
use crate::open;
use crate::probe::Probe;
use crate::terminal::{self, Progress};
use std::time::Instant;
use tabla::Batch;

/// Runs the tests of `-npl` in turns, as those of one sequence are.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let mut tests = tests(args);
    if tests.is_empty() {
        let message = "nothing to measure: -ntg is 0".to_string();
        return Err(Failure::Usage(message));
    }
    let source = args.model.source(terminal::note)?;
    let mut options = args
        .device
        .options(tests.iter().map(Test::positions).max().unwrap_or(1))?;
    options.sequences = args.n_parallel.iter().copied().max().unwrap_or(1);
    let opened = open::model(&source, &options)?;
    let profile = opened.profile.clone();
    let mut batch = Batch::new(opened.model)?;
    let mut probe = Probe::new(&profile, &options)?;
    let turns = u64::from(args.repetitions) + u64::from(!args.no_warmup);
    let bar = Progress::new("measuring", turns * tests.len() as u64);
    for turn in 0..turns {
        for test in &mut tests {
            probe.round()?;
            let seconds = measure(test, &mut batch)?;
            if turn > 0 || args.no_warmup {
                test.seconds.push(seconds);
            }
            bar.at(bar.position() + 1);
        }
    }
    probe.round()?;
    drop(bar);
    let machine = Machine {
        facts: batch.facts(),
        model: model_name(batch.facts()),
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

/// Runs a test once, every sequence behind tokens of its own; yields seconds.
fn measure(test: &Test, batch: &mut Batch) -> Result<f64, Failure> {
    let vocab = batch.facts().vocab;
    for sequence in 0..batch.facts().sequences {
        batch.reset(sequence as usize);
        if sequence < test.sequences {
            let mut prompt = tokens(test.depth.max(1), vocab);
            prompt[0] = sequence % vocab;
            batch.prefill(sequence as usize, &prompt)?;
        }
    }
    let start = Instant::now();
    batch.step(test.generate, &[])?;
    Ok(start.elapsed().as_secs_f64())
}
