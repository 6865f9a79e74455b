//! Loading invalid files fails with a message that names stage and cause, and never panics.

use crate::common::{golden, testdata};
use crate::temp_folder::Folder;
use std::path::Path;
use tabla::dtype::DType;
use tabla::format::{self, TensorType};
use tabla::load::{DeviceChoice, LoadOptions, WeightMemory};
use tabla::{Error, ErrorKind, Model, Session, Source};

fn load(path: &Path, options: &LoadOptions) -> Result<(), Error> {
    let options = options.clone().device(DeviceChoice::Cpu);
    Model::builder(path).options(options).load().map(drop)
}

fn assert_rejected(name: &str, bytes: &[u8], kind: ErrorKind, parts: &[&str]) {
    let folder = Folder::new("formats");
    let file = folder.write(name, bytes);
    let error = load(&file, &LoadOptions::default()).expect_err(name);
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{name}: {text}");
    for part in ["stage "].iter().chain(parts) {
        assert!(text.contains(part), "{name}: expected {part:?} in: {text}");
    }
    assert!(
        !text.ends_with('.') && !text.contains('\n'),
        "{name}: {text}"
    );
}

#[test]
fn names_files_that_are_no_models() {
    assert_rejected("empty", b"", ErrorKind::Format, &["format", "empty"]);
    assert_rejected(
        "html.gguf",
        b"<!DOCTYPE html><html><body>404",
        ErrorKind::Format,
        &["HTML"],
    );
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    assert_rejected("pointer.gguf", pointer, ErrorKind::Format, &["LFS"]);
    assert_rejected("magic.gguf", &[7; 64], ErrorKind::Format, &["format"]);
    assert_rejected("cut.gguf", b"GGUF\x03\0", ErrorKind::Format, &["truncated"]);
}

#[test]
fn names_missing_files_and_directories() {
    let error =
        load(Path::new("/nowhere/model.gguf"), &LoadOptions::default()).expect_err("missing");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("/nowhere/model.gguf"), "{error}");
    let error = load(&std::env::temp_dir(), &LoadOptions::default()).expect_err("a directory");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("directory"), "{error}");
}

/// Bytes at an odd address.
struct AtOddAddress {
    data: Vec<u8>,
    start: usize,
}

impl AtOddAddress {
    fn new(bytes: &[u8]) -> Self {
        let mut data = vec![0; bytes.len() + 1];
        let start = usize::from(data.as_ptr().addr().is_multiple_of(2));
        data[start..][..bytes.len()].copy_from_slice(bytes);
        Self { data, start }
    }
}

impl AsRef<[u8]> for AtOddAddress {
    fn as_ref(&self) -> &[u8] {
        &self.data[self.start..][..self.data.len() - 1]
    }
}

#[test]
fn model_in_memory_has_the_logits_of_the_file() {
    let logits = |source: Source, weights| {
        let model = Model::builder(source).device(DeviceChoice::Cpu);
        let model = model.weights(weights).load().expect("a model");
        let mut session = Session::new(model.clone());
        session.prefill(&[1, 2, 3]).expect("valid tokens");
        let mut logits = vec![0.0; model.facts().vocab as usize];
        session.logits(&mut logits).expect("logits of all tokens");
        logits
    };
    for name in ["llama.gguf", "quant_q4_1.gguf", "quant_bf16.gguf"] {
        let path = golden(name);
        let bytes = std::fs::read(&path).expect("a model");
        for weights in [WeightMemory::Packed, WeightMemory::Mapped] {
            let source = Source::bytes(AtOddAddress::new(&bytes));
            let expected = logits(Source::from(&path), weights);
            assert_eq!(logits(source, weights), expected, "{name}, {weights:?}");
        }
    }
}

#[test]
fn models_in_memory_that_need_other_files_are_rejected() {
    let folder = golden("arch/llama/hf");
    let safetensors = std::fs::read(folder.join("model.safetensors")).expect("a model");
    for (bytes, kind, part) in [
        (safetensors, ErrorKind::Unsupported, "config.json"),
        (b"GGUF\x03\0".to_vec(), ErrorKind::Format, "truncated"),
        (Vec::new(), ErrorKind::Format, "empty"),
    ] {
        let error = Model::load(Source::bytes(bytes)).expect_err("no model");
        assert_eq!(error.kind(), kind, "{error}");
        for part in ["stage 3", "the model in memory", part] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    }
}

/// Returns the size of the header, which ends at the first tensor.
fn header_bytes(path: &Path) -> usize {
    let directory =
        tabla::tools::open_directory(&Source::Path(path.to_path_buf())).expect("a valid file");
    let first = directory
        .tensors
        .iter()
        .map(|t| t.offset)
        .min()
        .expect("tensors");
    usize::try_from(first).expect("small")
}

#[test]
fn rejects_a_file_truncated_at_any_length() {
    let path = golden("quant_q4_0.gguf");
    let bytes = std::fs::read(&path).expect("a golden file");
    let header = header_bytes(&path);
    // Lengths beyond the header are pseudorandom with a fixed seed.
    let mut seed = 1u64;
    let beyond = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        header + usize::try_from(seed >> 33).expect("31 bits") % (bytes.len() - header)
    });
    let folder = Folder::new("truncated");
    let file = folder.write("model.gguf", b"");
    for length in (0..header).chain(beyond.take(50)) {
        std::fs::write(&file, &bytes[..length]).expect("writes the file");
        let error = load(&file, &LoadOptions::default()).expect_err("truncated");
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Format, "{length} bytes: {text}");
        assert!(text.starts_with("stage "), "{length} bytes: {text}");
    }
}

