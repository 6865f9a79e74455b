//! Parser of the ggml files of whisper.cpp. Every number is checked before use.
//!
//! The layout follows `models/convert-pt-to-ggml.py` of whisper.cpp: magic, hyperparameters, mel
//! filters, vocabulary, tensors. Nothing is aligned. The metadata has the keys that `docs/gguf.md`
//! of ggml defines for Whisper.

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

/// Numbers of the header in file order: name in messages, key, and maximum.
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
    ("ftype", "whisper.ftype", 1 << 16),
];
/// Positions in [`NUMBERS`].
const VOCAB: usize = 0;
const AUDIO_STATE: usize = 2;
const AUDIO_LAYER: usize = 4;
const TEXT_STATE: usize = 6;
const TEXT_LAYER: usize = 8;
const MELS: usize = 9;
const FTYPE: usize = 10;

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
/// Maximum size of the vocabulary in bytes; a published one has half a million.
const VOCABULARY_BYTES_MAX: usize = 16 << 20;
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
    let at = r.at;
    let mut numbers = [0; NUMBERS.len()];
    for (n, (name, ..)) in numbers.iter_mut().zip(NUMBERS) {
        *n = r.u32(name)?;
    }
    check_numbers(&numbers, at)?;
    let mut keys = Writer::new();
    keys.set("general.architecture", "whisper");
    for (n, (_, key, _)) in numbers.iter().zip(NUMBERS) {
        keys.set(key, *n);
    }
    let [vocab, mels] = [numbers[VOCAB], numbers[MELS]];
    keys.list(FILTERS, &filters(&mut r, mels)?);
    keys.list("tokenizer.ggml.tokens", &tokens(&mut r, vocab)?);
    let keys = Bytes::memory(keys.finish()?);
    let metadata = gguf::parse(&Arc::new(keys), shard)
        .context("metadata")?
        .metadata;
    let tensors = tensors(&mut r, shard, tensor_count(&numbers))?;
    Ok(Header {
        version: None,
        metadata,
        tensors,
    })
}

/// Checks the numbers of the header, which starts at byte `at`.
fn check_numbers(numbers: &[u32; NUMBERS.len()], at: usize) -> Result<()> {
    let [audio, text] = [numbers[AUDIO_STATE], numbers[TEXT_STATE]];
    if audio != text {
        bail!(
            Unsupported,
            "a ggml file, but not of Whisper: n_audio_state is {audio}, n_text_state {text}"
        );
    }
    for (i, (n, (name, _, max))) in numbers.iter().zip(NUMBERS).enumerate() {
        let least = u32::from(i != FTYPE);
        if !(least..=max).contains(n) {
            bail!(
                Format,
                "header byte {}: {name} is {}, expected {least} to {max}",
                at.saturating_add(i.saturating_mul(4)),
                n.cast_signed()
            );
        }
    }
    let ftype = numbers[FTYPE];
    let version = ftype.div_euclid(FTYPE_VERSION);
    // 0 and 1 are f32 and f16.
    if ftype.rem_euclid(FTYPE_VERSION) > 1 && version != BLOCK_VERSION {
        bail!(
            Unsupported,
            "quantized blocks of version {version}, expected {BLOCK_VERSION}"
        );
    }
    Ok(())
}

