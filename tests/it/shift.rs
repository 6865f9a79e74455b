//! Sessions that move up or go back: what they answer is what a fresh session answers.

use crate::common::{devices, golden, greedy, picks, session, story, worst};
use std::path::PathBuf;
use tabla::text::EncodeOptions;
use tabla::{
    ErrorKind, Finish, Flow, GenerateOptions, LoadOptions, Overflow, Precision, Sampling, Session,
};

/// Positions: all of them lie in one page, `pages` has contexts of several.
const CONTEXT: u32 = 40;
const CHUNK: u32 = 4;

/// Without a window, with windows and a cache that layers share, with experts, with ternary weights.
const MODELS: [&str; 5] = ["llama", "gemma3", "gemma4", "qwen3moe", "bitnet"];

const SAMPLED: Sampling = Sampling {
    temperature: 1.0,
    top_k: 60,
    top_p: 0.95,
    min_p: 0.0,
    repeat_penalty: 1.2,
    repeat_last: 24,
    seed: 3,
    ..Sampling::GREEDY
};

fn model(name: &str) -> PathBuf {
    golden("arch").join(name).join("model.gguf")
}

fn small(options: LoadOptions) -> LoadOptions {
    LoadOptions {
        context: CONTEXT,
        chunk_tokens: CHUNK,
        ..options
    }
}

fn shifting(sampling: Sampling, max_tokens: u32, keep: u32) -> GenerateOptions {
    GenerateOptions {
        sampling,
        overflow: Overflow::Shift { keep },
        ..greedy(max_tokens)
    }
}

/// Tokens of no meaning, all of the goldens' vocabularies.
fn text(length: u32) -> Vec<u32> {
    (0..length).map(|i| 5 + i * 37 % 200).collect()
}

/// What a session picks that begins anew with what is left whenever the context is full.
fn begun_anew(s: &mut Session, prompt: &[u32], options: &GenerateOptions, keep: usize) -> Vec<u32> {
    let context = CONTEXT as usize;
    let (mut tokens, mut picked) = (prompt.to_vec(), Vec::new());
    let total = options.max_tokens as usize;
    while picked.len() < total {
        if tokens.len() > context {
            let keep = keep.min(context / 2);
            tokens.drain(keep..keep + (context - keep).div_ceil(2));
        }
        let room = (context + 1 - tokens.len()).min(total - picked.len());
        let part = GenerateOptions {
            max_tokens: u32::try_from(room).expect("a context"),
            overflow: Overflow::Stop,
            ..options.clone()
        };
        let found = picks(s, &tokens, &part);
        assert_eq!(found.len(), room);
        tokens.extend(&found);
        picked.extend(found);
    }
    picked
}

/// What a session picks that shifts, as its callback hears it.
fn shifted(s: &mut Session, prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
    let mut heard = Vec::new();
    s.reset();
    s.prefill(prompt, &mut |_, _| {}).expect("the prompt fits");
    let stats = s
        .generate(options, &mut |piece| {
            heard.push(piece.token);
            Flow::Continue
        })
        .expect("it generates");
    assert_eq!(stats.finish, Finish::Length);
    assert_eq!(stats.tokens, options.max_tokens);
    // The last token may come twice, with what is left of a character.
    heard.truncate(options.max_tokens as usize);
    heard
}

/// The logits after the sequence.
fn logits(s: &mut Session) -> Vec<f32> {
    let mut out = vec![0.0; s.facts().vocab as usize];
    s.logits(&mut out).expect("there is a sequence");
    out
}

/// The logits of a session that begins with `tokens`.
fn fresh_logits(fresh: &mut Session, tokens: &[u32]) -> Vec<f32> {
    fresh.reset();
    fresh.prefill(tokens, &mut |_, _| {}).expect("they fit");
    logits(fresh)
}

