//! Soak test: threads create, use, cancel, save, load and drop sessions at random. The memory of the
//! process must stay constant, and every slot must be free at the end.
//!
//! Arguments: minutes (10), concurrent sessions (64), a model file (default: the built-in model).
#![expect(clippy::print_stdout, reason = "a benchmark that prints results")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::text::Grammar;
use tabla::{ErrorKind, GenerateOptions, Model, Sampling, Session, Source, SpeculateOptions};

/// Number of slots of the model, far fewer than sessions.
const SEQUENCES: u32 = 8;

/// Pseudo-random number generator.
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

/// Number of operations so far.
#[derive(Default)]
struct Count {
    sessions: AtomicU64,
    tokens: AtomicU64,
    cancelled: AtomicU64,
}

fn main() {
    let args = std::env::args().skip(1).filter(|a| a != "--bench");
    let args: Vec<String> = args.collect();
    let number = |at: usize, default| args.get(at).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (minutes, threads) = (number(0, 10), number(1, 64));
    let path = args.get(2).map(PathBuf::from);
    let source = path.map_or(Source::BuiltIn, Source::Path);
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .sequences(SEQUENCES)
        .max_context(512);
    let load = |options: &LoadOptions| {
        Model::builder(source.clone())
            .options(options.clone())
            .load()
    };
    let model = load(&options).expect("load the model");
    let draft = load(&options.sequences(2));
    let draft = draft.expect("load the draft model");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (count, stop) = (Count::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for seed in 0..threads {
            let (model, draft, count, stop) = (&model, &draft, &count, &stop);
            let path = folder.path().join(seed.to_string());
            scope.spawn(move || {
                let mut random = Random(seed + 1);
                while !stop.load(Ordering::Relaxed) {
                    run_session(model, draft, &path, &mut random, count);
                }
            });
        }
        report(Duration::from_secs(60 * minutes), &count);
        stop.store(true, Ordering::Relaxed);
    });
    use_every_slot(&model);
    println!("every slot is free");
}

/// Runs one session with random operations.
fn run_session(model: &Model, draft: &Model, path: &Path, random: &mut Random, count: &Count) {
    count.sessions.fetch_add(1, Ordering::Relaxed);
    let mut session = Session::new(model.clone());
    let vocab = model.facts().vocab as usize;
    for _ in 0..random.below(4) {
        let prompt = (0..1 + random.below(120)).map(|_| random.below(vocab));
        let prompt = prompt.map(|id| u32::try_from(id).expect("token ids have 32 bits"));
        let prompt: Vec<u32> = prompt.collect();
        if random.below(8) == 0 {
            session.canceller().cancel();
        }
        match session.prefill(&prompt) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), ErrorKind::Cancelled | ErrorKind::TooLarge) => {}
            Err(e) => panic!("{e}"),
        }
        session.clear_cancel();
        if !session.tokens().is_empty() {
            generate(&mut session, draft, random, count);
        }
        match random.below(8) {
            0 | 1 => session = session.fork().expect("fork"),
            2 | 3 => session.truncate(random.below(session.tokens().len() + 1)),
            4 => {
                session.save(path).expect("save");
                session = Session::load(model.clone(), path).expect("load");
            }
            _ => {}
        }
        // Leaves space for the next prompt.
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
    let options = GenerateOptions::default()
        .sampling(match random.below(4) {
            0 => Sampling::GREEDY,
            1 => Sampling::default().mirostat_tau(4.0),
            seed => Sampling::default().seed(seed as u64),
        })
        .max_tokens(u32::try_from(1 + random.below(100)).expect("small"))
        .grammar((random.below(5) == 0).then(grammar))
        .speculate(match random.below(4) {
            0 | 1 => SpeculateOptions::Off,
            2 => SpeculateOptions::Lookup,
            _ => SpeculateOptions::Draft(draft.clone()),
        });
    let cancel = session.canceller();
    let end = random.below(150);
    let method = random.below(3);
    let mut answer = session.generate(&options).expect("start the answer");
    if random.below(8) == 0 {
        // Fills the output queue, so that the slot is given to another session.
        thread::sleep(Duration::from_millis(20));
    }
    let (mut received, mut ended) = (0, false);
    while let Some(piece) = answer.next_piece().expect("the next piece") {
        received += u64::from(!piece.text.is_empty());
        if received == end as u64 && !ended {
            ended = true;
            count.cancelled.fetch_add(1, Ordering::Relaxed);
            match method {
                0 => cancel.cancel(),
                1 => answer.stop().expect("stop"),
                // Drops the unfinished answer.
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

/// Prints the counts and the memory of the process every 30 seconds.
fn report(time: Duration, count: &Count) {
    let start = Instant::now();
    while start.elapsed() < time {
        let left = time.saturating_sub(start.elapsed());
        thread::sleep(left.min(Duration::from_secs(30)));
        let [sessions, tokens, cancelled] =
            [&count.sessions, &count.tokens, &count.cancelled].map(|n| n.load(Ordering::Relaxed));
        println!(
            "{:4} s: {sessions} sessions, {cancelled} answers cancelled or dropped, {tokens} tokens, {} KiB",
            start.elapsed().as_secs(),
            resident().map_or_else(|| "?".to_string(), |kib| kib.to_string())
        );
    }
}

/// Returns the resident memory of the process in KiB; `None` if the system does not report it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Generates one answer per slot concurrently.
fn use_every_slot(model: &Model) {
    let options = GenerateOptions::default()
        .sampling(Sampling::GREEDY)
        .ignore_eos(true);
    let mut sessions: Vec<Session> = (0..SEQUENCES)
        .map(|_| Session::new(model.clone()))
        .collect();
    let answers = sessions.iter_mut().zip(1..).map(|(session, id)| {
        session.prefill(&[id]).expect("prefill");
        session.generate(&options).expect("start the answer")
    });
    let mut answers: Vec<_> = answers.collect();
    for _ in 0..100 {
        for answer in &mut answers {
            let piece = answer.next_piece().expect("the next piece");
            assert!(piece.is_some(), "the context is not full");
        }
    }
    for mut answer in answers {
        answer.stop().expect("stop");
    }
}
