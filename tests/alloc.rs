//! Checks with a counting allocator that generating a token does not allocate.
//!
//! This includes recorded replay on a GPU. With encoded replay wgpu allocates, so every allocation is
//! traced to the crate that made it. A soak test of many tokens checks that memory does not grow.
#![expect(clippy::print_stdout, reason = "the test prints its measurements")]

#[path = "alloc/failures.rs"]
mod failures;
#[path = "it/speech_model.rs"]
mod speech_model;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use tabla::device::Replay;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::reserve::Reserve;
use tabla::text::EncodeOptions;
use tabla::{
    GenerateOptions, Model, Overflow, Sampling, Session, Source, SpeculateOptions,
    TranscribeOptions, Transcription,
};
use tabla_testkit::failing::{self, Failing};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is forwarded to the system allocator unchanged.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Reserve<Failing<Counting>> = Reserve::new(Failing(Counting));

/// Maximum number of frames of a trace, enough from the allocator to the test.
const FRAMES: usize = 64;

/// Return addresses of the calls that led to an allocation, innermost first.
type Trace = [usize; FRAMES];

/// Whether the allocations of all threads are traced.
static TRACING: AtomicBool = AtomicBool::new(false);
static TRACES: Mutex<Vec<Trace>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread makes a trace, which allocates too.
    static IN_TRACE: Cell<bool> = const { Cell::new(false) };
    /// Its address identifies the thread.
    static THREAD_ID: u8 = const { 0 };
}

fn thread_id() -> usize {
    THREAD_ID.with(|id| std::ptr::from_ref(id).addr())
}

/// The thread that allocated first: the main thread.
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// A thread whose allocations are not counted: the main thread of the test harness, which prints a
/// warning after a minute.
static WATCHER: AtomicUsize = AtomicUsize::new(0);

/// Counts an allocation, and traces it if tracing is enabled.
fn count() {
    let thread = thread_id();
    let _ = FIRST.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed);
    if WATCHER.load(Ordering::Relaxed) == thread {
        return;
    }
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    if TRACING.load(Ordering::SeqCst) && !IN_TRACE.replace(true) {
        let mut trace = [0; FRAMES];
        let mut depth = 0;
        backtrace::trace(|frame| {
            trace[depth] = frame.ip().addr();
            depth += 1;
            depth < FRAMES
        });
        TRACES.lock().expect("no panic in a trace").push(trace);
        IN_TRACE.set(false);
    }
}

/// Returns the origins of the library's own allocations while `work` runs, and the number of all
/// allocations, in all threads.
fn traced(work: impl FnOnce()) -> (Vec<String>, usize) {
    TRACING.store(true, Ordering::SeqCst);
    work();
    TRACING.store(false, Ordering::SeqCst);
    let traces = std::mem::take(&mut *TRACES.lock().expect("no panic in a trace"));
    let mut names = HashMap::new();
    let own = traces
        .iter()
        .filter_map(|trace| own_origin(trace, &mut names));
    (own.collect(), traces.len())
}

/// The crate of a frame.
#[derive(Clone, Copy, PartialEq)]
enum Crate {
    Gpu,
    Own,
    Other,
}

impl Crate {
    fn of_file(path: &str) -> Self {
        let has = |parts: &[&str]| parts.iter().any(|part| path.contains(part));
        if has(&["/wgpu", "/naga-", "/ash-", "/gpu-"]) {
            Self::Gpu
        } else if has(&[
            "/registry/",
            "/rustc/",
            "library/",
            "tests/alloc.rs",
            "/reserve.rs",
            "/failing.rs",
        ]) {
            Self::Other
        } else {
            Self::Own
        }
    }

    fn of_function(name: &str) -> Self {
        // wgpu's generic `map_async`, which boxes its callback, is compiled into `copy` of the backend.
        if name.contains("tabla_gpu::") && name.contains("::copy::") {
            return Self::Gpu;
        }
        if name.contains("GlobalAlloc>::") {
            return Self::Other;
        }
        let path = name.trim_start_matches(['<', '&', '*']);
        match path.split("::").next().expect("at least one part") {
            "naga" | "ash" | "gpu_allocator" => Self::Gpu,
            root if root.starts_with("wgpu") => Self::Gpu,
            root if root.starts_with("tabla") => Self::Own,
            _ => Self::Other,
        }
    }
}

