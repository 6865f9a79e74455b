//! The same answer: seeds, threads, chains, chunks; cancellation and limits.

use crate::common::{golden, greedy, picks, replays, session, story};
use std::time::{Duration, Instant};
use tabla::op::table::SamplingStage;
use tabla::text::EncodeOptions;
use tabla::{
    DeviceChoice, ErrorKind, Finish, Flow, GenerateOptions, LoadOptions, Precision, Sampling,
    Session, Source,
};

const SAMPLING: Sampling = Sampling {
    temperature: 0.9,
    top_k: 50,
    top_p: 0.95,
    min_p: 0.01,
    repeat_penalty: 1.1,
    repeat_last: 32,
    seed: 7,
    ..Sampling::GREEDY
};

fn sampled(chain: u32) -> GenerateOptions {
    GenerateOptions {
        sampling: SAMPLING,
        max_tokens: 64,
        chain,
        ignore_stops: true,
        ..GenerateOptions::default()
    }
}

fn prompt(s: &Session) -> Vec<u32> {
    let text = "Once upon a time, there was a little fox who wished for a red kite. One day, the \
                fox met an old owl in the forest and asked for help.";
    s.tokenizer()
        .encode(text, EncodeOptions::PROMPT)
        .expect("text")
}

#[test]
fn a_seed_gives_the_same_tokens_again() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let first = picks(&mut s, &prompt, &sampled(0));
    assert_eq!(first.len(), 64);
    for run in 1..20 {
        assert_eq!(picks(&mut s, &prompt, &sampled(0)), first, "run {run}");
    }
    let sampling = Sampling {
        seed: 8,
        ..SAMPLING
    };
    assert_ne!(
        picks(
            &mut s,
            &prompt,
            &GenerateOptions {
                sampling,
                ..sampled(0)
            }
        ),
        first
    );
}

#[test]
fn threads_chains_and_chunks_change_nothing() {
    for precision in [Precision::Fast, Precision::Exact] {
        let reference = |options| {
            let mut s = story(options);
            let prompt = prompt(&s);
            [sampled(0), greedy(64)].map(|how| picks(&mut s, &prompt, &how))
        };
        let base = LoadOptions {
            precision,
            threads: 1,
            ..LoadOptions::default()
        };
        let first = reference(base.clone());
        for threads in [2, 3] {
            let options = LoadOptions {
                threads,
                ..base.clone()
            };
            assert_eq!(
                reference(options),
                first,
                "{precision:?}: {threads} threads"
            );
        }
        for chunk_tokens in [1, 2, 3, 7, 32, 500] {
            let options = LoadOptions {
                chunk_tokens,
                ..base.clone()
            };
            assert_eq!(
                reference(options),
                first,
                "{precision:?}: chunks of {chunk_tokens}"
            );
        }
        let mut s = story(base);
        let prompt = prompt(&s);
        for chain in [1, 4, 32] {
            let again = picks(&mut s, &prompt, &sampled(chain));
            assert_eq!(again, first[0], "{precision:?}: chains of {chain}");
        }
    }
}

#[test]
fn chains_and_chunks_change_nothing_on_a_gpu() {
    let run = |options: LoadOptions, chain| {
        let mut s = session(&golden("quant_q8_0.gguf"), &options);
        let prompt: Vec<u32> = (3..40).collect();
        picks(&mut s, &prompt, &sampled(chain))
    };
    let replays = replays();
    let first = replays.first().map(|gpu| run(gpu.clone(), 1));
    for gpu in replays {
        let (first, replay) = (first.as_ref().expect("there is one"), gpu.replay);
        for chain in [1, 4, 32] {
            let found = run(gpu.clone(), chain);
            assert_eq!(&found, first, "{replay:?}: chains of {chain}");
        }
        for chunk_tokens in [1, 2, 3, 7, 32] {
            let options = LoadOptions {
                chunk_tokens,
                ..gpu.clone()
            };
            let found = run(options, 4);
            assert_eq!(&found, first, "{replay:?}: chunks of {chunk_tokens}");
        }
    }
}

