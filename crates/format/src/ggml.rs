//! Parser of the ggml files of whisper.cpp. Every number is checked before use.
//!
//! The layout follows `models/convert-pt-to-ggml.py` of whisper.cpp: magic, hyperparameters, mel
//! filters, vocabulary, tensors. Nothing is aligned. The metadata has the keys that `docs/gguf.md`
//! of ggml defines for Whisper.

use std::borrow::Cow;
use std::sync::Arc;

use super::gguf::{self, data_bytes, tensor_type};
use super::map::Bytes;
use super::part::Header;
use super::reader::{Reader, name_of, reserve, to_u64};
use super::tensor::TensorInfo;
use super::write::Writer;
use tabla_core::error::{Context, Result, bail};

/// First bytes of a file: the number `0x67676d6c`.
pub(super) const MAGIC: &[u8; 4] = b"lmgg";

/// Numbers of the header in file order: name in messages, key, and largest value.
const NUMBERS: [(&str, &str, u32); 11] = [
    ("n_vocab", "whisper.vocab_size", 1 << 20),
    ("n_audio_ctx", "whisper.encoder.context_length", 1 << 16),
    ("n_audio_state", "whisper.encoder.embedding_length", 1 << 14),
    (
        "n_audio_head",
        "whisper.encoder.attention.head_count",
        1 << 10,
    ),
    ("n_audio_layer", "whisper.encoder.block_count", 1 << 10),
    ("n_text_ctx", "whisper.decoder.context_length", 1 << 16),
    ("n_text_state", "whisper.decoder.embedding_length", 1 << 14),
    (
        "n_text_head",
        "whisper.decoder.attention.head_count",
        1 << 10,
    ),
    ("n_text_layer", "whisper.decoder.block_count", 1 << 10),
    ("n_mels", "whisper.encoder.mels_count", 1 << 10),
    ("ftype", "general.file_type", 1 << 16),
];

/// Key of the mel filters: `n_mels` rows of [`FFT_BINS`] numbers.
const FILTERS: &str = "whisper.encoder.mel_filters";
/// Bins of the Fourier transform of 400 samples.
const FFT_BINS: u32 = 201;

/// `ftype` is this times the version of the quantized blocks, plus the file type.
const FTYPE_VERSION: u32 = 1000;
/// Version of quantized blocks since May 2023; older ones have other layouts.
const BLOCK_VERSION: u32 = 2;

/// Maximum length of a token in bytes.
const TOKEN_BYTES_MAX: u32 = 4096;
/// Maximum length of a tensor name in bytes.
const NAME_BYTES_MAX: u32 = 256;
/// Maximum number of tensor dimensions, as in ggml.
const DIMS_MAX: u32 = 4;

/// Parses the header, the vocabulary and the tensor list of file number `shard` of a set.
pub(super) fn parse(source: &Arc<Bytes>, shard: usize) -> Result<Header> {
    let mut r = Reader::new(source.as_slice());
    r.take(MAGIC.len(), "the magic number")?;
    if r.rest()
        .get(4..)
        .is_some_and(|rest| rest.starts_with(b"silero"))
    {
        bail!(
            Unsupported,
            "a Silero model for voice activity detection, not a speech model"
        );
    }
    let mut keys = Writer::new();
    keys.set("general.architecture", "whisper");
    let mut mels = 0;
    for (name, key, max) in NUMBERS {
        let at = r.at;
        let mut n = r.u32(name)?;
        let least = u32::from(name != "ftype");
        if !(least..=max).contains(&n) {
            bail!(
                Format,
                "header byte {at}: {name} is {}, expected {least} to {max}",
                n.cast_signed()
            );
        }
        match name {
            "n_mels" => mels = n,
            "ftype" => n = file_type(n)?,
            _ => {}
        }
        keys.set(key, n);
    }
    keys.list(FILTERS, &filters(&mut r, mels)?);
    keys.list("tokenizer.ggml.tokens", &tokens(&mut r)?);
    let keys = Bytes::Memory(Cow::Owned(keys.finish()?));
    let metadata = gguf::parse(&Arc::new(keys), shard)
        .context("metadata")?
        .metadata;
    let mut tensors = Vec::new();
    while !r.rest().is_empty() {
        tensors.push(tensor(&mut r, shard)?);
    }
    Ok(Header {
        version: None,
        metadata,
        tensors,
    })
}

