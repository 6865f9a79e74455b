//! Grammars that begin to apply within the output: after reasoning, and after triggers.

use crate::common::{greedy, story};
use std::ops::ControlFlow;
use tabla::load::LoadOptions;
use tabla::text::{EncodeOptions, Grammar};
use tabla::{
    Batch, BatchEvent, ErrorKind, Finish, GenerateOptions, Generation, GrammarStart, Model,
    Overflow, OwnedPiece, ReasoningMarkers, Sampling, Session, SpeculateOptions, Stats,
};

thread_local! {
    /// The built-in model, one for each test. In a static, its thread would run when the process ends, which a leak
    /// sanitizer may report.
    static MODEL: Model = {
        let options = LoadOptions::default().threads(2).max_context(512);
        story(options).model().clone()
    };
}

fn model() -> Model {
    MODEL.with(Model::clone)
}

/// Returns a session after a prompt.
fn session() -> Session {
    let mut session = Session::new(model());
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

fn markers(open: &str, close: &str) -> ReasoningMarkers {
    ReasoningMarkers::new(open, close)
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
    let check = |markers: ReasoningMarkers, free: &str| {
        let output = generate(&options.clone().reasoning(markers));
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
    check(markers(&first[..1], "young"), up_to(&plain, "young"));
    check(markers(first, "young"), up_to(&plain, "young"));
    check(markers("?", "young").is_open(true), up_to(&plain, "young"));
    // The closing marker ends within a token.
    check(markers(first, "you"), up_to(&plain, "you"));
    // The output does not begin with reasoning, or only with a part of its marker.
    check(markers("<think>", "</think>"), "");
    let part = format!("{first}X");
    check(markers(&part, "young"), "");
    let immediate = generate(&options);
    let absent = options.clone().reasoning(markers(&part, "young"));
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
    let options = options.grammar_start(triggers(&[" was"]));
    let output = generate(&options.clone().reasoning(markers(first, "young")));
    let after = up_to(&plain, "young").len();
    let free = after + up_to(&plain[after..], " was").len();
    assert_eq!(output.text[..free], plain[..free]);
    assert!(output.text.ends_with('!'));
    // Without reasoning, triggers count from the first token.
    let output = generate(&options.reasoning(markers("<think>", "</think>")));
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
    let open = markers("?", "</think>").is_open(true);
    for options in [
        options.clone().grammar_start(triggers(&["young"])),
        options.clone().reasoning(markers("<think>", "</think>")),
        options.reasoning(open).reasoning_budget(2),
    ] {
        for count in 0..10 {
            let mut session = session();
            let (cancel, before) = (session.canceller(), session.tokens().len());
            let mut generation = session.generate(&options).expect("generation starts");
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
    let stop = options.clone().stop_token_ids(vec![token_of("young")]);
    let all = [
        options.clone(),
        options.clone().grammar_start(triggers(&["young"])),
        options.clone().reasoning(markers(&text, "young")),
        options.clone().reasoning(markers("<think>", "</think>")),
        stop.clone()
            .reasoning(markers("?", "</think>").is_open(true)),
        stop.reasoning(markers("?", "</think>").is_open(true))
            .reasoning_budget(3),
    ];
    let prompt = model()
        .tokenizer()
        .encode("Once upon a time", EncodeOptions::PROMPT)
        .expect("text");
    let mut batch = Batch::new(model());
    let mut texts = vec![String::new(); all.len()];
    for (at, options) in all.iter().enumerate() {
        let (index, _) = batch.add(&prompt, options).expect("the prompt fits");
        assert_eq!(index, at);
    }
    while let Some(piece) = batch.next() {
        if let BatchEvent::Piece(part) = piece.event {
            texts[piece.request].push_str(part.text);
        }
    }
    for (options, text) in all.iter().zip(texts) {
        assert_eq!(text, generate(options).text, "{options:?}");
    }
}

#[test]
fn rejects_invalid_grammar_starts() {
    let model = model();
    let check = |options: GenerateOptions, message: &str| {
        let error = options.check(&model).expect_err("an error");
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
    let opening = GrammarStart::default().opening("a".to_string());
    check(with(opening), "an opening requires triggers");
    check(
        options.clone().reasoning(markers("<think>", " ")),
        "reasoning marker 1 has 0 bytes",
    );
    check(
        options.clone().reasoning(markers("a</b>", "</b>")),
        "contains the closing marker",
    );
}

/// Returns the token of a word that the built-in model generates after the prompt.
fn token_of(word: &str) -> u32 {
    let output = generate(&greedy(60));
    let mut pieces = output.pieces.iter();
    let piece = pieces.find(|piece| piece.text.contains(word));
    piece.expect("the word is in the text").token
}

/// A stop token within reasoning is replaced by the closing marker, and the grammar applies after it.
#[test]
fn stop_tokens_close_reasoning() {
    let plain = plain(60);
    let options = with_regex(greedy(60), "(red|blue) (fish|bird)!");
    let open = markers("?", "\n</think>\n").is_open(true);
    let options = options.reasoning(open);
    for word in ["young", " there"] {
        let options = options.clone().stop_token_ids(vec![token_of(word)]);
        let output = generate(&options);
        let reasoning = &plain[..plain.find(word).expect("the word")].trim_end_matches(' ');
        let rest = output.text.strip_prefix(reasoning).expect("the reasoning");
        let answer = rest.trim_start().strip_prefix("</think>\n");
        let answer = answer.unwrap_or_else(|| panic!("{:?}", output.text));
        assert!(answer.starts_with("red ") || answer.starts_with("blue "));
        assert!(answer.ends_with("fish!") || answer.ends_with("bird!"));
        assert_eq!(output.stats.finish, Some(Finish::Stop));
        // The same tokens with speculation, in single steps, and with log-probabilities.
        let tokens = |options: &GenerateOptions| generate_in(&mut session(), options).tokens;
        let speculative = options.clone().speculate(SpeculateOptions::Lookup);
        for same in [
            speculative,
            options.clone().burst(1),
            options.clone().logprobs(1),
        ] {
            assert_eq!(tokens(&same), output.tokens);
        }
        // The limit ends the output anywhere.
        for max_tokens in 1..u32::try_from(output.tokens.len()).expect("few") {
            let cut = generate(&options.clone().max_tokens(max_tokens));
            assert_eq!(cut.tokens, output.tokens[..max_tokens as usize]);
            assert_eq!(cut.stats.finish, Some(Finish::Length));
        }
    }
}

/// A stop token ends an output that needs no grammar.
#[test]
fn stop_tokens_end_free_output() {
    let plain = plain(60);
    let stop = greedy(60).stop_token_ids(vec![token_of("young")]);
    let open = markers("?", "</think>").is_open(true);
    let lazy = with_regex(stop.clone(), "a").grammar_start(triggers(&["absent"]));
    let expected = &plain[..plain.find("young").expect("the word")].trim_end_matches(' ');
    for options in [stop.clone(), lazy.clone()] {
        let output = generate(&options.reasoning(open.clone()));
        assert_eq!(&output.text.trim_end_matches(' '), expected);
        assert_eq!(output.stats.finish, Some(Finish::Stop));
    }
    // The grammar must apply: the opening replaces the stop token.
    let start = lazy.grammar_start.clone().opening("absent".to_string());
    let opened = lazy.clone().grammar_start(start);
    for options in [opened.clone(), opened.reasoning(open)] {
        let output = generate(&options);
        assert!(output.text.ends_with("absenta"), "{:?}", output.text);
        assert_eq!(output.stats.finish, Some(Finish::Stop));
    }
}

/// Reasoning has at most as many tokens as its budget, with and without a grammar.
#[test]
fn budgets_limit_reasoning() {
    let plain = generate(&greedy(40));
    let open = markers("?", "</think>").is_open(true);
    for budget in [0, 1, 5] {
        let options = greedy(40).reasoning(open.clone()).reasoning_budget(budget);
        let free = generate(&options);
        assert_eq!(
            free.tokens[..budget as usize],
            plain.tokens[..budget as usize]
        );
        let text: String = plain.pieces[..budget as usize]
            .iter()
            .map(|p| &*p.text)
            .collect();
        assert!(
            free.text.starts_with(&(text.clone() + "</think>")),
            "{:?}",
            free.text
        );
        assert_eq!(free.stats.finish, Some(Finish::Length));
        let grammar = with_regex(options, "(red|blue) (fish|bird)!");
        let answer = generate(&grammar);
        let rest = answer.text.strip_prefix(&(text + "</think>"));
        let rest = rest.unwrap_or_else(|| panic!("{:?}", answer.text));
        assert!(
            rest.starts_with("red ") || rest.starts_with("blue "),
            "{rest:?}"
        );
        assert_eq!(answer.stats.finish, Some(Finish::Stop));
        let speculative = grammar.clone().speculate(SpeculateOptions::Lookup);
        assert_eq!(generate(&speculative).tokens, answer.tokens);
        let triggered = grammar.grammar_start(triggers(&[" was"]));
        let triggered = generate(&triggered);
        assert_eq!(triggered.text.matches("</think>").count(), 1);
    }
    // Reasoning that the model closes earlier is unchanged.
    let early = markers("?", "young").is_open(true);
    let options = greedy(40).reasoning(early).reasoning_budget(30);
    assert_eq!(generate(&options).tokens, plain.tokens);
}

/// Stop strings apply to the content only.
#[test]
fn stop_strings_do_not_end_reasoning() {
    let plain = plain(60);
    let stop = |options: GenerateOptions| generate(&options.stop(vec![" was".into()]));
    let first = up_to(&plain, " was").len() - " was".len();
    assert_eq!(stop(greedy(60)).text, plain[..first]);
    // The first occurrence is within reasoning.
    let after = up_to(&plain, "young");
    let second = after.len() + plain[after.len()..].find(" was").expect("another one");
    for options in [
        greedy(60).reasoning(markers(&plain[..1], "young")),
        greedy(60).reasoning(markers("?", "young").is_open(true)),
        with_regex(greedy(60), "X")
            .grammar_start(triggers(&["absent"]))
            .reasoning(markers("?", "young").is_open(true)),
    ] {
        let output = stop(options);
        assert_eq!(output.text, plain[..second]);
        assert_eq!(output.stats.finish, Some(Finish::Stop));
    }
    // A model without reasoning.
    let absent = greedy(60).reasoning(markers("<think>", "</think>"));
    assert_eq!(stop(absent).text, plain[..first]);
    // Stop strings apply to an answer with a grammar.
    let options = with_regex(greedy(60), "(red|blue) (fish|bird)!");
    let options = options.reasoning(markers("?", "young").is_open(true));
    let output = generate(&options.stop(vec![" ".into()]));
    let answer = &output.text[after.len()..];
    assert!(["red", "blue"].contains(&answer.trim()), "{answer:?}");
}

/// The context may end while reasoning is closed.
#[test]
fn reasoning_closes_at_the_end_of_the_context() {
    let load = LoadOptions::default().max_context(24);
    let mut session = story(load);
    let grammar = Grammar::Regex("(red|blue) (fish|bird)!".into());
    let grammar = session.model().compile_grammar(&grammar);
    let options = greedy(60).grammar(grammar.expect("a grammar"));
    let options = options.reasoning(markers("?", "</think>").is_open(true));
    for overflow in [Overflow::Stop, Overflow::Shift { n_keep: 4 }] {
        for budget in 10..22 {
            session.reset();
            let prompt = session
                .tokenizer()
                .encode("Once upon", EncodeOptions::PROMPT);
            session.prefill(&prompt.expect("text")).expect("it fits");
            let options = options.clone().overflow(overflow).reasoning_budget(budget);
            let output = generate_in(&mut session, &options);
            let expected = match overflow {
                Overflow::Stop => Finish::Context,
                _ => Finish::Stop,
            };
            let is_whole = output.text.ends_with('!');
            let finish = if is_whole {
                Finish::Stop
            } else {
                Finish::Context
            };
            assert_eq!(output.stats.finish, Some(finish), "{budget}");
            assert!(is_whole || expected == Finish::Context, "{:?}", output.text);
        }
    }
}
