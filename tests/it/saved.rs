//! Sessions in files: what comes back goes on bit for bit as what was saved, and nothing else comes in.

use crate::common::{golden, greedy, has_gpu};
use crate::scratch::Folder;
use std::path::Path;
use tabla::dtype::DType;
use tabla::{
    DeviceChoice, ErrorKind, Flow, GenerateOptions, LoadOptions, Model, Precision, Replay,
    Sampling, Session, Source, StepTables, WeightMemory,
};

fn load(name: &str, options: &LoadOptions) -> Model {
    let source = Source::Path(golden(name));
    tabla::load(&source, options, &mut |_| {}).expect("the model loads")
}

fn cpu(context: u32) -> LoadOptions {
    LoadOptions {
        device: DeviceChoice::Cpu,
        threads: 1,
        context,
        chunk_tokens: 16,
        ..LoadOptions::default()
    }
}

fn text(count: u32) -> Vec<u32> {
    (0..count).map(|i| 3 + i * 5 % 200).collect()
}

fn prefilled(model: &Model, tokens: &[u32]) -> Session {
    let mut session = Session::new(model.clone());
    session.prefill(tokens, &mut |_, _| {}).expect("it fits");
    session
}

fn generate(session: &mut Session, how: &GenerateOptions) {
    session
        .generate(how, &mut |_| Flow::Continue)
        .expect("it generates");
}

fn logits(session: &mut Session) -> Vec<u32> {
    let mut out = vec![0.0; session.facts().vocab as usize];
    session.logits(&mut out).expect("there is a sequence");
    out.into_iter().map(f32::to_bits).collect()
}

/// Passes that tokens of it go through before all of them are in the cache.
fn passes(session: &Session) -> u32 {
    let mut session = session.fork().expect("there is memory");
    session.time_commands().expect("the device tells times");
    session.prefill(&[], &mut |_, _| {}).expect("it fits");
    session.end_timing().expect("the model is there");
    let laps = session.laps().expect("the model is there");
    laps.iter().map(|(_, laps)| laps[0].runs).sum()
}

/// A session with given tokens, greedy ones and drawn ones.
fn lived(model: &Model) -> Session {
    let mut session = prefilled(model, &text(150));
    generate(&mut session, &greedy(21));
    session
        .prefill(&[7, 8, 9], &mut |_, _| {})
        .expect("it fits");
    let sampling = Sampling {
        seed: 5,
        ..Sampling::default()
    };
    generate(
        &mut session,
        &GenerateOptions {
            sampling,
            ..greedy(6)
        },
    );
    session
}

fn same(name: &str, options: &LoadOptions) {
    let folder = Folder::new("saved");
    let path = folder.0.join("session");
    let model = load(name, options);
    let mut session = lived(&model);
    session.save(&path).expect("it can be saved");
    let fresh = load(name, options);
    let mut others = [&model, &fresh].map(|model| {
        let other = Session::load(model.clone(), &path).expect("it is whole");
        assert_eq!(other.tokens(), session.tokens());
        other
    });
    // Nothing is computed again: the last token that was picked is not in the cache yet.
    assert_eq!(passes(&others[1]), 1, "{name}");
    // A copy of what was loaded goes its own way.
    let mut fork = others[1].fork().expect("there is memory");
    fork.prefill(&[4, 5], &mut |_, _| {}).expect("it fits");
    let mut here = session.fork().expect("there is memory");
    here.prefill(&[4, 5], &mut |_, _| {}).expect("it fits");
    assert_eq!(logits(&mut fork), logits(&mut here), "{name}: a fork");

    let wanted = logits(&mut session);
    generate(&mut session, &greedy(9));
    let last = logits(&mut session);
    for other in &mut others {
        assert_eq!(logits(other), wanted, "{name}");
        generate(other, &greedy(9));
        assert_eq!(other.tokens(), session.tokens(), "{name}");
        assert_eq!(logits(other), last, "{name}");
    }
}

#[test]
fn a_session_goes_on_as_it_would_have_on_a_cpu() {
    let [f32, f16, q8_0] = [DType::F32, DType::F16, DType::Q8_0];
    for (name, cache, sequences) in [
        ("quant_q8_0.gguf", f16, 1),
        ("quant_q4_0.gguf", f32, 3),
        ("arch/bitnet_tq/model.gguf", q8_0, 1),
        // Windows.
        ("arch/gemma2/model.gguf", f16, 1),
        ("arch/gemma3/model.gguf", f32, 2),
    ] {
        let options = LoadOptions {
            cache_type: Some(cache),
            sequences,
            ..cpu(400)
        };
        same(name, &options);
    }
}

