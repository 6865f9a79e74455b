//! Sequences that are decoded in a batch give the tokens, and on a CPU the logits, that each gives
//! alone.

use crate::common::{
    devices, devices_for, exhaustive, golden, greedy, has_gpu, picks, session, testdata,
};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tabla::device::Precision;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::{ErrorKind, Finish, GenerateOptions, Model, Sampling, Session, Source};

/// Number of tokens that every sequence generates.
const PICKS: u32 = 16;

/// Prompts of different lengths, none a prefix of another.
fn prompts(count: usize, vocab: u32) -> Vec<Vec<u32>> {
    let prompt = |i: usize| {
        let tokens = (0..=i * 3 % 17).map(|j| u32::try_from(31 * i + 7 * j + 5).expect("small"));
        tokens.map(|token| token % vocab).collect()
    };
    (0..count).map(prompt).collect()
}

/// Reference output of a sequence that was decoded alone.
struct Reference {
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    logits: Vec<f32>,
}

fn references(path: &Path, options: &LoadOptions, count: usize, times: u32) -> Vec<Reference> {
    let mut s = session(path, options);
    let vocab = s.facts().vocab;
    let run = |prompt: Vec<u32>| {
        picks(&mut s, &prompt, &greedy(times));
        let mut logits = vec![0.0; vocab as usize];
        s.logits(&mut logits).expect("logits are available");
        Reference {
            prompt,
            tokens: s.tokens().to_vec(),
            logits,
        }
    };
    prompts(count, vocab).into_iter().map(run).collect()
}

/// Creates sessions of one model that has as many sequences.
fn sessions(path: &Path, options: &LoadOptions, count: usize) -> Vec<Session> {
    let options = options
        .clone()
        .sequences(u32::try_from(count).expect("small"));
    let source = Source::Path(path.to_path_buf());
    let model = Model::builder(source)
        .options(options)
        .load()
        .expect("the model loads");
    (0..count).map(|_| Session::new(model.clone())).collect()
}

fn logits(s: &mut Session) -> Vec<f32> {
    let mut logits = vec![0.0; s.facts().vocab as usize];
    s.logits(&mut logits).expect("logits are available");
    logits
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// Generates in all sessions at once, each on its own thread, and returns their finish reasons.
fn generate_together<'a>(
    sessions: &'a mut [Session],
    prompts: impl Iterator<Item = &'a [u32]>,
    generation: &GenerateOptions,
) -> Vec<Finish> {
    std::thread::scope(|scope| {
        let run = |(s, prompt): (&'a mut Session, &'a [u32])| {
            scope.spawn(move || {
                if !prompt.is_empty() {
                    s.reset();
                    s.prefill(prompt).expect("prefill succeeds");
                }
                let stats = s.generate_with(generation, |_| ControlFlow::Continue(()));
                let stats = stats.expect("generation succeeds");
                stats.finish.expect("generation has ended")
            })
        };
        let threads: Vec<_> = sessions.iter_mut().zip(prompts).map(run).collect();
        let ends = threads
            .into_iter()
            .map(|thread| thread.join().expect("thread ends"));
        ends.collect()
    })
}

fn prompts_of(all: &[Reference]) -> impl Iterator<Item = &[u32]> {
    all.iter().map(|one| &*one.prompt)
}

fn same_tokens(what: &str, sessions: &[Session], all: &[Reference]) {
    for (i, (s, one)) in sessions.iter().zip(all).enumerate() {
        assert_eq!(s.tokens(), one.tokens, "{what}: sequence {i}");
    }
}

fn same_logits(what: &str, sessions: &mut [Session], all: &[Reference]) {
    for (i, (s, one)) in sessions.iter_mut().zip(all).enumerate() {
        assert!(
            bits(&logits(s)) == bits(&one.logits),
            "{what}: sequence {i}"
        );
    }
}

fn cpu(threads: u32, precision: Precision) -> LoadOptions {
    LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .threads(threads)
        .precision(precision)
        .max_context(96)
        // Sliding windows wrap around within the prompts.
        .chunk_tokens(4)
}

