//! Grammars that begin to apply within the output: after reasoning, and after triggers.

use crate::common::{greedy, story};
use std::ops::ControlFlow;
use std::sync::OnceLock;
use tabla::load::LoadOptions;
use tabla::text::{EncodeOptions, Grammar};
use tabla::{
    Batch, BatchEvent, ErrorKind, Finish, GenerateOptions, Generation, GrammarStart, Model,
    Overflow, OwnedPiece, ReasoningMarkers, Sampling, Session, SpeculateOptions, Stats,
};

/// Returns the built-in model, one for all tests.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        let options = LoadOptions::default().threads(2).max_context(512);
        story(options).model().clone()
    })
}

/// Returns a session after a prompt.
fn session() -> Session {
    let mut session = Session::new(model().clone());
    let prompt = session
        .tokenizer()
        .encode("Once upon a time", EncodeOptions::PROMPT)
        .expect("text");
    session.prefill(&prompt).expect("the prompt fits");
    session
}

struct Output {
    text: String,
    pieces: Vec<OwnedPiece>,
    tokens: Vec<u32>,
    stats: Stats,
}

fn generate_in(session: &mut Session, options: &GenerateOptions) -> Output {
    let before = session.tokens().len();
    let mut pieces = Vec::new();
    let stats = session
        .generate_with(options, |piece| {
            pieces.push(piece.into_owned());
            ControlFlow::Continue(())
        })
        .expect("generation succeeds");
    Output {
        text: pieces.iter().map(|piece| &*piece.text).collect(),
        tokens: session.tokens()[before..].to_vec(),
        pieces,
        stats,
    }
}

/// Generates and checks that the pieces, the statistics and the sequence are consistent.
fn generate(options: &GenerateOptions) -> Output {
    let output = generate_in(&mut session(), options);
    assert_eq!(output.stats.tokens as usize, output.tokens.len());
    let pieces = output.pieces.iter().filter(|piece| !piece.is_flush);
    let tokens: Vec<u32> = pieces.clone().map(|piece| piece.token).collect();
    let stopped = output.tokens.strip_prefix(&*tokens);
    assert!(stopped.is_some_and(|rest| rest.len() <= 1), "{tokens:?}");
    let expected = options.logprobs.is_some();
    assert!(pieces.into_iter().all(|p| p.logprob.is_some() == expected));
    output
}

fn with_regex(options: GenerateOptions, regex: &str) -> GenerateOptions {
    let grammar = Grammar::Regex(regex.into());
    let grammar = model().compile_grammar(&grammar);
    options.grammar(grammar.expect("a grammar"))
}

/// The text of the built-in model without a grammar.
fn plain(max_tokens: u32) -> String {
    generate(&greedy(max_tokens)).text
}

fn triggers(texts: &[&str]) -> GrammarStart {
    GrammarStart::default().triggers(texts.iter().map(ToString::to_string).collect())
}

fn reasoning(open: &str, close: &str) -> GrammarStart {
    GrammarStart::default().reasoning(ReasoningMarkers::new(open, close))
}

/// Splits a text after the first occurrence of a marker.
fn up_to<'t>(text: &'t str, marker: &str) -> &'t str {
    let at = text
        .find(marker)
        .unwrap_or_else(|| panic!("{marker:?} in {text:?}"));
    &text[..at + marker.len()]
}

#[test]
fn grammar_applies_after_a_trigger() {
    let plain = plain(60);
    let options = with_regex(greedy(60), "( red| blue)( fish| bird)!");
    let ends = |output: &Output| output.text.ends_with("fish!") || output.text.ends_with("bird!");
    for trigger in [" was", "young", "you", "re was a yo"] {
        let output = generate(&options.clone().grammar_start(triggers(&["%", trigger])));
        let free = up_to(&plain, trigger);
        assert!(
            output.text.starts_with(free),
            "{trigger:?}: {:?}",
            output.text
        );
        if trigger != "you" && trigger != "re was a yo" {
            assert_eq!(output.stats.finish, Some(Finish::Stop), "{trigger:?}");
            assert!(ends(&output), "{trigger:?}: {:?}", output.text);
        }
    }
    // The grammar follows the rest of the token that completes the trigger.
    let options = with_regex(greedy(60), "ng (fish|bird)!");
    let output = generate(&options.clone().grammar_start(triggers(&["you"])));
    assert!(
        output.text.contains("young ") && ends(&output),
        "{:?}",
        output.text
    );
    // A grammar that does not allow the rest of the token does not apply.
    let options = with_regex(greedy(60), "X");
    let output = generate(&options.grammar_start(triggers(&["you", "absent"])));
    assert_eq!(output.text, plain);
}