#[test]
fn a_session_goes_on_as_it_would_have_on_a_gpu() {
    if !has_gpu() {
        return;
    }
    for (name, sequences) in [("quant_q8_0.gguf", 1), ("arch/gemma2/model.gguf", 2)] {
        let options = LoadOptions {
            device: DeviceChoice::Gpu,
            sequences,
            chunk_tokens: 32,
            ..cpu(260)
        };
        same(name, &options);
    }
}

/// What another cache had computed is computed anew, and is as if it always had been.
#[test]
fn another_cache_takes_the_tokens_alone() {
    let folder = Folder::new("saved-caches");
    let path = folder.0.join("session");
    let model = load("quant_q8_0.gguf", &cpu(300));
    let tokens = text(130);
    prefilled(&model, &tokens)
        .save(&path)
        .expect("it can be saved");
    let mut exact = cpu(300);
    exact.precision = Precision::Exact;
    let mut wide = cpu(300);
    wide.cache_type = Some(DType::F32);
    for options in [exact, wide] {
        let other = load("quant_q8_0.gguf", &options);
        let mut session = Session::load(other, &path).expect("it is of this model");
        assert_eq!(passes(&session), 9, "130 tokens in chunks of 16");
        let mut wanted = prefilled(&load("quant_q8_0.gguf", &options), &tokens);
        assert_eq!(logits(&mut session), logits(&mut wanted));
    }
    // Neither does the size of chunks matter on a CPU, nor where weights are, nor how many positions
    // and sequences there are.
    let others = LoadOptions {
        sequences: 2,
        weights: WeightMemory::Packed,
        chunk_tokens: 33,
        ..cpu(500)
    };
    let other = load("quant_q8_0.gguf", &others);
    let mut session = Session::load(other, &path).expect("it is of this model");
    assert_eq!(passes(&session), 0);
    let mut wanted = prefilled(&load("quant_q8_0.gguf", &others), &tokens);
    assert_eq!(logits(&mut session), logits(&mut wanted));
    // Where no prefix stays, none comes in.
    let none = LoadOptions {
        prefix_bytes: Some(0),
        ..cpu(300)
    };
    let other = load("quant_q8_0.gguf", &none);
    let session = Session::load(other, &path).expect("it is of this model");
    assert_eq!(passes(&session), 9);
}

/// What is different, and the passes that 64 tokens go through then.
type Change = (fn(&mut LoadOptions), u32);

#[test]
fn on_a_gpu_the_tables_have_to_be_the_same() {
    if !has_gpu() {
        return;
    }
    let folder = Folder::new("saved-tables");
    let path = folder.0.join("session");
    let lone = LoadOptions {
        device: DeviceChoice::Gpu,
        ..cpu(128)
    };
    let with = |change: fn(&mut LoadOptions)| {
        let mut options = lone.clone();
        change(&mut options);
        load("quant_q8_0.gguf", &options)
    };
    let session = prefilled(&load("quant_q8_0.gguf", &lone), &text(64));
    session.save(&path).expect("it can be saved");
    let changes: [Change; 7] = [
        (|_| {}, 0),
        (|o| o.context = 200, 0),
        (|o| o.steps = StepTables::MultiRow, 4),
        (|o| o.sequences = 2, 4),
        (|o| o.chunk_tokens = 32, 2),
        (|o| o.replay = Replay::Encoded, 4),
        (|o| o.device = DeviceChoice::Cpu, 4),
    ];
    for (at, (change, computed)) in changes.into_iter().enumerate() {
        let mut other = Session::load(with(change), &path).expect("it is of this model");
        assert_eq!(passes(&other), computed, "change {at}");
        let wanted = logits(&mut prefilled(&with(change), &text(64)));
        assert_eq!(logits(&mut other), wanted, "change {at}");
    }
}

