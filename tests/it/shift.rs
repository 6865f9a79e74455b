//! Context shifts and truncations: results match a fresh session.

use crate::common::{
    devices, devices_for, exhaustive, golden, greedy, is_gpu_slow, picks, session, story, worst,
};
use std::ops::ControlFlow;
use std::path::PathBuf;
use tabla::device::Precision;
use tabla::load::LoadOptions;
use tabla::text::EncodeOptions;
use tabla::{ErrorKind, Finish, GenerateOptions, Overflow, Sampling, Session};

/// Context length, within one page. `kv_cache.rs` tests contexts of several pages.
const CONTEXT: u32 = 40;
const CHUNK: u32 = 4;

/// Full attention, sliding windows, a cache shared by layers, experts, ternary weights.
const MODELS: [&str; 5] = ["llama", "gemma3", "gemma4", "qwen3moe", "bitnet"];

/// The model with sliding windows and a shared cache.
const ON_GPU: &[&str] = &["gemma4"];

const SAMPLED: Sampling = Sampling::GREEDY
    .temperature(1.0)
    .top_k(60)
    .top_p(0.95)
    .min_p(0.0)
    .repetition_penalty(1.2)
    .repeat_last_n(24)
    .seed(3);

fn model(name: &str) -> PathBuf {
    golden("arch").join(name).join("model.gguf")
}

fn small(options: LoadOptions) -> LoadOptions {
    options.max_context(CONTEXT).chunk_tokens(CHUNK)
}

fn shifting(sampling: Sampling, max_tokens: u32, keep: u32) -> GenerateOptions {
    greedy(max_tokens)
        .sampling(sampling)
        .overflow(Overflow::Shift { n_keep: keep })
}

/// Arbitrary tokens that exist in every test vocabulary.
fn text(length: u32) -> Vec<u32> {
    (0..length).map(|i| 5 + i * 37 % 200).collect()
}

/// Generates with a fresh session whenever the context is full.
fn restarted(s: &mut Session, prompt: &[u32], options: &GenerateOptions, keep: usize) -> Vec<u32> {
    let context = CONTEXT as usize;
    let (mut tokens, mut generated) = (prompt.to_vec(), Vec::new());
    let total = options.max_tokens as usize;
    while generated.len() < total {
        if tokens.len() > context {
            let keep = keep.min(context / 2);
            tokens.drain(keep..keep + (context - keep).div_ceil(2));
        }
        let room = (context + 1 - tokens.len()).min(total - generated.len());
        let part = options
            .clone()
            .max_tokens(u32::try_from(room).expect("a context"))
            .overflow(Overflow::Stop);
        let found = picks(s, &tokens, &part);
        assert_eq!(found.len(), room);
        tokens.extend(&found);
        generated.extend(found);
    }
    generated
}

/// Generates with context shifts.
fn shifted(s: &mut Session, prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
    let mut pieces = Vec::new();
    s.reset();
    s.prefill(prompt).expect("prefill succeeds");
    let stats = s
        .generate_with(options, |piece| {
            pieces.push(piece.token);
            ControlFlow::Continue(())
        })
        .expect("generation succeeds");
    assert_eq!(stats.finish, Some(Finish::Length));
    assert_eq!(stats.tokens, options.max_tokens);
    // A final piece may repeat the last token with held-back text.
    pieces.truncate(options.max_tokens as usize);
    pieces
}

/// Computes the logits after the sequence.
fn logits(s: &mut Session) -> Vec<f32> {
    let mut out = vec![0.0; s.facts().vocab as usize];
    s.logits(&mut out).expect("logits are available");
    out
}

/// Computes the logits of `tokens` in a fresh session.
fn fresh_logits(fresh: &mut Session, tokens: &[u32]) -> Vec<f32> {
    fresh.reset();
    fresh.prefill(tokens).expect("prefill succeeds");
    logits(fresh)
}

/// Short prompts and a full context; `keep` within and past the prompt.
fn check_shift(name: &str) {
    for (device, options) in devices_for(name, ON_GPU, Precision::Exact) {
        let options = small(options);
        let mut s = session(&model(name), &options);
        let mut other = session(&model(name), &options);
        let cases = [
            (8, 0, Sampling::GREEDY),
            (30, 12, SAMPLED),
            (3, 9, Sampling::GREEDY),
            (CONTEXT, 1000, SAMPLED),
        ];
        // A software GPU is slow.
        let is_short = device.starts_with("gpu") && is_gpu_slow();
        for (length, keep, sampling) in cases.into_iter().skip(if is_short { 2 } else { 0 }) {
            let what = format!("{name} on {device}: {length} tokens, keep {keep}");
            let generate = shifting(sampling, 64, keep);
            let prompt = text(length);
            let expected = restarted(&mut other, &prompt, &generate, keep as usize);
            assert_eq!(shifted(&mut s, &prompt, &generate), expected, "{what}");
            assert!(s.tokens().len() <= CONTEXT as usize + 1, "{what}");
        }
    }
}

