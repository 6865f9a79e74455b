//! Nothing on the token path allocates: a counting allocator proves it.
//!
//! That holds for a GPU too where it replays what was recorded. Where wgpu encodes, it allocates
//! on its own: every allocation there is traced to the crate that asked. Either way a soak of many
//! tokens leaves the process as large as it was.
#![expect(
    clippy::print_stdout,
    reason = "the figures are what one runs this for"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tabla::text::EncodeOptions;
use tabla::{
    DeviceChoice, Flow, GenerateOptions, LoadOptions, Overflow, Replay, Sampling, Session, Source,
    SpeculateOptions,
};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Frames of a trace at most: enough to come from the allocator to the test.
const FRAMES: usize = 64;

/// The calls that led to an allocation, innermost first, as addresses.
type Trace = [usize; FRAMES];

thread_local! {
    /// Whether this thread's allocations are traced.
    static TRACING: Cell<bool> = const { Cell::new(false) };
    static TRACES: RefCell<Vec<Trace>> = const { RefCell::new(Vec::new()) };
}

thread_local! {
    /// Its address tells threads apart.
    static HERE: u8 = const { 0 };
}

fn here() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// The thread that allocated first, which is the process's own.
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// A thread whose allocations are not counted: the one that waits for the test, which says so
/// after a minute.
static WATCHER: AtomicUsize = AtomicUsize::new(0);

/// Counts an allocation, and traces it where that is asked for.
fn count() {
    let here = here();
    let _ = FIRST.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed);
    if WATCHER.load(Ordering::Relaxed) == here {
        return;
    }
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    // Tracing allocates itself: it is off meanwhile.
    if TRACING.replace(false) {
        let mut trace = [0; FRAMES];
        let mut depth = 0;
        backtrace::trace(|frame| {
            trace[depth] = frame.ip().addr();
            depth += 1;
            depth < FRAMES
        });
        TRACES.with_borrow_mut(|traces| traces.push(trace));
        TRACING.set(true);
    }
}

/// Allocations of this thread while `work` runs: the traces of those that the library asked for,
/// and the number of all.
fn traced(work: impl FnOnce()) -> (Vec<String>, usize) {
    TRACING.set(true);
    work();
    TRACING.set(false);
    let traces = TRACES.take();
    let mut names = HashMap::new();
    let ours = traces
        .iter()
        .filter_map(|trace| asked_by_us(trace, &mut names));
    (ours.collect(), traces.len())
}

/// Where the library asked, if the innermost frame of a known crate is one of its own. Told by
/// source files: with line tables alone, names of functions come without their crates.
fn asked_by_us(trace: &Trace, files: &mut HashMap<usize, Vec<String>>) -> Option<String> {
    for ip in trace.iter().filter(|ip| **ip != 0) {
        for place in files.entry(*ip).or_insert_with(|| resolve(*ip)) {
            let theirs = ["/wgpu", "/naga-", "/ash-", "/gpu-"];
            if theirs.iter().any(|crate_name| place.contains(crate_name)) {
                return None;
            }
            let elsewhere = ["/registry/", "/rustc/", "library/", "tests/alloc.rs"];
            if !elsewhere.iter().any(|part| place.contains(part)) {
                return Some(place.clone());
            }
        }
    }
    Some("nobody that is known".to_string())
}

/// The source lines of an address, inlined ones first.
fn resolve(ip: usize) -> Vec<String> {
    let mut places = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut(ip), |symbol| {
        if let Some(file) = symbol.filename() {
            places.push(format!(
                "{}:{}",
                file.display(),
                symbol.lineno().unwrap_or(0)
            ));
        }
    });
    places
}

/// Allocations of the whole process while `work` runs: its threads count too.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    work();
    ALLOCATIONS.load(Ordering::SeqCst) - before
}

const SAMPLED: Sampling = Sampling {
    temperature: 0.8,
    top_k: 40,
    top_p: 0.95,
    min_p: 0.05,
    repeat_penalty: 1.1,
    repeat_last: 64,
    seed: 1,
    ..Sampling::GREEDY
};

/// Samplers of the full tail, and one that learns.
const UNUSUAL: [Sampling; 2] = [
    Sampling {
        dry_multiplier: 0.8,
        xtc_probability: 0.5,
        top_n_sigma: 2.0,
        typical_p: 0.9,
        ..SAMPLED
    },
    Sampling {
        mirostat_tau: 5.0,
        ..SAMPLED
    },
];

