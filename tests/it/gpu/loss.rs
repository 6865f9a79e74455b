//! Tests of device loss during work: it is a permanent error, and a newly loaded model works.

use crate::common::{golden, greedy, is_gpu_slow, replays};
use std::ops::ControlFlow;
use std::time::Duration;
use tabla::embed::{EmbedOptions, Pooling};
use tabla::exec::gpu::Device;
use tabla::load::LoadOptions;
use tabla::text::EncodeOptions;
use tabla::{ErrorKind, Finish, GenerateOptions, Model, Result, Sampling, Session, Source};

fn mean() -> EmbedOptions<'static> {
    EmbedOptions::default().pooling(Pooling::Mean)
}

/// Loads a small model on a new device.
fn load(options: &LoadOptions) -> (Model, Device) {
    let source = Source::Path(golden("arch/llama_bias/model.gguf"));
    let options = options
        .clone()
        .max_context(128)
        .sequences(3)
        .chunk_tokens(16)
        .embeddings(true);
    let model = Model::builder(source).options(options).load().unwrap();
    let gpu = model.gpu().unwrap();
    (model, gpu)
}

fn prefilled(model: Model) -> Session {
    let mut session = Session::new(model);
    let prompt = session
        .tokenizer()
        .encode("Once upon a time", EncodeOptions::PROMPT)
        .unwrap();
    session.prefill(&prompt).unwrap();
    session
}

pub(super) fn lost<T>(result: Result<T>) {
    let error = result.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(error.message().contains("load the model again"), "{error}");
}

/// Destroys the device at the second token; returns the number of received tokens.
fn lose_at_second_token(session: &mut Session, gpu: &Device, generate: &GenerateOptions) -> u32 {
    let mut received = 0;
    lost(session.generate_with(generate, |_| {
        received += 1;
        if received == 2 {
            gpu.destroy();
        }
        ControlFlow::Continue(())
    }));
    received
}

/// Checks that every call that uses the device returns the error.
fn all_lost(session: &mut Session) {
    let (vocab, known) = (session.facts().vocab as usize, session.tokens().len());
    let more = greedy(4);
    lost(session.generate_with(&more, |_| ControlFlow::Continue(())));
    lost(session.step(&Sampling::GREEDY));
    lost(session.draw(&Sampling::GREEDY));
    assert_eq!(session.tokens().len(), known, "no token was added");
    lost(session.logits(&mut vec![0.0; vocab]));
    lost(session.logits_all(&mut vec![0.0; known * vocab]));
    lost(session.prefill(&[5, 6]));
    lost(session.force(7));
    session.reset();
    lost(session.prefill(&[5, 6]));
    session.reset();
    let mut row = vec![0.0; session.facts().dim as usize];
    lost(session.embed(&["once"], &mean(), &mut row, &mut |_, _| {}));
}

#[test]
fn device_loss_ends_a_generation() {
    for options in replays() {
        let mut reference = prefilled(load(&options).0);
        reference
            .generate_with(&greedy(110), |_| ControlFlow::Continue(()))
            .unwrap();
        // With longer bursts, another burst is pending while tokens of the first are received.
        for burst in [1, 4] {
            let (model, gpu) = load(&options);
            let mut session = prefilled(model);
            // Longer than the number of tokens that the model generates ahead.
            let generate = greedy(110).burst(burst);
            let received = lose_at_second_token(&mut session, &gpu, &generate);
            // The received tokens are kept.
            assert!(
                (2..110).contains(&received),
                "{received} tokens in bursts of {burst}"
            );
            let tokens = session.tokens();
            assert!(reference.tokens().starts_with(tokens), "{tokens:?}");
            all_lost(&mut session);
            drop(session);
            let mut reloaded = prefilled(load(&options).0);
            reloaded
                .generate_with(&generate, |_| ControlFlow::Continue(()))
                .unwrap();
            assert_eq!(reloaded.tokens(), reference.tokens(), "bursts of {burst}");
        }
    }
}

/// The destroying thread polls the loss while the model thread waits for a token; the error must be
/// `DeviceLost` in either order.
#[test]
fn device_loss_is_reported_in_any_thread_order() {
    let rounds = if is_gpu_slow() { 8 } else { 20 };
    for options in replays() {
        for round in 0..rounds {
            let (model, gpu) = load(&options);
            let mut session = prefilled(model);
            let generate = greedy(80).burst(1 + 3 * (round % 2)).ignore_eos(true);
            lose_at_second_token(&mut session, &gpu, &generate);
        }
    }
}

#[test]
fn device_loss_by_another_thread_ends_a_generation() {
    for options in replays() {
        let (model, gpu) = load(&options);
        let mut session = prefilled(model);
        let endless = greedy(u32::MAX).overflow(tabla::Overflow::Shift { n_keep: 4 });
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                gpu.destroy();
            });
            lost(session.generate_with(&endless, |_| ControlFlow::Continue(())));
        });
        all_lost(&mut session);
    }
}

#[test]
fn device_loss_ends_prompts_embeddings_and_batches() {
    for options in replays() {
        let (model, gpu) = load(&options);
        let mut session = Session::new(model);
        lost(session.prefill_with(&[5; 128], |_, _| gpu.destroy()));

        let (model, gpu) = load(&options);
        let mut session = Session::new(model);
        let mut rows = vec![0.0; 2 * session.facts().dim as usize];
        let texts = ["once", "upon a time"];
        lost(session.embed(&texts, &mean(), &mut rows, &mut |_, _| gpu.destroy()));

        let (model, gpu) = load(&options);
        let session = || {
            let mut session = Session::new(model.clone());
            session.prefill(&[5, 6, 7]).unwrap();
            session
        };
        let mut sessions = [session(), session(), session()];
        let generate = greedy(u32::MAX);
        let mut answers: Vec<_> = sessions
            .iter_mut()
            .map(|s| s.generate(&generate).unwrap())
            .collect();
        answers
            .iter_mut()
            .for_each(|a| assert!(a.next_piece().unwrap().is_some()));
        gpu.destroy();
        let (stopped, read) = answers.split_first_mut().unwrap();
        let finish = match stopped.stop() {
            Ok(()) => Finish::Callback,
            Err(_) => Finish::Failed,
        };
        assert_eq!(stopped.stats().finish, Some(finish));
        for answer in read {
            assert_eq!(answer.stats().finish, None, "it runs");
            let error = loop {
                match answer.next_piece() {
                    Ok(piece) => assert!(piece.is_some(), "ends with an error"),
                    Err(error) => break error,
                }
            };
            lost::<()>(Err(error));
            assert_eq!(answer.stats().finish, Some(Finish::Failed));
        }
        drop(answers);
        sessions.iter_mut().for_each(all_lost);
    }
}
