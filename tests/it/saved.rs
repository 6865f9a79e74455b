//! Saved sessions: loaded sessions continue bit for bit, and damaged files are rejected.

use crate::common::{golden, greedy, has_gpu};
use crate::temp_folder::Folder;
use std::ops::ControlFlow;
use std::path::Path;
use tabla::device::{Precision, Replay};
use tabla::dtype::DType;
use tabla::load::{DeviceChoice, GpuSpeculation, LoadOptions, WeightMemory};
use tabla::{ErrorKind, GenerateOptions, Model, Sampling, Session, Source};

fn load(name: &str, options: &LoadOptions) -> Model {
    let source = Source::Path(golden(name));
    Model::builder(source)
        .options(options.clone())
        .load()
        .expect("the model loads")
}

fn cpu(context: u32) -> LoadOptions {
    LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .threads(1)
        .max_context(context)
        .chunk_tokens(16)
}

fn text(count: u32) -> Vec<u32> {
    (0..count).map(|i| 3 + i * 5 % 200).collect()
}

fn prefilled(model: &Model, tokens: &[u32]) -> Session {
    let mut session = Session::new(model.clone());
    session.prefill(tokens).expect("prefill succeeds");
    session
}

fn generate(session: &mut Session, generation: &GenerateOptions) {
    session
        .generate_with(generation, |_| ControlFlow::Continue(()))
        .expect("generation succeeds");
}

fn logits(session: &mut Session) -> Vec<u32> {
    let mut out = vec![0.0; session.facts().vocab as usize];
    session.logits(&mut out).expect("logits are available");
    out.into_iter().map(f32::to_bits).collect()
}

/// Counts the passes needed to cache the whole session.
fn missing_passes(session: &Session) -> u32 {
    let mut session = session.fork().expect("fork succeeds");
    session.time_commands().expect("commands can be timed");
    session.prefill(&[]).expect("prefill succeeds");
    session.end_timing().expect("model is running");
    let timings = session.command_timings().expect("model is running");
    timings.iter().map(|(_, timings)| timings[0].runs).sum()
}

/// A session with prompt tokens, greedy tokens and sampled tokens.
fn used_session(model: &Model) -> Session {
    let mut session = prefilled(model, &text(150));
    generate(&mut session, &greedy(21));
    session.prefill(&[7, 8, 9]).expect("prefill succeeds");
    let sampling = Sampling::default().seed(5);
    generate(&mut session, &greedy(6).sampling(sampling));
    session
}

fn check_round_trip(name: &str, options: &LoadOptions) {
    let folder = Folder::new("saved");
    let path = folder.0.join("session");
    let model = load(name, options);
    let mut session = used_session(&model);
    session.save(&path).expect("save succeeds");
    let fresh = load(name, options);
    let mut others = [&model, &fresh].map(|model| {
        let other = Session::load(model.clone(), &path).expect("load succeeds");
        assert_eq!(other.tokens(), session.tokens());
        other
    });
    // Everything but the last sampled token is cached.
    assert_eq!(missing_passes(&others[1]), 1, "{name}");
    // A fork of the loaded session.
    let mut fork = others[1].fork().expect("fork succeeds");
    fork.prefill(&[4, 5]).expect("prefill succeeds");
    let mut here = session.fork().expect("fork succeeds");
    here.prefill(&[4, 5]).expect("prefill succeeds");
    assert_eq!(logits(&mut fork), logits(&mut here), "{name}: a fork");

    let expected = logits(&mut session);
    generate(&mut session, &greedy(9));
    let last = logits(&mut session);
    for other in &mut others {
        assert_eq!(logits(other), expected, "{name}");
        generate(other, &greedy(9));
        assert_eq!(other.tokens(), session.tokens(), "{name}");
        assert_eq!(logits(other), last, "{name}");
    }
}