#[test]
fn flipped_header_bits_do_not_panic() {
    let path = golden("quant_q4_0.gguf");
    let mut bytes = std::fs::read(&path).expect("a golden file");
    let header = header_bytes(&path);
    let folder = Folder::new("flipped");
    let file = folder.write("model.gguf", b"");
    let options = LoadOptions::default().max_context(64);
    // The prime step limits the number of loads, but covers all fields and bits.
    for at in (0..header * 8).step_by(37) {
        bytes[at / 8] ^= 1 << (at % 8);
        std::fs::write(&file, &bytes).expect("writes the file");
        // Many flips are harmless, such as in a letter of a name.
        if let Err(error) = load(&file, &options) {
            assert!(error.to_string().starts_with("stage "), "bit {at}: {error}");
            assert_ne!(error.kind(), ErrorKind::Internal, "bit {at}: {error}");
        }
        bytes[at / 8] ^= 1 << (at % 8);
    }
}

/// Returns a golden file with a string replaced by another of the same length.
fn patched(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = std::fs::read(golden("quant_q4_0.gguf")).expect("a golden file");
    let mut count = 0;
    for at in 0..bytes.len() - from.len() {
        if &bytes[at..at + from.len()] == from.as_bytes() {
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
            count += 1;
        }
    }
    assert!(count > 0, "{from} does not occur");
    bytes
}

#[test]
fn names_an_unsupported_architecture() {
    let words = ["architecture", "lhama", "llama"];
    assert_rejected(
        "arch.gguf",
        &patched("llama", "lhama"),
        ErrorKind::Unsupported,
        &words,
    );
}

#[test]
fn names_a_missing_tensor_and_a_missing_key() {
    let bytes = patched("blk.1.ffn_up.weight", "blk.1.ffn_uq.weight");
    assert_rejected(
        "tensor.gguf",
        &bytes,
        ErrorKind::Format,
        &["blk.1.ffn_up.weight", "missing"],
    );
    let bytes = patched("llama.block_count", "llama.blokk_count");
    assert_rejected(
        "key.gguf",
        &bytes,
        ErrorKind::Format,
        &["validation", "llama.block_count", "missing"],
    );
}

#[test]
fn names_an_unexpected_tensor() {
    let source = Source::Path(golden("quant_q4_0.gguf"));
    let file = tabla::tools::open_directory(&source).expect("a valid file");
    let mut writer = format::write::Writer::new();
    for (key, value) in file.metadata.iter() {
        writer.copy(key, value);
    }
    for tensor in &file.tensors {
        writer.tensor(&tensor.name, tensor.dtype, &tensor.dims, file.bytes(tensor));
    }
    writer.tensor("blk.0.attn_sinks.weight", DType::F32, &[64], vec![0; 256]);
    let bytes = writer.finish().expect("sizes fit");
    let words = ["unexpected tensor", "blk.0.attn_sinks.weight"];
    assert_rejected("sinks.gguf", &bytes, ErrorKind::Unsupported, &words);
}

#[test]
fn rejects_a_context_that_does_not_fit_into_memory() {
    let with = |context| {
        let options = LoadOptions::default()
            .device(DeviceChoice::Cpu)
            .max_context(context);
        Model::builder(Source::BuiltIn)
            .options(options)
            .load()
            .expect_err("too large")
    };
    // 1.5 KB per position: 200 GB.
    let error = with(1 << 27);
    assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
    assert!(error.to_string().starts_with("stage 9 cache"), "{error}");
    assert!(error.to_string().contains("MB"), "{error}");
    let error = with(u32::MAX - 1);
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
}

/// Numbers, tokens and tensors of a file that whisper.cpp quantized, and of one without weights,
/// whose vocabulary has an empty token.
#[test]
fn whisper_files_are_read() {
    let Some(folder) = testdata("whisper") else {
        return;
    };
    let open = |name: &str| format::open(&folder.join(name)).expect(name);
    let file = open("jfk-memo3.en-q5_1.bin");
    let number = |key: &str| file.metadata.u32(key).expect(key).expect(key);
    assert_eq!(number("whisper.encoder.block_count"), 2);
    assert_eq!(number("whisper.decoder.block_count"), 3);
    assert_eq!(file.tensors.len(), 11 + 15 * 2 + 24 * 3);
    let embedding = file.tensor("decoder.token_embedding.weight");
    let embedding = embedding.expect("the token embedding");
    assert_eq!(embedding.dims, [64, 51864]);
    assert_eq!(embedding.dtype, TensorType::Known(DType::Q5_1));
    let norm = file.tensor("decoder.ln.weight").expect("the last norm");
    assert_eq!(file.bytes(norm).len(), 64 * 4);

    let tokens = |file: &format::Directory| {
        let tokens = file.metadata.get("tokenizer.ggml.tokens");
        let tokens = tokens.and_then(|value| value.array()).expect("tokens");
        let token = |id| tokens.get(id).and_then(|value| value.text());
        (
            tokens.len(),
            [262, 50256].map(|id| token(id).map(str::to_string)),
        )
    };
    assert_eq!(tokens(&file), (50256, [Some(" the".to_string()), None]));

    let file = open("for-tests-ggml-tiny.bin");
    let (count, [_, last]) = tokens(&file);
    assert_eq!((count, last.as_deref()), (50257, Some("")));
    assert!(file.tensors.is_empty());
}