/// Prompts of few tokens and of a full context; the front that stays in the prompt or beyond it.
fn check_shift(name: &str) {
    for (device, options) in devices(Precision::Exact) {
        let options = small(options);
        let mut s = session(&model(name), &options);
        let mut other = session(&model(name), &options);
        for (length, keep, sampling) in [
            (8, 0, Sampling::GREEDY),
            (30, 12, SAMPLED),
            (3, 9, Sampling::GREEDY),
            (CONTEXT, 1000, SAMPLED),
        ] {
            let what = format!("{name} on {device}: {length} tokens, keep {keep}");
            let generate = shifting(sampling, 64, keep);
            let prompt = text(length);
            let wanted = begun_anew(&mut other, &prompt, &generate, keep as usize);
            assert_eq!(shifted(&mut s, &prompt, &generate), wanted, "{what}");
            assert!(s.tokens().len() <= CONTEXT as usize + 1, "{what}");
        }
    }
}

#[test]
fn a_shift_answers_as_a_fresh_session() {
    for name in MODELS {
        check_shift(name);
    }
}

#[test]
fn a_shift_gives_the_same_bits() {
    for name in MODELS {
        for (device, options) in devices(Precision::Exact) {
            let options = small(options);
            let mut s = session(&model(name), &options);
            let mut fresh = session(&model(name), &options);
            for (keep, count) in [(0, 7), (6, 1), (6, 20), (39, 1), (0, 39)] {
                s.reset();
                s.prefill(&text(CONTEXT), &mut |_, _| {}).expect("it fits");
                s.shift(keep, count);
                let mut rest = text(CONTEXT);
                rest.drain(keep..keep + count);
                assert_eq!(s.tokens(), rest);
                let wanted = fresh_logits(&mut fresh, &rest);
                assert_eq!(
                    logits(&mut s),
                    wanted,
                    "{name} on {device}: {keep}, {count}"
                );
            }
        }
    }
}

#[test]
fn the_smallest_contexts_shift() {
    for context in [1, 2, 3] {
        let (_, options) = devices(Precision::Exact).remove(0);
        let options = LoadOptions { context, ..options };
        let mut s = session(&model("gemma3"), &options);
        for keep in [0, 1, 5] {
            s.reset();
            s.prefill(&[7], &mut |_, _| {}).expect("it fits");
            let stats = s
                .generate(&shifting(SAMPLED, 12, keep), &mut |_| Flow::Continue)
                .expect("it generates");
            assert_eq!((stats.finish, stats.tokens), (Finish::Length, 12));
        }
    }
}

#[test]
fn a_callback_that_ends_a_shifted_answer_is_counted_right() {
    let (_, options) = devices(Precision::Exact).remove(0);
    let mut s = session(&model("llama"), &small(options));
    s.prefill(&text(CONTEXT), &mut |_, _| {}).expect("it fits");
    for stop in [1, 2, 3, 30] {
        let mut heard = 0;
        let stats = s
            .generate(&shifting(Sampling::GREEDY, 64, 0), &mut |_| {
                heard += 1;
                if heard == stop {
                    Flow::Stop
                } else {
                    Flow::Continue
                }
            })
            .expect("it generates");
        assert_eq!((stats.finish, stats.tokens), (Finish::Callback, stop));
    }
}

/// Numbers of no pattern, the same ones for a seed: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n).expect("small")
    }

    fn tokens(&mut self, n: usize) -> Vec<u32> {
        (0..n)
            .map(|_| u32::try_from(3 + self.below(200)).expect("small"))
            .collect()
    }
}

/// Generates, and ends some of it before its time: chains are under way then.
fn generate(s: &mut Session, random: &mut Random) -> String {
    let [count, keep, chain, end] =
        [(); 4].map(|()| u32::try_from(random.below(30)).expect("small"));
    let options = GenerateOptions {
        chain,
        ..shifting(SAMPLED, 1 + count, keep)
    };
    let (cancel, mut heard) = (s.canceller(), 0);
    let stats = s.generate(&options, &mut |_| {
        heard += 1;
        match heard == end {
            true if end % 2 == 0 => cancel.cancel(),
            true => return Flow::Stop,
            false => {}
        }
        Flow::Continue
    });
    s.forget_cancel();
    // Half a character at the end is heard once more.
    let picked = stats.expect("it generates").tokens;
    assert!(heard == picked || heard == picked + 1);
    format!("generate {count} by {chain}, keep {keep}, end behind {end}")
}