/// Checks that functions are assigned to crates by the start of their paths.
fn check_crates() {
    for (name, expected) in [
        ("wgpu_core::command::CommandEncoder::finish::h1", Crate::Gpu),
        (
            "<wgpu::Buffer as core::ops::drop::Drop>::drop::h1",
            Crate::Gpu,
        ),
        ("ash::device::Device::new::h1", Crate::Gpu),
        (
            "hashbrown::raw::RawTable<T,A>::reserve_rehash::h1",
            Crate::Other,
        ),
        (
            "<tabla_gpu::run::Run as tabla_core::Executor>::run::h1",
            Crate::Own,
        ),
        ("tabla::decode::engine::Engine::step::h1", Crate::Own),
        (
            "<tabla_core::reserve::Reserve<A> as core::alloc::global::GlobalAlloc>::realloc::h1",
            Crate::Other,
        ),
        ("alloc::vec::Vec<T,A>::reserve::h1", Crate::Other),
    ] {
        assert!(Crate::of_function(name) == expected, "{name}");
    }
}

/// Returns the source line or function of the library that allocated; `None` for allocations of the
/// GPU crates. Crates are identified by source files if there are line tables, whose function names have
/// no crates, and otherwise by function names.
fn own_origin(trace: &Trace, frames: &mut HashMap<usize, Vec<(Crate, String)>>) -> Option<String> {
    for ip in trace.iter().filter(|ip| **ip != 0) {
        for (of, place) in frames.entry(*ip).or_insert_with(|| resolve(*ip)) {
            match of {
                Crate::Gpu => return None,
                Crate::Own => return Some(place.clone()),
                Crate::Other => {}
            }
        }
    }
    Some("unknown origin".to_string())
}

/// Returns the source lines of an address, inlined ones first, or its function without line tables,
/// with their crates.
fn resolve(ip: usize) -> Vec<(Crate, String)> {
    let mut places = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut(ip), |symbol| {
        if let Some(file) = symbol.filename() {
            let (path, line) = (file.display().to_string(), symbol.lineno().unwrap_or(0));
            places.push((Crate::of_file(&path), format!("{path}:{line}")));
        } else if let Some(name) = symbol.name() {
            let name = name.to_string();
            places.push((Crate::of_function(&name), name));
        }
    });
    places
}

/// Returns the number of allocations of all threads while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    work();
    ALLOCATIONS.load(Ordering::SeqCst) - before
}

const SAMPLED: Sampling = Sampling::GREEDY
    .temperature(0.8)
    .top_k(40)
    .top_p(0.95)
    .min_p(0.05)
    .repetition_penalty(1.1)
    .repeat_last_n(64)
    .seed(1);

/// Samplers of the full sampling stage, and Mirostat.
const FULL: [Sampling; 2] = [
    SAMPLED
        .dry_multiplier(0.8)
        .xtc_probability(0.5)
        .top_n_sigma(2.0)
        .typical_p(0.9),
    SAMPLED.mirostat_tau(5.0),
];

/// A single test, so that no concurrent test is counted.
#[test]
fn generating_a_token_does_not_allocate() {
    if let Some(case) = failures::child_case() {
        return failures::run_case(&case);
    }
    check_crates();
    check_tokenizers();
    check_tokens();
    check_speech(&cpu_options());
    failures::check_failures();
}

fn cpu_options() -> LoadOptions {
    LoadOptions::default().device(DeviceChoice::Cpu).threads(2)
}

