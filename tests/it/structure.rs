//! Generation with grammars.

use crate::common::{has_gpu, is_gpu_slow, print};
use crate::grammar::SCHEMAS;
use serde_json::{Map, Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::text::{CompiledGrammar, EncodeOptions, Grammar};
use tabla::{ErrorKind, Finish, GenerateOptions, Model, Sampling, Session, Source};
use tabla_json_schema::is_valid;

fn load(options: &LoadOptions) -> Model {
    Model::builder(Source::BuiltIn)
        .options(options.clone())
        .load()
        .expect("the model loads")
}

fn load_options(device: DeviceChoice, sequences: u32) -> LoadOptions {
    LoadOptions::default()
        .device(device)
        .sequences(sequences)
        .threads(2)
        .max_context(512)
}

/// Generates and returns the text, the tokens and the finish reason.
fn generate(model: &Model, options: &GenerateOptions) -> (String, Vec<u32>, Finish) {
    let mut session = Session::new(model.clone());
    let prompt = model
        .tokenizer()
        .encode("Once upon a time", EncodeOptions::PROMPT);
    let prompt = prompt.expect("text");
    session.prefill(&prompt).expect("the prompt fits");
    let mut text = String::new();
    let on_piece = |piece: tabla::Piece<'_>| {
        text.push_str(piece.text);
        ControlFlow::Continue(())
    };
    let stats = session
        .generate_with(options, on_piece)
        .expect("generation succeeds");
    let tokens = session.tokens()[prompt.len()..].to_vec();
    assert_eq!(stats.tokens as usize, tokens.len());
    let finish = stats.finish.expect("generation has ended");
    (text, tokens, finish)
}

/// Options for random output with a grammar. A bias makes closing and end tokens more likely.
fn random_options(model: &Model, grammar: Arc<CompiledGrammar>, seed: u64) -> GenerateOptions {
    let tokenizer = model.tokenizer();
    let ids = 0..model.facts().vocab;
    let closes = |id: &u32| matches!(tokenizer.token_bytes(*id), b"}" | b"]" | b"\"" | b"null");
    let closing = ids.filter(|id| closes(id) || tokenizer.is_stop(*id));
    GenerateOptions::default()
        .sampling(
            Sampling::default()
                .temperature(1.5)
                .top_k(0)
                .top_p(1.0)
                .min_p(0.0)
                .seed(seed),
        )
        .logit_bias(closing.map(|id| (id, 7.0)).collect())
        .max_tokens(300)
        .grammar(grammar)
}