#[test]
fn loaded_session_continues_identically_on_cpu() {
    let [f32, f16, q8_0] = [DType::F32, DType::F16, DType::Q8_0];
    for (name, cache, sequences) in [
        ("quant_q8_0.gguf", f16, 1),
        ("quant_q4_0.gguf", f32, 3),
        ("arch/bitnet_tq/model.gguf", q8_0, 1),
        // Sliding windows.
        ("arch/gemma2/model.gguf", f16, 1),
        ("arch/gemma3/model.gguf", f32, 2),
        // Recurrent states.
        ("arch/qwen3_5/model.gguf", f16, 2),
        ("arch/lfm2/model.gguf", f16, 1),
        ("arch/falcon_h1/model.gguf", f32, 1),
        // Rows of the cache that are keys and values.
        ("arch/deepseek_v3/model.gguf", f16, 1),
    ] {
        let options = cpu(400).cache_type(cache).sequences(sequences);
        check_round_trip(name, &options);
    }
}

#[test]
fn loaded_session_continues_identically_on_gpu() {
    if !has_gpu() {
        return;
    }
    for (name, sequences) in [
        ("quant_q8_0.gguf", 1),
        ("arch/gemma2/model.gguf", 2),
        ("arch/qwen3_5/model.gguf", 1),
    ] {
        let options = cpu(260)
            .device(DeviceChoice::Gpu)
            .sequences(sequences)
            .chunk_tokens(32);
        check_round_trip(name, &options);
    }
}

/// A session saved with other cache settings is recomputed.
#[test]
fn incompatible_cache_is_recomputed() {
    let folder = Folder::new("saved-caches");
    let path = folder.0.join("session");
    let model = load("quant_q8_0.gguf", &cpu(300));
    let tokens = text(130);
    prefilled(&model, &tokens)
        .save(&path)
        .expect("save succeeds");
    let mut exact = cpu(300);
    exact.precision = Precision::Exact;
    let mut wide = cpu(300);
    wide.cache_type = Some(DType::F32);
    for options in [exact, wide] {
        let other = load("quant_q8_0.gguf", &options);
        let mut session = Session::load(other, &path).expect("load succeeds");
        assert_eq!(missing_passes(&session), 9, "130 tokens in chunks of 16");
        let mut expected = prefilled(&load("quant_q8_0.gguf", &options), &tokens);
        assert_eq!(logits(&mut session), logits(&mut expected));
    }
    // On a CPU, chunk size, weight memory, context length and number of sequences do not matter.
    let others = cpu(500)
        .sequences(2)
        .weights(WeightMemory::Packed)
        .chunk_tokens(33);
    let other = load("quant_q8_0.gguf", &others);
    let mut session = Session::load(other, &path).expect("load succeeds");
    assert_eq!(missing_passes(&session), 0);
    let mut expected = prefilled(&load("quant_q8_0.gguf", &others), &tokens);
    assert_eq!(logits(&mut session), logits(&mut expected));
    // Without a prefix cache nothing is restored.
    let none = cpu(300).prefix_bytes(0);
    let other = load("quant_q8_0.gguf", &none);
    let session = Session::load(other, &path).expect("load succeeds");
    assert_eq!(missing_passes(&session), 9);
}

/// A change of options, and the passes needed to cache 64 tokens with it.
type Change = (fn(&mut LoadOptions), u32);

#[test]
fn gpu_cache_requires_same_tables() {
    if !has_gpu() {
        return;
    }
    let folder = Folder::new("saved-tables");
    let path = folder.0.join("session");
    let base = cpu(128).device(DeviceChoice::Gpu);
    let with = |change: fn(&mut LoadOptions)| {
        let mut options = base.clone();
        change(&mut options);
        load("quant_q8_0.gguf", &options)
    };
    let session = prefilled(&load("quant_q8_0.gguf", &base), &text(64));
    session.save(&path).expect("save succeeds");
    let changes: [Change; 7] = [
        (|_| {}, 0),
        (|o| o.max_context = 200, 0),
        (|o| o.gpu_speculation = GpuSpeculation::On, 4),
        (|o| o.sequences = 2, 4),
        (|o| o.chunk_tokens = 32, 2),
        (|o| o.replay = Replay::Encoded, 4),
        (|o| o.device = DeviceChoice::Cpu, 4),
    ];
    for (at, (change, computed)) in changes.into_iter().enumerate() {
        let mut other = Session::load(with(change), &path).expect("load succeeds");
        assert_eq!(missing_passes(&other), computed, "change {at}");
        let expected = logits(&mut prefilled(&with(change), &text(64)));
        assert_eq!(logits(&mut other), expected, "change {at}");
    }
}