#[test]
fn shifted_generation_matches_fresh_session() {
    for name in MODELS {
        check_shift(name);
    }
}

#[test]
fn shift_gives_same_bits_as_fresh_session() {
    for name in MODELS {
        for (device, options) in devices_for(name, ON_GPU, Precision::Exact) {
            let options = small(options);
            let mut s = session(&model(name), &options);
            let mut fresh = session(&model(name), &options);
            for (keep, count) in [(0, 7), (6, 1), (6, 20), (39, 1), (0, 39)] {
                s.reset();
                s.prefill(&text(CONTEXT)).expect("prefill succeeds");
                s.shift(keep, count);
                let mut rest = text(CONTEXT);
                rest.drain(keep..keep + count);
                assert_eq!(s.tokens(), rest);
                let expected = fresh_logits(&mut fresh, &rest);
                assert_eq!(
                    logits(&mut s),
                    expected,
                    "{name} on {device}: {keep}, {count}"
                );
            }
        }
    }
}

#[test]
fn smallest_contexts_can_shift() {
    for context in [1, 2, 3] {
        let (_, options) = devices(Precision::Exact).remove(0);
        let options = options.max_context(context);
        let mut s = session(&model("gemma3"), &options);
        for keep in [0, 1, 5] {
            s.reset();
            s.prefill(&[7]).expect("prefill succeeds");
            let stats = s
                .generate_with(&shifting(SAMPLED, 12, keep), |_| ControlFlow::Continue(()))
                .expect("generation succeeds");
            assert_eq!((stats.finish, stats.tokens), (Some(Finish::Length), 12));
        }
    }
}