/// One thing that a session can be asked for; in words.
fn operate(s: &mut Session, random: &mut Random) -> String {
    let length = s.tokens().len();
    let room = CONTEXT as usize - length.min(CONTEXT as usize);
    match random.below(9) {
        0 | 1 if room > 0 => {
            let count = 1 + random.below(room as u64);
            s.prefill(&random.tokens(count), &mut |_, _| {})
                .expect("they fit");
            format!("prefill {count}")
        }
        2 if room > 0 => {
            let tokens = random.tokens(room);
            let (cancel, at) = (s.canceller(), random.below(room as u64));
            let result = s.prefill(&tokens, &mut |done, _| {
                if done > at {
                    cancel.cancel();
                }
            });
            s.forget_cancel();
            // What had stood there before stays, and so do the chunks that were done.
            assert!(s.tokens().len() >= length);
            assert_eq!(&s.tokens()[length..], &tokens[..s.tokens().len() - length]);
            format!("prefill {room}, cancelled behind {at}: {result:?}")
        }
        3 if length > 0 => {
            let keep = 1 + random.below(length as u64);
            s.truncate(keep);
            format!("truncate {keep}")
        }
        4 if length > 1 => {
            let keep = random.below(length as u64);
            let count = random.below(length as u64).min(length - 1);
            s.shift(keep, count);
            format!("shift {keep} {count}")
        }
        5 if length > 0 && room > 0 => {
            s.draw(&SAMPLED).expect("a token");
            "draw".into()
        }
        6 if length > 0 && room > 0 => {
            s.force(9).expect("a token");
            "force".into()
        }
        7 if length > 0 => {
            let mut out = vec![0.0; length * s.facts().vocab as usize];
            if length <= CONTEXT as usize {
                s.logits_all(&mut out).expect("the room is right");
            }
            "score".into()
        }
        _ if length > 0 => generate(s, random),
        _ => String::new(),
    }
}