/// Compares batches of several sizes and thread counts with the reference, in both precisions.
fn check(path: &Path, runs: &[(usize, u32)]) {
    for precision in [Precision::Fast, Precision::Exact] {
        let most = runs
            .iter()
            .map(|run| run.0)
            .max()
            .expect("at least one run");
        let all = references(path, &cpu(1, precision), most, PICKS);
        for &(count, threads) in runs {
            let what = format!("{path:?} {precision:?}: {count} sequences, {threads} threads");
            let mut sessions = sessions(path, &cpu(threads, precision), count);
            generate_together(&mut sessions, prompts_of(&all), &greedy(PICKS));
            same_tokens(&what, &sessions, &all);
            same_logits(&what, &mut sessions, &all);
        }
    }
}

#[test]
fn llama_batch_matches_single_sequences() {
    for name in ["llama", "quant_q4_0", "quant_q8_0"] {
        let runs = [(1, 1), (2, 1), (3, 2), (4, 1), (8, 3), (16, 2), (20, 1)];
        check(&golden(&format!("{name}.gguf")), &runs);
    }
}

/// Every decoder architecture: windows, shared caches, experts, ternary weights.
fn generating() -> Vec<PathBuf> {
    let folders = golden("arch").read_dir().expect("a folder");
    let mut paths: Vec<_> = folders
        .map(|folder| folder.expect("a folder").path().join("model.gguf"))
        .filter(|path| path.exists())
        .filter(|path| {
            let options = LoadOptions::default().device(DeviceChoice::Cpu);
            let tables = tabla::tools::compile(&Source::Path(path.clone()), &options);
            tables
                .expect("model compiles")
                .iter()
                .any(|t| t.name == "step")
        })
        .collect();
    paths.sort();
    assert!(paths.len() > 10, "{paths:?}");
    paths
}

#[test]
fn batch_matches_single_sequences_for_every_architecture() {
    for path in generating() {
        check(&path, &[(5, 2)]);
    }
}

#[test]
fn sliding_window_batch_matches_single_sequences() {
    let runs = [(2, 1), (4, 2), (8, 3), (16, 1)];
    check(&golden("arch/gemma2/model.gguf"), &runs);
}

#[test]
fn real_model_batch_matches_single_sequences() {
    if let Some(path) = testdata("gguf/stories260K.gguf") {
        check(&path, &[(16, 2)]);
    }
    if let Some(path) = testdata("gguf/SmolLM2-135M-Instruct.Q4_1.gguf") {
        let options = cpu(2, Precision::Fast);
        let all = references(&path, &options, 16, PICKS);
        let mut sessions = sessions(&path, &options, 16);
        generate_together(&mut sessions, prompts_of(&all), &greedy(PICKS));
        same_tokens("SmolLM2", &sessions, &all);
        same_logits("SmolLM2", &mut sessions, &all);
    }
}

#[test]
fn burst_size_does_not_change_tokens() {
    let path = golden("arch/gemma3/model.gguf");
    let options = cpu(2, Precision::Fast);
    let all = references(&path, &options, 6, PICKS);
    let mut sessions = sessions(&path, &options, 6);
    for burst in [1, 4, PICKS] {
        let generation = greedy(PICKS).burst(burst);
        generate_together(&mut sessions, prompts_of(&all), &generation);
        same_tokens(&format!("submissions of {burst}"), &sessions, &all);
    }
}

/// More sessions than sequences: the rest are queued.
#[test]
fn queued_sequences_match_single_sequences() {
    let path = golden("arch/gemma2/model.gguf");
    let options = cpu(2, Precision::Fast).sequences(3);
    let all = references(&path, &options, 16, PICKS);
    let source = Source::Path(path);
    let model = Model::builder(source)
        .options(options)
        .load()
        .expect("the model loads");
    let sessions = (0..all.len()).map(|_| Session::new(model.clone()));
    let mut sessions: Vec<Session> = sessions.collect();
    generate_together(&mut sessions, prompts_of(&all), &greedy(PICKS));
    same_tokens("three of sixteen at once", &sessions, &all);
    same_logits("three of sixteen at once", &mut sessions, &all);
}

