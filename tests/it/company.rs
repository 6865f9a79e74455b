//! Sessions that share a model, each doing what it likes: every one gets, bit for bit, what it gets
//! alone on a model of its own.

use crate::common::{golden, has_gpu};
use crate::scratch::Folder;
use std::path::Path;
use tabla::{
    DeviceChoice, Flow, GenerateOptions, LoadOptions, Model, Precision, Sampling, Session, Source,
    SpeculateOptions,
};
use tabla_testkit::fill::Random;

/// What a session went through, so that another can go the same way.
#[derive(Clone, Debug)]
enum Deed {
    Prefill(Vec<u32>),
    /// So many tokens came.
    GenerateOptions(Box<GenerateOptions>, u32),
    Truncate(usize),
    /// It went on as a copy of itself.
    Fork,
    /// It went on as what came back from a file.
    Load,
}

/// A session and its deeds.
struct Life {
    session: Session,
    deeds: Vec<Deed>,
    logits: Vec<f32>,
}

fn load(path: &Path, options: &LoadOptions) -> Model {
    let source = Source::Path(path.to_path_buf());
    tabla::load(&source, options, &mut |_| {}).expect("the model loads")
}

fn below(random: &mut Random, n: usize) -> usize {
    random.word() as usize % n
}

/// One of a few texts that many begin with, and some tokens of its own.
fn prompt(random: &mut Random, vocab: u32, room: usize) -> Vec<u32> {
    let text = 1 + u32::try_from(below(random, 3)).expect("small");
    let shared = below(random, 150);
    let shared = (0..shared).map(|i| (7 * u32::try_from(i).expect("small") + text) % vocab);
    let mut prompt: Vec<u32> = shared.collect();
    let own = 1 + below(random, 12);
    prompt.extend((0..own).map(|_| random.word() % vocab));
    prompt.truncate(room);
    prompt
}

/// Unlike samplers, of each tail.
fn how(random: &mut Random, vocab: u32) -> GenerateOptions {
    let seed = u64::from(random.word());
    let usual = Sampling {
        seed,
        ..Sampling::default()
    };
    let warm = Sampling {
        temperature: 1.3,
        top_k: 0,
        repeat_penalty: 1.1,
        ..usual
    };
    let mut how = GenerateOptions {
        ignore_stops: true,
        ..GenerateOptions::default()
    };
    how.sampling = match below(random, 7) {
        0 => Sampling::GREEDY,
        1 => usual,
        2 => warm,
        3 => Sampling {
            mirostat_tau: 4.0,
            ..warm
        },
        4 => Sampling {
            dry_multiplier: 2.0,
            dry_allowed_length: 1,
            xtc_probability: 0.5,
            ..warm
        },
        5 => {
            let bias = |i: u32| {
                (
                    i % vocab,
                    if i.is_multiple_of(2) {
                        2.0
                    } else {
                        f32::NEG_INFINITY
                    },
                )
            };
            how.logit_bias = (0..40).map(|_| bias(random.word())).collect();
            Sampling::GREEDY
        }
        _ => {
            how.log_probs = Some(5);
            Sampling {
                typical_p: 0.9,
                top_n_sigma: 2.0,
                dynatemp_range: 0.5,
                ..warm
            }
        }
    };
    how
}

/// Generates, and says how many tokens came: some answers are cancelled, some are left.
fn generate(session: &mut Session, random: &mut Random, how: &GenerateOptions) -> u32 {
    let before = session.tokens().len();
    let how = GenerateOptions {
        max_tokens: 1 + u32::try_from(below(random, 40)).expect("small"),
        burst: u32::try_from(below(random, 5)).expect("small"),
        // Who goes the same way alone guesses nothing.
        speculate: match below(random, 2) {
            0 => SpeculateOptions::Off,
            _ => SpeculateOptions::Lookup,
        },
        ..how.clone()
    };
    let (cancel, end, cancels) = (
        session.canceller(),
        below(random, 60),
        random.word().is_multiple_of(2),
    );
    let mut heard = 0;
    let stats = session.generate(&how, &mut |_| {
        heard += 1;
        if heard == end && cancels {
            cancel.cancel();
        }
        match heard == end && !cancels {
            true => Flow::Stop,
            false => Flow::Continue,
        }
    });
    stats.expect("it generates");
    session.forget_cancel();
    u32::try_from(session.tokens().len() - before).expect("small")
}

