//! Sequences that are decoded together get the tokens, and on a CPU the logits, that each gets alone.

use crate::common::{devices, golden, greedy, has_gpu, picks, session, testdata};
use std::path::{Path, PathBuf};
use tabla::{
    Batch, DeviceChoice, ErrorKind, Finish, Generate, Options, Precision, Sampling, Source,
};

/// Tokens that every sequence picks.
const PICKS: u32 = 16;

/// Prompts of lengths from one token up, none the beginning of another.
fn prompts(count: usize, vocab: u32) -> Vec<Vec<u32>> {
    let prompt = |i: usize| {
        let tokens = (0..=i * 3 % 17).map(|j| u32::try_from(31 * i + 7 * j + 5).expect("small"));
        tokens.map(|token| token % vocab).collect()
    };
    (0..count).map(prompt).collect()
}

/// A sequence that had a model for itself.
struct Alone {
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    logits: Vec<f32>,
}

fn alone(path: &Path, options: &Options, count: usize, times: u32) -> Vec<Alone> {
    let mut s = session(path, options);
    let vocab = s.facts().vocab;
    let run = |prompt: Vec<u32>| {
        picks(&mut s, &prompt, &greedy(times));
        let mut logits = vec![0.0; vocab as usize];
        s.logits(&mut logits).expect("the room is right");
        Alone {
            prompt,
            tokens: s.tokens().to_vec(),
            logits,
        }
    };
    prompts(count, vocab).into_iter().map(run).collect()
}

fn batch(path: &Path, options: &Options, sequences: usize) -> Batch {
    let options = Options {
        sequences: u32::try_from(sequences).expect("a few"),
        ..options.clone()
    };
    let source = Source::Path(path.to_path_buf());
    let model = tabla::load(&source, &options, &mut |_| {}).expect("the model loads");
    Batch::new(model).expect("it generates")
}

