//! Benchmark of speculative decoding: the gain on repetitive text and the cost on random text.
//!
//! Arguments: a model file (default: the built-in model), tokens per answer (256), rounds (7), a
//! draft model file or `mtp`, a text file with prompts that are separated by empty lines. Runs with and
//! without speculation alternate; results are medians of the rounds. "no draft" compares a model with its drafting
//! head and without speculation to the same model without the head; since they are two copies in memory,
//! several processes differ by some percent.
#![expect(clippy::print_stdout, reason = "a benchmark that prints results")]

use std::path::PathBuf;
use tabla::load::{DeviceChoice, DraftingHead, LoadOptions};
use tabla::text::EncodeOptions;
use tabla::{GenerateOptions, Model, Sampling, Session, Source, SpeculateOptions};

fn main() {
    let args = std::env::args().skip(1).filter(|a| a != "--bench");
    let args: Vec<String> = args.collect();
    let number = |at: usize, default| args.get(at).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (tokens, rounds) = (number(1, 256_u32), number(2, 7_u32));
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .max_context(tokens + 256);
    let open = |path: Option<&String>, head| {
        let source = path.map_or(Source::BuiltIn, |path| Source::Path(PathBuf::from(path)));
        Model::builder(source)
            .options(options.clone().drafting_head(head))
            .load()
            .expect("load the model")
    };
    let model = open(args.first(), DraftingHead::None);
    let drafters = drafters(&model, &args, open);
    let prompts = prompts(&model, args.get(4));
    // "one": a large bias repeats one token, the best case of speculation. "greedy": repeats some
    // text. "random": at this temperature all tokens are about equally likely, the worst case.
    let uniform = Sampling::default()
        .temperature(100.0)
        .top_k(0)
        .top_p(1.0)
        .min_p(0.0);
    let texts = [
        ("one", Sampling::GREEDY, vec![(7, 1e4)]),
        ("greedy", Sampling::GREEDY, Vec::new()),
        ("random", uniform, Vec::new()),
    ];
    println!(
        "{:<8} {:<9}{:>10}{:>10}{:>8}{:>8}{:>8}",
        "text", "drafter", "tok/s", "without", "ratio", "drafted", "accepted"
    );
    for (text, sampling, logit_bias) in &texts {
        for (name, speculate, [speculating, other]) in &drafters {
            let (mut with, mut without) = (Vec::new(), Vec::new());
            let mut count = tabla::DraftStats::default();
            for round in 0..rounds {
                let sampling = sampling.seed(round.into());
                let mut runs = [
                    (&mut with, speculate, speculating),
                    (&mut without, &SpeculateOptions::Off, other),
                ];
                let prompt = &prompts[round as usize % prompts.len()];
                runs.rotate_left((round % 2) as usize);
                for (rates, speculate, model) in runs {
                    let options = GenerateOptions::default()
                        .sampling(sampling)
                        .logit_bias(logit_bias.clone())
                        .speculate(speculate.clone())
                        .max_tokens(tokens)
                        .ignore_eos(true);
                    let (rate, drafts) = run(model, prompt, &options);
                    rates.push(rate);
                    count += drafts;
                }
            }
            let mut ratios: Vec<f64> = with.iter().zip(&without).map(|(a, b)| a / b).collect();
            println!(
                "{text:<8} {name:<9}{:>10.1}{:>10.1}{:>8.3}{:>8}{:>8}",
                median(&mut with),
                median(&mut without),
                median(&mut ratios),
                count.drafted / rounds,
                count.accepted / rounds
            );
        }
    }
}

/// A drafter: its name, the model that speculates with it, and the model without speculation.
type Drafter = (&'static str, SpeculateOptions, [Model; 2]);

/// Returns the drafters to measure. `open` loads a model.
fn drafters(
    model: &Model,
    args: &[String],
    open: impl Fn(Option<&String>, DraftingHead) -> Model,
) -> Vec<Drafter> {
    let twice = |model: &Model| [model.clone(), model.clone()];
    let mut drafters = vec![("lookup", SpeculateOptions::Lookup, twice(model))];
    match args.get(3).map(String::as_str) {
        None => {}
        Some("mtp") => {
            let with_head = open(args.first(), DraftingHead::Mtp);
            drafters.push(("mtp", SpeculateOptions::Head, twice(&with_head)));
            // The cost of the rows that the head needs.
            let models = [with_head, model.clone()];
            drafters.push(("no draft", SpeculateOptions::Off, models));
        }
        Some(_) => {
            let draft = open(args.get(3), DraftingHead::None);
            drafters.push(("draft", SpeculateOptions::Draft(draft), twice(model)));
        }
    }
    drafters
}

/// Returns the prompts of a file, or one of arbitrary tokens.
fn prompts(model: &Model, path: Option<&String>) -> Vec<Vec<u32>> {
    let Some(path) = path else {
        return vec![(1..32).map(|at| at * 7 % model.facts().vocab).collect()];
    };
    let text = std::fs::read_to_string(path).expect("read the prompts");
    let texts = text.split("\n\n").filter(|text| !text.is_empty());
    let encode = |text| model.tokenizer().encode(text, EncodeOptions::PROMPT);
    texts
        .map(|text| encode(text).expect("encode a prompt"))
        .collect()
}

/// Generates one answer; returns tokens per second and the draft token statistics.
fn run(model: &Model, prompt: &[u32], options: &GenerateOptions) -> (f64, tabla::DraftStats) {
    let mut session = Session::new(model.clone());
    session.prefill(prompt).expect("prefill");
    let stats = session
        .generate_with(options, |_| std::ops::ControlFlow::Continue(()))
        .expect("generate");
    (
        f64::from(stats.tokens) / stats.took.as_secs_f64(),
        stats.draft,
    )
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