#[test]
fn counts_tokens_when_callback_stops_after_shift() {
    let (_, options) = devices(Precision::Exact).remove(0);
    let mut s = session(&model("llama"), &small(options));
    s.prefill(&text(CONTEXT)).expect("prefill succeeds");
    for stop in [1, 2, 3, 30] {
        let mut pieces = 0;
        let stats = s
            .generate_with(&shifting(Sampling::GREEDY, 64, 0), |_| {
                pieces += 1;
                if pieces == stop {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .expect("generation succeeds");
        assert_eq!((stats.finish, stats.tokens), (Some(Finish::Callback), stop));
    }
}

/// Deterministic pseudorandom numbers (xorshift).
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

/// Generates; some generations are cancelled or stopped while bursts are in flight.
fn generate(s: &mut Session, random: &mut Random) -> String {
    let [count, keep, burst, end] =
        [(); 4].map(|()| u32::try_from(random.below(30)).expect("small"));
    let options = shifting(SAMPLED, 1 + count, keep).burst(burst);
    let (cancel, mut pieces) = (s.canceller(), 0);
    let stats = s.generate_with(&options, |_| {
        pieces += 1;
        match pieces == end {
            true if end % 2 == 0 => cancel.cancel(),
            true => return ControlFlow::Break(()),
            false => {}
        }
        ControlFlow::Continue(())
    });
    s.clear_cancel();
    // A final piece may contain an incomplete character.
    let generated = stats.expect("generation succeeds").tokens;
    assert!(pieces == generated || pieces == generated + 1);
    format!("generate {count} by {burst}, keep {keep}, end after {end}")
}

/// Runs a random operation and returns its description.
fn random_operation(s: &mut Session, random: &mut Random) -> String {
    let length = s.tokens().len();
    let room = CONTEXT as usize - length.min(CONTEXT as usize);
    match random.below(9) {
        0 | 1 if room > 0 => {
            let count = 1 + random.below(room as u64);
            s.prefill(&random.tokens(count)).expect("prefill succeeds");
            format!("prefill {count}")
        }
        2 if room > 0 => {
            let tokens = random.tokens(room);
            let (cancel, at) = (s.canceller(), random.below(room as u64));
            let result = s.prefill_with(&tokens, |done, _| {
                if done > at {
                    cancel.cancel();
                }
            });
            s.clear_cancel();
            // The previous tokens and those of completed chunks are kept.
            assert!(s.tokens().len() >= length);
            assert_eq!(&s.tokens()[length..], &tokens[..s.tokens().len() - length]);
            format!("prefill {room}, cancelled after {at}: {result:?}")
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
                s.logits_all(&mut out).expect("logits are available");
            }
            "score".into()
        }
        _ if length > 0 => generate(s, random),
        _ => String::new(),
    }
}

#[test]
fn random_operations_match_fresh_session() {
    for name in MODELS {
        for (device, options) in devices_for(name, ON_GPU, Precision::Exact) {
            // Windows without and with room to truncate.
            for chunk_tokens in [2, 16] {
                let options = small(options.clone()).chunk_tokens(chunk_tokens);
                let mut s = session(&model(name), &options);
                let mut fresh = session(&model(name), &options);
                let mut random = Random(0x5eed + u64::from(chunk_tokens));
                let mut history = Vec::new();
                for _ in 0..if exhaustive() { 40 } else { 16 } {
                    history.push(random_operation(&mut s, &mut random));
                    if s.tokens().len() > CONTEXT as usize {
                        s.truncate(CONTEXT as usize);
                    }
                    // Computing logits caches the missing tokens, so do it only sometimes.
                    if s.tokens().is_empty() || random.below(2) == 0 {
                        continue;
                    }
                    let tokens = s.tokens().to_vec();
                    let expected = fresh_logits(&mut fresh, &tokens);
                    let (at, difference) = worst(&logits(&mut s), &expected);
                    // A step may sum in another order than a pass of several tokens.
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
fn cancellation_during_shift_keeps_tokens() {
    for name in ["llama", "gemma3"] {
        let (_, options) = devices(Precision::Exact).remove(0);
        let options = small(options);
        let mut s = session(&model(name), &options);
        let mut fresh = session(&model(name), &options);
        s.prefill(&text(CONTEXT)).expect("prefill succeeds");
        s.shift(2, 9);
        let mut rest = text(CONTEXT);
        rest.drain(2..11);
        // The model may already be at a later chunk when the cancellation arrives.
        let (cancel, tokens_after) = (s.canceller(), [11, 12, 13]);
        let done = s.prefill_with(&tokens_after, |_, _| cancel.cancel());
        let kept = s.tokens().len() - rest.len();
        match done {
            Ok(()) => assert_eq!(kept, tokens_after.len()),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Cancelled),
        }
        s.clear_cancel();
        assert_eq!(
            s.tokens(),
            [&rest, &tokens_after[..kept]].concat(),
            "previous tokens and completed chunks are kept"
        );
        s.truncate(rest.len());
        assert_eq!(logits(&mut s), fresh_logits(&mut fresh, &rest), "{name}");

        // Cancel from another thread at random times.
        s.reset();
        s.prefill(&text(20)).expect("prefill succeeds");
        let cancel = s.canceller();
        let (mut cancelled, mut generated) = (0, 0);
        std::thread::scope(|scope| {
            let (done, stopped) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                use std::sync::mpsc::TryRecvError;
                while stopped.try_recv() == Err(TryRecvError::Empty) {
                    cancel.cancel();
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            for _ in 0..200 {
                let before = s.tokens().to_vec();
                let mut pieces = Vec::new();
                let stats = s
                    .generate_with(&shifting(SAMPLED, 50, 4), |piece| {
                        pieces.push(piece.token);
                        ControlFlow::Continue(())
                    })
                    .expect("cancelled generation succeeds");
                pieces.truncate(stats.tokens as usize);
                assert!(pieces.len() < 50 || stats.finish == Some(Finish::Length));
                cancelled += u32::from(stats.finish == Some(Finish::Cancelled));
                generated += pieces.len();
                // Only whole shifts remove tokens, so the sequence ends with the received tokens.
                let all: Vec<u32> = before.iter().chain(&pieces).copied().collect();
                let tail = s.tokens().len().min(all.len()) - 4;
                assert_eq!(
                    s.tokens()[s.tokens().len() - tail..],
                    all[all.len() - tail..]
                );
            }
            drop(done);
        });
        s.clear_cancel();
        assert!(cancelled > 0 && generated > 0, "{cancelled} {generated}");
        s.truncate(CONTEXT as usize);
        let tokens = s.tokens().to_vec();
        let (_, difference) = worst(&logits(&mut s), &fresh_logits(&mut fresh, &tokens));
        assert!(difference <= 1e-4, "{name}: {difference}");
    }
}

#[test]
fn encoder_rejects_generation() {
    let (_, options) = devices(Precision::Exact).remove(0);
    let mut s = session(&model("bert"), &options);
    let kind = |e: tabla::Error| e.kind();
    let refused = s.prefill(&[5, 6, 7]);
    assert_eq!(refused.map_err(kind), Err(ErrorKind::State));
    let generate = shifting(Sampling::GREEDY, 4, 0);
    let refused = s.generate_with(&generate, |_| ControlFlow::Continue(()));
    assert_eq!(refused.map(|_| ()).map_err(kind), Err(ErrorKind::State));
    s.shift(0, 10);
    s.truncate(3);
    assert!(s.tokens().is_empty());
}

/// A BOS token is kept even with `keep` 0.
#[test]
fn shift_keeps_bos_token() {
    let generated = |keep| {
        let mut s = story(small(LoadOptions::default()));
        let text = "Once upon a time, there was a little fox";
        let prompt = s
            .tokenizer()
            .encode(text, EncodeOptions::PROMPT)
            .expect("text");
        assert_eq!(prompt.first().copied(), s.tokenizer().bos());
        s.prefill(&prompt).expect("prefill succeeds");
        let stats = s.generate_with(&shifting(Sampling::GREEDY, 80, keep), |_| {
            ControlFlow::Continue(())
        });
        assert_eq!(
            stats.expect("generation succeeds").tokens,
            80,
            "more than the context"
        );
        s.tokens().to_vec()
    };
    let begins = story(LoadOptions::default()).tokenizer().bos();
    assert_eq!(generated(0).first().copied(), begins);
    assert_eq!(generated(0), generated(1));
    assert_ne!(generated(0), generated(6));
}