/// Prompts, chains, single steps, rewound and shifted sequences, several sequences at once.
#[test]
fn encoded_and_recorded_replay_leave_the_same_bits() {
    for name in [
        "quant_q4_0.gguf",
        "arch/gemma2/model.gguf",
        "arch/qwen3moe/model.gguf",
    ] {
        let all: Vec<_> = replays()
            .iter()
            .map(|gpu| (gpu.replay, trail(name, gpu)))
            .collect();
        for (replay, trail) in &all {
            assert!(trail == &all[0].1, "{name}: {replay:?}");
        }
    }
}

/// Tokens and logits, as bits, on a way through everything that a session and a batch do.
fn trail(name: &str, gpu: &LoadOptions) -> Vec<u32> {
    let options = LoadOptions {
        context: 128,
        // Experts are grouped where tokens are over 16.
        chunk_tokens: 20,
        sequences: 4,
        ..gpu.clone()
    };
    let mut s = session(&golden(name), &options);
    let mut logits = vec![0.0; s.facts().vocab as usize];
    let mut trail = picks(&mut s, &(3..40).collect::<Vec<_>>(), &sampled(0));
    let mut note = |s: &mut Session, trail: &mut Vec<u32>| {
        trail.extend(s.tokens());
        s.logits(&mut logits).expect("a sequence");
        trail.extend(logits.iter().map(|x| x.to_bits()));
    };
    note(&mut s, &mut trail);
    s.truncate(20);
    trail.extend((0..5).map(|_| s.step(&SAMPLING).expect("a token")));
    note(&mut s, &mut trail);
    s.shift(2, 10);
    s.force(7).expect("it fits");
    note(&mut s, &mut trail);
    let model = tabla::load(&Source::Path(golden(name)), &options, &mut |_| {});
    let model = model.expect("it loads");
    let mut sessions: Vec<Session> = (0..4).map(|_| Session::new(model.clone())).collect();
    for (i, s) in (0..).zip(&mut sessions) {
        let prompt: Vec<u32> = (5..8 + 9 * i).collect();
        s.prefill(&prompt, &mut |_, _| {}).expect("it fits");
    }
    let how = greedy(12);
    let answers = sessions
        .iter_mut()
        .map(|s| s.answer(&how).expect("it generates"));
    for mut answer in answers.collect::<Vec<_>>() {
        while answer.next().expect("it goes on").is_some() {}
    }
    sessions.iter().for_each(|s| trail.extend(s.tokens()));
    trail
}

#[test]
fn steps_are_a_generation() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let wanted = picks(&mut s, &prompt, &sampled(0));
    s.reset();
    s.prefill(&prompt, &mut |_, _| {}).expect("it fits");
    let steps: Vec<u32> = (0..64)
        .map(|_| s.step(&SAMPLING).expect("a token"))
        .collect();
    assert_eq!(steps, wanted);
}

#[test]
fn a_prompt_in_parts_is_the_prompt() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let wanted = picks(&mut s, &prompt, &greedy(16));
    s.reset();
    for part in prompt.chunks(5) {
        s.prefill(part, &mut |_, _| {}).expect("it fits");
    }
    s.generate(&greedy(16), &mut |_| Flow::Continue)
        .expect("it generates");
    assert_eq!(&s.tokens()[prompt.len()..], wanted);
}

#[test]
fn generation_goes_on_where_it_stopped() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let wanted = picks(&mut s, &prompt, &greedy(40));
    s.reset();
    s.prefill(&prompt, &mut |_, _| {}).expect("it fits");
    // A callback that stops in the middle of a chain must leave no trace of the rest.
    let mut seen = 0;
    let options = GenerateOptions {
        chain: 8,
        ..greedy(40)
    };
    let stats = s
        .generate(&options, &mut |_| {
            seen += 1;
            if seen == 11 {
                Flow::Stop
            } else {
                Flow::Continue
            }
        })
        .expect("it generates");
    assert_eq!((stats.finish, stats.tokens), (Finish::Callback, 11));
    s.generate(&greedy(29), &mut |_| Flow::Continue)
        .expect("it generates");
    assert_eq!(&s.tokens()[prompt.len()..], wanted);
}

