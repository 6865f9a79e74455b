//! Slot assignment with more sessions than sequences.

use crate::common::{golden, has_gpu, is_gpu_slow};
use std::ops::ControlFlow;
use std::path::Path;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::{
    Batch, BatchEvent, ErrorKind, Finish, GenerateOptions, Model, Sampling, Session, Source,
};

fn load(path: &Path, options: &LoadOptions) -> Model {
    let source = Source::Path(path.to_path_buf());
    Model::builder(source)
        .options(options.clone())
        .load()
        .expect("the model loads")
}

/// More generations than slots, read round-robin: stalled requests are preempted and resumed with
/// their Mirostat state.
#[test]
fn preempted_requests_resume_identically() {
    check_round_robin(DeviceChoice::Cpu);
}

#[test]
fn preempted_requests_resume_identically_on_gpu() {
    if has_gpu() {
        check_round_robin(DeviceChoice::Gpu);
    }
}

fn check_round_robin(device: DeviceChoice) {
    let count = match device {
        DeviceChoice::Gpu if is_gpu_slow() => 100,
        _ => 200,
    };
    let options = LoadOptions::default()
        .device(device)
        .max_context(300)
        .sequences(2);
    let generation = |seed| {
        GenerateOptions::default()
            .sampling(
                Sampling::default()
                    .seed(seed)
                    .mirostat_tau(if seed % 2 == 1 { 4.0 } else { 0.0 }),
            )
            .max_tokens(count)
            .ignore_eos(true)
    };
    let path = golden("quant_q8_0.gguf");
    let model = load(&path, &options);
    let begun = |model: &Model, seed: u64| {
        let mut session = Session::new(model.clone());
        let prompt = [3, 4, 5 + u32::try_from(seed).expect("small")];
        session.prefill(&prompt).expect("prefill succeeds");
        session
    };
    let mut sessions: Vec<Session> = (0..5).map(|seed| begun(&model, seed)).collect();
    let answers = sessions.iter_mut().zip(0..);
    let answers = answers.map(|(session, seed)| session.generate(&generation(seed)));
    let mut answers: Vec<_> = answers.map(|a| a.expect("generation succeeds")).collect();
    let mut active = true;
    while active {
        active = false;
        for answer in &mut answers {
            active |= answer.next_piece().expect("generation continues").is_some();
        }
    }
    drop(answers);
    let alone = load(&path, &options);
    for (session, seed) in sessions.iter().zip(0..) {
        let mut other = begun(&alone, seed);
        let stats = other.generate_with(&generation(seed), |_| ControlFlow::Continue(()));
        assert_eq!(stats.expect("generation succeeds").tokens, count);
        assert_eq!(session.tokens(), other.tokens(), "seed {seed}");
    }
}

/// A leaked `Answer` loses its sequence, and has no other effect.
#[test]
fn leaked_answer_does_not_block_the_model() {
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .max_context(300);
    let model = load(&golden("quant_q8_0.gguf"), &options);
    let generation = GenerateOptions::default()
        .sampling(Sampling::GREEDY)
        .max_tokens(100)
        .ignore_eos(true);
    let endless = generation
        .clone()
        .sampling(Sampling::default().mirostat_tau(5.0))
        .max_tokens(280);
    let mut leaking = Session::new(model.clone());
    let mut tokens = Vec::new();
    for _ in 0..2 {
        leaking.prefill(&[5; 8]).expect("prefill succeeds");
        let mut answer = leaking.generate(&generation).expect("generation succeeds");
        answer
            .next()
            .expect("generation continues")
            .expect("a token");
        std::mem::forget(answer);
    }
    // Leak an answer and drop its session.
    let mut gone = Session::new(model.clone());
    gone.prefill(&[5; 8]).expect("prefill succeeds");
    std::mem::forget(gone.generate(&endless).expect("generation succeeds"));
    drop(gone);
    for session in [&mut leaking, &mut Session::new(model)] {
        session.prefill(&[7; 8]).expect("prefill succeeds");
        session
            .generate_with(&generation, |_| ControlFlow::Continue(()))
            .expect("generation succeeds");
        tokens.push(session.tokens().to_vec());
    }
    assert_eq!(tokens[0], tokens[1]);
    assert_eq!(tokens[0].len(), 108);
}

/// A batch with more prompts than slots matches single sessions, also with Mirostat.
#[test]
fn batch_matches_single_sessions() {
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .max_context(300)
        .sequences(2)
        .chunk_tokens(16);
    let path = golden("quant_q8_0.gguf");
    let model = load(&path, &options);
    let generation = |number: u32| {
        GenerateOptions::default()
            .sampling(
                Sampling::default()
                    .seed(number.into())
                    .mirostat_tau(if number.is_multiple_of(3) { 5.0 } else { 0.0 }),
            )
            .max_tokens(20 + 15 * number)
            .ignore_eos(true)
    };
    let prompt = |number: u32| -> Vec<u32> { (0..10 + 20 * number).map(|i| 3 + i % 50).collect() };
    let mut batch = Batch::new(model);
    let cancelled = 4;
    for number in 0..7 {
        let (at, cancel) = batch
            .add(&prompt(number), &generation(number))
            .expect("add succeeds");
        assert_eq!(at, number as usize);
        if number == cancelled {
            cancel.cancel();
        }
    }
    assert_eq!(batch.pending(), 7);
    let empty = batch.add(&[], &generation(0)).expect_err("empty prompt");
    assert_eq!(empty.kind(), ErrorKind::State);
    let long = batch
        .add(&[3; 301], &generation(0))
        .expect_err("prompt exceeds the context");
    assert_eq!(long.kind(), ErrorKind::TooLarge);
    let (mut texts, mut sessions) = (vec![String::new(); 7], Vec::new());
    while let Some(piece) = batch.next() {
        let number = piece.request;
        match piece.event {
            BatchEvent::Piece(piece) => texts[number].push_str(piece.text),
            BatchEvent::End(stats, session) => sessions.push((number, stats, session)),
            BatchEvent::Failed(error) => panic!("{number}: {error}"),
        }
    }
    assert_eq!((batch.pending(), sessions.len()), (0, 7));
    let alone = load(&path, &options);
    for (number, stats, session) in sessions {
        let at = u32::try_from(number).expect("small");
        if at == cancelled {
            assert_eq!(stats.finish, Some(Finish::Cancelled));
            continue;
        }
        let mut other = Session::new(alone.clone());
        other.prefill(&prompt(at)).expect("prefill succeeds");
        let mut text = String::new();
        let own = other.generate_with(&generation(at), |piece| {
            text.push_str(piece.text);
            ControlFlow::Continue(())
        });
        let own = own.expect("generation succeeds");
        assert_eq!((stats.tokens, stats.finish), (own.tokens, own.finish));
        assert_eq!(session.tokens(), other.tokens(), "{number}");
        assert_eq!(texts[number], text, "{number}");
    }
}
