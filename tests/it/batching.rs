//! Sessions that share a model give, bit for bit, the results of a session alone on a model.

use crate::common::{golden, has_gpu, is_gpu_slow};
use crate::temp_folder::Folder;
use std::ops::ControlFlow;
use std::path::Path;
use tabla::device::Precision;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::{GenerateOptions, Model, Sampling, Session, Source, SpeculateOptions};
use tabla_testkit::fill::Random;

/// Operation on a session, recorded for replay.
#[derive(Clone, Debug)]
enum Operation {
    Prefill(Vec<u32>),
    /// Generation with the number of generated tokens.
    Generate(Box<GenerateOptions>, u32),
    Truncate(usize),
    /// Fork; the fork continues.
    Fork,
    /// Saving and loading; the loaded session continues.
    Load,
}

/// A session and the operations on it.
struct History {
    session: Session,
    operations: Vec<Operation>,
    logits: Vec<f32>,
}

fn load(path: &Path, options: &LoadOptions) -> Model {
    let source = Source::Path(path.to_path_buf());
    Model::builder(source)
        .options(options.clone())
        .load()
        .expect("the model loads")
}

fn below(random: &mut Random, n: usize) -> usize {
    random.word() as usize % n
}

/// Creates a prompt from one of a few shared prefixes and some random tokens.
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

/// Creates random sampling options for every sampling stage.
fn generation(random: &mut Random, vocab: u32) -> GenerateOptions {
    let seed = u64::from(random.word());
    let default = Sampling::default().seed(seed);
    let filtered = default.temperature(1.3).top_k(0).repetition_penalty(1.1);
    let mut generation = GenerateOptions::default().ignore_eos(true);
    generation.sampling = match below(random, 7) {
        0 => Sampling::GREEDY,
        1 => default,
        2 => filtered,
        3 => filtered.mirostat_tau(4.0),
        4 => filtered
            .dry_multiplier(2.0)
            .dry_allowed_length(1)
            .xtc_probability(0.5),
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
            generation.logit_bias = (0..40).map(|_| bias(random.word())).collect();
            Sampling::GREEDY
        }
        _ => {
            generation.logprobs = Some(5);
            filtered.typical_p(0.9).top_n_sigma(2.0).dynatemp_range(0.5)
        }
    };
    generation
}