#[test]
fn prefill_in_parts_matches_whole_prompt() {
    let path = golden("quant_q8_0.gguf");
    let options = cpu(1, Precision::Fast);
    let all = references(&path, &options, 3, PICKS);
    let mut sessions = sessions(&path, &options, 3);
    for (s, one) in sessions.iter_mut().zip(&all) {
        for part in one.prompt.chunks(3) {
            s.prefill(part).expect("prefill succeeds");
        }
    }
    generate_together(&mut sessions, std::iter::repeat(&[][..]), &greedy(PICKS));
    same_tokens("parts", &sessions, &all);
}

#[test]
fn stopped_sequence_does_not_affect_others() {
    for (device, base) in devices(Precision::Fast) {
        let path = golden("quant_q8_0.gguf");
        let options = base.max_context(96);
        let all = references(&path, &options, 8, PICKS);
        let mut sessions = sessions(&path, &options, 8);
        // A token that some sequences generate early, some late, and some never.
        let generated = |one: &Reference| one.tokens[one.prompt.len()..].to_vec();
        let ends = |stop: u32| {
            all.iter()
                .map(move |one| generated(one).iter().position(|token| *token == stop))
        };
        let early = |stop: &u32| {
            let found = ends(*stop).flatten();
            found.clone().count() * 10 + found.collect::<std::collections::HashSet<_>>().len()
        };
        let candidates = all.iter().flat_map(generated);
        let candidates = candidates.filter(|stop| ends(*stop).any(|end| end.is_none()));
        let stop = candidates.max_by_key(early).expect("a token");
        let generation = greedy(PICKS).stop_token_ids(vec![stop]);
        let ended = generate_together(&mut sessions, prompts_of(&all), &generation);
        let mut stopped = 0;
        for ((i, one), end) in all.iter().enumerate().zip(ends(stop)) {
            let what = format!("{device}: sequence {i}, stop {stop}");
            let expected = match end {
                Some(end) => &one.tokens[..one.prompt.len() + end + 1],
                None => &one.tokens[..],
            };
            assert_eq!(sessions[i].tokens(), expected, "{what}");
            let finish = if end.is_some() {
                Finish::Stop
            } else {
                Finish::Length
            };
            assert_eq!(ended[i], finish, "{what}");
            stopped += usize::from(end.is_some());
        }
        assert!(stopped > 0 && stopped < all.len(), "{stopped} stopped");
    }
}

#[test]
fn sequences_end_at_full_context() {
    for name in ["quant_q4_0.gguf", "arch/gemma2/model.gguf"] {
        for (device, base) in devices_for(name, &["arch/gemma2/model.gguf"], Precision::Fast) {
            let path = golden(name);
            let options = base.clone().max_context(32).chunk_tokens(4);
            let mut s = session(&path, &options);
            let prompts = prompts(6, s.facts().vocab);
            let mut sessions = sessions(&path, &options, 6);
            let prompts_iter = prompts.iter().map(|prompt| &**prompt);
            let ended = generate_together(&mut sessions, prompts_iter, &greedy(1000));
            assert_eq!(ended, [Finish::Context; 6]);
            for (i, prompt) in prompts.iter().enumerate() {
                let expected = picks(&mut s, prompt, &greedy(1000));
                let what = format!("{device} {name}: sequence {i}");
                assert_eq!(sessions[i].tokens()[prompt.len()..], expected, "{what}");
                assert_eq!(sessions[i].tokens().len(), 33, "{what}");
            }
        }
    }
}

