//! A GPU that goes away in the middle of work: an error from then on, and a model that is loaded
//! anew goes on.

use crate::common::{golden, greedy, replays};
use std::time::Duration;
use tabla::exec::gpu::Device;
use tabla::text::EncodeOptions;
use tabla::{
    EmbedOptions, ErrorKind, Flow, GenerateOptions, LoadOptions, Model, Pooling, Result, Sampling,
    Session, Source,
};

const MEAN: EmbedOptions<'_> = EmbedOptions {
    pooling: Some(Pooling::Mean),
    dimensions: 0,
    normalize: None,
    prompt: None,
    truncate: false,
};

/// The built-in model on a GPU of its own.
fn load(options: &LoadOptions) -> (Model, Device) {
    load_from(&Source::BuiltIn, options)
}

fn load_from(source: &Source, options: &LoadOptions) -> (Model, Device) {
    let options = LoadOptions {
        context: 128,
        sequences: 3,
        chunk_tokens: 16,
        embeddings: true,
        ..options.clone()
    };
    let model = tabla::load(source, &options, &mut |_| {}).unwrap();
    let gpu = model.gpu().unwrap();
    (model, gpu)
}

fn begun(model: Model) -> Session {
    let mut session = Session::new(model);
    let prompt = session
        .tokenizer()
        .encode("Once upon a time", EncodeOptions::PROMPT)
        .unwrap();
    session.prefill(&prompt, &mut |_, _| {}).unwrap();
    session
}

fn lost<T>(result: Result<T>) {
    let error = result.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(error.message().contains("load the model again"), "{error}");
}

/// Destroys the device when the second token comes, and says how many tokens came.
fn lose_at_the_second(session: &mut Session, gpu: &Device, generate: &GenerateOptions) -> u32 {
    let mut heard = 0;
    lost(session.generate(generate, &mut |_| {
        heard += 1;
        if heard == 2 {
            gpu.destroy();
        }
        Flow::Continue
    }));
    heard
}

/// Every call that asks the device for something.
fn all_lost(session: &mut Session) {
    let (vocab, known) = (session.facts().vocab as usize, session.tokens().len());
    let more = greedy(4);
    lost(session.generate(&more, &mut |_| Flow::Continue));
    lost(session.step(&Sampling::GREEDY));
    lost(session.draw(&Sampling::GREEDY));
    assert_eq!(session.tokens().len(), known, "nothing was picked");
    lost(session.logits(&mut vec![0.0; vocab]));
    lost(session.logits_all(&mut vec![0.0; known * vocab]));
    lost(session.prefill(&[5, 6], &mut |_, _| {}));
    lost(session.force(7));
    session.reset();
    lost(session.prefill(&[5, 6], &mut |_, _| {}));
    session.reset();
    let mut row = vec![0.0; session.facts().dim as usize];
    lost(session.embed(&["once"], &MEAN, &mut row, &mut |_, _| {}));
}

#[test]
fn a_generation_ends_with_the_loss_of_its_gpu() {
    for options in replays() {
        let mut sound = begun(load(&options).0);
        sound
            .generate(&greedy(110), &mut |_| Flow::Continue)
            .unwrap();
        // Of the longer chains one is under way behind the one that is being heard.
        for burst in [1, 4] {
            let (model, gpu) = load(&options);
            let mut session = begun(model);
            // Longer than what the model picks ahead of who hears it.
            let generate = GenerateOptions {
                burst,
                ..greedy(110)
            };
            let heard = lose_at_the_second(&mut session, &gpu, &generate);
            // What had come before it went stays.
            assert!(
                (2..110).contains(&heard),
                "{heard} tokens of bursts of {burst}"
            );
            let tokens = session.tokens();
            assert!(sound.tokens().starts_with(tokens), "{tokens:?}");
            all_lost(&mut session);
            drop(session);
            let mut anew = begun(load(&options).0);
            anew.generate(&generate, &mut |_| Flow::Continue).unwrap();
            assert_eq!(anew.tokens(), sound.tokens(), "bursts of {burst}");
        }
    }
}

/// Who destroys the device hears of the loss while the model's thread waits for a token: whichever of
/// them is told first, it is a loss.
#[test]
fn a_loss_is_a_loss_in_whatever_order_threads_hear_of_it() {
    let source = Source::Path(golden("arch/llama_bias/model.gguf"));
    for options in replays() {
        for round in 0..20 {
            let (model, gpu) = load_from(&source, &options);
            let mut session = begun(model);
            let generate = GenerateOptions {
                burst: 1 + 3 * (round % 2),
                ignore_stops: true,
                ..greedy(80)
            };
            lose_at_the_second(&mut session, &gpu, &generate);
        }
    }
}

#[test]
fn a_generation_ends_when_another_thread_loses_its_gpu() {
    for options in replays() {
        let (model, gpu) = load(&options);
        let mut session = begun(model);
        let endless = GenerateOptions {
            overflow: tabla::Overflow::Shift { keep: 4 },
            ..greedy(0)
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                gpu.destroy();
            });
            lost(session.generate(&endless, &mut |_| Flow::Continue));
        });
        all_lost(&mut session);
    }
}

#[test]
fn prompts_embeddings_and_batches_end_with_the_loss_of_their_gpu() {
    for options in replays() {
        let (model, gpu) = load(&options);
        let mut session = Session::new(model);
        lost(session.prefill(&[5; 128], &mut |_, _| gpu.destroy()));

        let (model, gpu) = load(&options);
        let mut session = Session::new(model);
        let mut rows = vec![0.0; 2 * session.facts().dim as usize];
        let texts = ["once", "upon a time"];
        lost(session.embed(&texts, &MEAN, &mut rows, &mut |_, _| gpu.destroy()));

        let (model, gpu) = load(&options);
        let session = || {
            let mut session = Session::new(model.clone());
            session.prefill(&[5, 6, 7], &mut |_, _| {}).unwrap();
            session
        };
        let mut sessions = [session(), session(), session()];
        let how = greedy(0);
        let mut answers: Vec<_> = sessions
            .iter_mut()
            .map(|s| s.answer(&how).unwrap())
            .collect();
        answers
            .iter_mut()
            .for_each(|a| assert!(a.next().unwrap().is_some()));
        gpu.destroy();
        for answer in &mut answers {
            let error = loop {
                match answer.next() {
                    Ok(piece) => assert!(piece.is_some(), "it ends with an error"),
                    Err(error) => break error,
                }
            };
            lost::<()>(Err(error));
        }
        drop(answers);
        sessions.iter_mut().for_each(all_lost);
    }
}