#[test]
fn saves_empty_and_full_sessions() {
    let folder = Folder::new("saved-ends");
    let path = folder.0.join("session");
    let model = load("quant_q8_0.gguf", &cpu(128));
    let empty = Session::new(model.clone());
    empty.save(&path).expect("save succeeds");
    let mut other = Session::load(model.clone(), &path).expect("load succeeds");
    assert!(other.tokens().is_empty());
    other.prefill(&text(128)).expect("prefill succeeds");
    other.step(&Sampling::GREEDY).expect("a token");
    // One token is past the context. The existing file is replaced.
    assert_eq!(other.tokens().len(), 129);
    other.save(&path).expect("save succeeds");
    let full = Session::load(load("quant_q8_0.gguf", &cpu(128)), &path).expect("load succeeds");
    assert_eq!(full.tokens(), other.tokens());
    let mut full = full;
    full.truncate(128);
    assert_eq!(missing_passes(&full), 0);
    let names = || folder.0.read_dir().expect("a folder").count();
    assert_eq!(names(), 1);
    let nowhere = folder.0.join("none").join("session");
    let error = other.save(&nowhere).expect_err("no folder");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("none"), "{error}");
    let error = Session::load(model, &nowhere).expect_err("no file");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(names(), 1);
}

#[test]
fn evicted_cache_is_recomputed() {
    let folder = Folder::new("saved-forgotten");
    let [path, evicted] = ["session", "later"].map(|name| folder.0.join(name));
    let model = load("quant_q8_0.gguf", &cpu(256));
    let mut session = prefilled(&model, &text(200));
    session.save(&path).expect("save succeeds");
    let expected = logits(&mut session);
    // Another session uses all pages.
    let other: Vec<u32> = text(256).into_iter().map(|token| token + 1).collect();
    prefilled(&model, &other);
    session.save(&evicted).expect("save succeeds");
    let [whole, bare] = [&path, &evicted].map(|path| path.metadata().expect("a file").len());
    assert!(bare < 6000 && whole > 20 * bare, "{whole} and {bare} bytes");
    // Loading evicts other sessions.
    let mut back = Session::load(model.clone(), &path).expect("load succeeds");
    assert_eq!(missing_passes(&back), 0);
    assert_eq!(logits(&mut back), expected);
    prefilled(&model, &other);
    let mut anew = Session::load(model, &evicted).expect("load succeeds");
    assert_eq!(missing_passes(&anew), 13, "200 tokens in chunks of 16");
    assert_eq!(logits(&mut anew), expected);
}

#[test]
fn saving_and_loading_does_not_affect_other_sessions() {
    let folder = Folder::new("saved-company");
    let path = folder.0.join("session");
    let options = cpu(400).sequences(2);
    let alone = &mut prefilled(&load("quant_q8_0.gguf", &options), &text(20));
    generate(alone, &greedy(300));
    let model = load("quant_q8_0.gguf", &options);
    let session = prefilled(&model, &text(100));
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut busy = prefilled(&model, &text(20));
            generate(&mut busy, &greedy(300));
            busy
        });
        loop {
            session.save(&path).expect("save succeeds");
            let other = Session::load(model.clone(), &path).expect("load succeeds");
            assert_eq!(other.tokens(), session.tokens());
            if busy.is_finished() {
                break;
            }
        }
        let busy = busy.join().expect("thread ends");
        assert_eq!(busy.tokens(), alone.tokens());
    });
}