/// One test, so that no other runs beside it and counts.
#[test]
fn the_token_path_allocates_nothing() {
    let first = FIRST.load(Ordering::Relaxed);
    // With one thread for all tests, that thread is the test's.
    if first != here() {
        WATCHER.store(first, Ordering::Relaxed);
    }
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        threads: 2,
        ..LoadOptions::default()
    };
    let model = tabla::load(&Source::BuiltIn, &options, &mut |_| {}).expect("it loads");
    let mut session = Session::new(model);
    let prompt = session
        .tokenizer()
        .encode("Once upon a time", EncodeOptions::PROMPT)
        .expect("text");
    let [full, learning] = UNUSUAL;
    for sampling in [Sampling::GREEDY, SAMPLED, full, learning] {
        session.reset();
        session.prefill(&prompt, &mut |_, _| {}).expect("it fits");
        let count = allocations(|| {
            for _ in 0..256 {
                session.step(&sampling).expect("a token");
            }
        });
        assert_eq!(count, 0, "{sampling:?}: 256 steps");

        session.reset();
        let prefill = allocations(|| session.prefill(&prompt, &mut |_, _| {}).expect("it fits"));
        assert_eq!(prefill, 0, "prefill");

        let mut bytes = 0;
        let ways = [
            (SpeculateOptions::Off, None, 8),
            // What makes guesses has room of its own.
            (SpeculateOptions::Lookup, None, 12),
            (SpeculateOptions::Off, Some(3), 8),
        ];
        let mut each = |piece: tabla::Piece<'_>| {
            bytes += piece.text.len();
            Flow::Continue
        };
        for (speculate, log_probs, most) in ways {
            // An answer takes its room once, whatever the number of tokens; some of it stays for the next one.
            let [_, few, many] = [1, 8, 256].map(|max_tokens| {
                let generate = GenerateOptions {
                    sampling,
                    max_tokens,
                    ignore_stops: true,
                    speculate: speculate.clone(),
                    log_probs,
                    ..GenerateOptions::default()
                };
                session.truncate(prompt.len());
                allocations(|| {
                    session
                        .generate(&generate, &mut each)
                        .expect("it generates");
                })
            });
            let what = format!("{sampling:?}, {speculate:?}, log-probabilities {log_probs:?}");
            assert_eq!(few, many, "{what}: allocations of 8 and of 256 tokens");
            assert!(few <= most, "{what}: {few} allocations of an answer");
        }
        assert!(bytes > 256, "{bytes} bytes of text");
    }
    println!("0 allocations a token on the CPU over 256 tokens, greedy and sampled");
    on_a_gpu(&Source::BuiltIn, &prompt);
    together(&prompt, &options);
    for name in ARCHITECTURES {
        other_architectures(name, &options);
    }
    soak();
}

/// Sequences in tables of every width, which end one after the other.
fn together(prompt: &[u32], options: &LoadOptions) {
    let options = LoadOptions {
        sequences: 20,
        context: 128,
        ..options.clone()
    };
    let model = tabla::load(&Source::BuiltIn, &options, &mut |_| {}).expect("it loads");
    let sessions = (0..20).map(|_| Session::new(model.clone()));
    let mut sessions: Vec<Session> = sessions.collect();
    let generate = GenerateOptions {
        sampling: Sampling::GREEDY,
        ignore_stops: true,
        ..GenerateOptions::default()
    };
    for (i, session) in sessions.iter_mut().enumerate() {
        let prompt = &prompt[..=i % prompt.len()];
        session.prefill(prompt, &mut |_, _| {}).expect("it fits");
    }
    let answers = sessions.iter_mut().map(|session| session.answer(&generate));
    let mut answers: Vec<_> = answers
        .map(|answer| answer.expect("it generates"))
        .collect();
    for answer in &mut answers {
        answer.next().expect("it goes on");
    }
    let count = allocations(|| {
        let mut going = true;
        while going {
            going = false;
            for answer in &mut answers {
                going |= answer.next().expect("it goes on").is_some();
            }
        }
    });
    drop(answers);
    assert_eq!(count, 0, "20 sequences");
    assert!(sessions.iter().all(|session| session.tokens().len() == 129));
    println!("0 allocations a token of 20 sequences on the CPU");
}

/// Windows, experts, ternary weights, layers that share a cache.
const ARCHITECTURES: [&str; 4] = ["gemma3", "qwen3moe", "bitnet", "gemma4"];

/// A model of few layers.
fn golden(name: &str) -> Source {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/arch");
    Source::Path(folder.join(name).join("model.gguf"))
}

/// Tokens past every window, and a shift.
fn other_architectures(name: &str, options: &LoadOptions) {
    let source = golden(name);
    let options = LoadOptions {
        context: 96,
        chunk_tokens: 8,
        ..options.clone()
    };
    let model = tabla::load(&source, &options, &mut |_| {}).expect("it loads");
    let mut session = Session::new(model);
    let prompt = [5, 6, 7, 8];
    for sampling in [Sampling::GREEDY, SAMPLED] {
        session.reset();
        session.prefill(&prompt, &mut |_, _| {}).expect("it fits");
        let count = allocations(|| {
            for _ in 0..64 {
                session.step(&sampling).expect("a token");
            }
            session.shift(2, 40);
            session.step(&sampling).expect("a token");
        });
        assert_eq!(
            count, 0,
            "{name}, {sampling:?}: 64 steps, a shift and a step"
        );
    }
    println!("0 allocations a token of {name} on the CPU");
    on_a_gpu(&source, &prompt);
}

