//! Who has a seat and who waits for one: more sessions than a model has sequences.

use crate::common::{golden, has_gpu};
use std::path::Path;
use tabla::{
    Batch, BatchEvent, DeviceChoice, ErrorKind, Finish, Flow, GenerateOptions, LoadOptions, Model,
    Sampling, Session, Source,
};

fn load(path: &Path, options: &LoadOptions) -> Model {
    let source = Source::Path(path.to_path_buf());
    tabla::load(&source, options, &mut |_| {}).expect("the model loads")
}

/// One thread takes the answers of more sessions than there are seats, piece by piece in turns: who is
/// not listened to gives its seat away, and gets one again, with what Mirostat has learned.
#[test]
fn more_answers_than_seats_come_in_turns() {
    in_turns(DeviceChoice::Cpu);
}

#[test]
fn more_answers_than_seats_come_in_turns_on_a_gpu() {
    if has_gpu() {
        in_turns(DeviceChoice::Gpu);
    }
}

fn in_turns(device: DeviceChoice) {
    let options = LoadOptions {
        device,
        context: 300,
        sequences: 2,
        ..LoadOptions::default()
    };
    let how = |seed| GenerateOptions {
        sampling: Sampling {
            seed,
            mirostat_tau: if seed % 2 == 1 { 4.0 } else { 0.0 },
            ..Sampling::default()
        },
        max_tokens: 200,
        ignore_stops: true,
        ..GenerateOptions::default()
    };
    let path = golden("quant_q8_0.gguf");
    let model = load(&path, &options);
    let begun = |model: &Model, seed: u64| {
        let mut session = Session::new(model.clone());
        let prompt = [3, 4, 5 + u32::try_from(seed).expect("small")];
        session.prefill(&prompt, &mut |_, _| {}).expect("it fits");
        session
    };
    let mut sessions: Vec<Session> = (0..5).map(|seed| begun(&model, seed)).collect();
    let answers = sessions.iter_mut().zip(0..);
    let answers = answers.map(|(session, seed)| session.answer(&how(seed)));
    let mut answers: Vec<_> = answers.map(|a| a.expect("it generates")).collect();
    let mut going = true;
    while going {
        going = false;
        for answer in &mut answers {
            going |= answer.next().expect("it goes on").is_some();
        }
    }
    drop(answers);
    let alone = load(&path, &options);
    for (session, seed) in sessions.iter().zip(0..) {
        let mut other = begun(&alone, seed);
        let stats = other.generate(&how(seed), &mut |_| Flow::Continue);
        assert_eq!(stats.expect("it generates").tokens, 200);
        assert_eq!(session.tokens(), other.tokens(), "seed {seed}");
    }
}

/// Who leaks an answer has lost its sequence, and nothing else is harmed.
#[test]
fn a_leaked_answer_harms_nobody() {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        context: 300,
        ..LoadOptions::default()
    };
    let model = load(&golden("quant_q8_0.gguf"), &options);
    let how = GenerateOptions {
        sampling: Sampling::GREEDY,
        max_tokens: 100,
        ignore_stops: true,
        ..GenerateOptions::default()
    };
    let endless = GenerateOptions {
        sampling: Sampling {
            mirostat_tau: 5.0,
            ..Sampling::default()
        },
        max_tokens: 280,
        ..how.clone()
    };
    let mut leaking = Session::new(model.clone());
    let mut tokens = Vec::new();
    for _ in 0..2 {
        leaking.prefill(&[5; 8], &mut |_, _| {}).expect("it fits");
        let mut answer = leaking.answer(&how).expect("it generates");
        answer.next().expect("it goes on").expect("a token");
        std::mem::forget(answer);
    }
    // Nor one whose session has gone.
    let mut gone = Session::new(model.clone());
    gone.prefill(&[5; 8], &mut |_, _| {}).expect("it fits");
    std::mem::forget(gone.answer(&endless).expect("it generates"));
    drop(gone);
    for session in [&mut leaking, &mut Session::new(model)] {
        session.prefill(&[7; 8], &mut |_, _| {}).expect("it fits");
        session
            .generate(&how, &mut |_| Flow::Continue)
            .expect("it generates");
        tokens.push(session.tokens().to_vec());
    }
    assert_eq!(tokens[0], tokens[1]);
    assert_eq!(tokens[0].len(), 108);
}

/// One thread takes the answers to more prompts than there are seats, each as the prompt gets it alone;
/// also of samplers that keep their seat until they end.
#[test]
fn a_batch_answers_as_each_alone() {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        context: 300,
        sequences: 2,
        chunk_tokens: 16,
        ..LoadOptions::default()
    };
    let path = golden("quant_q8_0.gguf");
    let model = load(&path, &options);
    let how = |number: u32| GenerateOptions {
        sampling: Sampling {
            seed: number.into(),
            mirostat_tau: if number.is_multiple_of(3) { 5.0 } else { 0.0 },
            ..Sampling::default()
        },
        max_tokens: 20 + 15 * number,
        ignore_stops: true,
        ..GenerateOptions::default()
    };
    let prompt = |number: u32| -> Vec<u32> { (0..10 + 20 * number).map(|i| 3 + i % 50).collect() };
    let mut batch = Batch::new(model);
    let cancelled = 4;
    for number in 0..7 {
        let (at, cancel) = batch
            .add(&prompt(number), &how(number))
            .expect("it is added");
        assert_eq!(at, number as usize);
        if number == cancelled {
            cancel.cancel();
        }
    }
    assert_eq!(batch.pending(), 7);
    let empty = batch.add(&[], &how(0)).expect_err("it is empty");
    assert_eq!(empty.kind(), ErrorKind::State);
    let long = batch.add(&[3; 301], &how(0)).expect_err("it is long");
    assert_eq!(long.kind(), ErrorKind::TooLarge);
    let (mut texts, mut sessions) = (vec![String::new(); 7], Vec::new());
    while let Some(piece) = batch.next() {
        let number = piece.number;
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
            assert_eq!(stats.finish, Finish::Cancelled);
            continue;
        }
        let mut other = Session::new(alone.clone());
        other.prefill(&prompt(at), &mut |_, _| {}).expect("it fits");
        let mut text = String::new();
        let own = other.generate(&how(at), &mut |piece| {
            text.push_str(piece.text);
            Flow::Continue
        });
        let own = own.expect("it generates");
        assert_eq!((stats.tokens, stats.finish), (own.tokens, own.finish));
        assert_eq!(session.tokens(), other.tokens(), "{number}");
        assert_eq!(texts[number], text, "{number}");
    }
}