/// The digest depends on the model files only.
#[test]
fn digest_identifies_the_model() {
    let of = |name: &str, options: &LoadOptions| load(name, options).digest().expect("file exists");
    let plain = of("quant_q4_0.gguf", &cpu(64));
    let others = [
        cpu(300)
            .precision(Precision::Exact)
            .weights(WeightMemory::Mapped),
        cpu(64)
            .lm_head_type(DType::Q8_0)
            .weights(WeightMemory::Packed),
    ];
    for options in others {
        assert_eq!(of("quant_q4_0.gguf", &options), plain);
    }
    if has_gpu() {
        let options = cpu(64).device(DeviceChoice::Gpu);
        assert_eq!(of("quant_q4_0.gguf", &options), plain);
    }
    assert_ne!(of("quant_q4_1.gguf", &cpu(64)), plain);

    // Change one number of the header, and one byte of a weight.
    let folder = Folder::new("digest");
    let file = std::fs::read(golden("quant_q4_0.gguf")).expect("a file");
    let mut other = file.clone();
    *other.last_mut().expect("file is not empty") ^= 1;
    let path = folder.write("model.gguf", &other);
    let load = |path: &Path| {
        let source = Source::Path(path.to_path_buf());
        Model::builder(source)
            .options(cpu(64))
            .load()
            .expect("the model loads")
    };
    assert_ne!(load(&path).digest().expect("file exists"), plain);
    let key = b"llama.attention.layer_norm_rms_epsilon";
    let at = file.windows(key.len()).position(|w| w == key);
    let mut other = file;
    other[at.expect("a key") + key.len() + 5] ^= 1;
    let path = folder.write("other.gguf", &other);
    let model = load(&path);
    assert_ne!(model.digest().expect("file exists"), plain);
    if cfg!(target_family = "wasm") {
        return; // files are read into memory
    }
    // A file that changed after loading has no digest.
    let model = load(&path);
    folder.write("other.gguf", &other[..other.len() - 1]);
    let error = model.digest().expect_err("file was truncated");
    assert_eq!(error.kind(), ErrorKind::State);
}

/// Appends a valid checksum.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut sum = blake3::Hasher::new();
    for block in bytes.chunks(1 << 20) {
        sum.update(blake3::hash(block).as_bytes());
    }
    [bytes, sum.finalize().as_bytes()].concat()
}

/// A small model, a saved session, and its folder.
struct Damage {
    model: Model,
    folder: Folder,
    bytes: Vec<u8>,
    expected: Vec<u32>,
}

impl Damage {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let model = load("quant_q8_0.gguf", &cpu(128));
        let mut session = prefilled(&model, &text(70));
        let path = folder.0.join("session");
        session.save(&path).expect("save succeeds");
        let bytes = std::fs::read(path).expect("file exists");
        let body = bytes.len() - 32;
        assert_eq!(sealed(&bytes[..body]), bytes, "checksum");
        let expected = logits(&mut session);
        Self {
            model,
            folder,
            bytes,
            expected,
        }
    }

    /// Checks that loading these bytes fails with an offset in the message.
    fn refused(&self, bytes: &[u8]) -> tabla::Error {
        let path = self.folder.write("damaged", bytes);
        let error = Session::load(self.model.clone(), &path).expect_err("damaged file");
        let message = error.message();
        let text = message.contains("damaged: ") && message.contains("byte");
        assert!(text, "{error:?}");
        error
    }

    /// Checks that the model still loads the undamaged file.
    fn end(self) {
        let path = self.folder.write("whole", &self.bytes);
        for model in [load("quant_q8_0.gguf", &cpu(128)), self.model] {
            let mut session = Session::load(model, &path).expect("load succeeds");
            assert_eq!(missing_passes(&session), 0);
            assert_eq!(logits(&mut session), self.expected);
        }
    }
}