#[test]
fn free_tokens_and_draws_equal_those_without_a_grammar() {
    for sampling in [
        Sampling::GREEDY,
        Sampling::default().temperature(1.2).seed(3),
    ] {
        let options = greedy(80).sampling(sampling);
        let expected = generate(&options);
        let lazy = with_regex(options, r"(.|\n)*").grammar_start(triggers(&[" a", " the"]));
        assert_eq!(generate(&lazy).tokens, expected.tokens);
        let speculative = lazy.clone().speculate(SpeculateOptions::Lookup);
        assert_eq!(generate(&speculative).tokens, expected.tokens);
        let single = lazy.clone().burst(1);
        assert_eq!(generate(&single).tokens, expected.tokens);
        let logprobs = generate(&lazy.logprobs(2));
        assert_eq!(logprobs.tokens, expected.tokens);
    }
}

#[test]
fn grammar_applies_after_reasoning() {
    let plain = plain(60);
    let options = with_regex(greedy(60), "(red|blue) (fish|bird)!");
    let first = up_to(&plain, " there");
    let check = |start: GrammarStart, free: &str| {
        let output = generate(&options.clone().grammar_start(start));
        let rest = output.text.strip_prefix(free);
        let rest = rest
            .unwrap_or_else(|| panic!("{:?}", output.text))
            .trim_start();
        assert!(
            rest.starts_with("red") || rest.starts_with("blue"),
            "{:?}",
            output.text
        );
        assert!(rest.ends_with("fish!") || rest.ends_with("bird!"));
        assert_eq!(output.stats.finish, Some(Finish::Stop));
    };
    // One token, several tokens, and the prompt opens reasoning.
    check(reasoning(&first[..1], "young"), up_to(&plain, "young"));
    check(reasoning(first, "young"), up_to(&plain, "young"));
    let markers = ReasoningMarkers::new("?", "young").is_open(true);
    check(
        GrammarStart::default().reasoning(markers),
        up_to(&plain, "young"),
    );
    // The closing marker ends within a token.
    check(reasoning(first, "you"), up_to(&plain, "you"));
    // The output does not begin with reasoning, or only with a part of its marker.
    check(reasoning("<think>", "</think>"), "");
    let part = format!("{first}X");
    check(reasoning(&part, "young"), "");
    let immediate = generate(&options);
    let absent = options.clone().grammar_start(reasoning(&part, "young"));
    assert_eq!(generate(&absent).tokens, immediate.tokens);
    // All tokens are used while the marker is undecided.
    let absent = absent.max_tokens(1);
    assert_eq!(generate(&absent).tokens, immediate.tokens[..1]);
}

#[test]
fn triggers_within_reasoning_do_not_count() {
    let plain = plain(60);
    let options = with_regex(greedy(60), "( red| blue)( fish| bird)!");
    let first = &plain[..1];
    let start = reasoning(first, "young").triggers(vec![" was".into()]);
    let output = generate(&options.clone().grammar_start(start));
    let after = up_to(&plain, "young").len();
    let free = after + up_to(&plain[after..], " was").len();
    assert_eq!(output.text[..free], plain[..free]);
    assert!(output.text.ends_with('!'));
    // Without reasoning, triggers count from the first token.
    let start = reasoning("<think>", "</think>").triggers(vec![" was".into()]);
    let output = generate(&options.grammar_start(start));
    let free = up_to(&plain, " was");
    assert!(
        ["red", "blue"]
            .iter()
            .any(|word| output.text[free.len()..].trim_start().starts_with(word))
    );
}

#[test]
fn limits_and_stop_strings_apply_to_free_tokens() {
    let plain = plain(60);
    let options = with_regex(greedy(60), r"[^.]*");
    let lazy = options.grammar_start(triggers(&["young"]));
    let all = generate(&lazy);
    for max_tokens in 1..12 {
        let output = generate(&lazy.clone().max_tokens(max_tokens));
        assert_eq!(output.tokens, all.tokens[..max_tokens as usize]);
        assert_eq!(output.stats.finish, Some(Finish::Length), "{max_tokens}");
    }
    let before = up_to(&plain, " was");
    let mut session = session();
    let mut stopped = Generation::new(&mut session, &lazy.clone().stop(vec![" was".into()]))
        .map_err(|e| e.error)
        .expect("generation starts");
    let mut text = String::new();
    while let Some(piece) = stopped.next_piece().expect("generation succeeds") {
        text.push_str(piece.text);
    }
    assert_eq!(stopped.stop_string(), Some(" was"));
    assert_eq!(text, before.strip_suffix(" was").expect("a suffix"));
    // Stop tokens are not allowed before the minimum.
    let minimum = generate(&lazy.ignore_eos(false).min_tokens(40));
    assert!(minimum.tokens.len() >= 40);
}