/// Wherever tokens end, and the answer ends with the token that completes it.
#[test]
fn stop_strings_end_an_answer_and_stay_out_of_it() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let mut answer = |stop: &[&str]| {
        s.reset();
        s.prefill(&prompt, &mut |_, _| {}).expect("it fits");
        let how = GenerateOptions {
            stop: stop.iter().map(ToString::to_string).collect(),
            ..greedy(60)
        };
        let mut text = String::new();
        let stats = s.generate(&how, &mut |piece| {
            text.push_str(piece.text);
            Flow::Continue
        });
        let finish = stats.expect("it generates").finish;
        (text, finish, s.tokens()[prompt.len()..].to_vec())
    };
    let (whole, _, tokens) = answer(&[]);
    for range in [0..1, 3..9, 10..11, 20..45] {
        let stop = &whole[range];
        let end = whole.find(stop).expect("it is of it");
        let (text, finish, picked) = answer(&["no such text", stop]);
        assert_eq!((&*text, finish), (&whole[..end], Finish::Stop), "{stop:?}");
        assert!(
            tokens.starts_with(&picked) && picked.len() < tokens.len(),
            "{stop:?}"
        );
    }
    // What may begin one comes out at the end.
    let last = whole.chars().next_back().expect("it has text");
    let (text, finish, _) = answer(&[&format!("{last}{last}{last}")]);
    assert_eq!((&*text, finish), (&*whole, Finish::Length));
    let mut kind = |stop: Vec<String>| {
        let how = GenerateOptions { stop, ..greedy(1) };
        let refused = s.generate(&how, &mut |_| Flow::Continue);
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
    let mut s = story(LoadOptions {
        chunk_tokens: 4,
        context: 2000,
        ..LoadOptions::default()
    });
    let prompt = prompt(&s).repeat(100);
    let prompt = &prompt[..1000];
    let cancel = s.canceller();
    let error = s
        .prefill(prompt, &mut |_, _| cancel.cancel())
        .expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let done = s.tokens().len();
    assert!(
        (4..1000).contains(&done) && done.is_multiple_of(4),
        "{done}: chunks that were done stay"
    );
    assert_eq!(s.tokens(), &prompt[..done]);
    // News of a later chunk may have come behind the end, and asked once more.
    s.forget_cancel();
    s.prefill(&prompt[done..], &mut |_, _| {})
        .expect("it goes on");
    let stats = s
        .generate(&greedy(900), &mut |_| {
            cancel.cancel();
            Flow::Continue
        })
        .expect("a cancelled generation is no error");
    assert_eq!(stats.finish, Finish::Cancelled);
    assert!(stats.tokens < 900);
}

#[test]
fn a_cancel_waits_until_it_is_heeded_or_forgotten() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let cancel = s.canceller();
    // It comes while the last chunk runs: the answer behind it must not begin.
    s.prefill(&prompt, &mut |_, _| cancel.cancel())
        .expect("the last chunk ends");
    let stats = s
        .generate(&greedy(8), &mut |_| Flow::Continue)
        .expect("a cancelled generation is no error");
    assert_eq!((stats.finish, stats.tokens), (Finish::Cancelled, 0));
    cancel.cancel();
    s.forget_cancel();
    let stats = s
        .generate(&greedy(8), &mut |_| Flow::Continue)
        .expect("it generates");
    assert_eq!((stats.finish, stats.tokens), (Finish::Length, 8));
}

#[test]
fn a_temperature_near_zero_is_greedy() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let wanted = picks(&mut s, &prompt, &greedy(16));
    let sampling = Sampling {
        temperature: 1e-40,
        ..Sampling::default()
    };
    let options = GenerateOptions {
        sampling,
        ..greedy(16)
    };
    assert_eq!(picks(&mut s, &prompt, &options), wanted);
}

#[test]
fn the_context_is_a_limit() {
    let mut s = story(LoadOptions {
        context: 24,
        ..LoadOptions::default()
    });
    let prompt: Vec<u32> = prompt(&s)[..20].to_vec();
    s.prefill(&prompt, &mut |_, _| {}).expect("it fits");
    let error = s.prefill(&[5; 5], &mut |_, _| {}).expect_err("25 tokens");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(s.tokens(), prompt, "nothing is appended");
    let stats = s
        .generate(&greedy(100), &mut |_| Flow::Continue)
        .expect("it generates");
    // 24 positions feed 24 tokens, and the 25th is picked from the last one's logits.
    assert_eq!((stats.finish, stats.tokens), (Finish::Context, 5));
    let error = s.step(&Sampling::GREEDY).expect_err("full");
    assert_eq!(error.kind(), ErrorKind::State);
}