#[test]
fn an_empty_session_and_a_full_one_come_back() {
    let folder = Folder::new("saved-ends");
    let path = folder.0.join("session");
    let model = load("quant_q8_0.gguf", &cpu(128));
    let empty = Session::new(model.clone());
    empty.save(&path).expect("it can be saved");
    let mut other = Session::load(model.clone(), &path).expect("it is whole");
    assert!(other.tokens().is_empty());
    other.prefill(&text(128), &mut |_, _| {}).expect("it fits");
    other.step(&Sampling::GREEDY).expect("a token");
    // One token is behind the context. The file that is there is replaced.
    assert_eq!(other.tokens().len(), 129);
    other.save(&path).expect("it can be saved");
    let full = Session::load(load("quant_q8_0.gguf", &cpu(128)), &path).expect("it is whole");
    assert_eq!(full.tokens(), other.tokens());
    let mut full = full;
    full.truncate(128);
    assert_eq!(passes(&full), 0);
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
fn a_cache_that_was_forgotten_is_computed_anew() {
    let folder = Folder::new("saved-forgotten");
    let [path, later] = ["session", "later"].map(|name| folder.0.join(name));
    let model = load("quant_q8_0.gguf", &cpu(256));
    let mut session = prefilled(&model, &text(200));
    session.save(&path).expect("it can be saved");
    let wanted = logits(&mut session);
    // Another one takes all pages.
    let other: Vec<u32> = text(256).into_iter().map(|token| token + 1).collect();
    prefilled(&model, &other);
    session.save(&later).expect("it can be saved");
    let [whole, bare] = [&path, &later].map(|path| path.metadata().expect("a file").len());
    assert!(bare < 6000 && whole > 20 * bare, "{whole} and {bare} bytes");
    // What was forgotten makes room again.
    let mut back = Session::load(model.clone(), &path).expect("it is whole");
    assert_eq!(passes(&back), 0);
    assert_eq!(logits(&mut back), wanted);
    prefilled(&model, &other);
    let mut anew = Session::load(model, &later).expect("it is whole");
    assert_eq!(passes(&anew), 13, "200 tokens in chunks of 16");
    assert_eq!(logits(&mut anew), wanted);
}

#[test]
fn others_go_on_while_sessions_are_saved_and_loaded() {
    let folder = Folder::new("saved-company");
    let path = folder.0.join("session");
    let options = LoadOptions {
        sequences: 2,
        ..cpu(400)
    };
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
            session.save(&path).expect("it can be saved");
            let other = Session::load(model.clone(), &path).expect("it is whole");
            assert_eq!(other.tokens(), session.tokens());
            if busy.is_finished() {
                break;
            }
        }
        let busy = busy.join().expect("it ends");
        assert_eq!(busy.tokens(), alone.tokens());
    });
}

/// The digest is of what files say, and of nothing else.
#[test]
fn a_digest_is_of_a_model() {
    let of = |name: &str, options: &LoadOptions| load(name, options).digest().expect("it is there");
    let plain = of("quant_q4_0.gguf", &cpu(64));
    let others = [
        LoadOptions {
            precision: Precision::Exact,
            weights: WeightMemory::Mapped,
            ..cpu(300)
        },
        LoadOptions {
            head_type: Some(DType::Q8_0),
            weights: WeightMemory::Packed,
            ..cpu(64)
        },
    ];
    for options in others {
        assert_eq!(of("quant_q4_0.gguf", &options), plain);
    }
    if has_gpu() {
        let options = LoadOptions {
            device: DeviceChoice::Gpu,
            ..cpu(64)
        };
        assert_eq!(of("quant_q4_0.gguf", &options), plain);
    }
    assert_ne!(of("quant_q4_1.gguf", &cpu(64)), plain);

    // One number of the header, and one byte of a weight.
    let folder = Folder::new("digest");
    let file = std::fs::read(golden("quant_q4_0.gguf")).expect("a file");
    let mut other = file.clone();
    *other.last_mut().expect("it has bytes") ^= 1;
    let path = folder.write("model.gguf", &other);
    let load = |path: &Path| {
        let source = Source::Path(path.to_path_buf());
        tabla::load(&source, &cpu(64), &mut |_| {}).expect("the model loads")
    };
    assert_ne!(load(&path).digest().expect("it is there"), plain);
    let key = b"llama.attention.layer_norm_rms_epsilon";
    let at = file.windows(key.len()).position(|w| w == key);
    let mut other = file;
    other[at.expect("a key") + key.len() + 5] ^= 1;
    let path = folder.write("other.gguf", &other);
    let model = load(&path);
    assert_ne!(model.digest().expect("it is there"), plain);
    // A file that is another one meanwhile is none of which anything is known.
    let model = load(&path);
    folder.write("other.gguf", &other[..other.len() - 1]);
    let error = model.digest().expect_err("it was cut");
    assert_eq!(error.kind(), ErrorKind::State);
}

/// A file with its checksum, whatever is in it.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut sum = blake3::Hasher::new();
    for block in bytes.chunks(1 << 20) {
        sum.update(blake3::hash(block).as_bytes());
    }
    [bytes, sum.finalize().as_bytes()].concat()
}

/// A small model, a saved session of it, and the folder that it is in.
struct Damage {
    model: Model,
    folder: Folder,
    bytes: Vec<u8>,
    wanted: Vec<u32>,
}