#[test]
fn context_shifts_while_the_output_is_free() {
    let load = LoadOptions::default().max_context(48);
    let mut session = story(load);
    let grammar = Grammar::Regex(r"(.|\n)*".into());
    let grammar = session.model().compile_grammar(&grammar);
    let options = greedy(150).grammar(grammar.expect("a grammar"));
    let options = options.overflow(Overflow::Shift { n_keep: 4 });
    let mut generate = |start: GrammarStart| {
        session.reset();
        let prompt = session
            .tokenizer()
            .encode("Once upon", EncodeOptions::PROMPT);
        session.prefill(&prompt.expect("text")).expect("it fits");
        let mut text = String::new();
        let options = options.clone().grammar_start(start);
        let stats = session.generate_with(&options, |piece| {
            text.push_str(piece.text);
            ControlFlow::Continue(())
        });
        let stats = stats.expect("generation succeeds");
        assert_eq!((stats.tokens, stats.finish), (150, Some(Finish::Length)));
        text
    };
    let free = generate(triggers(&["absent"]));
    let words: Vec<&str> = free.split_inclusive(' ').collect();
    let late = words[..words.len() - 10].concat();
    let late = &late[late.len() - 24..];
    assert_eq!(generate(triggers(&[late])), free);
}

#[test]
fn cancelled_and_stopped_generations_keep_returned_tokens() {
    let options = with_regex(greedy(100), r"[^.]*");
    for start in [triggers(&["young"]), reasoning("<think>", "</think>")] {
        for count in 0..10 {
            let mut session = session();
            let (cancel, before) = (session.canceller(), session.tokens().len());
            let mut generation = session
                .generate(&options.clone().grammar_start(start.clone()))
                .expect("generation starts");
            for _ in 0..count {
                generation.next_piece().expect("no error").expect("a piece");
            }
            let finish = match count % 2 {
                0 => {
                    cancel.cancel();
                    Finish::Cancelled
                }
                _ => {
                    generation.stop().expect("no error");
                    Finish::Callback
                }
            };
            while generation.next_piece().expect("no error").is_some() {}
            assert_eq!(generation.stats().finish, Some(finish));
            drop(generation);
            assert_eq!(session.tokens().len(), before + count);
        }
    }
}

#[test]
fn batches_generate_the_same_text() {
    let options = with_regex(greedy(60), "( red| blue)( fish| bird)!");
    let text = up_to(&plain(60), ", there").to_string();
    let starts = [
        GrammarStart::default(),
        triggers(&["young"]),
        reasoning(&text, "young"),
        reasoning("<think>", "</think>"),
    ];
    let prompt = model()
        .tokenizer()
        .encode("Once upon a time", EncodeOptions::PROMPT)
        .expect("text");
    let mut batch = Batch::new(model().clone());
    let mut texts = vec![String::new(); starts.len()];
    for (at, start) in starts.iter().enumerate() {
        let options = options.clone().grammar_start(start.clone());
        let (index, _) = batch.add(&prompt, &options).expect("the prompt fits");
        assert_eq!(index, at);
    }
    while let Some(piece) = batch.next() {
        if let BatchEvent::Piece(part) = piece.event {
            texts[piece.request].push_str(part.text);
        }
    }
    for (start, text) in starts.iter().zip(texts) {
        let alone = generate(&options.clone().grammar_start(start.clone()));
        assert_eq!(text, alone.text, "{start:?}");
    }
}

#[test]
fn rejects_invalid_grammar_starts() {
    let model = model();
    let check = |options: GenerateOptions, message: &str| {
        let error = options.check(model).expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.message().contains(message), "{error}");
    };
    check(
        greedy(1).grammar_start(triggers(&["x"])),
        "grammar_start requires a grammar",
    );
    let grammar = Grammar::Regex("a".into());
    let grammar = model.compile_grammar(&grammar).expect("a grammar");
    let options = greedy(1).grammar(grammar);
    let with = |start: GrammarStart| options.clone().grammar_start(start);
    check(with(triggers(&[""])), "trigger 0 has 0 bytes");
    check(
        with(reasoning("<think>", " ")),
        "reasoning marker 1 has 0 bytes",
    );
    check(
        with(reasoning("a</b>", "</b>")),
        "contains the closing marker",
    );
}
