//! Sessions made, used, cancelled, left, saved, loaded and dropped at random, for as long as one likes:
//! the memory of the process stays flat, and every seat can be had in the end.
//!
//! Arguments: minutes (10), sessions at a time (64), a model file (the built-in one).
#![expect(clippy::print_stdout, reason = "a program that prints figures")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tabla::text::Grammar;
use tabla::{
    DeviceChoice, ErrorKind, GenerateOptions, LoadOptions, Model, Sampling, Session, Source,
    SpeculateOptions,
};

/// Sequences that the model holds: far fewer than there are sessions.
const SEQUENCES: u32 = 8;

/// A generator of numbers that looks random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        // Knuth's linear congruential generator (MMIX).
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }
}

/// What was done.
#[derive(Default)]
struct Count {
    sessions: AtomicU64,
    tokens: AtomicU64,
    cancelled: AtomicU64,
}

fn main() {
    let args = std::env::args().skip(1).filter(|a| a != "--bench");
    let args: Vec<String> = args.collect();
    let number = |at: usize, usual| args.get(at).and_then(|a| a.parse().ok()).unwrap_or(usual);
    let (minutes, threads) = (number(0, 10), number(1, 64));
    let path = args.get(2).map(PathBuf::from);
    let source = path.map_or(Source::BuiltIn, Source::Path);
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        sequences: SEQUENCES,
        context: 512,
        ..LoadOptions::default()
    };
    let load = |options: &LoadOptions| tabla::load(&source, options, &mut |_| {});
    let model = load(&options).expect("the model loads");
    let draft = load(&LoadOptions {
        sequences: 2,
        ..options
    });
    let draft = draft.expect("the draft model loads");
    let folder = std::env::temp_dir().join(format!("tabla-soak-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let (count, ends) = (Count::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for seed in 0..threads {
            let (model, draft, count, ends) = (&model, &draft, &count, &ends);
            let path = folder.join(seed.to_string());
            scope.spawn(move || {
                let mut random = Random(seed + 1);
                while !ends.load(Ordering::Relaxed) {
                    live(model, draft, &path, &mut random, count);
                }
            });
        }
        watch(Duration::from_secs(60 * minutes), &count);
        ends.store(true, Ordering::Relaxed);
    });
    std::fs::remove_dir_all(&folder).expect("it can be removed");
    every_seat(&model);
    println!("every seat can be had");
}

/// One session from its beginning to its end.
fn live(model: &Model, draft: &Model, path: &Path, random: &mut Random, count: &Count) {
    count.sessions.fetch_add(1, Ordering::Relaxed);
    let mut session = Session::new(model.clone());
    let vocab = model.facts().vocab as usize;
    for _ in 0..random.below(4) {
        let prompt = (0..1 + random.below(120)).map(|_| random.below(vocab));
        let prompt = prompt.map(|id| u32::try_from(id).expect("a vocabulary has 32 bits"));
        let prompt: Vec<u32> = prompt.collect();
        if random.below(8) == 0 {
            session.canceller().cancel();
        }
        match session.prefill(&prompt, &mut |_, _| {}) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), ErrorKind::Cancelled | ErrorKind::TooLarge) => {}
            Err(e) => panic!("{e}"),
        }
        session.clear_cancel();
        if !session.tokens().is_empty() {
            generate(&mut session, draft, random, count);
        }
        match random.below(8) {
            0 | 1 => session = session.fork().expect("there is memory"),
            2 | 3 => session.truncate(random.below(session.tokens().len() + 1)),
            4 => {
                session.save(path).expect("it can be saved");
                session = Session::load(model.clone(), path).expect("it is whole");
            }
            _ => {}
        }
        // A full sequence has no place for what comes.
        session.truncate(400);
    }
}

fn generate(session: &mut Session, draft: &Model, random: &mut Random, count: &Count) {
    let grammar = Grammar::Regex("[a-z ]{5,40}".to_string());
    let grammar = || {
        session
            .model()
            .compile_grammar(&grammar)
            .expect("a grammar")
    };
    let how = GenerateOptions {
        sampling: match random.below(4) {
            0 => Sampling::GREEDY,
            1 => Sampling {
                mirostat_tau: 4.0,
                ..Sampling::default()
            },
            seed => Sampling {
                seed: seed as u64,
                ..Sampling::default()
            },
        },
        max_tokens: u32::try_from(1 + random.below(100)).expect("small"),
        grammar: (random.below(5) == 0).then(grammar),
        speculate: match random.below(4) {
            0 | 1 => SpeculateOptions::Off,
            2 => SpeculateOptions::Lookup,
            _ => SpeculateOptions::Draft(draft.clone()),
        },
        ..GenerateOptions::default()
    };
    let cancel = session.canceller();
    let end = random.below(150);
    let way = random.below(3);
    let mut answer = session.answer(&how).expect("it begins");
    if random.below(8) == 0 {
        // Nobody listens for a while: the seat goes to others.
        thread::sleep(Duration::from_millis(20));
    }
    let (mut heard, mut ended) = (0, false);
    while let Some(piece) = answer.next().expect("it goes on") {
        heard += u64::from(!piece.text.is_empty());
        if heard == end as u64 && !ended {
            ended = true;
            count.cancelled.fetch_add(1, Ordering::Relaxed);
            match way {
                0 => cancel.cancel(),
                1 => answer.stop().expect("it ends"),
                // It is dropped in the midst.
                _ => break,
            }
        }
    }
    count
        .tokens
        .fetch_add(answer.stats().tokens.into(), Ordering::Relaxed);
    drop(answer);
    session.clear_cancel();
}

/// LogProbsMode every half a minute what was done, and what the process takes.
fn watch(time: Duration, count: &Count) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        let left = time.saturating_sub(begun.elapsed());
        thread::sleep(left.min(Duration::from_secs(30)));
        let [sessions, tokens, cancelled] =
            [&count.sessions, &count.tokens, &count.cancelled].map(|n| n.load(Ordering::Relaxed));
        println!(
            "{:4} s: {sessions} sessions, {cancelled} answers cancelled or left, {tokens} tokens, {} KiB",
            begun.elapsed().as_secs(),
            resident().map_or_else(|| "?".to_string(), |kib| kib.to_string())
        );
    }
}

/// What the process has in memory, in KiB, where the system tells.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// As many answers as there are seats go on together.
fn every_seat(model: &Model) {
    let how = GenerateOptions {
        sampling: Sampling::GREEDY,
        ignore_stops: true,
        ..GenerateOptions::default()
    };
    let mut sessions: Vec<Session> = (0..SEQUENCES)
        .map(|_| Session::new(model.clone()))
        .collect();
    let begun = sessions.iter_mut().zip(1..).map(|(session, id)| {
        session.prefill(&[id], &mut |_, _| {}).expect("it fits");
        session.answer(&how).expect("it begins")
    });
    let mut answers: Vec<_> = begun.collect();
    for _ in 0..100 {
        for answer in &mut answers {
            let piece = answer.next().expect("it goes on");
            assert!(piece.is_some(), "the context has room for more");
        }
    }
    for mut answer in answers {
        answer.stop().expect("it ends");
    }
}
