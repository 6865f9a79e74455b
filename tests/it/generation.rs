//! The ways to load a model and to read a generation: iterator, lending loop, callback; sessions that
//! a generation owns.

use crate::common::{golden, greedy, story};
use std::ops::ControlFlow;
use tabla::load::{DeviceChoice, LoadOptions, STAGES};
use tabla::text::{EncodeOptions, Grammar};
use tabla::{
    Cancel, ErrorKind, Finish, GenerateOptions, Generation, Model, Overflow, OwnedPiece,
    ReasoningMarkers, Session, Source,
};

const TOKENS: u32 = 12;

fn prompted(session: &mut Session) {
    let prompt = session.tokenizer().encode("One day", EncodeOptions::PROMPT);
    let prompt = prompt.expect("a prompt");
    session.reset();
    session.prefill(&prompt).expect("prefill");
}

fn cpu() -> LoadOptions {
    LoadOptions::default().device(DeviceChoice::Cpu)
}

#[test]
fn a_maximum_of_no_tokens_computes_the_prompt() {
    let mut session = story(cpu());
    prompted(&mut session);
    let prompt = session.tokens().to_vec();
    // Also with a grammar that would apply to the first token or after reasoning.
    let grammar = Grammar::Regex("[a-z]+".into());
    let grammar = session
        .model()
        .compile_grammar(&grammar)
        .expect("a grammar");
    let reasoning = ReasoningMarkers::new("<think>", "</think>");
    for options in [
        greedy(0),
        greedy(0).logprobs(2),
        greedy(0).grammar(Some(grammar.clone())),
        greedy(0).grammar(Some(grammar)).reasoning(Some(reasoning)),
        greedy(0).overflow(Overflow::Shift { n_keep: 0 }),
    ] {
        let stats = session.generate_with(&options, |piece| panic!("{piece:?}"));
        let stats = stats.expect("statistics");
        assert_eq!((stats.finish, stats.tokens), (Some(Finish::Length), 0));
        assert_eq!(session.tokens(), prompt);
    }
    let after: Vec<_> = session
        .generate(&greedy(4))
        .expect("a generation")
        .collect();
    let mut fresh = story(cpu());
    prompted(&mut fresh);
    let expected: Vec<_> = fresh.generate(&greedy(4)).expect("a generation").collect();
    let text = |pieces: Vec<tabla::Result<OwnedPiece>>| -> String {
        pieces
            .into_iter()
            .map(|piece| piece.expect("a piece").text)
            .collect()
    };
    assert_eq!(text(after), text(expected));
}

#[test]
fn iterator_and_callback_return_the_same_pieces() {
    let mut session = story(cpu());
    let options = greedy(TOKENS).logprobs(2);
    prompted(&mut session);
    let mut expected: Vec<OwnedPiece> = Vec::new();
    let mut generation = session.generate(&options).expect("a generation");
    while let Some(piece) = generation.next_piece().expect("a piece") {
        expected.push(piece.into_owned());
    }
    assert_eq!(generation.stats().finish, Some(Finish::Length));
    assert!(generation.next().is_none(), "the generation has ended");
    generation.stop().expect("it has ended");
    assert_eq!(generation.stats().finish, Some(Finish::Length));
    drop(generation);
    assert_eq!(expected.len(), TOKENS as usize);

    prompted(&mut session);
    let generation = session.generate(&options).expect("a generation");
    let found: tabla::Result<Vec<_>> = generation.collect();
    assert_eq!(found.expect("pieces"), expected);

    prompted(&mut session);
    let mut found = Vec::new();
    let stats = session.generate_with(&options, |piece| {
        found.push(piece.into_owned());
        if found.len() == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(stats.expect("statistics").finish, Some(Finish::Callback));
    assert_eq!(found, expected[..3]);
}

#[test]
fn generation_owns_and_returns_its_session() {
    let mut session = story(cpu());
    prompted(&mut session);
    let before = session.tokens().len();
    let mut generation = Generation::new(session, &greedy(u32::MAX)).expect("a generation");
    let first: Vec<_> = generation.by_ref().take(3).collect();
    // The model may have generated more tokens than were read.
    let session = generation.into_session();
    assert_eq!(session.tokens().len(), before + first.len());

    let other_thread = std::thread::spawn(move || {
        let generation = Generation::new(session, &greedy(TOKENS)).expect("a generation");
        generation.count()
    });
    assert_eq!(other_thread.join().expect("no panic"), TOKENS as usize);
}

#[test]
fn rejected_generation_returns_its_session() {
    let mut session = story(cpu());
    let empty = Generation::new(session, &greedy(1)).expect_err("an empty sequence");
    assert_eq!(empty.error.kind(), ErrorKind::State);
    session = empty.session;
    prompted(&mut session);
    let tokens = session.tokens().to_vec();
    let invalid = GenerateOptions::default().logprobs(GenerateOptions::LOGPROBS_MAX + 1);
    assert!(invalid.check(session.model()).is_err());
    let rejected = Generation::new(session, &invalid).expect_err("out of range");
    assert_eq!(rejected.to_string(), rejected.error.to_string());
    assert_eq!(rejected.error.kind(), ErrorKind::Argument);
    assert_eq!(rejected.session.tokens(), tokens);
}

#[test]
fn dropped_generations_keep_the_returned_tokens() {
    let mut session = story(cpu());
    prompted(&mut session);
    let before = session.tokens().len();
    let mut generation = session.generate(&greedy(u32::MAX)).expect("a generation");
    generation.next_piece().expect("a piece");
    drop(generation);
    assert_eq!(session.tokens().len(), before + 1);
    // The session of an owned generation is dropped with it.
    let model = session.model().clone();
    drop(Generation::new(session, &greedy(u32::MAX)).expect("a generation"));
    let mut session = Session::new(model);
    prompted(&mut session);
    assert_eq!(session.generate(&greedy(2)).expect("it runs").count(), 2);
}

#[test]
fn builder_loads_with_options_and_can_be_cancelled() {
    let path = golden("quant_q8_0.gguf");
    let mut stages = 0;
    let model = Model::builder(&path)
        .device(DeviceChoice::Cpu)
        .max_context(64)
        .on_progress(|progress| stages = progress.ended)
        .load()
        .expect("the model loads");
    assert_eq!((model.facts().context, stages), (64, STAGES));

    let cancel = Cancel::new();
    let load = |cancel_at: u32| {
        let model = Model::builder(Source::BuiltIn)
            .options(cpu())
            .cancel(cancel.clone())
            .on_progress(|progress| {
                if progress.ended == cancel_at {
                    cancel.cancel();
                }
            });
        model.load()
    };
    let error = load(3).expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(error.message().starts_with("stage 4 weights"), "{error}");
    // Handling a cancellation clears it.
    load(0).expect("the model loads");
    cancel.close();
    assert_eq!(load(0).expect_err("closed").kind(), ErrorKind::Cancelled);

    let error = Model::load("/nowhere/model.gguf").expect_err("no such file");
    assert_eq!(error.kind(), ErrorKind::Io);
}