/// Number of tensors of a whole model.
fn tensor_count(numbers: &[u32; NUMBERS.len()]) -> usize {
    let [encoder, decoder] = [numbers[AUDIO_LAYER], numbers[TEXT_LAYER]];
    let layers = encoder
        .saturating_mul(15)
        .saturating_add(decoder.saturating_mul(24));
    usize::try_from(layers.saturating_add(11)).unwrap_or(usize::MAX)
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
fn tokens<'a>(r: &mut Reader<'a>, max: u32) -> Result<Vec<&'a [u8]>> {
    let at = r.at;
    let count = r.u32("the number of tokens")?;
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
    if r.at.saturating_sub(at) > VOCABULARY_BYTES_MAX {
        bail!(
            Format,
            "header byte {at}: the vocabulary is over the limit of {VOCABULARY_BYTES_MAX} bytes"
        );
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

/// Reads the tensors up to the end of the file: `count`, or none in a file of a vocabulary.
fn tensors(r: &mut Reader<'_>, shard: usize, count: usize) -> Result<Vec<TensorInfo>> {
    let mut tensors = Vec::new();
    while !r.rest().is_empty() {
        if tensors.len() == count {
            bail!(
                Format,
                "header byte {}: more data after the {count} tensors of the model",
                r.at
            );
        }
        tensors.push(tensor(r, shard)?);
    }
    match tensors.len() {
        found if found == 0 || found == count => Ok(tensors),
        found => bail!(
            Format,
            "truncated: the file ends after {found} of {count} tensors; the download was probably \
             interrupted"
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
            "header byte {at}: a tensor with {dim_count} dimensions, expected 1 to {DIMS_MAX}"
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
    r.take_u64(bytes, &name)?;
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

    /// Tensors of a model with a layer on each side.
    const COUNT: usize = 11 + 15 + 24;
    /// Bytes of the last tensor's header and data.
    const LAST: usize = 20 + 29 + 4 * 34;

    /// A file with two tokens and [`COUNT`] tensors; the last one starts at an odd byte.
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
        let biases = (2..COUNT).map(|i| (format!("bias.{i}"), 0u32, vec![1u32, 3], 12));
        let odd = ("encoder.conv1.bias".to_string(), 0, vec![1, 3], 12);
        let matrix = (
            "decoder.blocks.0.mlp.0.weight".to_string(),
            8,
            vec![64, 2],
            4 * 34,
        );
        for (name, dtype, dims, bytes) in biases.chain([odd, matrix]) {
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
        assert_eq!(meta.u32("whisper.ftype").unwrap(), Some(2008));
        let filters = meta.get(FILTERS).and_then(|v| v.array()).unwrap();
        assert_eq!(filters.len(), 402);
        assert_eq!(filters.get(401).and_then(|v| v.float()), Some(401.0));
        let tokens = meta.get("tokenizer.ggml.tokens").and_then(|v| v.array());
        let tokens: Vec<_> = tokens.unwrap().iter().map(|v| v.to_string()).collect();
        assert_eq!(tokens, ["\" the\"", "\"\u{fffd}\u{fffd}\""]);
        assert_eq!(tensors.len(), COUNT);
        assert_eq!(tensors[0].dims, [1, 3]);
        assert_eq!(file.bytes(&tensors[0])[..3], [0, 1, 2]);
        assert_eq!(tensors[COUNT - 1].dtype, TensorType::Known(DType::Q8_0));
        assert_eq!(file.bytes(&tensors[COUNT - 1]).last(), Some(&135));
    }

    #[test]
    fn truncated_files_are_errors() {
        let file = small();
        let vocabulary = 4 + 44 + 8 + 4 * 402 + 4 + 8 + 4 + 2;
        for len in MAGIC.len()..file.len() {
            let found = open_bytes("test", file[..len].to_vec());
            // A file without any tensor is one of a vocabulary.
            assert_eq!(found.is_ok(), len == vocabulary, "{len} bytes: {found:?}");
            if let Err(e) = found {
                let parts = ["truncated", "fit into the file"];
                assert!(parts.iter().any(|part| e.message().contains(part)), "{e}");
            }
        }
        let mut long = file;
        long.extend([0; 20]);
        let (_, message) = parse_error(long);
        assert!(
            message.contains("more data after the 50 tensors"),
            "{message}"
        );
    }

    #[test]
    fn tensors_are_checked() {
        let header = small().len() - LAST;
        for (at, n, part) in [
            (0, 5, "a tensor with 5 dimensions"),
            (4, 300, "a tensor name of 300 bytes"),
            (4, 0, "a tensor name is empty"),
            (8, 99, "has unknown type 99"),
            (8, 4, "which ggml has removed"),
            (12, 63, "a row is not a whole number of q8_0 blocks"),
            (16, u32::MAX, "needs 292057776060 bytes"),
            (20, 0x6565_64ff, "is not UTF-8"),
        ] {
            let mut file = small();
            file[header + at..][..4].copy_from_slice(&u32::to_le_bytes(n));
            let (_, message) = parse_error(file);
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    }

    #[test]
    fn numbers_are_checked() {
        for (index, n, part) in [
            (0, 0, "n_vocab is 0"),
            (4, 1 << 20, "n_audio_layer is 1048576"),
            (7, u32::MAX, "n_text_head is -1"),
            (10, 1 << 20, "ftype is 1048576, expected 0 to 65536"),
            (9, 3, "mel filters of 2 x 201, expected 3 x 201"),
            (12, 400, "mel filters of 2 x 400"),
            (13, 0x7fc0_0000, "a mel filter is not finite"),
            (13 + 402, 51865, "51865 tokens, expected at most 51864"),
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
        // Sizes of Parakeet, which has n_mels and ftype at these positions.
        let (kind, message) = parse_error(with_number(TEXT_STATE, 1));
        assert_eq!(kind, ErrorKind::Unsupported);
        assert!(message.contains("not of Whisper"), "{message}");
        let mut silero = MAGIC.to_vec();
        silero.extend(10u32.to_le_bytes());
        silero.extend(b"silero-16k");
        let (kind, message) = parse_error(silero);
        assert_eq!(kind, ErrorKind::Unsupported);
        assert!(message.contains("Silero"), "{message}");
    }
}