/// Returns the file type of an `ftype`; fails if its quantized blocks are too old.
fn file_type(ftype: u32) -> Result<u32> {
    let (version, kind) = (
        ftype.div_euclid(FTYPE_VERSION),
        ftype.rem_euclid(FTYPE_VERSION),
    );
    if kind > 1 && version != BLOCK_VERSION {
        bail!(
            Unsupported,
            "quantized blocks of version {version}, expected {BLOCK_VERSION}; convert the model again"
        );
    }
    Ok(kind)
}

fn filters(r: &mut Reader<'_>, mels: u32) -> Result<Vec<f32>> {
    let at = r.at;
    let (rows, bins) = (r.u32("mel filters")?, r.u32("mel filters")?);
    if (rows, bins) != (mels, FFT_BINS) {
        bail!(
            Format,
            "header byte {at}: mel filters of {rows} x {bins}, expected {mels} x {FFT_BINS}"
        );
    }
    let count = usize::try_from(rows.saturating_mul(bins)).unwrap_or(usize::MAX);
    let data = r.take(count.saturating_mul(size_of::<f32>()), "mel filters")?;
    let filters: Vec<f32> = data
        .as_chunks()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect();
    match filters.iter().all(|x| x.is_finite()) {
        true => Ok(filters),
        false => bail!(Format, "header byte {at}: a mel filter is not finite"),
    }
}

/// Reads the vocabulary: bytes of each token, which need not be UTF-8.
fn tokens<'a>(r: &mut Reader<'a>) -> Result<Vec<&'a [u8]>> {
    let at = r.at;
    let count = r.u32("the number of tokens")?;
    let (_, _, max) = NUMBERS[0];
    let count = match usize::try_from(count) {
        // Every token has a length.
        Ok(n) if count <= max && n.saturating_mul(4) <= r.rest().len() => n,
        _ => bail!(
            Format,
            "header byte {at}: {count} tokens, expected at most {max} that fit into the file"
        ),
    };
    let mut tokens = reserve(count)?;
    for _ in 0..count {
        let len = length(r, "a token", TOKEN_BYTES_MAX)?;
        tokens.push(r.take(len, "a token")?);
    }
    Ok(tokens)
}

/// Reads a length of at most `max`.
fn length(r: &mut Reader<'_>, what: &str, max: u32) -> Result<usize> {
    let at = r.at;
    let len = r.u32(what)?;
    match usize::try_from(len) {
        Ok(n) if len <= max => Ok(n),
        _ => bail!(
            Format,
            "header byte {at}: {what} of {len} bytes is over the limit of {max}"
        ),
    }
}