fn check_tokens() {
    let first = FIRST.load(Ordering::Relaxed);
    // With one test thread, the test runs on the main thread.
    if first != thread_id() {
        WATCHER.store(first, Ordering::Relaxed);
    }
    let options = cpu_options();
    let model = Model::builder(Source::BuiltIn)
        .options(options.clone())
        .load()
        .expect("load");
    let mut session = Session::new(model);
    let prompt = session
        .tokenizer()
        .encode("Once upon a time", EncodeOptions::PROMPT)
        .expect("encode");
    let [full, mirostat] = FULL;
    for sampling in [Sampling::GREEDY, SAMPLED, full, mirostat] {
        session.reset();
        session.prefill(&prompt).expect("prefill");
        let count = allocations(|| {
            for _ in 0..256 {
                session.step(&sampling).expect("a token");
            }
        });
        assert_eq!(count, 0, "{sampling:?}: 256 steps");

        session.reset();
        let prefill = allocations(|| session.prefill(&prompt).expect("prefill"));
        assert_eq!(prefill, 0, "prefill");

        let mut bytes = 0;
        let cases = [
            (SpeculateOptions::Off, None, 8),
            // The drafter allocates buffers.
            (SpeculateOptions::Lookup, None, 12),
            (SpeculateOptions::Off, Some(3), 8),
        ];
        let mut on_piece = |piece: tabla::Piece<'_>| {
            bytes += piece.text.len();
            ControlFlow::Continue(())
        };
        for (speculate, logprobs, limit) in cases {
            // An answer allocates its buffers once, independent of the number of tokens; some are
            // reused by the next answer.
            let [_, few, many] = [1, 8, 256].map(|max_tokens| {
                let generate = GenerateOptions::default()
                    .sampling(sampling)
                    .max_tokens(max_tokens)
                    .ignore_eos(true)
                    .speculate(speculate.clone())
                    .logprobs(logprobs);
                session.truncate(prompt.len());
                allocations(|| {
                    session
                        .generate_with(&generate, &mut on_piece)
                        .expect("generate");
                })
            });
            let what = format!("{sampling:?}, {speculate:?}, log-probabilities {logprobs:?}");
            assert_eq!(few, many, "{what}: allocations of 8 and of 256 tokens");
            assert!(few <= limit, "{what}: {few} allocations of an answer");
        }
        assert!(bytes > 256, "{bytes} bytes of text");
    }
    println!("0 allocations per token on the CPU over 256 tokens, greedy and sampled");
    check_batches(&prompt, &options);
    for name in ARCHITECTURES {
        check_architecture(name, &options);
    }
    soak();
}

/// Compares the size of tokenizers with what they allocate.
fn check_tokenizers() {
    let mut sources = vec![Source::BuiltIn];
    if let Some(folder) = std::env::var_os("TABLA_TESTDATA") {
        let vocab = |name| Path::new(&folder).join(format!("vocab/ggml-vocab-{name}.gguf"));
        let vocabs = ["bert-bge", "gpt-2", "llama-spm"].map(vocab);
        sources.extend(vocabs.map(Source::Path));
    } else {
        println!("SKIPPED: size of real tokenizers: TABLA_TESTDATA is not set");
    }
    for source in sources {
        let before = failing::bytes();
        let tokenizer = tabla::tools::load_tokenizer(&source).expect("a tokenizer");
        let bytes = failing::bytes().wrapping_sub(before);
        let counted = tokenizer.memory_bytes();
        // Special tokens and patterns are not counted.
        let other = bytes.checked_sub(counted).expect("counted once");
        assert!(other < 192 << 10, "{source:?}: {counted} of {bytes} bytes");
    }
}

/// Transcribes with few tokens per window and with many: half of the context.
fn check_speech(options: &LoadOptions) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.bin");
    std::fs::write(&path, speech_model::SHAPES[0].ggml()).expect("the folder is writable");
    let models = [32, 64].map(|context| {
        let options = options.clone().max_context(context);
        let model = Model::builder(&path).options(options).load();
        model.expect("a speech model")
    });
    let sound = speech_model::numbers("sound", 16_000);
    for (beams, temperature) in [(1, 0.0), (5, 0.0), (1, 1.0)] {
        let options = TranscribeOptions::default()
            .beam_size(beams)
            .temperature(temperature)
            .temperature_increment(None)
            .thresholds(NO_THRESHOLDS)
            .timestamps(false);
        let [(short, few), (long, many)] = models.each_ref().map(|model| {
            let mut transcription = Transcription::new(model, &options).expect("a speech model");
            transcription.push(&sound).expect("finite samples");
            transcription.finish();
            let mut tokens = 0;
            let count = allocations(|| {
                while let Some(segment) = transcription.next_segment().expect("it runs") {
                    tokens += segment.tokens.len();
                }
            });
            (tokens, count)
        });
        println!("{beams} beams at {temperature}: {few} and {many} allocations");
        assert!(long >= short + 24, "{short} and {long} tokens");
        // The lists of a window may be resized once more.
        assert!(
            many <= few + 8,
            "{beams} beams: {few} allocations, then {many}"
        );
    }
}

