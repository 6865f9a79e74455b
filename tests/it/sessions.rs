//! Reproducibility across seeds, threads, burst sizes and chunks; cancellation and limits.

use crate::common::{golden, greedy, is_gpu_slow, picks, replays, session, story};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use tabla::device::Precision;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::op::table::SamplingStage;
use tabla::text::EncodeOptions;
use tabla::{ErrorKind, Finish, GenerateOptions, Model, Sampling, Session, Source};

const SAMPLING: Sampling = Sampling::GREEDY
    .temperature(0.9)
    .top_k(50)
    .top_p(0.95)
    .min_p(0.01)
    .repetition_penalty(1.1)
    .repeat_last_n(32)
    .seed(7);

fn sampled(burst: u32) -> GenerateOptions {
    GenerateOptions::default()
        .sampling(SAMPLING)
        .max_tokens(64)
        .burst(burst)
        .ignore_eos(true)
}

fn prompt(s: &Session) -> Vec<u32> {
    let text = "Once upon a time, there was a little fox who wished for a red kite. One day, the \
                fox met an old owl in the forest and asked for help.";
    s.tokenizer()
        .encode(text, EncodeOptions::PROMPT)
        .expect("text")
}

#[test]
fn same_seed_gives_same_tokens() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let first = picks(&mut s, &prompt, &sampled(0));
    assert_eq!(first.len(), 64);
    for run in 1..20 {
        assert_eq!(picks(&mut s, &prompt, &sampled(0)), first, "run {run}");
    }
    let sampling = SAMPLING.seed(8);
    assert_ne!(
        picks(&mut s, &prompt, &sampled(0).sampling(sampling)),
        first
    );
}

#[test]
fn threads_bursts_and_chunks_do_not_change_tokens() {
    for precision in [Precision::Fast, Precision::Exact] {
        let reference = |options| {
            let mut s = story(options);
            let prompt = prompt(&s);
            [sampled(0), greedy(64)].map(|generation| picks(&mut s, &prompt, &generation))
        };
        let base = LoadOptions::default().precision(precision).threads(1);
        let first = reference(base.clone());
        for threads in [2, 3] {
            let options = base.clone().threads(threads);
            assert_eq!(
                reference(options),
                first,
                "{precision:?}: {threads} threads"
            );
        }
        for chunk_tokens in [1, 2, 3, 7, 32, 500] {
            let options = base.clone().chunk_tokens(chunk_tokens);
            assert_eq!(
                reference(options),
                first,
                "{precision:?}: chunks of {chunk_tokens}"
            );
        }
        let mut s = story(base);
        let prompt = prompt(&s);
        for burst in [1, 4, 32] {
            let again = picks(&mut s, &prompt, &sampled(burst));
            assert_eq!(again, first[0], "{precision:?}: bursts of {burst}");
        }
    }
}

#[test]
fn bursts_and_chunks_do_not_change_tokens_on_gpu() {
    let run = |options: LoadOptions, burst| {
        let mut s = session(&golden("quant_q8_0.gguf"), &options);
        let prompt: Vec<u32> = (3..40).collect();
        picks(&mut s, &prompt, &sampled(burst))
    };
    let replays = replays();
    let (bursts, chunks) = match is_gpu_slow() {
        true => (&[4][..], &[7, 32][..]),
        false => (&[1, 4, 32][..], &[1, 2, 3, 7, 32][..]),
    };
    let first = replays.first().map(|gpu| run(gpu.clone(), 1));
    for gpu in replays {
        let (first, replay) = (first.as_ref().expect("at least one replay"), gpu.replay);
        for &burst in bursts {
            let found = run(gpu.clone(), burst);
            assert_eq!(&found, first, "{replay:?}: bursts of {burst}");
        }
        for &chunk_tokens in chunks {
            let options = gpu.clone().chunk_tokens(chunk_tokens);
            let found = run(options, 4);
            assert_eq!(&found, first, "{replay:?}: chunks of {chunk_tokens}");
        }
    }
}