#[test]
fn a_stop_token_ends_the_answer() {
    let mut s = story(LoadOptions::default());
    let prompt = prompt(&s);
    let options = GenerateOptions {
        sampling: Sampling::GREEDY,
        max_tokens: 450,
        ..GenerateOptions::default()
    };
    s.prefill(&prompt, &mut |_, _| {}).expect("it fits");
    let mut text = String::new();
    let stats = s
        .generate(&options, &mut |piece| {
            text.push_str(piece.text);
            Flow::Continue
        })
        .expect("it generates");
    assert_eq!(stats.finish, Finish::Stop, "a story ends: {text}");
    let last = *s.tokens().last().expect("a token");
    assert!(s.tokenizer().stops().contains(&last));
    assert!(!text.contains("<|"), "the stop token is no text: {text}");
}

#[test]
fn bad_arguments_are_errors() {
    let mut s = story(LoadOptions::default());
    let kind = |e: tabla::Error| e.kind();
    assert_eq!(
        s.step(&Sampling::GREEDY).map_err(kind),
        Err(ErrorKind::State)
    );
    assert_eq!(
        s.prefill(&[u32::MAX], &mut |_, _| {}).map_err(kind),
        Err(ErrorKind::Argument)
    );
    assert_eq!(
        s.prefill(&[], &mut |_, _| {}).map_err(kind),
        Err(ErrorKind::State)
    );
    s.prefill(&[1], &mut |_, _| {}).expect("a token");
    for bad in [
        Sampling {
            temperature: f32::NAN,
            ..SAMPLING
        },
        Sampling {
            temperature: -1.0,
            ..SAMPLING
        },
        Sampling {
            top_p: 1.5,
            ..SAMPLING
        },
        Sampling {
            min_p: -0.1,
            ..SAMPLING
        },
        Sampling {
            repeat_penalty: 0.0,
            ..SAMPLING
        },
        Sampling {
            repeat_last: 5000,
            ..SAMPLING
        },
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

/// The commands of one replay take no longer together than the replay, and nothing is left out.
#[test]
fn every_command_is_timed() {
    let with = |threads| LoadOptions {
        device: DeviceChoice::Cpu,
        threads,
        ..LoadOptions::default()
    };
    for options in [1, 3].map(with).into_iter().chain(replays()) {
        let model = tabla::load(&Source::BuiltIn, &options, &mut |_| {});
        let mut s = Session::new(model.expect("it loads"));
        let prompt = prompt(&s);
        s.prefill(&prompt, &mut |_, _| {}).expect("it fits");
        s.time_commands().expect("there is a clock");
        let begun = Instant::now();
        let stats = s
            .generate(&sampled(0), &mut |_| Flow::Continue)
            .expect("it generates");
        s.end_timing().expect("it runs");
        s.step(&SAMPLING).expect("there is room");

        for (table, laps) in s.laps().expect("it runs") {
            assert_eq!(laps.len(), table.cmds.len(), "{}", table.name);
            for (at, lap) in laps.iter().enumerate() {
                // The first pick needs no pass: prefilling left its logits.
                let passes = match (table.name, table.tail_of(at)) {
                    ("step", None) if table.tokens == 1 => stats.tokens - 1,
                    ("step", Some(SamplingStage::Sampled)) if table.tokens == 1 => stats.tokens,
                    _ => 0,
                };
                assert_eq!(lap.runs, passes, "{} {at}", table.name);
            }
            let all: Duration = laps.iter().map(|lap| lap.took).sum();
            assert!(all <= stats.took, "{all:?} of {:?}", stats.took);
            let ran = table.name == "step" && table.tokens == 1;
            assert_eq!(all > Duration::ZERO, ran);
            let laps = laps.iter().filter(|lap| lap.runs > 0);
            let laps: Vec<_> = laps.collect();
            for pair in laps.windows(2) {
                assert!(pair[0].begun <= pair[1].begun, "one after the other");
            }
            assert!(laps.iter().all(|lap| lap.begun <= begun.elapsed()));
        }
    }
}