/// So many deeds, at random.
fn live(model: &Model, seed: usize, count: usize) -> Life {
    let mut random = Random::of(&format!("life {seed}"));
    let folder = Folder::new("life");
    let mut session = Session::new(model.clone());
    let context = session.facts().context as usize;
    let vocab = session.facts().vocab;
    let mut deeds = Vec::new();
    while deeds.len() < count {
        let (length, room) = (
            session.tokens().len(),
            context.saturating_sub(session.tokens().len()),
        );
        let deed = match below(&mut random, 9) {
            0..3 if room > 0 => {
                let prompt = prompt(&mut random, vocab, room);
                session.prefill(&prompt, &mut |_, _| {}).expect("it fits");
                Deed::Prefill(prompt)
            }
            3..6 if length > 0 && room > 0 => {
                let how = how(&mut random, vocab);
                match generate(&mut session, &mut random, &how) {
                    0 => continue,
                    picked => Deed::GenerateOptions(Box::new(how), picked),
                }
            }
            6 if length > 1 => {
                let keep = 1 + below(&mut random, length - 1);
                session.truncate(keep);
                Deed::Truncate(keep)
            }
            7 if length > 0 => {
                session = session.fork().expect("there is memory");
                Deed::Fork
            }
            8 if length > 0 => {
                let path = folder.0.join("session");
                session.save(&path).expect("it can be saved");
                session = Session::load(model.clone(), &path).expect("it is whole");
                Deed::Load
            }
            _ if room == 0 => {
                session.truncate(1);
                Deed::Truncate(1)
            }
            _ => continue,
        };
        deeds.push(deed);
    }
    if session.tokens().len() > context {
        session.truncate(context);
        deeds.push(Deed::Truncate(context));
    }
    let logits = logits(&mut session);
    Life {
        session,
        deeds,
        logits,
    }
}

fn logits(session: &mut Session) -> Vec<f32> {
    let mut logits = vec![0.0; session.facts().vocab as usize];
    session.logits(&mut logits).expect("the room is right");
    logits
}

/// The same deeds, alone; forks and files are nothing to one that forgets nothing.
fn live_alone(model: Model, deeds: &[Deed]) -> Session {
    let mut session = Session::new(model);
    for deed in deeds {
        match deed {
            Deed::Prefill(prompt) => session.prefill(prompt, &mut |_, _| {}).expect("it fits"),
            Deed::GenerateOptions(how, count) => {
                let how = GenerateOptions {
                    max_tokens: *count,
                    ..GenerateOptions::clone(how)
                };
                session
                    .generate(&how, &mut |_| Flow::Continue)
                    .expect("it generates");
            }
            Deed::Truncate(keep) => session.truncate(*keep),
            Deed::Fork | Deed::Load => {}
        }
    }
    session
}

/// Lives of many sessions on one model, each held against itself alone.
fn check(path: &Path, options: &LoadOptions, lives: usize, deeds: usize) {
    let model = load(path, options);
    let together: Vec<Life> = std::thread::scope(|scope| {
        let begin = |seed| {
            let model = &model;
            scope.spawn(move || live(model, seed, deeds))
        };
        let threads: Vec<_> = (0..lives).map(begin).collect();
        let ends = threads
            .into_iter()
            .map(|thread| thread.join().expect("it ends"));
        ends.collect()
    });
    for (at, life) in together.iter().enumerate() {
        let what = format!("{path:?}: life {at}, {:?}", life.deeds);
        // A model of its own, which keeps no prefix.
        let own = LoadOptions {
            prefix_bytes: Some(0),
            ..options.clone()
        };
        let mut alone = live_alone(load(path, &own), &life.deeds);
        assert_eq!(life.session.tokens(), alone.tokens(), "{what}");
        let alone = logits(&mut alone);
        let same = life
            .logits
            .iter()
            .zip(&alone)
            .all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{what}: logits");
    }
}

#[test]
fn sessions_on_a_cpu_are_as_alone() {
    for (name, context, chunk_tokens) in [
        ("quant_q8_0.gguf", 300, 0),
        ("quant_q4_0.gguf", 260, 33),
        // Windows.
        ("arch/gemma2/model.gguf", 400, 16),
        ("arch/qwen3moe/model.gguf", 200, 64),
    ] {
        let options = LoadOptions {
            device: DeviceChoice::Cpu,
            threads: 2,
            sequences: 5,
            context,
            chunk_tokens,
            ..LoadOptions::default()
        };
        check(&golden(name), &options, 8, 14);
    }
}

#[test]
fn sessions_on_a_gpu_are_as_alone() {
    if !has_gpu() {
        return;
    }
    for (name, sequences) in [
        ("quant_q8_0.gguf", 4),
        ("arch/gemma2/model.gguf", 3),
        ("quant_q4_0.gguf", 1),
    ] {
        let options = LoadOptions {
            device: DeviceChoice::Gpu,
            sequences,
            context: 200,
            chunk_tokens: 32,
            ..LoadOptions::default()
        };
        check(&golden(name), &options, 5, 8);
    }
}