/// What wgpu may allocate for a token: 24 bytes for every dispatch behind a barrier, some for a
/// submission, and some whenever the host asks whether the device is done.
const WGPU_PER_TOKEN_MAX: usize = 1000;

fn on_a_gpu(source: &Source, prompt: &[u32]) {
    let gpus = tabla::devices().expect("a CPU").gpus;
    if gpus.is_empty() {
        println!("SKIPPED: the GPU's share: no adapter was found");
        return;
    }
    encoded(source, prompt);
    if gpus[0].backend == "vulkan" {
        recorded(source, prompt);
    }
}

/// Tokens of a soak, and those behind which all that is made once has been made.
const SOAK: u32 = 10_000;
const WARM: u32 = 2_000;
/// Bytes by which the process may have grown between the two: less than a page for 10 tokens, so that
/// a buffer lost for each would show.
const GROWTH_MAX: u64 = 3 << 20;

/// Many tokens, over the end of the context again and again, take no more memory than some. Each way
/// of replay takes a minute on a software GPU, so only `cargo xtask exhaustive` tries both.
fn soak() {
    if tabla::devices().expect("a CPU").gpus.is_empty() {
        println!("SKIPPED: the soak: no adapter was found");
        return;
    }
    let exhaustive = std::env::var_os("TABLA_EXHAUSTIVE").is_some_and(|v| v == "1");
    let ways: &[Replay] = if exhaustive {
        &[Replay::Auto, Replay::Encoded]
    } else {
        &[Replay::Auto]
    };
    for replay in ways.iter().copied() {
        let mut session = gpu_session(&golden("llama"), replay);
        session
            .prefill(&[5, 6, 7, 8], &mut |_, _| {})
            .expect("it fits");
        let generate = GenerateOptions {
            sampling: SAMPLED,
            max_tokens: SOAK,
            ignore_stops: true,
            overflow: Overflow::Shift { keep: 4 },
            ..GenerateOptions::default()
        };
        let (mut heard, mut warm) = (0, None);
        let stats = session.generate(&generate, &mut |_| {
            heard += 1;
            if heard == WARM {
                warm = resident_bytes();
            }
            Flow::Continue
        });
        assert_eq!(stats.expect("it generates").tokens, SOAK);
        let Some((warm, after)) = warm.zip(resident_bytes()) else {
            println!("SKIPPED: the soak: this system does not tell what memory a process has");
            return;
        };
        println!("{replay:?}: {warm} bytes behind {WARM} tokens, {after} behind {SOAK}");
        assert!(
            after <= warm + GROWTH_MAX,
            "{replay:?}: {warm}, then {after}"
        );
    }
}

/// The memory that the process has, where the system tells.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(4096 * pages)
}

fn gpu_session(source: &Source, replay: Replay) -> Session {
    let options = LoadOptions {
        device: DeviceChoice::Gpu,
        replay,
        context: 512,
        ..LoadOptions::default()
    };
    Session::new(tabla::load(source, &options, &mut |_| {}).expect("it loads"))
}

fn encoded(source: &Source, prompt: &[u32]) {
    let mut session = gpu_session(source, Replay::Encoded);
    session.prefill(prompt, &mut |_, _| {}).expect("it fits");
    for sampling in [Sampling::GREEDY, SAMPLED] {
        for _ in 0..4 {
            session.step(&sampling).expect("a token");
        }
        let (ours, all) = traced(|| {
            session.step(&sampling).expect("a token");
        });
        assert!(ours.is_empty(), "{sampling:?}: ours:\n{}", ours.join("\n"));
        assert!(all <= WGPU_PER_TOKEN_MAX, "{all} allocations");
        println!("0 of ours and {all} of wgpu's allocations a token, encoded");
    }
}

/// Nobody allocates, in any thread: neither for single tokens nor for chains and prompts.
fn recorded(source: &Source, prompt: &[u32]) {
    let mut session = gpu_session(source, Replay::Recorded);
    for sampling in [Sampling::GREEDY, SAMPLED] {
        let steps = |session: &mut Session| {
            session.reset();
            session.prefill(prompt, &mut |_, _| {}).expect("it fits");
            for _ in 0..16 {
                session.step(&sampling).expect("a token");
            }
        };
        let chains = |session: &mut Session, max_tokens| {
            let generate = GenerateOptions {
                sampling,
                max_tokens,
                ignore_stops: true,
                ..GenerateOptions::default()
            };
            let stats = session.generate(&generate, &mut |_| Flow::Continue);
            assert_eq!(stats.expect("it generates").tokens, max_tokens);
        };
        // Every range is recorded once.
        steps(&mut session);
        chains(&mut session, 40);
        let count = allocations(|| steps(&mut session));
        assert_eq!(count, 0, "{sampling:?}: a prompt and 16 steps");
        // An answer takes its room once, whatever the number of tokens.
        let [few, many] = [8, 40].map(|count| allocations(|| chains(&mut session, count)));
        assert_eq!(few, many, "{sampling:?}: allocations in chains");
        assert!(few <= 8, "{sampling:?}: {few} allocations in chains");
    }
    println!("0 allocations of anyone a token, recorded");
}