#[test]
fn detects_damage_at_every_offset() {
    let damage = Damage::new("saved-damage");
    let all = damage.bytes.len();
    let some = |at: &usize| *at < 200 || *at + 100 > all || at.is_multiple_of(397);
    for at in (0..all).filter(some) {
        let error = damage.refused(&damage.bytes[..at]);
        assert_eq!(error.kind(), ErrorKind::Format, "cut at {at}: {error}");
        let mut bytes = damage.bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        let error = damage.refused(&bytes);
        let expected = match at {
            8..12 => ErrorKind::Unsupported,
            _ => ErrorKind::Format,
        };
        assert_eq!(error.kind(), expected, "{at}: {error}");
    }
    let mut longer = damage.bytes.clone();
    longer.extend([0; 64]);
    damage.refused(&longer);
    damage.end();
}

#[test]
fn rejects_invalid_header_values() {
    let damage = Damage::new("saved-numbers");
    let body = &damage.bytes[..damage.bytes.len() - 32];
    let word = |at: usize| {
        let bytes = body[at..at + 4].try_into().expect("four bytes");
        usize::try_from(u32::from_le_bytes(bytes)).expect("small")
    };
    let [tokens, words, streams] = [44, 52, 56].map(word);
    assert_eq!(tokens, 70);
    let rows = 60;
    let ids = rows + 8 * streams + words;
    let pages = ids + 4 * tokens;
    let refused = |at: usize, number: u32, kind: ErrorKind, clue: &str| {
        let mut bytes = body.to_vec();
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        let error = damage.refused(&sealed(&bytes));
        let text = error.kind() == kind && error.message().contains(clue);
        assert!(text, "{at}: {error:?}");
    };
    let [format, large] = [ErrorKind::Format, ErrorKind::TooLarge];
    refused(12, 1, ErrorKind::Argument, "model mismatch");
    refused(44, u32::MAX, large, "byte 44: 4294967295 tokens");
    refused(44, 130, large, "exceed the context of 128");
    refused(44, 71, format, "byte");
    refused(44, 0, format, "byte");
    refused(48, 2, format, "byte 48: first window page 2");
    refused(48, u32::MAX, format, "is out of range for 70 tokens");
    refused(52, u32::MAX, format, "at most 4096 bytes, got 4294967295");
    refused(52, 4096, format, "byte");
    refused(56, u32::MAX, format, "byte 56: expected");
    refused(56, 0, format, "byte 56: expected");
    refused(rows, u32::MAX, format, "byte 60: 4294967295 bytes");
    refused(rows, 0, format, "bytes of pages for 70 positions");
    refused(rows + 4, 2, format, "byte 60: ");
    refused(ids, 1 << 20, format, "is outside the vocabulary");
    refused(
        body.len() - 4,
        71,
        format,
        "71 stored positions exceed 70 tokens",
    );
    refused(
        body.len() - 4,
        u32::MAX,
        format,
        "4294967295 stored positions",
    );
    refused(
        body.len() - 4,
        64,
        format,
        "bytes of pages for 64 positions",
    );
    for cut in [ids, pages, pages + 1, body.len() - 5] {
        let error = damage.refused(&sealed(&body[..cut]));
        assert_eq!(error.kind(), format, "{cut}: {error}");
    }
    let error = damage.refused(&sealed(&[body, &vec![0; 1 << 20]].concat()));
    assert_eq!(error.kind(), large, "{error}");
    damage.end();
}

#[test]
fn rejects_session_of_another_model() {
    let folder = Folder::new("saved-other");
    let path = folder.0.join("session");
    let model = load("quant_q8_0.gguf", &cpu(128));
    prefilled(&model, &text(9))
        .save(&path)
        .expect("save succeeds");
    let other = load("quant_q4_0.gguf", &cpu(128));
    let error = Session::load(other.clone(), &path).expect_err("another model");
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(error.message().contains("model mismatch"), "{error}");
    // A session longer than the context.
    prefilled(&model, &text(100))
        .save(&path)
        .expect("save succeeds");
    let short = load("quant_q8_0.gguf", &cpu(96));
    let error = Session::load(short, &path).expect_err("error");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    logits(&mut prefilled(&other, &text(9)));
}