/// Two that were one go apart, and a third that comes with the same text.
#[test]
fn forks_go_their_own_ways() {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        precision: Precision::Exact,
        sequences: 2,
        context: 200,
        ..LoadOptions::default()
    };
    let path = golden("quant_q8_0.gguf");
    let mut one = Session::new(load(&path, &options));
    let text: Vec<u32> = (0..100).map(|i| 3 + i * 5 % 200).collect();
    one.prefill(&text, &mut |_, _| {}).expect("it fits");
    let mut two = one.fork().expect("there is memory");
    assert_eq!(two.tokens(), one.tokens());
    one.prefill(&[7, 8, 9], &mut |_, _| {}).expect("it fits");
    two.prefill(&[9, 8, 7], &mut |_, _| {}).expect("it fits");
    let [a, b] = [logits(&mut one), logits(&mut two)];
    assert_ne!(a, b);
    // In their turns again, and held against sessions that never forked.
    for (session, wanted) in [(&mut one, &a), (&mut two, &b)] {
        assert_eq!(&logits(session), wanted);
        let mut alone = Session::new(load(&path, &options));
        alone
            .prefill(session.tokens(), &mut |_, _| {})
            .expect("it fits");
        assert_eq!(&logits(&mut alone), wanted);
    }
}

/// How often tokens go through the model while a session is at this.
pub(crate) fn passes_of(session: &mut Session, work: impl FnOnce(&mut Session)) -> u32 {
    session.time_commands().expect("the device tells times");
    work(session);
    session.end_timing().expect("the model is there");
    let laps = session.laps().expect("the model is there");
    laps.iter().map(|(_, laps)| laps[0].runs).sum()
}

/// What was computed is not computed again: only what is new of a prompt goes through the model.
#[test]
fn a_known_beginning_is_not_computed_again() {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        context: 512,
        chunk_tokens: 16,
        ..LoadOptions::default()
    };
    let model = load(&golden("quant_q8_0.gguf"), &options);
    let passes = |tokens: &[u32]| {
        let mut session = Session::new(model.clone());
        passes_of(&mut session, |session| {
            session.prefill(tokens, &mut |_, _| {}).expect("it fits");
        })
    };
    let text: Vec<u32> = (0..200).map(|i| 3 + i * 5 % 200).collect();
    assert_eq!(passes(&text), 13);
    let mut other = text[..150].to_vec();
    other.extend([1, 2, 3]);
    assert_eq!(passes(&other), 1);
    assert_eq!(passes(&text), 0, "nothing is left to do");
    assert_eq!(passes(&text[..64]), 0);
}

/// Tokens from the prefix cache do not count as computed, and without prefix caching a session takes
/// none from other sessions.
#[test]
fn computed_tokens_are_counted() {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        context: 512,
        chunk_tokens: 16,
        ..LoadOptions::default()
    };
    let model = load(&golden("quant_q8_0.gguf"), &options);
    let text: Vec<u32> = (0..200).map(|i| 3 + i * 5 % 200).collect();
    let prefill = |session: &mut Session, tokens: &[u32]| {
        let before = session.computed_tokens();
        session.prefill(tokens, &mut |_, _| {}).expect("it fits");
        session.computed_tokens() - before
    };
    let new = || Session::new(model.clone());
    let mut session = new();
    assert_eq!(prefill(&mut session, &text), 200, "nothing is cached");
    assert_eq!(prefill(&mut new(), &text), 0, "all of it is cached");
    let mut other = text[..150].to_vec();
    other.extend([1, 2, 3]);
    assert_eq!(prefill(&mut new(), &other), 3, "150 tokens are cached");

    let mut alone = new();
    alone.disable_prefix_caching();
    let passes = passes_of(&mut alone, |alone| {
        assert_eq!(prefill(alone, &text), 200, "the cache is not used");
    });
    assert_eq!(passes, 13, "chunks of 16 tokens");
    assert_eq!(logits(&mut alone), logits(&mut session));
    let before = alone.computed_tokens();
    assert_eq!(prefill(&mut alone, &[7, 8]), 2, "its own tokens stay");
    alone.truncate(100);
    assert_eq!(prefill(&mut alone, &text[100..150]), 50);
    let mut fork = alone.fork().expect("there is memory");
    assert_eq!(fork.computed_tokens(), 0);
    assert_eq!(prefill(&mut fork, &text[150..]), 50, "a fork is alike");
    assert_eq!(alone.computed_tokens() - before, 52);

    // Steps, with a burst that is longer than the answer, and draft tokens, right and wrong.
    for speculate in [SpeculateOptions::Off, SpeculateOptions::Lookup] {
        let how = GenerateOptions {
            sampling: Sampling::GREEDY,
            max_tokens: 40,
            logit_bias: vec![(7, 1e4)],
            ignore_stops: true,
            speculate,
            ..GenerateOptions::default()
        };
        alone.truncate(150);
        alone.force(9).expect("it fits");
        let before = alone.computed_tokens();
        let mut stats = None;
        let passes = passes_of(&mut alone, |alone| {
            let done = alone.generate(&how, &mut |_| Flow::Continue);
            stats = Some(done.expect("it generates"));
        });
        let stats = stats.expect("it was generated");
        let computed = alone.computed_tokens() - before;
        // Each pass computes a token and its draft tokens.
        let wanted = u64::from(passes + stats.draft.drafted);
        assert_eq!((stats.tokens, computed), (40, wanted));
    }
}