/// On a GPU, the mat-vec of one row and the mat-mat of several sum in different orders. Tokens are
/// the same unless two are about equally likely. The bits do not depend on the batch.
#[test]
fn gpu_batch_matches_single_sequences() {
    if !has_gpu() {
        return;
    }
    let options = LoadOptions::default()
        .device(DeviceChoice::Gpu)
        .max_context(96)
        .chunk_tokens(4);
    for name in [
        "quant_q8_0.gguf",
        "arch/gemma2/model.gguf",
        "arch/qwen3moe/model.gguf",
    ] {
        let path = golden(name);
        let counts = if exhaustive() { &[4, 16][..] } else { &[4] };
        let all = references(&path, &options, counts[counts.len() - 1], PICKS);
        let mut pair = sessions(&path, &options, 2);
        for &count in counts {
            let mut sessions = sessions(&path, &options, count);
            generate_together(&mut sessions, prompts_of(&all), &greedy(PICKS));
            same_tokens(&format!("{name}: {count}"), &sessions, &all);
            for (i, one) in all[..count].iter().enumerate() {
                generate_together(
                    &mut pair[1..],
                    prompts_of(std::slice::from_ref(one)),
                    &greedy(PICKS),
                );
                let [a, b] = [logits(&mut pair[1]), logits(&mut sessions[i])];
                assert!(bits(&a) == bits(&b), "{name}: sequence {i} of {count}");
            }
        }
    }
}

#[test]
fn number_of_sequences_does_not_change_tokens() {
    let path = golden("arch/gemma2/model.gguf");
    let run = |sequences| {
        let options = cpu(2, Precision::Fast).sequences(sequences);
        let mut s = session(&path, &options);
        let sampled = greedy(PICKS).sampling(Sampling::default().repetition_penalty(1.2).seed(3));
        [greedy(PICKS), sampled].map(|generation| picks(&mut s, &[3, 4, 5], &generation))
    };
    assert_eq!(run(0), run(4));
}

#[test]
fn rejects_invalid_arguments() {
    let path = golden("quant_q8_0.gguf");
    let mut s = session(&path, &cpu(1, Precision::Fast));
    let vocab = s.facts().vocab;
    let mut prefill = |tokens: &[u32]| s.prefill(tokens);
    let kind = |done: tabla::Result<()>| done.expect_err("error").kind();
    assert_eq!(kind(prefill(&[vocab])), ErrorKind::Argument);
    assert_eq!(kind(prefill(&[])), ErrorKind::State);
    assert_eq!(kind(prefill(&[1; 97])), ErrorKind::TooLarge);
    let mut row = vec![0.0; vocab as usize];
    assert_eq!(kind(s.logits(&mut row)), ErrorKind::State);
    assert_eq!(kind(s.logits(&mut row[1..])), ErrorKind::State);
    assert!(s.tokens().is_empty());
    s.prefill(&[1; 96]).expect("prefill succeeds");
    assert_eq!(kind(s.logits(&mut row[1..])), ErrorKind::Argument);
    let generation = greedy(1).stop_token_ids(vec![0; 33]);
    let refused = s
        .generate_with(&generation, |_| ControlFlow::Continue(()))
        .map(drop);
    assert_eq!(kind(refused), ErrorKind::Argument);
    let stats = s.generate_with(&greedy(4), |_| ControlFlow::Continue(()));
    assert_eq!(stats.expect("a token").finish, Some(Finish::Context));
    assert_eq!(kind(s.logits(&mut row)), ErrorKind::State);
    assert_eq!(kind(s.step(&Sampling::GREEDY).map(drop)), ErrorKind::State);
    assert_eq!(kind(s.prefill(&[1])), ErrorKind::TooLarge);
}

#[test]
fn rejects_too_many_sequences_before_allocating() {
    let load = |sequences, context| {
        let options = LoadOptions::default()
            .device(DeviceChoice::Cpu)
            .sequences(sequences)
            .max_context(context);
        let source = Source::Path(golden("llama.gguf"));
        Model::builder(source)
            .options(options)
            .load()
            .expect_err("too many")
    };
    let error = load(257, 64);
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(
        error
            .message()
            .contains("257 sequences are over the limit of 256"),
        "{error}"
    );
    let error = load(256, 1 << 23);
    assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
    assert!(
        error.message().contains("256 sequences of 8388608"),
        "{error}"
    );
    assert!(error.message().contains("would fit"), "{error}");
}

#[test]
fn encoder_rejects_prefill() {
    let mut s = session(&golden("arch/bert/model.gguf"), &cpu(1, Precision::Fast));
    let error = s.prefill(&[1]).expect_err("an encoder");
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
    assert!(s.tokens().is_empty());
}