impl Damage {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let model = load("quant_q8_0.gguf", &cpu(128));
        let mut session = prefilled(&model, &text(70));
        let path = folder.0.join("session");
        session.save(&path).expect("it can be saved");
        let bytes = std::fs::read(path).expect("it is there");
        let body = bytes.len() - 32;
        assert_eq!(sealed(&bytes[..body]), bytes, "the checksum");
        let wanted = logits(&mut session);
        Self {
            model,
            folder,
            bytes,
            wanted,
        }
    }

    /// These bytes are refused, in words that say where.
    fn refused(&self, bytes: &[u8]) -> tabla::Error {
        let path = self.folder.write("damaged", bytes);
        let error = Session::load(self.model.clone(), &path).expect_err("it is damaged");
        let message = error.message();
        let says = message.contains("damaged: ") && message.contains("byte");
        assert!(says, "{error:?}");
        error
    }

    /// The model is none the worse.
    fn end(self) {
        let path = self.folder.write("whole", &self.bytes);
        for model in [load("quant_q8_0.gguf", &cpu(128)), self.model] {
            let mut session = Session::load(model, &path).expect("it is whole");
            assert_eq!(passes(&session), 0);
            assert_eq!(logits(&mut session), self.wanted);
        }
    }
}

#[test]
fn damage_is_found_before_anything_is_taken() {
    let damage = Damage::new("saved-damage");
    let all = damage.bytes.len();
    let some = |at: &usize| *at < 200 || *at + 100 > all || at.is_multiple_of(397);
    for at in (0..all).filter(some) {
        let error = damage.refused(&damage.bytes[..at]);
        assert_eq!(error.kind(), ErrorKind::Format, "cut at {at}: {error}");
        let mut bytes = damage.bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        let error = damage.refused(&bytes);
        let wanted = match at {
            8..12 => ErrorKind::Unsupported,
            _ => ErrorKind::Format,
        };
        assert_eq!(error.kind(), wanted, "{at}: {error}");
    }
    let mut longer = damage.bytes.clone();
    longer.extend([0; 64]);
    damage.refused(&longer);
    damage.end();
}

#[test]
fn numbers_that_cannot_be_are_refused() {
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
        let says = error.kind() == kind && error.message().contains(clue);
        assert!(says, "{at}: {error:?}");
    };
    let [format, large] = [ErrorKind::Format, ErrorKind::TooLarge];
    refused(12, 1, ErrorKind::Argument, "another model");
    refused(44, u32::MAX, large, "byte 44: 4294967295 tokens");
    refused(44, 130, large, "do not fit the context of 128");
    refused(44, 71, format, "byte");
    refused(44, 0, format, "byte");
    refused(48, 2, format, "byte 48: page 2");
    refused(48, u32::MAX, format, "is behind all 70 tokens");
    refused(52, u32::MAX, format, "byte 52: 4294967295 bytes");
    refused(52, 4096, format, "byte");
    refused(56, u32::MAX, format, "byte 56: a cache of 4294967295");
    refused(56, 0, format, "byte 56: a cache of 0");
    refused(rows, u32::MAX, format, "byte 60: 4294967295 bytes");
    refused(rows, 0, format, "the pages of 70 positions");
    refused(rows + 4, 2, format, "byte 60: ");
    refused(ids, 1 << 20, format, "is outside the vocabulary");
    refused(body.len() - 4, 71, format, "71 positions of 70 tokens");
    refused(body.len() - 4, u32::MAX, format, "4294967295 positions");
    refused(body.len() - 4, 64, format, "the pages of 64 positions");
    for cut in [ids, pages, pages + 1, body.len() - 5] {
        let error = damage.refused(&sealed(&body[..cut]));
        assert_eq!(error.kind(), format, "{cut}: {error}");
    }
    let error = damage.refused(&sealed(&[body, &vec![0; 1 << 20]].concat()));
    assert_eq!(error.kind(), large, "{error}");
    damage.end();
}

#[test]
fn a_session_of_another_model_is_refused() {
    let folder = Folder::new("saved-other");
    let path = folder.0.join("session");
    let model = load("quant_q8_0.gguf", &cpu(128));
    prefilled(&model, &text(9))
        .save(&path)
        .expect("it can be saved");
    let other = load("quant_q4_0.gguf", &cpu(128));
    let error = Session::load(other.clone(), &path).expect_err("it is of another model");
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(
        error.message().contains("it is of another model"),
        "{error}"
    );
    // A longer one than this context holds.
    prefilled(&model, &text(100))
        .save(&path)
        .expect("it can be saved");
    let short = load("quant_q8_0.gguf", &cpu(96));
    let error = Session::load(short, &path).expect_err("it is too long");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    logits(&mut prefilled(&other, &text(9)));
}