#[test]
fn whatever_a_session_went_through_it_answers_as_a_fresh_one() {
    for name in MODELS {
        for (device, options) in devices(Precision::Exact) {
            // Tight rings, and some with room to step back in.
            for chunk_tokens in [2, 16] {
                let options = LoadOptions {
                    chunk_tokens,
                    ..small(options.clone())
                };
                let mut s = session(&model(name), &options);
                let mut fresh = session(&model(name), &options);
                let mut random = Random(0x5eed + u64::from(chunk_tokens));
                let mut history = Vec::new();
                for _ in 0..40 {
                    history.push(operate(&mut s, &mut random));
                    if s.tokens().len() > CONTEXT as usize {
                        s.truncate(CONTEXT as usize);
                    }
                    // A look at the logits feeds what is missing: not always, then.
                    if s.tokens().is_empty() || random.below(2) == 0 {
                        continue;
                    }
                    let tokens = s.tokens().to_vec();
                    let wanted = fresh_logits(&mut fresh, &tokens);
                    let (at, difference) = worst(&logits(&mut s), &wanted);
                    // One token's products may have another order than a pass of several.
                    assert!(
                        difference <= 1e-4,
                        "{name} on {device}, chunks of {chunk_tokens}: {difference} at {at}: \
                         {history:#?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_cancel_in_the_middle_of_a_shift_loses_nothing() {
    for name in ["llama", "gemma3"] {
        let (_, options) = devices(Precision::Exact).remove(0);
        let options = small(options);
        let mut s = session(&model(name), &options);
        let mut fresh = session(&model(name), &options);
        s.prefill(&text(CONTEXT), &mut |_, _| {}).expect("it fits");
        s.shift(2, 9);
        let mut rest = text(CONTEXT);
        rest.drain(2..11);
        // Told of a chunk, it asks for no more: the model may be at a later one by then.
        let (cancel, asked) = (s.canceller(), [11, 12, 13]);
        let done = s.prefill(&asked, &mut |_, _| cancel.cancel());
        let kept = s.tokens().len() - rest.len();
        match done {
            Ok(()) => assert_eq!(kept, asked.len()),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Cancelled),
        }
        s.forget_cancel();
        assert_eq!(
            s.tokens(),
            [&rest, &asked[..kept]].concat(),
            "what had stood there stays, and the chunks that were done"
        );
        s.truncate(rest.len());
        assert_eq!(logits(&mut s), fresh_logits(&mut fresh, &rest), "{name}");

        // From another thread, at any time.
        s.reset();
        s.prefill(&text(20), &mut |_, _| {}).expect("it fits");
        let cancel = s.canceller();
        let (mut cancelled, mut picked) = (0, 0);
        std::thread::scope(|scope| {
            let (done, told) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                use std::sync::mpsc::TryRecvError;
                while told.try_recv() == Err(TryRecvError::Empty) {
                    cancel.cancel();
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            for _ in 0..200 {
                let before = s.tokens().to_vec();
                let mut heard = Vec::new();
                let stats = s
                    .generate(&shifting(SAMPLED, 50, 4), &mut |piece| {
                        heard.push(piece.token);
                        Flow::Continue
                    })
                    .expect("a cancelled generation is no error");
                heard.truncate(stats.tokens as usize);
                assert!(heard.len() < 50 || stats.finish == Finish::Length);
                cancelled += u32::from(stats.finish == Finish::Cancelled);
                picked += heard.len();
                // Whatever was forgotten was so by whole shifts: the end is what was heard.
                let all: Vec<u32> = before.iter().chain(&heard).copied().collect();
                let tail = s.tokens().len().min(all.len()) - 4;
                assert_eq!(
                    s.tokens()[s.tokens().len() - tail..],
                    all[all.len() - tail..]
                );
            }
            drop(done);
        });
        s.forget_cancel();
        assert!(cancelled > 0 && picked > 0, "{cancelled} {picked}");
        s.truncate(CONTEXT as usize);
        let tokens = s.tokens().to_vec();
        let (_, difference) = worst(&logits(&mut s), &fresh_logits(&mut fresh, &tokens));
        assert!(difference <= 1e-4, "{name}: {difference}");
    }
}

#[test]
fn encoders_have_nothing_to_shift() {
    let (_, options) = devices(Precision::Exact).remove(0);
    let mut s = session(&model("bert"), &options);
    let kind = |e: tabla::Error| e.kind();
    let refused = s.prefill(&[5, 6, 7], &mut |_, _| {});
    assert_eq!(refused.map_err(kind), Err(ErrorKind::State));
    let generate = shifting(Sampling::GREEDY, 4, 0);
    let refused = s.generate(&generate, &mut |_| Flow::Continue);
    assert_eq!(refused.map(|_| ()).map_err(kind), Err(ErrorKind::State));
    s.shift(0, 10);
    s.truncate(3);
    assert!(s.tokens().is_empty());
}

/// What begins texts stays, even where nothing is asked to.
#[test]
fn the_beginning_of_a_text_stays() {
    let told = |keep| {
        let mut s = story(small(LoadOptions::default()));
        let text = "Once upon a time, there was a little fox";
        let prompt = s
            .tokenizer()
            .encode(text, EncodeOptions::PROMPT)
            .expect("text");
        assert_eq!(prompt.first().copied(), s.tokenizer().bos());
        s.prefill(&prompt, &mut |_, _| {}).expect("it fits");
        let stats = s.generate(&shifting(Sampling::GREEDY, 80, keep), &mut |_| {
            Flow::Continue
        });
        assert_eq!(
            stats.expect("it generates").tokens,
            80,
            "more than the context"
        );
        s.tokens().to_vec()
    };
    let begins = story(LoadOptions::default()).tokenizer().bos();
    assert_eq!(told(0).first().copied(), begins);
    assert_eq!(told(0), told(1));
    assert_ne!(told(0), told(6));
}
