//! What guesses give on text that repeats itself, and what they cost on text that does not.
//!
//! Arguments: a model file (the built-in one), tokens an answer (256), rounds (7), a draft model's file. With and
//! without guesses take turns; figures are medians of the rounds.
#![expect(clippy::print_stdout, reason = "a program that prints figures")]

use std::path::PathBuf;
use tabla::{
    DeviceChoice, GenerateOptions, LoadOptions, Model, Sampling, Session, Source, SpeculateOptions,
};

fn main() {
    let args = std::env::args().skip(1).filter(|a| a != "--bench");
    let args: Vec<String> = args.collect();
    let number = |at: usize, usual| args.get(at).and_then(|a| a.parse().ok()).unwrap_or(usual);
    let (tokens, rounds) = (number(1, 256_u32), number(2, 7_u32));
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        context: tokens + 256,
        ..LoadOptions::default()
    };
    let open = |path: Option<&String>| {
        let source = path.map_or(Source::BuiltIn, |path| Source::Path(PathBuf::from(path)));
        tabla::load(&source, &options, &mut |_| {}).expect("the model loads")
    };
    let model = open(args.first());
    let mut ways = vec![("lookup", SpeculateOptions::Lookup)];
    if args.len() > 3 {
        ways.push(("draft", SpeculateOptions::Draft(open(args.get(3)))));
    }
    // What a token biased above all others makes is all repetition: the most that guesses can give. A model at
    // its likeliest repeats some of what it said; drawn at this temperature every token is as likely.
    let flat = Sampling {
        temperature: 100.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        ..Sampling::default()
    };
    let texts = [
        ("one", Sampling::GREEDY, vec![(7, 1e4)]),
        ("greedy", Sampling::GREEDY, Vec::new()),
        ("random", flat, Vec::new()),
    ];
    println!(
        "{:<8} {:<8}{:>10}{:>10}{:>8}{:>8}{:>8}",
        "text", "guesses", "tok/s", "without", "ratio", "made", "right"
    );
    for (text, sampling, logit_bias) in &texts {
        for (name, speculate) in &ways {
            let (mut with, mut without) = (Vec::new(), Vec::new());
            let mut count = tabla::DraftStats::default();
            for round in 0..rounds {
                let sampling = Sampling {
                    seed: round.into(),
                    ..*sampling
                };
                let mut turns = [
                    (&mut with, speculate),
                    (&mut without, &SpeculateOptions::Off),
                ];
                // Who is first takes turns too.
                turns.rotate_left((round % 2) as usize);
                for (rates, speculate) in turns {
                    let how = GenerateOptions {
                        sampling,
                        logit_bias: logit_bias.clone(),
                        speculate: speculate.clone(),
                        max_tokens: tokens,
                        ignore_stops: true,
                        ..GenerateOptions::default()
                    };
                    let (rate, guesses) = run(&model, &how);
                    rates.push(rate);
                    count += guesses;
                }
            }
            let mut ratios: Vec<f64> = with.iter().zip(&without).map(|(a, b)| a / b).collect();
            println!(
                "{text:<8} {name:<8}{:>10.1}{:>10.1}{:>8.3}{:>8}{:>8}",
                median(&mut with),
                median(&mut without),
                median(&mut ratios),
                count.drafted / rounds,
                count.accepted / rounds
            );
        }
    }
}

/// Tokens per second of one answer, and its guesses.
fn run(model: &Model, how: &GenerateOptions) -> (f64, tabla::DraftStats) {
    let mut session = Session::new(model.clone());
    let prompt: Vec<u32> = (1..32).map(|at| at * 7 % model.facts().vocab).collect();
    session.prefill(&prompt, &mut |_, _| {}).expect("it fits");
    let stats = session
        .generate(how, &mut |_| tabla::Flow::Continue)
        .expect("it generates");
    (
        f64::from(stats.tokens) / stats.took.as_secs_f64(),
        stats.draft,
    )
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
