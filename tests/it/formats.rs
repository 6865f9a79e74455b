//! Bad files through the whole loader: a clear message with stage and cause, never a panic.

use crate::common::golden;
use std::path::{Path, PathBuf};
use tabla::dtype::DType;
use tabla::{DeviceChoice, Error, ErrorKind, LoadOptions, Source};

fn load(path: &Path, options: &LoadOptions) -> Result<(), Error> {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        ..options.clone()
    };
    tabla::load(&Source::Path(path.to_path_buf()), &options, &mut |_| {}).map(drop)
}

/// A scratch file that goes when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("tabla-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("the temporary folder can be written");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn refused(name: &str, bytes: &[u8], kind: ErrorKind, words: &[&str]) {
    let file = Scratch::new(name, bytes);
    let error = load(&file.0, &LoadOptions::default()).expect_err(name);
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{name}: {text}");
    for word in ["stage "].iter().chain(words) {
        assert!(text.contains(word), "{name}: {word:?} is not in: {text}");
    }
    assert!(
        !text.ends_with('.') && !text.contains('\n'),
        "{name}: {text}"
    );
}

#[test]
fn what_is_no_model_is_named() {
    refused("empty", b"", ErrorKind::Format, &["format", "empty"]);
    refused(
        "html.gguf",
        b"<!DOCTYPE html><html><body>404",
        ErrorKind::Format,
        &["HTML"],
    );
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    refused("pointer.gguf", pointer, ErrorKind::Format, &["LFS"]);
    refused("magic.gguf", &[7; 64], ErrorKind::Format, &["format"]);
    refused("cut.gguf", b"GGUF\x03\0", ErrorKind::Format, &["truncated"]);
}

#[test]
fn what_is_no_file_is_named() {
    let error =
        load(Path::new("/nowhere/model.gguf"), &LoadOptions::default()).expect_err("missing");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("/nowhere/model.gguf"), "{error}");
    let error = load(&std::env::temp_dir(), &LoadOptions::default()).expect_err("a directory");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("directory"), "{error}");
}

/// Where the tensor data begins: the header is what lies before.
fn header_bytes(path: &Path) -> usize {
    let directory = tabla::open_directory(&Source::Path(path.to_path_buf())).expect("sound");
    let first = directory
        .tensors
        .iter()
        .map(|t| t.offset)
        .min()
        .expect("tensors");
    usize::try_from(first).expect("small")
}

#[test]
fn a_truncated_file_is_refused_at_every_length() {
    let path = golden("quant_q4_0.gguf");
    let bytes = std::fs::read(&path).expect("a golden file");
    let header = header_bytes(&path);
    // Beyond the header, lengths all over the data: a fixed generator, so that it repeats.
    let mut seed = 1u64;
    let beyond = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        header + usize::try_from(seed >> 33).expect("31 bits") % (bytes.len() - header)
    });
    let file = Scratch::new("truncated.gguf", b"");
    for length in (0..header).chain(beyond.take(50)) {
        std::fs::write(&file.0, &bytes[..length]).expect("it can be written");
        let error = load(&file.0, &LoadOptions::default()).expect_err("truncated");
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Format, "{length} bytes: {text}");
        assert!(text.starts_with("stage "), "{length} bytes: {text}");
    }
}

#[test]
fn every_bit_of_the_header_may_flip() {
    let path = golden("quant_q4_0.gguf");
    let mut bytes = std::fs::read(&path).expect("a golden file");
    let header = header_bytes(&path);
    let file = Scratch::new("flipped.gguf", b"");
    let options = LoadOptions {
        context: 64,
        ..LoadOptions::default()
    };
    // A prime step keeps it to a few hundred loads over all fields and bits.
    for at in (0..header * 8).step_by(37) {
        bytes[at / 8] ^= 1 << (at % 8);
        std::fs::write(&file.0, &bytes).expect("it can be written");
        // Many flips are harmless (a letter of a name); none may panic or abort.
        if let Err(error) = load(&file.0, &options) {
            assert!(error.to_string().starts_with("stage "), "bit {at}: {error}");
            assert_ne!(error.kind(), ErrorKind::Internal, "bit {at}: {error}");
        }
        bytes[at / 8] ^= 1 << (at % 8);
    }
}

/// A golden file with one string replaced by another of the same length.
fn patched(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = std::fs::read(golden("quant_q4_0.gguf")).expect("a golden file");
    let mut found = 0;
    for at in 0..bytes.len() - from.len() {
        if &bytes[at..at + from.len()] == from.as_bytes() {
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
            found += 1;
        }
    }
    assert!(found > 0, "{from} is nowhere");
    bytes
}

#[test]
fn an_unknown_architecture_is_named() {
    let words = ["architecture", "lhama", "llama"];
    refused(
        "arch.gguf",
        &patched("llama", "lhama"),
        ErrorKind::Unsupported,
        &words,
    );
}

#[test]
fn a_missing_tensor_and_a_missing_key_are_named() {
    let bytes = patched("blk.1.ffn_up.weight", "blk.1.ffn_uq.weight");
    refused(
        "tensor.gguf",
        &bytes,
        ErrorKind::Format,
        &["blk.1.ffn_up.weight", "missing"],
    );
    let bytes = patched("llama.block_count", "llama.blokk_count");
    refused(
        "key.gguf",
        &bytes,
        ErrorKind::Format,
        &["validation", "llama.block_count", "missing"],
    );
}

#[test]
fn a_tensor_that_no_recipe_knows_is_named() {
    let source = Source::Path(golden("quant_q4_0.gguf"));
    let file = tabla::open_directory(&source).expect("sound");
    let mut writer = tabla::format::write::Writer::new();
    for (key, value) in file.metadata.iter() {
        writer.copy(key, value);
    }
    for tensor in &file.tensors {
        writer.tensor(&tensor.name, tensor.dtype, &tensor.dims, file.bytes(tensor));
    }
    writer.tensor("blk.0.attn_sinks.weight", DType::F32, &[64], vec![0; 256]);
    let bytes = writer.finish().expect("sizes fit");
    let words = ["blk.0.attn_sinks.weight", "no part"];
    refused("sinks.gguf", &bytes, ErrorKind::Unsupported, &words);
}

#[test]
fn a_context_over_memory_is_refused() {
    let with = |context| {
        let options = LoadOptions {
            device: DeviceChoice::Cpu,
            context,
            ..LoadOptions::default()
        };
        tabla::load(&Source::BuiltIn, &options, &mut |_| {}).expect_err("too large")
    };
    // 1.5 KB a position: 200 GB.
    let error = with(1 << 27);
    assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
    assert!(error.to_string().starts_with("stage 9 cache"), "{error}");
    assert!(error.to_string().contains("MB"), "{error}");
    let error = with(u32::MAX);
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
}