/// Prefill, bursts, single steps, truncation, shifts and several sequences.
#[test]
fn encoded_and_recorded_replay_give_same_bits() {
    for name in [
        "quant_q4_0.gguf",
        "arch/gemma2/model.gguf",
        "arch/qwen3moe/model.gguf",
    ] {
        let all: Vec<_> = replays()
            .iter()
            .map(|gpu| (gpu.replay, trace(name, gpu)))
            .collect();
        for (replay, trace) in &all {
            assert!(trace == &all[0].1, "{name}: {replay:?}");
        }
    }
}

/// Returns tokens and logits, as bits, after a series of operations.
fn trace(name: &str, gpu: &LoadOptions) -> Vec<u32> {
    let options = gpu
        .clone()
        .max_context(128)
        // Experts are grouped for more than 16 tokens.
        .chunk_tokens(20)
        .sequences(4);
    let mut s = session(&golden(name), &options);
    let mut logits = vec![0.0; s.facts().vocab as usize];
    let mut trace = picks(&mut s, &(3..40).collect::<Vec<_>>(), &sampled(0));
    let mut record = |s: &mut Session, trace: &mut Vec<u32>| {
        trace.extend(s.tokens());
        s.logits(&mut logits).expect("logits are available");
        trace.extend(logits.iter().map(|x| x.to_bits()));
    };
    record(&mut s, &mut trace);
    s.truncate(20);
    trace.extend((0..5).map(|_| s.step(&SAMPLING).expect("a token")));
    record(&mut s, &mut trace);
    s.shift(2, 10);
    s.force(7).expect("prefill succeeds");
    record(&mut s, &mut trace);
    let model = Model::builder(golden(name)).options(options).load();
    let model = model.expect("model loads");
    let mut sessions: Vec<Session> = (0..4).map(|_| Session::new(model.clone())).collect();
    for (i, s) in (0..).zip(&mut sessions) {
        let prompt: Vec<u32> = (5..8 + 9 * i).collect();
        s.prefill(&prompt).expect("prefill succeeds");
    }
    let generation = greedy(12);
    let answers = sessions
        .iter_mut()
        .map(|s| s.generate(&generation).expect("generation succeeds"));
    for mut answer in answers.collect::<Vec<_>>() {
        while answer.next_piece().expect("generation continues").is_some() {}
    }
    sessions.iter().for_each(|s| trace.extend(s.tokens()));
    trace
}

#[test]
fn steps_match_generation() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let expected = picks(&mut s, &prompt, &sampled(0));
    s.reset();
    s.prefill(&prompt).expect("prefill succeeds");
    let steps: Vec<u32> = (0..64)
        .map(|_| s.step(&SAMPLING).expect("a token"))
        .collect();
    assert_eq!(steps, expected);
}

#[test]
fn prefill_in_parts_matches_whole_prompt() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let expected = picks(&mut s, &prompt, &greedy(16));
    s.reset();
    for part in prompt.chunks(5) {
        s.prefill(part).expect("prefill succeeds");
    }
    s.generate_with(&greedy(16), |_| ControlFlow::Continue(()))
        .expect("generation succeeds");
    assert_eq!(&s.tokens()[prompt.len()..], expected);
}