fn tensor(r: &mut Reader<'_>, shard: usize) -> Result<TensorInfo> {
    const WHAT: &str = "a tensor name";
    let at = r.at;
    let dim_count = r.u32("a tensor")?;
    if !(1..=DIMS_MAX).contains(&dim_count) {
        bail!(
            Format,
            "byte {at}: a tensor with {dim_count} dimensions, expected 1 to {DIMS_MAX}"
        );
    }
    let name_len = length(r, WHAT, NAME_BYTES_MAX)?;
    let type_at = r.at;
    let type_id = r.u32("a tensor type")?;
    let dims = (0..dim_count)
        .map(|_| r.u32("a tensor shape").map(u64::from))
        .collect::<Result<Vec<_>>>()?;
    let name_at = r.at;
    let name = name_of(r.take(name_len, WHAT)?, name_at, WHAT)?;
    let dtype = tensor_type(type_id, &name, type_at)?;
    let bytes = data_bytes(&name, dtype, &dims, at)?;
    let offset = to_u64(r.at);
    r.take(usize::try_from(bytes).unwrap_or(usize::MAX), &name)?;
    Ok(TensorInfo {
        name,
        dtype,
        dims,
        shard,
        offset,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{TensorType, open_bytes};
    use super::*;
    use tabla_core::dtype::DType;
    use tabla_core::error::ErrorKind;

    /// A file with two tokens and two tensors; the second one starts at an odd byte.
    #[expect(clippy::cast_possible_truncation, reason = "small constants")]
    fn small() -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        let numbers: [u32; 11] = [51864, 1500, 64, 1, 1, 448, 64, 1, 1, 2, 2008];
        file.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        file.extend([2, FFT_BINS].iter().flat_map(|n| n.to_le_bytes()));
        file.extend((0..2 * FFT_BINS).flat_map(|i| (i as f32).to_le_bytes()));
        file.extend(2u32.to_le_bytes());
        for token in [&b" the"[..], b"\xff\xfe"] {
            file.extend((token.len() as u32).to_le_bytes());
            file.extend(token);
        }
        for (name, dtype, dims, bytes) in [
            ("encoder.conv1.bias", 0u32, vec![1u32, 3], 12),
            ("decoder.blocks.0.mlp.0.weight", 8, vec![64, 2], 2 * 2 * 34),
        ] {
            file.extend((dims.len() as u32).to_le_bytes());
            file.extend((name.len() as u32).to_le_bytes());
            file.extend(dtype.to_le_bytes());
            file.extend(dims.iter().flat_map(|n| n.to_le_bytes()));
            file.extend(name.as_bytes());
            file.extend((0..bytes).map(|i| i as u8));
        }
        file
    }

    fn parse_error(file: Vec<u8>) -> (ErrorKind, String) {
        let e = open_bytes("test", file).expect_err("a corrupt file");
        (e.kind(), e.message().to_owned())
    }

    /// The small file with a number of the header replaced.
    fn with_number(index: usize, n: u32) -> Vec<u8> {
        let mut file = small();
        file[4 + 4 * index..][..4].copy_from_slice(&n.to_le_bytes());
        file
    }

    #[test]
    fn reads_numbers_filters_tokens_and_tensors() {
        let file = open_bytes("test", small()).unwrap();
        let (meta, tensors) = (&file.metadata, &file.tensors);
        assert_eq!(meta.str("general.architecture").unwrap(), Some("whisper"));
        assert_eq!(meta.u32("whisper.vocab_size").unwrap(), Some(51864));
        assert_eq!(
            meta.u32("whisper.decoder.context_length").unwrap(),
            Some(448)
        );
        assert_eq!(meta.u32("general.file_type").unwrap(), Some(8));
        let filters = meta.get(FILTERS).and_then(|v| v.array()).unwrap();
        assert_eq!(filters.len(), 402);
        assert_eq!(filters.get(401).and_then(|v| v.float()), Some(401.0));
        let tokens = meta.get("tokenizer.ggml.tokens").and_then(|v| v.array());
        let tokens: Vec<_> = tokens.unwrap().iter().map(|v| v.to_string()).collect();
        assert_eq!(tokens, ["\" the\"", "\"\u{fffd}\u{fffd}\""]);
        assert_eq!(tensors[0].dims, [1, 3]);
        assert_eq!(file.bytes(&tensors[0])[..3], [0, 1, 2]);
        assert_eq!(tensors[1].dtype, TensorType::Known(DType::Q8_0));
        assert_eq!(file.bytes(&tensors[1]).last(), Some(&135));
    }

    #[test]
    fn truncated_files_are_errors() {
        let file = small();
        let first_tensor = file.len() - 136 - 29 - 20 - 12 - 18 - 20;
        for len in MAGIC.len()..file.len() {
            let found = open_bytes("test", file[..len].to_vec());
            // Only between tensors, a shorter file is a whole one.
            let whole = len == first_tensor || len == first_tensor + 20 + 18 + 12;
            assert_eq!(found.is_ok(), whole, "{len} bytes: {found:?}");
            if let Err(e) = found {
                assert!(
                    e.message().contains("truncated") || e.message().contains("fit"),
                    "{e}"
                );
            }
        }
    }

    #[test]
    fn numbers_are_checked() {
        for (index, n, part) in [
            (0, 0, "n_vocab is 0"),
            (4, 1 << 20, "n_audio_layer is 1048576"),
            (7, u32::MAX, "n_text_head is -1"),
            (9, 3, "mel filters of 2 x 201, expected 3 x 201"),
            (12, 400, "mel filters of 2 x 400"),
            (13, 0x7fc0_0000, "a mel filter is not finite"),
            (13 + 402, u32::MAX, "4294967295 tokens"),
            (14 + 402, 5000, "a token of 5000 bytes"),
        ] {
            let (kind, message) = parse_error(with_number(index, n));
            assert_eq!(kind, ErrorKind::Format, "{message}");
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    }

    #[test]
    fn old_blocks_and_other_models_are_unsupported() {
        let (kind, message) = parse_error(with_number(10, 1008));
        assert_eq!(kind, ErrorKind::Unsupported);
        assert!(
            message.contains("blocks of version 1, expected 2"),
            "{message}"
        );
        assert!(open_bytes("test", with_number(10, 1)).is_ok());
        let mut silero = MAGIC.to_vec();
        silero.extend(10u32.to_le_bytes());
        silero.extend(b"silero-16k");
        let (kind, message) = parse_error(silero);
        assert_eq!(kind, ErrorKind::Unsupported);
        assert!(message.contains("Silero"), "{message}");
    }
}
