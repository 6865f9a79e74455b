//! The tokenizer, from the keys of a GGUF file or from the files of a folder.

use super::hf;
use super::source::Opened;
use crate::arch::Config;
use crate::error::{Context, Result, bail};
use crate::format::{Metadata, Value};
use crate::text::{Tokenizer, Vocab};

/// The tokenizer of a model, held against the size of its embedding. That of a folder may have
/// tokens for images, which an embedding of text does not have; prefill refuses them.
pub(super) fn build(model: &Opened, config: &Config) -> Result<Tokenizer> {
    let tokenizer = read(model)?;
    let strict = model.folder.is_none();
    if strict && tokenizer.vocab_size() > config.vocab as usize {
        bail!(
            Format,
            "the tokenizer has {} tokens, the embedding {} rows",
            tokenizer.vocab_size(),
            config.vocab
        );
    }
    Ok(tokenizer)
}

/// The tokenizer of a model: its keys, or the files beside its tensors.
pub(super) fn read(model: &Opened) -> Result<Tokenizer> {
    match &model.folder {
        None => from_metadata(&model.file.metadata),
        Some(folder) => from_folder(folder),
    }
}

/// Bytes of a tokenizer's file; the largest have forty million.
const FILE_BYTES_MAX: u64 = 128 << 20;

/// The tokenizer of a folder, with the tokens that its configuration says to stop at.
fn from_folder(folder: &hf::Folder) -> Result<Tokenizer> {
    let text = |name: &str| folder.text(name, FILE_BYTES_MAX);
    let Some(tokenizer) = text("tokenizer.json")? else {
        bail!(
            Io,
            "{}: no such file; it is the one form of a tokenizer that is read beside safetensors",
            folder.path("tokenizer.json").display()
        );
    };
    let config = text("tokenizer_config.json")?;
    let tokenizer = Tokenizer::from_json(&tokenizer, config.as_deref());
    let tokenizer = tokenizer.context(folder.path("").display())?;
    Ok(tokenizer.with_stops(&folder.ends()?))
}

/// The tokenizer of these keys.
fn from_metadata(meta: &Metadata) -> Result<Tokenizer> {
    Tokenizer::new(&vocab(meta)?)
}

/// The vocabulary in these keys.
pub(super) fn vocab(meta: &Metadata) -> Result<Vocab<'_>> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let Some(model) = meta.str(&key("model"))? else {
        bail!(
            Format,
            "tokenizer.ggml.model is missing: the file has no tokenizer"
        );
    };
    Ok(Vocab {
        model,
        pre: meta.str(&key("pre"))?,
        tokens: meta.strs(&key("tokens"))?.unwrap_or_default(),
        scores: meta.f32s(&key("scores"))?.unwrap_or_default(),
        types: meta.u32s(&key("token_type"))?.unwrap_or_default(),
        merges: meta.strs(&key("merges"))?.unwrap_or_default(),
        bos: meta.u32(&key("bos_token_id"))?,
        eos: meta.u32(&key("eos_token_id"))?,
        eot: meta.u32(&key("eot_token_id"))?,
        eom: meta.u32(&key("eom_token_id"))?,
        unk: meta.u32(&key("unknown_token_id"))?,
        cls: meta.u32(&key("cls_token_id"))?,
        // So the key is spelt.
        sep: meta.u32(&key("seperator_token_id"))?,
        add_bos: meta.bool(&key("add_bos_token"))?,
        add_eos: meta.bool(&key("add_eos_token"))?,
        add_space_prefix: meta.bool(&key("add_space_prefix"))?,
        remove_extra_whitespaces: meta.bool(&key("remove_extra_whitespaces"))?,
        precompiled_charsmap: bytes(meta, &key("precompiled_charsmap"))?,
        lowercase: meta.bool(&key("normalizer.lowercase"))?,
        strip_accents: meta.bool(&key("normalizer.strip_accents"))?,
    })
}

/// An array of bytes, which writers give with a sign or without.
fn bytes(meta: &Metadata, key: &str) -> Result<Vec<u8>> {
    let Some(array) = meta.get(key).and_then(Value::array) else {
        return Ok(Vec::new());
    };
    let bytes = array.iter().map(|item| match item {
        Value::U8(byte) => Some(byte),
        Value::I8(byte) => Some(byte.cast_unsigned()),
        _ => None,
    });
    match bytes.collect() {
        Some(bytes) => Ok(bytes),
        None => bail!(Format, "{key}: wanted bytes, found {}", array.kind().name()),
    }
}