/// Generates and returns the number of tokens. Some generations are cancelled, some are stopped.
fn generate(session: &mut Session, random: &mut Random, generation: &GenerateOptions) -> u32 {
    let before = session.tokens().len();
    let generation = generation
        .clone()
        .max_tokens(1 + u32::try_from(below(random, 40)).expect("small"))
        .burst(u32::try_from(below(random, 5)).expect("small"))
        // The replay does not speculate.
        .speculate(match below(random, 2) {
            0 => SpeculateOptions::Off,
            _ => SpeculateOptions::Lookup,
        });
    let (cancel, end, cancels) = (
        session.canceller(),
        below(random, 60),
        random.word().is_multiple_of(2),
    );
    let mut pieces = 0;
    let stats = session.generate_with(&generation, |_| {
        pieces += 1;
        if pieces == end && cancels {
            cancel.cancel();
        }
        match pieces == end && !cancels {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    stats.expect("generation succeeds");
    session.clear_cancel();
    u32::try_from(session.tokens().len() - before).expect("small")
}

/// Runs `count` random operations.
fn run_random(model: &Model, seed: usize, count: usize) -> History {
    let mut random = Random::of(&format!("life {seed}"));
    let folder = Folder::new("life");
    let mut session = Session::new(model.clone());
    let context = session.facts().context as usize;
    let vocab = session.facts().vocab;
    let mut operations = Vec::new();
    while operations.len() < count {
        let (length, room) = (
            session.tokens().len(),
            context.saturating_sub(session.tokens().len()),
        );
        let operation = match below(&mut random, 9) {
            0..3 if room > 0 => {
                let prompt = prompt(&mut random, vocab, room);
                session.prefill(&prompt).expect("prefill succeeds");
                Operation::Prefill(prompt)
            }
            3..6 if length > 0 && room > 0 => {
                let generation = generation(&mut random, vocab);
                match generate(&mut session, &mut random, &generation) {
                    0 => continue,
                    generated => Operation::Generate(Box::new(generation), generated),
                }
            }
            6 if length > 1 => {
                let keep = 1 + below(&mut random, length - 1);
                session.truncate(keep);
                Operation::Truncate(keep)
            }
            7 if length > 0 => {
                session = session.fork().expect("fork succeeds");
                Operation::Fork
            }
            8 if length > 0 => {
                let path = folder.0.join("session");
                session.save(&path).expect("save succeeds");
                session = Session::load(model.clone(), &path).expect("load succeeds");
                Operation::Load
            }
            _ if room == 0 => {
                session.truncate(1);
                Operation::Truncate(1)
            }
            _ => continue,
        };
        operations.push(operation);
    }
    if session.tokens().len() > context {
        session.truncate(context);
        operations.push(Operation::Truncate(context));
    }
    let logits = logits(&mut session);
    History {
        session,
        operations,
        logits,
    }
}

fn logits(session: &mut Session) -> Vec<f32> {
    let mut logits = vec![0.0; session.facts().vocab as usize];
    session.logits(&mut logits).expect("logits are available");
    logits
}

/// Replays the operations on a model without other sessions. Forks and files have no effect there.
fn replay(model: Model, operations: &[Operation]) -> Session {
    let mut session = Session::new(model);
    for operation in operations {
        match operation {
            Operation::Prefill(prompt) => session.prefill(prompt).expect("prefill succeeds"),
            Operation::Generate(generation, count) => {
                let generation = GenerateOptions::clone(generation).max_tokens(*count);
                session
                    .generate_with(&generation, |_| ControlFlow::Continue(()))
                    .expect("generation succeeds");
            }
            Operation::Truncate(keep) => session.truncate(*keep),
            Operation::Fork | Operation::Load => {}
        }
    }
    session
}

/// Runs many sessions on one model, and compares each with its replay.
fn check(path: &Path, options: &LoadOptions, sessions: usize, operations: usize) {
    let model = load(path, options);
    let together: Vec<History> = std::thread::scope(|scope| {
        let begin = |seed| {
            let model = &model;
            scope.spawn(move || run_random(model, seed, operations))
        };
        let threads: Vec<_> = (0..sessions).map(begin).collect();
        let ends = threads
            .into_iter()
            .map(|thread| thread.join().expect("thread ends"));
        ends.collect()
    });
    for (at, history) in together.iter().enumerate() {
        let what = format!("{path:?}: session {at}, {:?}", history.operations);
        // A separate model without a prefix cache.
        let own = options.clone().prefix_bytes(0);
        let mut alone = replay(load(path, &own), &history.operations);
        assert_eq!(history.session.tokens(), alone.tokens(), "{what}");
        let alone = logits(&mut alone);
        let same = history
            .logits
            .iter()
            .zip(&alone)
            .all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{what}: logits");
    }
}

#[test]
fn concurrent_sessions_match_replay_on_cpu() {
    for (name, context, chunk_tokens) in [
        ("quant_q8_0.gguf", 300, 0),
        ("quant_q4_0.gguf", 260, 33),
        // Sliding windows.
        ("arch/gemma2/model.gguf", 400, 16),
        ("arch/qwen3moe/model.gguf", 200, 64),
        // Recurrent states.
        ("arch/qwen3_5/model.gguf", 300, 33),
        ("arch/granite_hybrid/model.gguf", 300, 33),
        // Rows of the cache that are keys and values.
        ("arch/deepseek_v2/model.gguf", 260, 33),
    ] {
        let options = LoadOptions::default()
            .device(DeviceChoice::Cpu)
            .threads(2)
            .sequences(5)
            .max_context(context)
            .chunk_tokens(chunk_tokens);
        check(&golden(name), &options, 8, 14);
    }
}

#[test]
fn concurrent_sessions_match_replay_on_gpu() {
    if !has_gpu() {
        return;
    }
    let mut models = vec![("quant_q8_0.gguf", 4)];
    let (mut sessions, mut operations) = (4, 5);
    if !is_gpu_slow() {
        models.extend([
            ("arch/qwen3_5/model.gguf", 3),
            ("arch/gemma2/model.gguf", 3),
            ("quant_q4_0.gguf", 1),
        ]);
        (sessions, operations) = (5, 8);
    }
    for (name, sequences) in models {
        let options = LoadOptions::default()
            .device(DeviceChoice::Gpu)
            .sequences(sequences)
            .max_context(200)
            .chunk_tokens(32);
        check(&golden(name), &options, sessions, operations);
    }
}

/// Forks diverge, and match sessions that were never forked.
#[test]
fn forks_are_independent() {
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .precision(Precision::Exact)
        .sequences(2)
        .max_context(200);
    let path = golden("quant_q8_0.gguf");
    let mut one = Session::new(load(&path, &options));
    let text: Vec<u32> = (0..100).map(|i| 3 + i * 5 % 200).collect();
    one.prefill(&text).expect("prefill succeeds");
    let mut two = one.fork().expect("fork succeeds");
    assert_eq!(two.tokens(), one.tokens());
    one.prefill(&[7, 8, 9]).expect("prefill succeeds");
    two.prefill(&[9, 8, 7]).expect("prefill succeeds");
    let [a, b] = [logits(&mut one), logits(&mut two)];
    assert_ne!(a, b);
    // Compute the logits again, and compare with sessions that were never forked.
    for (session, expected) in [(&mut one, &a), (&mut two, &b)] {
        assert_eq!(&logits(session), expected);
        let mut alone = Session::new(load(&path, &options));
        alone.prefill(session.tokens()).expect("prefill succeeds");
        assert_eq!(&logits(&mut alone), expected);
    }
}

/// Counts the passes through the model during `work`.
pub(crate) fn passes_of(session: &mut Session, work: impl FnOnce(&mut Session)) -> u32 {
    session.time_commands().expect("commands can be timed");
    work(session);
    session.end_timing().expect("model is running");
    let timings = session.command_timings().expect("model is running");
    timings.iter().map(|(_, timings)| timings[0].runs).sum()
}

/// Only tokens that are not cached are computed.
#[test]
fn cached_prefix_is_not_recomputed() {
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .max_context(512)
        .chunk_tokens(16);
    let model = load(&golden("quant_q8_0.gguf"), &options);
    let passes = |tokens: &[u32]| {
        let mut session = Session::new(model.clone());
        passes_of(&mut session, |session| {
            session.prefill(tokens).expect("prefill succeeds");
        })
    };
    let text: Vec<u32> = (0..200).map(|i| 3 + i * 5 % 200).collect();
    assert_eq!(passes(&text), 13);
    let mut other = text[..150].to_vec();
    other.extend([1, 2, 3]);
    assert_eq!(passes(&other), 1);
    assert_eq!(passes(&text), 0, "everything is cached");
    assert_eq!(passes(&text[..64]), 0);
}

/// The logits after a prompt are those of its last pass, until another pass overwrites them.
#[test]
fn logits_after_a_prompt_need_no_pass() {
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .max_context(512)
        .chunk_tokens(16);
    let model = load(&golden("quant_q8_0.gguf"), &options);
    let text: Vec<u32> = (0..50).map(|i| 3 + i * 5 % 200).collect();
    let mut session = Session::new(model.clone());
    session.prefill(&text).expect("prefill succeeds");
    let mut first = Vec::new();
    assert_eq!(passes_of(&mut session, |s| first = logits(s)), 0);
    assert_eq!(passes_of(&mut session, |s| assert_eq!(logits(s), first)), 0);

    let mut other = Session::new(model);
    other.prefill(&[1, 2, 3]).expect("prefill succeeds");
    let again = |s: &mut Session| assert_eq!(logits(s), first);
    assert_eq!(passes_of(&mut session, again), 1, "overwritten");
    assert_ne!(logits(&mut other), first);
    session.disable_prefix_caching();
    session.reset();
    session.append(&text).expect("the tokens fit");
    assert_eq!(passes_of(&mut session, again), 4, "computed anew");
}

/// Cached tokens are not counted as computed. Without prefix caching a session does not reuse the
/// cache of other sessions.
#[test]
fn counts_computed_tokens() {
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .max_context(512)
        .chunk_tokens(16);
    let model = load(&golden("quant_q8_0.gguf"), &options);
    let text: Vec<u32> = (0..200).map(|i| 3 + i * 5 % 200).collect();
    let prefill = |session: &mut Session, tokens: &[u32]| {
        let before = session.computed_tokens();
        session.prefill(tokens).expect("prefill succeeds");
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
    assert_eq!(prefill(&mut alone, &[7, 8]), 2, "own tokens are cached");
    alone.truncate(100);
    assert_eq!(prefill(&mut alone, &text[100..150]), 50);
    let mut fork = alone.fork().expect("fork succeeds");
    assert_eq!(fork.computed_tokens(), 0);
    assert_eq!(
        prefill(&mut fork, &text[150..]),
        50,
        "forks share the setting"
    );
    assert_eq!(alone.computed_tokens() - before, 52);

    // Decode with a burst that exceeds the output, and with accepted and rejected draft tokens.
    for speculate in [SpeculateOptions::Off, SpeculateOptions::Lookup] {
        let generation = GenerateOptions::default()
            .sampling(Sampling::GREEDY)
            .max_tokens(40)
            .logit_bias(vec![(7, 1e4)])
            .ignore_eos(true)
            .speculate(speculate);
        alone.truncate(150);
        alone.force(9).expect("prefill succeeds");
        let before = alone.computed_tokens();
        let mut stats = None;
        let passes = passes_of(&mut alone, |alone| {
            let done = alone.generate_with(&generation, |_| ControlFlow::Continue(()));
            stats = Some(done.expect("generation succeeds"));
        });
        let stats = stats.expect("generation ran");
        let computed = alone.computed_tokens() - before;
        // Each pass computes a token and its draft tokens.
        let expected = u64::from(passes + stats.draft.drafted);
        assert_eq!((stats.tokens, computed), (40, expected));
    }
}

/// On a CPU, chunk tables and step tables write the same bits.
#[test]
fn chunks_and_steps_give_same_bits_on_cpu() {
    let text: Vec<u32> = (0..70).map(|i| 3 + i * 5 % 200).collect();
    for name in [
        "quant_q8_0",
        "quant_q4_1",
        "quant_f16",
        "quant_bf16",
        "arch/gemma2/model",
        "arch/qwen3_5/model",
        "arch/nemotron_h_moe/model",
        "arch/falcon_h1/model",
        "arch/lfm2/model",
        "arch/deepseek_v3/model",
    ] {
        for precision in [Precision::Fast, Precision::Exact] {
            let options = LoadOptions::default()
                .device(DeviceChoice::Cpu)
                .precision(precision)
                .max_context(200)
                .chunk_tokens(33);
            let model = || load(&golden(&format!("{name}.gguf")), &options);
            let [mut chunks, mut steps] = [Session::new(model()), Session::new(model())];
            chunks.prefill(&text).expect("prefill succeeds");
            text.iter()
                .for_each(|token| steps.force(*token).expect("prefill succeeds"));
            let [a, b] = [logits(&mut chunks), logits(&mut steps)];
            let same = a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{name} {precision:?}");
        }
    }
}

/// On a GPU, all ways to compute a sequence give the same logits.
#[test]
fn all_paths_give_same_logits_on_gpu() {
    if !has_gpu() {
        return;
    }
    let mut models = vec![("quant_q8_0", 4), ("arch/qwen3_5/model", 3)];
    if !is_gpu_slow() {
        models.extend([
            ("quant_q8_0", 1),
            ("arch/gemma2/model", 4),
            ("arch/deepseek_v2_lite/model", 2),
        ]);
    }
    for (name, sequences) in models {
        let options = LoadOptions::default()
            .device(DeviceChoice::Gpu)
            .sequences(sequences)
            .max_context(200)
            .chunk_tokens(16);
        check_paths(&golden(&format!("{name}.gguf")), &options);
    }
}

/// Generates in a batch and returns the first session.
fn generated(model: &Model, text: &[u32], burst: u32) -> Session {
    let generation = GenerateOptions::default()
        .sampling(Sampling::GREEDY)
        .max_tokens(16)
        .burst(burst)
        .ignore_eos(true);
    let count = model.facts().sequences;
    let mut all: Vec<Session> = (0..count).map(|_| Session::new(model.clone())).collect();
    for (i, session) in (0..).zip(&mut all) {
        let mut text = text.to_vec();
        *text.last_mut().expect("at least one token") += i;
        session.prefill(&text).expect("prefill succeeds");
    }
    let answers = all
        .iter_mut()
        .map(|s| s.generate(&generation).expect("generation succeeds"));
    let mut answers: Vec<_> = answers.collect();
    for _ in 0..17 {
        for answer in &mut answers {
            answer.next_piece().expect("generation continues");
        }
    }
    drop(answers);
    all.swap_remove(0)
}

fn check_paths(path: &Path, options: &LoadOptions) {
    let text: Vec<u32> = (0..70).map(|i| 3 + i * 5 % 200).collect();
    let alone = options.clone().sequences(options.sequences.min(2));
    let prefilled = || {
        let mut session = Session::new(load(path, &alone));
        session.prefill(&text).expect("prefill succeeds");
        session
    };
    let mut steps = prefilled();
    for _ in 0..16 {
        steps.step(&Sampling::GREEDY).expect("a token");
    }
    let expected = logits(&mut steps);
    let check = |what: &str, session: &mut Session| {
        assert_eq!(session.tokens(), steps.tokens(), "{path:?}: {what}");
        let same = logits(session)
            .iter()
            .zip(&expected)
            .all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{path:?}: {what}");
    };
    let model = load(path, options);
    for (what, burst) in [
        ("single steps", 1),
        ("bursts of 4", 4),
        ("adaptive bursts", 0),
    ] {
        check(what, &mut generated(&model, &text, burst));
    }
    let mut forced = prefilled();
    for token in &steps.tokens()[text.len()..] {
        forced.force(*token).expect("prefill succeeds");
    }
    check("forced", &mut forced);
    check("a fork", &mut forced.fork().expect("fork succeeds"));
    // Evict the cache, and recompute with the same kinds of tables.
    let mut other = Session::new(forced.model().clone());
    for first in 0..4 {
        let text: Vec<u32> = (0..190).map(|i| (first + 11 * i) % 200).collect();
        other.reset();
        other.prefill(&text).expect("prefill succeeds");
    }
    check("evicted", &mut forced);
}
