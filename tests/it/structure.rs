//! Answers of models that follow a grammar.

use crate::common::{has_gpu, print};
use crate::grammar::{SCHEMAS, is_valid};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tabla::text::{CompiledGrammar, EncodeOptions, Grammar};
use tabla::{
    DeviceChoice, ErrorKind, Finish, Flow, GenerateOptions, LoadOptions, Model, Sampling, Session,
    Source,
};

fn load(options: &LoadOptions) -> Model {
    tabla::load(&Source::BuiltIn, options, &mut |_| {}).expect("the model loads")
}

fn options(device: DeviceChoice, sequences: u32) -> LoadOptions {
    LoadOptions {
        device,
        sequences,
        threads: 2,
        context: 512,
        ..LoadOptions::default()
    }
}

/// The text and the tokens of an answer, and how it ended.
fn answer(model: &Model, how: &GenerateOptions) -> (String, Vec<u32>, Finish) {
    let mut session = Session::new(model.clone());
    let prompt = model
        .tokenizer()
        .encode("Once upon a time", EncodeOptions::PROMPT);
    let prompt = prompt.expect("it is text");
    session.prefill(&prompt, &mut |_, _| {}).expect("it fits");
    let mut text = String::new();
    let mut each = |piece: tabla::Piece<'_>| {
        text.push_str(piece.text);
        Flow::Continue
    };
    let stats = session.generate(how, &mut each).expect("it generates");
    let tokens = session.tokens()[prompt.len()..].to_vec();
    assert_eq!(stats.tokens as usize, tokens.len());
    (text, tokens, stats.finish)
}

/// A draw of what a grammar lets through; what ends something is likelier than the model has it.
fn drawn(model: &Model, grammar: Arc<CompiledGrammar>, seed: u64) -> GenerateOptions {
    let tokenizer = model.tokenizer();
    let ids = 0..model.facts().vocab;
    let closes = |id: &u32| matches!(tokenizer.token_bytes(*id), b"}" | b"]" | b"\"" | b"null");
    let closing = ids.filter(|id| closes(id) || tokenizer.is_stop(*id));
    GenerateOptions {
        sampling: Sampling {
            temperature: 1.5,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed,
            ..Sampling::default()
        },
        logit_bias: closing.map(|id| (id, 7.0)).collect(),
        max_tokens: 300,
        grammar: Some(grammar),
        ..GenerateOptions::default()
    }
}

/// A model that knows nothing of JSON writes what schemas ask for.
#[test]
fn answers_are_what_their_schemas_say() {
    let model = load(&options(DeviceChoice::Cpu, 4));
    let groups: Map<String, Value> = serde_json::from_str(SCHEMAS).expect("schemas");
    let lists = groups.values().map(|list| list.as_array().expect("a list"));
    let schemas: Vec<&Value> = lists.flatten().collect();
    let (next, whole, others) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(schema) = schemas.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let grammar = Grammar::JsonSchema((*schema).clone());
                    let grammar = model.compile_grammar(&grammar).expect("a grammar");
                    for seed in 0..2 {
                        let how = drawn(&model, Arc::clone(&grammar), seed);
                        let (text, _, finish) = answer(&model, &how);
                        let said = match finish {
                            Finish::Stop => is_valid(schema, &text),
                            _ => Ok(false),
                        };
                        match said {
                            Ok(true) => &whole,
                            Ok(false) => &others,
                            Err(e) => panic!("{schema}: {text}: {e}"),
                        }
                        .fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let [whole, others] = [whole, others].map(AtomicUsize::into_inner);
    print(&format!(
        "{whole} answers parse and are valid, {others} were cut or have numbers past f64"
    ));
    assert!(whole > 0 && others * 10 <= whole, "{whole}, {others}");
}

fn of(model: &Model, grammar: &Grammar) -> Arc<CompiledGrammar> {
    model.compile_grammar(grammar).expect("a grammar")
}

/// What can come in one way only is not picked, and the answer ends where nothing can follow.
#[test]
fn what_is_forced_is_there() {
    let model = load(&options(DeviceChoice::Cpu, 1));
    let words = "a text that has but one way";
    let how = GenerateOptions {
        grammar: Some(of(&model, &Grammar::Regex(words.to_string()))),
        max_tokens: 200,
        ..GenerateOptions::default()
    };
    let (text, tokens, finish) = answer(&model, &how);
    assert_eq!((text.as_str(), finish), (words, Finish::Stop));
    // A limit cuts it where it stands.
    let cut = GenerateOptions {
        max_tokens: 5,
        ..how.clone()
    };
    assert_eq!(answer(&model, &cut).1, tokens[..5]);
    // So does a stop string.
    let cut = GenerateOptions {
        stop: vec!["but one".to_string()],
        ..how.clone()
    };
    let (text, _, finish) = answer(&model, &cut);
    assert_eq!((text.as_str(), finish), ("a text that has ", Finish::Stop));
    // What is told is told of every token.
    let told = GenerateOptions {
        log_probs: Some(2),
        ..how
    };
    assert_eq!(answer(&model, &told).0, words);
}

/// In company, on every device: the same tokens as alone.
#[test]
fn company_changes_no_token() {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "kind": {"enum": ["dog", "cat", "horse"]},
            "ages": {"type": "array", "items": {"type": "integer", "maximum": 99}, "maxItems": 4},
        },
        "required": ["name", "kind", "ages"],
        "additionalProperties": false,
    });
    let schema = Grammar::JsonSchema(schema);
    let gpu = has_gpu().then_some(DeviceChoice::Gpu);
    for device in [DeviceChoice::Cpu].into_iter().chain(gpu) {
        let alone = load(&options(device, 3));
        let company = load(&options(device, 3));
        let how = |model: &Model, seed: u64| match seed % 2 {
            0 => drawn(model, of(model, &schema), seed),
            _ => GenerateOptions {
                sampling: Sampling {
                    seed,
                    ..Sampling::default()
                },
                max_tokens: 60,
                ..GenerateOptions::default()
            },
        };
        let together = std::thread::scope(|scope| {
            let (company, how) = (&company, &how);
            let begin = |seed| scope.spawn(move || answer(company, &how(company, seed)));
            let threads: Vec<_> = (0..5).map(begin).collect();
            let ends = threads.into_iter().map(|t| t.join().expect("it ends"));
            ends.collect::<Vec<_>>()
        });
        for (seed, found) in (0..).zip(together) {
            assert_eq!(
                found,
                answer(&alone, &how(&alone, seed)),
                "{device:?} {seed}"
            );
        }
    }
}

