//! Who has a seat and who waits for one: more sessions than a model has sequences.

use crate::common::golden;
use std::path::Path;
use tabla::{DeviceChoice, ErrorKind, Flow, Generate, Model, Options, Sampling, Session, Source};

fn load(path: &Path, options: &Options) -> Model {
    let source = Source::Path(path.to_path_buf());
    tabla::load(&source, options, &mut |_| {}).expect("the model loads")
}

/// More sessions than may wait are refused, and nobody else is disturbed.
#[test]
fn a_queue_has_an_end() {
    let options = Options {
        device: DeviceChoice::Cpu,
        context: 2048,
        ..Options::default()
    };
    let model = load(&golden("quant_q8_0.gguf"), &options);
    let mut long = Session::new(model.clone());
    long.prefill(&[5; 8], &mut |_, _| {}).expect("it fits");
    let how = Generate {
        // It keeps its seat, where what it has learned is.
        sampling: Sampling {
            temperature: 1.0,
            mirostat_tau: 5.0,
            ..Sampling::GREEDY
        },
        ignore_stops: true,
        ..Generate::default()
    };
    let mut first = long.answer(&how).expect("it generates");
    first.next().expect("it goes on").expect("a token");
    // The one sequence is taken until its session takes more tokens: all others wait.
    let mut waiting: Vec<Session> = (0..1100).map(|_| Session::new(model.clone())).collect();
    let cancels: Vec<_> = waiting.iter().map(Session::canceller).collect();
    let refused = std::thread::scope(|scope| {
        let threads: Vec<_> = waiting
            .iter_mut()
            .map(|s| scope.spawn(move || s.prefill(&[6; 4], &mut |_, _| {})))
            .collect();
        // Those that are refused end at once, the others only when they are cancelled.
        while threads.iter().filter(|thread| thread.is_finished()).count() < 1100 - 1024 {
            std::thread::yield_now();
        }
        cancels.iter().for_each(tabla::Cancel::cancel);
        let ends = threads
            .into_iter()
            .map(|thread| thread.join().expect("it ends"));
        let kinds = ends.map(|end| end.expect_err("none had a turn").kind());
        kinds.filter(|kind| *kind == ErrorKind::State).count()
    });
    assert_eq!(refused, 1100 - 1024);
    first.stop().expect("it ends");
}

/// One thread takes the answers of more sessions than there are seats, piece by piece in turns: who is
/// not listened to gives its seat away, and gets one again.
#[test]
fn more_answers_than_seats_come_in_turns() {
    let options = Options {
        device: DeviceChoice::Cpu,
        context: 300,
        sequences: 2,
        ..Options::default()
    };
    let how = |seed| Generate {
        sampling: Sampling {
            seed,
            ..Sampling::default()
        },
        max_tokens: 200,
        ignore_stops: true,
        ..Generate::default()
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
    let options = Options {
        device: DeviceChoice::Cpu,
        context: 300,
        ..Options::default()
    };
    let model = load(&golden("quant_q8_0.gguf"), &options);
    let how = Generate {
        sampling: Sampling::GREEDY,
        max_tokens: 100,
        ignore_stops: true,
        ..Generate::default()
    };
    // What Mirostat has learned is in a seat, which it keeps.
    let endless = Generate {
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