#[test]
fn generation_continues_after_stop() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let expected = picks(&mut s, &prompt, &greedy(40));
    s.reset();
    s.prefill(&prompt).expect("prefill succeeds");
    // Tokens after a stop in the middle of a burst must be discarded.
    let mut seen = 0;
    let options = greedy(40).burst(8);
    let stats = s
        .generate_with(&options, |_| {
            seen += 1;
            if seen == 11 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .expect("generation succeeds");
    assert_eq!((stats.finish, stats.tokens), (Some(Finish::Callback), 11));
    s.generate_with(&greedy(29), |_| ControlFlow::Continue(()))
        .expect("generation succeeds");
    assert_eq!(&s.tokens()[prompt.len()..], expected);
}

/// Stop strings may begin inside a token.
#[test]
fn stop_strings_end_generation_and_are_not_output() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let mut answer = |stop: &[&str]| {
        s.reset();
        s.prefill(&prompt).expect("prefill succeeds");
        let generation = greedy(60).stop(stop.iter().map(ToString::to_string).collect());
        let mut text = String::new();
        let stats = s.generate_with(&generation, |piece| {
            text.push_str(piece.text);
            ControlFlow::Continue(())
        });
        let finish = stats.expect("generation succeeds").finish;
        (text, finish, s.tokens()[prompt.len()..].to_vec())
    };
    let (whole, _, tokens) = answer(&[]);
    for range in [0..1, 3..9, 10..11, 20..45] {
        let stop = &whole[range];
        let end = whole.find(stop).expect("substring");
        let (text, finish, tokens_so_far) = answer(&["no such text", stop]);
        assert_eq!(
            (&*text, finish),
            (&whole[..end], Some(Finish::Stop)),
            "{stop:?}"
        );
        assert!(
            tokens.starts_with(&tokens_so_far) && tokens_so_far.len() < tokens.len(),
            "{stop:?}"
        );
    }
    // A partial stop string is output at the end.
    let last = whole.chars().next_back().expect("text is not empty");
    let (text, finish, _) = answer(&[&format!("{last}{last}{last}")]);
    assert_eq!((&*text, finish), (&*whole, Some(Finish::Length)));
    let mut kind = |stop: Vec<String>| {
        let generation = greedy(1).stop(stop);
        let refused = s.generate_with(&generation, |_| ControlFlow::Continue(()));
        refused.expect_err("out of range").kind()
    };
    for stop in [
        vec![String::new()],
        vec!["x".repeat(1025)],
        vec!["x".to_string(); 65],
    ] {
        assert_eq!(kind(stop), ErrorKind::Argument);
    }
}

#[test]
fn cancellation_ends_generation_and_prefill() {
    let mut s = story(LoadOptions::default().chunk_tokens(4).max_context(2000));
    let prompt = prompt(&s).repeat(100);
    let prompt = &prompt[..1000];
    let cancel = s.canceller();
    let error = s
        .prefill_with(prompt, |_, _| cancel.cancel())
        .expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let done = s.tokens().len();
    assert!(
        (4..1000).contains(&done) && done.is_multiple_of(4),
        "{done}: completed chunks are kept"
    );
    assert_eq!(s.tokens(), &prompt[..done]);
    // A progress report of a later chunk may have cancelled again.
    s.clear_cancel();
    s.prefill(&prompt[done..]).expect("generation continues");
    let stats = s
        .generate_with(&greedy(900), |_| {
            cancel.cancel();
            ControlFlow::Continue(())
        })
        .expect("cancelled generation succeeds");
    assert_eq!(stats.finish, Some(Finish::Cancelled));
    assert!(stats.tokens < 900);
}

#[test]
fn cancellation_is_pending_until_handled_or_cleared() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let cancel = s.canceller();
    // The cancellation arrives during the last chunk, so the next generation must not start.
    s.prefill_with(&prompt, |_, _| cancel.cancel())
        .expect("prefill succeeds");
    let stats = s
        .generate_with(&greedy(8), |_| ControlFlow::Continue(()))
        .expect("cancelled generation succeeds");
    assert_eq!((stats.finish, stats.tokens), (Some(Finish::Cancelled), 0));
    cancel.cancel();
    s.clear_cancel();
    let stats = s
        .generate_with(&greedy(8), |_| ControlFlow::Continue(()))
        .expect("generation succeeds");
    assert_eq!((stats.finish, stats.tokens), (Some(Finish::Length), 8));
}

#[test]
fn temperature_near_zero_is_greedy() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let expected = picks(&mut s, &prompt, &greedy(16));
    let sampling = Sampling::default().temperature(1e-40);
    let options = greedy(16).sampling(sampling);
    assert_eq!(picks(&mut s, &prompt, &options), expected);
}

#[test]
fn context_limits_prefill_and_generation() {
    let mut s = story(LoadOptions::default().max_context(24));
    let prompt: Vec<u32> = prompt(&s)[..20].to_vec();
    s.prefill(&prompt).expect("prefill succeeds");
    let error = s.prefill(&[5; 5]).expect_err("25 tokens");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(s.tokens(), prompt, "failed prefill changed the sequence");
    let stats = s
        .generate_with(&greedy(100), |_| ControlFlow::Continue(()))
        .expect("generation succeeds");
    // 24 positions hold 24 tokens, and the 25th is sampled from the logits of the last one.
    assert_eq!((stats.finish, stats.tokens), (Some(Finish::Context), 5));
    let error = s.step(&Sampling::GREEDY).expect_err("full");
    assert_eq!(error.kind(), ErrorKind::State);
}