/// What was forced is penalised like what was picked, whoever had the seat before.
#[test]
fn forced_tokens_are_part_of_the_history() {
    let model = load(&options(DeviceChoice::Cpu, 1));
    let fresh = load(&options(DeviceChoice::Cpu, 1));
    let how = |model: &Model| GenerateOptions {
        sampling: Sampling {
            frequency_penalty: 20.0,
            repeat_last: 64,
            ..Sampling::GREEDY
        },
        grammar: Some(of(
            model,
            &Grammar::Regex("one way alone, then [a-h]{40}".to_string()),
        )),
        max_tokens: 80,
        ..GenerateOptions::default()
    };
    let mut other = Session::new(model.clone());
    let long: Vec<u32> = (0..200).map(|i| 260 + i % 30).collect();
    other.prefill(&long, &mut |_, _| {}).expect("it fits");
    assert_eq!(answer(&model, &how(&model)), answer(&fresh, &how(&fresh)));
}

#[test]
fn grammars_that_do_not_fit_are_refused() {
    let model = load(&options(DeviceChoice::Cpu, 1));
    let other = load(&options(DeviceChoice::Cpu, 1));
    let grammar = of(&other, &Grammar::Regex("[0-9]+".to_string()));
    let mut session = Session::new(model.clone());
    session.prefill(&[5], &mut |_, _| {}).expect("it fits");
    let how = GenerateOptions {
        grammar: Some(grammar),
        ..GenerateOptions::default()
    };
    let error = session.answer(&how).expect_err("of another model");
    assert_eq!(
        error.message(),
        "the grammar was compiled for another model"
    );
    // Nothing that the grammar lets through is left.
    let digits = (0..model.facts().vocab)
        .filter(|id| matches!(model.tokenizer().token_bytes(*id), [b'a'..=b'c']));
    let how = GenerateOptions {
        grammar: Some(of(&model, &Grammar::Regex("[a-c]".to_string()))),
        logit_bias: digits.map(|id| (id, f32::NEG_INFINITY)).collect(),
        ..GenerateOptions::default()
    };
    let error = session.generate(&how, &mut |_| Flow::Continue);
    let error = error.expect_err("no token is left");
    assert_eq!(error.kind(), ErrorKind::Grammar, "{error}");
    // The session goes on.
    session.truncate(1);
    let plain = GenerateOptions {
        max_tokens: 3,
        ..GenerateOptions::default()
    };
    let stats = session.generate(&plain, &mut |_| Flow::Continue);
    assert_eq!(stats.expect("it generates").tokens, 3);
}