fn logits(batch: &mut Batch, sequence: usize) -> Vec<f32> {
    let mut logits = vec![0.0; batch.facts().vocab as usize];
    batch
        .logits(sequence, &mut logits)
        .expect("the room is right");
    logits
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// Decodes all together, in submissions of `times`.
fn together(batch: &mut Batch, all: &[Alone], times: u32) {
    for (i, one) in all.iter().enumerate() {
        batch.reset(i);
        batch.prefill(i, &one.prompt).expect("it fits");
    }
    for _ in 0..PICKS / times {
        let running = batch.step(times, &[]).expect("tokens");
        assert_eq!(running, all.len());
    }
}

fn same_tokens(what: &str, batch: &Batch, all: &[Alone]) {
    for (i, one) in all.iter().enumerate() {
        assert_eq!(batch.tokens(i), one.tokens, "{what}: sequence {i}");
    }
}

fn same_logits(what: &str, batch: &mut Batch, all: &[Alone]) {
    for (i, one) in all.iter().enumerate() {
        let found = logits(batch, i);
        assert!(bits(&found) == bits(&one.logits), "{what}: sequence {i}");
    }
}

fn cpu(threads: u32, precision: Precision) -> Options {
    Options {
        device: DeviceChoice::Cpu,
        threads,
        precision,
        context: 96,
        // Rings of windows begin anew within the prompts.
        chunk_tokens: 4,
        ..Options::default()
    }
}

/// So many sequences by so many threads, in either precision.
fn check(path: &Path, runs: &[(usize, u32)]) {
    for precision in [Precision::Fast, Precision::Exact] {
        let most = runs.iter().map(|run| run.0).max().expect("some");
        let all = alone(path, &cpu(1, precision), most, PICKS);
        for &(count, threads) in runs {
            let what = format!("{path:?} {precision:?}: {count} sequences, {threads} threads");
            let mut batch = batch(path, &cpu(threads, precision), count);
            together(&mut batch, &all[..count], PICKS);
            same_tokens(&what, &batch, &all[..count]);
            same_logits(&what, &mut batch, &all[..count]);
        }
    }
}

#[test]
fn sequences_of_a_llama() {
    for name in ["llama", "quant_q4_0", "quant_q8_0"] {
        let runs = [(1, 1), (2, 1), (3, 2), (4, 1), (8, 3), (16, 2), (20, 1)];
        check(&golden(&format!("{name}.gguf")), &runs);
    }
}

/// Every architecture that generates: windows, shared caches, experts, ternary weights.
fn generating() -> Vec<PathBuf> {
    let folders = golden("arch").read_dir().expect("a folder");
    let mut paths: Vec<_> = folders
        .map(|folder| folder.expect("a folder").path().join("model.gguf"))
        .filter(|path| path.exists())
        .filter(|path| {
            let options = Options {
                device: DeviceChoice::Cpu,
                ..Options::default()
            };
            let tables = tabla::compile(&Source::Path(path.clone()), &options);
            tables
                .expect("it compiles")
                .iter()
                .any(|t| t.name == "step")
        })
        .collect();
    paths.sort();
    assert!(paths.len() > 10, "{paths:?}");
    paths
}

#[test]
fn sequences_of_every_architecture() {
    for path in generating() {
        check(&path, &[(5, 2)]);
    }
}

#[test]
fn sequences_of_windows() {
    let runs = [(2, 1), (4, 2), (8, 3), (16, 1)];
    check(&golden("arch/gemma2/model.gguf"), &runs);
}

#[test]
fn sequences_of_real_models() {
    if let Some(path) = testdata("gguf/stories260K.gguf") {
        check(&path, &[(16, 2)]);
    }
    if let Some(path) = testdata("gguf/SmolLM2-135M-Instruct.Q4_1.gguf") {
        let options = cpu(2, Precision::Fast);
        let all = alone(&path, &options, 16, PICKS);
        let mut batch = batch(&path, &options, 16);
        together(&mut batch, &all, PICKS);
        same_tokens("SmolLM2", &batch, &all);
        same_logits("SmolLM2", &mut batch, &all);
    }
}

#[test]
fn the_length_of_a_submission_changes_nothing() {
    let path = golden("arch/gemma3/model.gguf");
    let options = cpu(2, Precision::Fast);
    let all = alone(&path, &options, 6, PICKS);
    let mut batch = batch(&path, &options, 6);
    for times in [1, 4, PICKS] {
        together(&mut batch, &all, times);
        same_tokens(&format!("submissions of {times}"), &batch, &all);
    }
}

#[test]
fn sequences_come_and_go() {
    let path = golden("arch/gemma2/model.gguf");
    let options = cpu(2, Precision::Fast);
    let all = alone(&path, &options, 8, PICKS);
    let mut batch = batch(&path, &options, 5);
    // Every fourth step one begins, at the place of one that is done.
    let mut places: [Option<usize>; 5] = [None; 5];
    let mut waiting = 0..all.len();
    let mut done = 0;
    while done < all.len() {
        if let Some(place) = places.iter().position(Option::is_none)
            && let Some(next) = waiting.next()
        {
            batch.reset(place);
            batch.prefill(place, &all[next].prompt).expect("it fits");
            places[place] = Some(next);
        }
        batch.step(4, &[]).expect("tokens");
        for (i, place) in places.iter_mut().enumerate() {
            if let Some(one) = place.map(|at| &all[at])
                && batch.tokens(i).len() == one.tokens.len()
            {
                assert_eq!(batch.tokens(i), one.tokens);
                assert!(bits(&logits(&mut batch, i)) == bits(&one.logits));
                batch.reset(i);
                (*place, done) = (None, done + 1);
            }
        }
    }
}

#[test]
fn a_prompt_in_parts_is_the_prompt() {
    let path = golden("quant_q8_0.gguf");
    let options = cpu(1, Precision::Fast);
    let all = alone(&path, &options, 3, PICKS);
    let mut batch = batch(&path, &options, 3);
    for (i, one) in all.iter().enumerate() {
        for part in one.prompt.chunks(3) {
            batch.prefill(i, part).expect("it fits");
        }
    }
    batch.step(PICKS, &[]).expect("tokens");
    same_tokens("parts", &batch, &all);
}

#[test]
fn one_that_stops_disturbs_no_other() {
    for (device, base) in devices(Precision::Fast) {
        let path = golden("quant_q8_0.gguf");
        let options = Options {
            context: 96,
            ..base
        };
        let all = alone(&path, &options, 8, PICKS);
        let mut batch = batch(&path, &options, 8);
        // A token that some pick early, some late, and some not at all.
        let picked = |one: &Alone| one.tokens[one.prompt.len()..].to_vec();
        let ends = |stop: u32| {
            all.iter()
                .map(move |one| picked(one).iter().position(|token| *token == stop))
        };
        let early = |stop: &u32| {
            let found = ends(*stop).flatten();
            found.clone().count() * 10 + found.collect::<std::collections::HashSet<_>>().len()
        };
        let candidates = all.iter().flat_map(picked);
        let candidates = candidates.filter(|stop| ends(*stop).any(|end| end.is_none()));
        let stop = candidates.max_by_key(early).expect("a token");
        together_until(&mut batch, &all, stop);
        let mut stopped = 0;
        for ((i, one), end) in all.iter().enumerate().zip(ends(stop)) {
            let what = format!("{device}: sequence {i}, stop {stop}");
            let wanted = match end {
                Some(end) => &one.tokens[..one.prompt.len() + end + 1],
                None => &one.tokens[..],
            };
            assert_eq!(batch.tokens(i), wanted, "{what}");
            assert_eq!(batch.finish(i), end.map(|_| Finish::Stop), "{what}");
            stopped += usize::from(end.is_some());
        }
        assert!(stopped > 0 && stopped < all.len(), "{stopped} stopped");
    }
}

fn together_until(batch: &mut Batch, all: &[Alone], stop: u32) {
    for (i, one) in all.iter().enumerate() {
        batch.prefill(i, &one.prompt).expect("it fits");
    }
    batch.step(PICKS, &[stop]).expect("tokens");
}

#[test]
fn full_contexts_end_one_after_the_other() {
    for (device, base) in devices(Precision::Fast) {
        for name in ["quant_q4_0.gguf", "arch/gemma2/model.gguf"] {
            let path = golden(name);
            let options = Options {
                context: 32,
                chunk_tokens: 4,
                ..base.clone()
            };
            let mut s = session(&path, &options);
            let prompts = prompts(6, s.facts().vocab);
            let mut batch = batch(&path, &options, 6);
            for (i, prompt) in prompts.iter().enumerate() {
                batch.prefill(i, prompt).expect("it fits");
            }
            assert_eq!(batch.step(1000, &[]).expect("tokens"), 0);
            for (i, prompt) in prompts.iter().enumerate() {
                let wanted = picks(&mut s, prompt, &greedy(1000));
                let what = format!("{device} {name}: sequence {i}");
                assert_eq!(batch.tokens(i)[prompt.len()..], wanted, "{what}");
                assert_eq!(batch.tokens(i).len(), 33, "{what}");
                assert_eq!(batch.finish(i), Some(Finish::Context), "{what}");
            }
            assert_eq!(batch.step(5, &[]).expect("nothing runs"), 0);
        }
    }
}

/// A GPU sums mat-vecs of one row and mat-mats of several in orders of their own: the tokens are the
/// same where no two are about as likely, and the bits in any company.
#[test]
fn sequences_on_a_gpu() {
    if !has_gpu() {
        return;
    }
    let options = Options {
        device: DeviceChoice::Gpu,
        context: 96,
        chunk_tokens: 4,
        ..Options::default()
    };
    for name in [
        "quant_q8_0.gguf",
        "arch/gemma2/model.gguf",
        "arch/qwen3moe/model.gguf",
    ] {
        let path = golden(name);
        let all = alone(&path, &options, 16, PICKS);
        let mut pair = batch(&path, &options, 2);
        for count in [4, 16] {
            let mut batch = batch(&path, &options, count);
            together(&mut batch, &all[..count], PICKS);
            same_tokens(&format!("{name}: {count}"), &batch, &all[..count]);
            for (i, one) in all[..count].iter().enumerate() {
                pair.reset(1);
                pair.prefill(1, &one.prompt).expect("it fits");
                pair.step(PICKS, &[]).expect("tokens");
                let [a, b] = [logits(&mut pair, 1), logits(&mut batch, i)];
                assert!(bits(&a) == bits(&b), "{name}: sequence {i} of {count}");
            }
        }
    }
}

#[test]
fn a_session_is_the_first_sequence() {
    let path = golden("arch/gemma2/model.gguf");
    let run = |sequences| {
        let options = Options {
            sequences,
            ..cpu(2, Precision::Fast)
        };
        let mut s = session(&path, &options);
        let sampled = Generate {
            sampling: Sampling {
                repeat_penalty: 1.2,
                seed: 3,
                ..Sampling::default()
            },
            ..greedy(PICKS)
        };
        [greedy(PICKS), sampled].map(|how| picks(&mut s, &[3, 4, 5], &how))
    };
    assert_eq!(run(0), run(4));
}

#[test]
fn what_cannot_be_is_an_error() {
    let path = golden("quant_q8_0.gguf");
    let options = cpu(1, Precision::Fast);
    let mut batch = batch(&path, &options, 2);
    let vocab = batch.facts().vocab;
    let kind = |done: tabla::Result<()>| done.expect_err("it cannot be").kind();
    assert_eq!(kind(batch.prefill(2, &[1])), ErrorKind::Argument);
    assert_eq!(kind(batch.prefill(0, &[vocab])), ErrorKind::Argument);
    assert_eq!(kind(batch.prefill(0, &[])), ErrorKind::State);
    assert_eq!(kind(batch.prefill(0, &[1; 97])), ErrorKind::TooLarge);
    let mut row = vec![0.0; vocab as usize];
    assert_eq!(kind(batch.logits(0, &mut row)), ErrorKind::State);
    assert_eq!(kind(batch.logits(9, &mut row)), ErrorKind::Argument);
    assert_eq!(kind(batch.logits(0, &mut row[1..])), ErrorKind::Argument);
    assert_eq!((batch.tokens(0), batch.tokens(7)), (&[][..], &[][..]));
    assert_eq!(batch.step(4, &[]).expect("nothing runs"), 0);
    let stops = [0; Batch::STOPS_MAX + 1];
    assert_eq!(kind(batch.step(4, &stops).map(|_| ())), ErrorKind::Argument);
    batch.prefill(0, &[1; 96]).expect("it fits");
    assert_eq!(batch.step(4, &[]).expect("a token"), 0);
    assert_eq!(batch.finish(0), Some(Finish::Context));
    assert_eq!(kind(batch.logits(0, &mut row)), ErrorKind::State);
    assert_eq!(kind(batch.prefill(0, &[1])), ErrorKind::TooLarge);
}

#[test]
fn too_many_sequences_are_refused_before_memory_is_taken() {
    let load = |sequences, context| {
        let options = Options {
            device: DeviceChoice::Cpu,
            sequences,
            context,
            ..Options::default()
        };
        let source = Source::Path(golden("llama.gguf"));
        tabla::load(&source, &options, &mut |_| {}).expect_err("too many")
    };
    let error = load(257, 64);
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(
        error.message().contains("257 sequences are over 256"),
        "{error}"
    );
    let error = load(256, 1 << 27);
    assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
    assert!(
        error.message().contains("256 sequences of 134217728"),
        "{error}"
    );
    assert!(error.message().contains("would fit"), "{error}");
}

#[test]
fn an_encoder_is_no_batch() {
    let source = Source::Path(golden("arch/bert/model.gguf"));
    let options = Options {
        device: DeviceChoice::Cpu,
        ..Options::default()
    };
    let model = tabla::load(&source, &options, &mut |_| {}).expect("it loads");
    let error = Batch::new(model).expect_err("an encoder");
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
}