/// Nothing is silence, so that random text is kept.
const NO_THRESHOLDS: tabla::speech::Thresholds = tabla::speech::Thresholds {
    compression_ratio: None,
    logprob: None,
    no_speech: None,
};

/// Batches of every width: sequences that finish one after another.
fn check_batches(prompt: &[u32], options: &LoadOptions) {
    let options = options.clone().sequences(20).max_context(128);
    let model = Model::builder(Source::BuiltIn)
        .options(options)
        .load()
        .expect("load");
    let sessions = (0..20).map(|_| Session::new(model.clone()));
    let mut sessions: Vec<Session> = sessions.collect();
    let generate = GenerateOptions::default()
        .sampling(Sampling::GREEDY)
        .ignore_eos(true);
    for (i, session) in sessions.iter_mut().enumerate() {
        let prompt = &prompt[..=i % prompt.len()];
        session.prefill(prompt).expect("prefill");
    }
    let answers = sessions
        .iter_mut()
        .map(|session| session.generate(&generate));
    let mut answers: Vec<_> = answers
        .map(|answer| answer.expect("start the answer"))
        .collect();
    for answer in &mut answers {
        answer.next_piece().expect("the next piece");
    }
    let count = allocations(|| {
        let mut active = true;
        while active {
            active = false;
            for answer in &mut answers {
                active |= answer.next_piece().expect("the next piece").is_some();
            }
        }
    });
    drop(answers);
    assert_eq!(count, 0, "20 sequences");
    assert!(sessions.iter().all(|session| session.tokens().len() == 129));
    println!("0 allocations per token with 20 sequences on the CPU");
}

/// Models with dense layers, sliding windows, experts, ternary weights, and layers that share a KV cache.
const ARCHITECTURES: [&str; 5] = ["llama", "gemma3", "qwen3moe", "bitnet", "gemma4"];

/// Returns a golden model with few layers.
fn golden(name: &str) -> Source {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/arch");
    Source::Path(folder.join(name).join("model.gguf"))
}

/// Generates more tokens than every window, and shifts the context.
fn check_architecture(name: &str, options: &LoadOptions) {
    let source = golden(name);
    let options = options.clone().max_context(96).chunk_tokens(8);
    let model = Model::builder(source.clone())
        .options(options)
        .load()
        .expect("load");
    let mut session = Session::new(model);
    let prompt = [5, 6, 7, 8];
    for sampling in [Sampling::GREEDY, SAMPLED] {
        session.reset();
        session.prefill(&prompt).expect("prefill");
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
    println!("0 allocations per token with {name} on the CPU");
    check_gpu(&source, &prompt);
}

/// Maximum number of allocations of wgpu per token: one of 24 bytes per dispatch after a barrier, some
/// per submission, and some per poll.
const WGPU_PER_TOKEN_MAX: usize = 1000;

fn check_gpu(source: &Source, prompt: &[u32]) {
    let gpus = tabla::load::devices().expect("a CPU").gpus;
    if gpus.is_empty() {
        println!("SKIPPED: GPU checks: no adapter was found");
        return;
    }
    check_encoded(source, prompt);
    if gpus[0].backend == "vulkan" {
        check_recorded(source, prompt);
    }
}

/// Number of tokens of the warm-up of the soak test, after which one-time allocations are done.
const WARM: u32 = 1_600;
/// Maximum growth of the process in bytes per token after the warm-up: less than a page per 10 tokens,
/// so that a leaked buffer per token is detected.
const GROWTH_MAX: u64 = 392;
/// Number of equal parts of the tokens after the warm-up. A leak grows in each of them; a block that a
/// driver allocates once, late, grows in one. The median part is judged.
const PARTS: u32 = 3;

/// Checks that memory does not grow over many tokens with context shifts. 10,000 tokens take a minute
/// on a software GPU, so only `cargo xtask exhaustive` generates them, with both replay modes.
fn soak() {
    if tabla::load::devices().expect("a CPU").gpus.is_empty() {
        println!("SKIPPED: soak test: no adapter was found");
        return;
    }
    let exhaustive = std::env::var_os("TABLA_EXHAUSTIVE").is_some_and(|v| v == "1");
    let (tokens, modes): (u32, &[Replay]) = if exhaustive {
        (10_000, &[Replay::Auto, Replay::Encoded])
    } else {
        (2_200, &[Replay::Auto])
    };
    for replay in modes.iter().copied() {
        let mut session = gpu_session(&golden("llama"), replay);
        session.prefill(&[5, 6, 7, 8]).expect("prefill");
        let generate = GenerateOptions::default()
            .sampling(SAMPLED)
            .max_tokens(tokens)
            .ignore_eos(true)
            .overflow(Overflow::Shift { n_keep: 4 });
        let part = (tokens - WARM) / PARTS;
        let (mut received, mut resident) = (0, Vec::with_capacity(PARTS as usize + 1));
        let stats = session.generate_with(&generate, |_| {
            received += 1;
            if received >= WARM && (received - WARM).is_multiple_of(part) {
                resident.extend(resident_bytes());
            }
            ControlFlow::Continue(())
        });
        assert_eq!(stats.expect("generate").tokens, tokens);
        if resident.is_empty() {
            println!("SKIPPED: soak test: this system does not report resident memory");
            return;
        }
        println!("{replay:?}: {resident:?} bytes from {WARM} tokens, every {part} tokens");
        let mut growth: Vec<_> = resident
            .windows(2)
            .map(|w| w[1].saturating_sub(w[0]))
            .collect();
        assert_eq!(growth.len(), PARTS as usize);
        growth.sort_unstable();
        assert!(
            growth[growth.len() / 2] <= GROWTH_MAX * u64::from(part),
            "{replay:?}: {resident:?} bytes, every {part} tokens"
        );
    }
}

/// Returns the resident memory in bytes; `None` if the system does not report it.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(4096 * pages)
}