/// A model that was not trained on JSON generates valid JSON.
#[test]
fn output_is_valid_for_schema() {
    let model = load(&load_options(DeviceChoice::Cpu, 4));
    let groups: Map<String, Value> = serde_json::from_str(SCHEMAS).expect("schemas");
    let lists = groups.values().map(|list| list.as_array().expect("a list"));
    let schemas: Vec<&Value> = lists.flatten().collect();
    let (next, valid, others) = (
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
                        let options = random_options(&model, Arc::clone(&grammar), seed);
                        let (text, _, finish) = generate(&model, &options);
                        let result = match finish {
                            Finish::Stop => is_valid(schema, &text),
                            _ => Ok(false),
                        };
                        match result {
                            Ok(true) => &valid,
                            Ok(false) => &others,
                            Err(e) => panic!("{schema}: {text}: {e}"),
                        }
                        .fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let [valid, others] = [valid, others].map(AtomicUsize::into_inner);
    print(&format!(
        "{valid} outputs are valid, {others} are truncated or have numbers beyond f64"
    ));
    assert!(valid > 0 && others * 10 <= valid, "{valid}, {others}");
}

fn compile(model: &Model, grammar: &Grammar) -> Arc<CompiledGrammar> {
    model.compile_grammar(grammar).expect("a grammar")
}

/// Forced tokens are not sampled, and generation ends where the grammar is complete.
#[test]
fn forced_tokens_are_generated() {
    let model = load(&load_options(DeviceChoice::Cpu, 1));
    let words = "a text that has but one way";
    let options = GenerateOptions::default()
        .grammar(compile(&model, &Grammar::Regex(words.to_string())))
        .max_tokens(200);
    let (text, tokens, finish) = generate(&model, &options);
    assert_eq!((text.as_str(), finish), (words, Finish::Stop));
    // Forced tokens count for the token limit.
    let limited = options.clone().max_tokens(5);
    assert_eq!(generate(&model, &limited).1, tokens[..5]);
    // Stop strings are found in forced text.
    let limited = options.clone().stop(vec!["but one".to_string()]);
    let (text, _, finish) = generate(&model, &limited);
    assert_eq!((text.as_str(), finish), ("a text that has ", Finish::Stop));
    // Forced tokens have log-probabilities too.
    let with_logprobs = options.logprobs(2);
    assert_eq!(generate(&model, &with_logprobs).0, words);
}

/// Concurrent requests generate the same tokens as single ones, on all devices.
#[test]
fn concurrency_does_not_change_tokens() {
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
        let (count, max_tokens) = match device {
            DeviceChoice::Gpu if is_gpu_slow() => (2, 12),
            _ => (5, 60),
        };
        let single = load(&load_options(device, 3));
        let concurrent = load(&load_options(device, 3));
        let request = |model: &Model, seed: u64| match seed % 2 {
            0 => random_options(model, compile(model, &schema), seed),
            _ => GenerateOptions::default()
                .sampling(Sampling::default().seed(seed))
                .max_tokens(max_tokens),
        };
        let outputs = std::thread::scope(|scope| {
            let (concurrent, request) = (&concurrent, &request);
            let spawn =
                |seed| scope.spawn(move || generate(concurrent, &request(concurrent, seed)));
            let threads: Vec<_> = (0..count).map(spawn).collect();
            let outputs = threads
                .into_iter()
                .map(|t| t.join().expect("the thread finishes"));
            outputs.collect::<Vec<_>>()
        });
        for (seed, output) in (0..).zip(outputs) {
            assert_eq!(
                output,
                generate(&single, &request(&single, seed)),
                "{device:?} {seed}"
            );
        }
    }
}

/// Forced tokens are penalized like sampled ones, regardless of the slot's previous request.
#[test]
fn forced_tokens_are_part_of_the_history() {
    let model = load(&load_options(DeviceChoice::Cpu, 1));
    let fresh = load(&load_options(DeviceChoice::Cpu, 1));
    let request = |model: &Model| {
        GenerateOptions::default()
            .sampling(Sampling::GREEDY.frequency_penalty(20.0).repeat_last_n(64))
            .grammar(compile(
                model,
                &Grammar::Regex("one way alone, then [a-h]{40}".to_string()),
            ))
            .max_tokens(80)
    };
    let mut other = Session::new(model.clone());
    let long: Vec<u32> = (0..200).map(|i| 260 + i % 30).collect();
    other.prefill(&long).expect("the prompt fits");
    assert_eq!(
        generate(&model, &request(&model)),
        generate(&fresh, &request(&fresh))
    );
}

#[test]
fn rejects_grammars_of_other_models_and_empty_masks() {
    let model = load(&load_options(DeviceChoice::Cpu, 1));
    let other = load(&load_options(DeviceChoice::Cpu, 1));
    let grammar = compile(&other, &Grammar::Regex("[0-9]+".to_string()));
    let mut session = Session::new(model.clone());
    session.prefill(&[5]).expect("the prompt fits");
    let options = GenerateOptions::default().grammar(grammar);
    let error = session.generate(&options).expect_err("of another model");
    assert_eq!(
        error.message(),
        "the grammar was compiled for another model"
    );
    // The logit bias excludes all tokens that the grammar allows.
    let letters = (0..model.facts().vocab)
        .filter(|id| matches!(model.tokenizer().token_bytes(*id), [b'a'..=b'c']));
    let options = GenerateOptions::default()
        .grammar(compile(&model, &Grammar::Regex("[a-c]".to_string())))
        .logit_bias(letters.map(|id| (id, f32::NEG_INFINITY)).collect());
    let error = session.generate_with(&options, |_| ControlFlow::Continue(()));
    let error = error.expect_err("no token is allowed");
    assert_eq!(error.kind(), ErrorKind::Grammar, "{error}");
    // The session remains usable.
    session.truncate(1);
    let plain = GenerateOptions::default().max_tokens(3);
    let stats = session.generate_with(&plain, |_| ControlFlow::Continue(()));
    assert_eq!(stats.expect("generation succeeds").tokens, 3);
}