/// On a CPU it makes no difference by which kind of table a token goes through the model.
#[test]
fn chunks_and_steps_leave_the_same_bits_on_a_cpu() {
    let text: Vec<u32> = (0..70).map(|i| 3 + i * 5 % 200).collect();
    for name in [
        "quant_q8_0",
        "quant_q4_1",
        "quant_f16",
        "quant_bf16",
        "arch/gemma2/model",
    ] {
        for precision in [Precision::Fast, Precision::Exact] {
            let options = LoadOptions {
                device: DeviceChoice::Cpu,
                precision,
                context: 200,
                chunk_tokens: 33,
                ..LoadOptions::default()
            };
            let model = || load(&golden(&format!("{name}.gguf")), &options);
            let [mut chunks, mut steps] = [Session::new(model()), Session::new(model())];
            chunks.prefill(&text, &mut |_, _| {}).expect("it fits");
            text.iter()
                .for_each(|token| steps.force(*token).expect("it fits"));
            let [a, b] = [logits(&mut chunks), logits(&mut steps)];
            let same = a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{name} {precision:?}");
        }
    }
}

/// Ways to one sequence on a GPU, each of which leaves the same logits.
#[test]
fn every_way_to_a_sequence_is_the_same_on_a_gpu() {
    if !has_gpu() {
        return;
    }
    for (name, sequences) in [
        ("quant_q8_0", 1),
        ("quant_q8_0", 4),
        ("arch/gemma2/model", 3),
    ] {
        let options = LoadOptions {
            device: DeviceChoice::Gpu,
            sequences,
            context: 200,
            chunk_tokens: 16,
            ..LoadOptions::default()
        };
        ways(&golden(&format!("{name}.gguf")), &options);
    }
}

/// Tokens that follow, by a generation; in company.
fn generated(model: &Model, text: &[u32], burst: u32) -> Session {
    let how = GenerateOptions {
        sampling: Sampling::GREEDY,
        max_tokens: 16,
        burst,
        ignore_stops: true,
        ..GenerateOptions::default()
    };
    let company = model.facts().sequences;
    let mut all: Vec<Session> = (0..company).map(|_| Session::new(model.clone())).collect();
    for (i, session) in (0..).zip(&mut all) {
        let mut text = text.to_vec();
        *text.last_mut().expect("it has tokens") += i;
        session.prefill(&text, &mut |_, _| {}).expect("it fits");
    }
    let answers = all
        .iter_mut()
        .map(|s| s.answer(&how).expect("it generates"));
    let mut answers: Vec<_> = answers.collect();
    for _ in 0..17 {
        for answer in &mut answers {
            answer.next().expect("it goes on");
        }
    }
    drop(answers);
    all.swap_remove(0)
}

fn ways(path: &Path, options: &LoadOptions) {
    let text: Vec<u32> = (0..70).map(|i| 3 + i * 5 % 200).collect();
    let alone = LoadOptions {
        sequences: options.sequences.min(2),
        ..options.clone()
    };
    let prefilled = || {
        let mut session = Session::new(load(path, &alone));
        session.prefill(&text, &mut |_, _| {}).expect("it fits");
        session
    };
    let mut steps = prefilled();
    for _ in 0..16 {
        steps.step(&Sampling::GREEDY).expect("a token");
    }
    let wanted = logits(&mut steps);
    let check = |what: &str, session: &mut Session| {
        assert_eq!(session.tokens(), steps.tokens(), "{path:?}: {what}");
        let same = logits(session)
            .iter()
            .zip(&wanted)
            .all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{path:?}: {what}");
    };
    let model = load(path, options);
    for (what, burst) in [("one by one", 1), ("known", 4), ("by chains", 0)] {
        check(what, &mut generated(&model, &text, burst));
    }
    let mut forced = prefilled();
    for token in &steps.tokens()[text.len()..] {
        forced.force(*token).expect("it fits");
    }
    check("forced", &mut forced);
    check("a fork", &mut forced.fork().expect("there is memory"));
    // What was known goes, and comes again by the same kinds of tables.
    let mut other = Session::new(forced.model().clone());
    for first in 0..4 {
        let text: Vec<u32> = (0..190).map(|i| (first + 11 * i) % 200).collect();
        other.reset();
        other.prefill(&text, &mut |_, _| {}).expect("it fits");
    }
    check("forgotten", &mut forced);
}