#[test]
fn stop_token_ends_generation() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let options = GenerateOptions::default()
        .sampling(Sampling::GREEDY)
        .max_tokens(450);
    s.prefill(&prompt).expect("prefill succeeds");
    let mut text = String::new();
    let stats = s
        .generate_with(&options, |piece| {
            text.push_str(piece.text);
            ControlFlow::Continue(())
        })
        .expect("generation succeeds");
    assert_eq!(stats.finish, Some(Finish::Stop), "no stop token: {text}");
    let last = *s.tokens().last().expect("a token");
    assert!(s.tokenizer().stops().contains(&last));
    assert!(!text.contains("<|"), "stop token in the text: {text}");
}

#[test]
fn rejects_invalid_arguments() {
    let mut s = story(LoadOptions::default());
    let kind = |e: tabla::Error| e.kind();
    assert_eq!(
        s.step(&Sampling::GREEDY).map_err(kind),
        Err(ErrorKind::State)
    );
    assert_eq!(
        s.prefill(&[u32::MAX]).map_err(kind),
        Err(ErrorKind::Argument)
    );
    assert_eq!(s.prefill(&[]).map_err(kind), Err(ErrorKind::State));
    s.prefill(&[1]).expect("a token");
    for bad in [
        SAMPLING.temperature(f32::NAN),
        SAMPLING.temperature(-1.0),
        SAMPLING.top_p(1.5),
        SAMPLING.min_p(-0.1),
        SAMPLING.repetition_penalty(0.0),
        SAMPLING.repeat_last_n(5000),
    ] {
        assert_eq!(
            s.step(&bad).map_err(kind),
            Err(ErrorKind::Argument),
            "{bad:?}"
        );
    }
    assert_eq!(
        s.logits(&mut [0.0; 3]).map_err(kind),
        Err(ErrorKind::Argument)
    );
    assert_eq!(
        s.logits_all(&mut [0.0; 3]).map_err(kind),
        Err(ErrorKind::Argument)
    );
}

/// The sum of command times is at most the time of the replay, and every command is timed.
#[test]
fn times_every_command() {
    let with = |threads| {
        LoadOptions::default()
            .device(DeviceChoice::Cpu)
            .threads(threads)
    };
    for options in [1, 3].map(with).into_iter().chain(replays()) {
        let model = Model::builder(Source::BuiltIn).options(options).load();
        let mut s = Session::new(model.expect("model loads"));
        let prompt = prompt(&s);
        s.prefill(&prompt).expect("prefill succeeds");
        let begun = Instant::now();
        s.time_commands().expect("commands can be timed");
        let stats = s
            .generate_with(&sampled(0).max_tokens(16), |_| ControlFlow::Continue(()))
            .expect("generation succeeds");
        s.end_timing().expect("model is running");
        s.step(&SAMPLING).expect("step succeeds");

        for (table, timings) in s.command_timings().expect("model is running") {
            assert_eq!(timings.len(), table.cmds.len(), "{}", table.name);
            for (at, timing) in timings.iter().enumerate() {
                // The first token is sampled from the logits of the prefill.
                let passes = match (table.name, table.stage_of(at)) {
                    ("step", None) if table.tokens == 1 => stats.tokens - 1,
                    ("step", Some(SamplingStage::Sampled)) if table.tokens == 1 => stats.tokens,
                    _ => 0,
                };
                assert_eq!(timing.runs, passes, "{} {at}", table.name);
            }
            let all: Duration = timings.iter().map(|timing| timing.took).sum();
            assert!(all <= stats.took, "{all:?} of {:?}", stats.took);
            let ran = table.name == "step" && table.tokens == 1;
            assert_eq!(all > Duration::ZERO, ran);
            let timings = timings.iter().filter(|timing| timing.runs > 0);
            let timings: Vec<_> = timings.collect();
            for pair in timings.windows(2) {
                assert!(pair[0].begun <= pair[1].begun, "commands are in order");
            }
            assert!(timings.iter().all(|timing| timing.begun <= begun.elapsed()));
        }
    }
}