fn gpu_session(source: &Source, replay: Replay) -> Session {
    let options = LoadOptions::default()
        .device(DeviceChoice::Gpu)
        .replay(replay)
        .max_context(512);
    Session::new(
        Model::builder(source.clone())
            .options(options)
            .load()
            .expect("load"),
    )
}

fn check_encoded(source: &Source, prompt: &[u32]) {
    let mut session = gpu_session(source, Replay::Encoded);
    session.prefill(prompt).expect("prefill");
    for sampling in [Sampling::GREEDY, SAMPLED] {
        for _ in 0..4 {
            session.step(&sampling).expect("a token");
        }
        let (own, all) = traced(|| {
            session.step(&sampling).expect("a token");
        });
        assert!(
            own.is_empty(),
            "{sampling:?}: own allocations:\n{}",
            own.join("\n")
        );
        assert!(
            (1..=WGPU_PER_TOKEN_MAX).contains(&all),
            "{all} allocations of wgpu"
        );
        println!("0 own allocations and {all} of wgpu per token, encoded replay");
    }
}

/// Checks that no thread allocates for single tokens, bursts and prompts.
fn check_recorded(source: &Source, prompt: &[u32]) {
    let mut session = gpu_session(source, Replay::Recorded);
    for sampling in [Sampling::GREEDY, SAMPLED] {
        let steps = |session: &mut Session| {
            session.reset();
            session.prefill(prompt).expect("prefill");
            for _ in 0..16 {
                session.step(&sampling).expect("a token");
            }
        };
        let bursts = |session: &mut Session, max_tokens| {
            let generate = GenerateOptions::default()
                .sampling(sampling)
                .max_tokens(max_tokens)
                .ignore_eos(true);
            let stats = session.generate_with(&generate, |_| ControlFlow::Continue(()));
            assert_eq!(stats.expect("generate").tokens, max_tokens);
        };
        // Records every range.
        steps(&mut session);
        bursts(&mut session, 40);
        let count = allocations(|| steps(&mut session));
        assert_eq!(count, 0, "{sampling:?}: a prompt and 16 steps");
        // An answer allocates its buffers once, independent of the number of tokens.
        let [few, many] = [8, 40].map(|count| allocations(|| bursts(&mut session, count)));
        assert_eq!(few, many, "{sampling:?}: allocations in bursts");
        assert!(few <= 8, "{sampling:?}: {few} allocations in bursts");
    }
    println!("0 allocations per token in all threads, recorded replay");
}
