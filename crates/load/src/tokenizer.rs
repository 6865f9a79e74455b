//! Reads the tokenizer from GGUF keys or from the files of a safetensors folder.

use super::catalog::Catalog;
use super::catalog::layouts::TOKENIZER;
use super::hf;
use super::source::Opened;
use super::speech_model;
use crate::arch::Config;
use crate::error::{Context, Result, bail};
use crate::format::{self, Directory, Metadata, Value};
use crate::reserve;
use crate::text::{Section, Tokenizer, Vocab};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The tokenizer of a model, which a thread of its own builds.
pub(crate) struct Building {
    catalog: Arc<Catalog>,
    config: Config,
    /// `None` if no thread could be started.
    thread: Option<JoinHandle<Result<Tokenizer>>>,
}

impl Building {
    /// Starts to build the tokenizer.
    pub(crate) fn start(catalog: &Arc<Catalog>, config: &Config) -> Self {
        let (catalog, config) = (Arc::clone(catalog), config.clone());
        let own = (Arc::clone(&catalog), config.clone());
        let build = move || build(own.0.model(), &own.1);
        let thread = reserve::thread("tabla-tokenizer").and_then(|thread| thread.spawn(build));
        Self {
            catalog,
            config,
            thread: thread.ok(),
        }
    }

    /// Returns the tokenizer.
    pub(crate) fn finish(mut self) -> Result<Tokenizer> {
        match self.thread.take() {
            Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            None => build(self.catalog.model(), &self.config),
        }
    }
}

impl Drop for Building {
    /// Waits for the thread, so that a failed load releases everything.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads the tokenizer of a model and checks its size against the embedding. A folder's tokenizer
/// may have extra tokens, such as image tokens; prefill rejects them.
pub fn build(model: &Opened, config: &Config) -> Result<Tokenizer> {
    let tokenizer = of_vocab(model, config.vocab)?;
    // A compiled model may be of a folder; its tokenizer was checked when it was compiled.
    let strict = model.folder.is_none() && model.compiled.is_none();
    if strict && tokenizer.vocab_size() > config.vocab as usize {
        bail!(
            Format,
            "the tokenizer has {} tokens, but the embedding has {} rows",
            tokenizer.vocab_size(),
            config.vocab
        );
    }
    Ok(tokenizer)
}

/// Reads the tokenizer of a model with a vocabulary of this size. Some files of speech models have the
/// tokens alone, or no vocabulary; then it is in a `tokenizer.json` next to the file.
pub fn of_vocab(model: &Opened, vocab: u32) -> Result<Tokenizer> {
    if model.compiled.is_some() {
        return of_sections(&model.file).context("compiled model");
    }
    let metadata = &model.file.metadata;
    if model.folder.is_some() || !model.is_speech()? || metadata.get(MODEL).is_some() {
        return read(model);
    }
    if metadata.get(TOKENS).is_some() {
        return speech_model::tokenizer(metadata, vocab);
    }
    let path = path_next_to(model);
    match file_next_to(model)? {
        Some(text) => Tokenizer::from_json(&text, None).context(path.display()),
        None if model.in_memory => bail!(
            Format,
            "the model in memory has no vocabulary; load it by path, next to the tokenizer.json of its model"
        ),
        None => bail!(
            Format,
            "the file has no vocabulary: expected the tokenizer.json of its model at {}",
            path.display()
        ),
    }
}

/// Returns the tensor of a compiled model with a section of its tokenizer.
pub(crate) fn section_tensor(section: &str) -> String {
    format!("{TOKENIZER}{section}")
}

/// Opens the tokenizer of a compiled model, whose arrays are used in place.
fn of_sections(file: &Directory) -> Result<Tokenizer> {
    Tokenizer::from_sections(|section| {
        let (bytes, range) = file.shared(&section_tensor(section))?;
        let own = (*bytes).as_ref().get(range.clone())?;
        // A model in memory may be at any address.
        match own.as_ptr().addr().is_multiple_of(align_of::<u64>()) {
            true => Section::new(bytes, range).ok(),
            false => Some(Section::aligned_copy(own)),
        }
    })
}

/// Reads the `tokenizer.json` next to a file without a vocabulary; `None` for other files, or if there
/// is none.
pub fn file_next_to(model: &Opened) -> Result<Option<String>> {
    let metadata = &model.file.metadata;
    if model.in_memory || metadata.get(TOKENS).is_some() || metadata.get(MODEL).is_some() {
        return Ok(None);
    }
    format::read_text(&path_next_to(model), FILE_BYTES_MAX)
}

fn path_next_to(model: &Opened) -> PathBuf {
    let folder = model.file.paths().next().and_then(Path::parent);
    folder.unwrap_or(Path::new("")).join("tokenizer.json")
}

/// Key of the list of tokens.
pub const TOKENS: &str = "tokenizer.ggml.tokens";
/// Key of the type of a vocabulary.
pub const MODEL: &str = "tokenizer.ggml.model";

/// Key of the settings of a `tokenizer.json` that the keys of llama.cpp cannot express. Only Tabla reads it.
pub const SETTINGS: &str = "tokenizer.tabla.json";

/// Reads the tokenizer of a model.
fn read(model: &Opened) -> Result<Tokenizer> {
    match &model.folder {
        None => from_metadata(&model.file.metadata),
        Some(folder) => from_folder(folder),
    }
}

/// Maximum size in bytes of a tokenizer file. The largest known ones have 40 MB.
const FILE_BYTES_MAX: u64 = 128 << 20;

/// Reads the tokenizer of a folder, with the end-of-generation tokens of its configuration.
fn from_folder(folder: &hf::Folder) -> Result<Tokenizer> {
    let text = |name: &str| folder.text(name, FILE_BYTES_MAX);
    let Some(tokenizer) = text("tokenizer.json")? else {
        bail!(
            Io,
            "{}: no such file; safetensors models require a tokenizer.json",
            folder.path("tokenizer.json").display()
        );
    };
    let config = text("tokenizer_config.json")?;
    let tokenizer = Tokenizer::from_json(&tokenizer, config.as_deref());
    let tokenizer = tokenizer.context(folder.path("").display())?;
    Ok(tokenizer.with_stops(&folder.eos_tokens()?))
}

/// Builds the tokenizer from GGUF keys.
fn from_metadata(meta: &Metadata) -> Result<Tokenizer> {
    Tokenizer::new(&vocab(meta)?)
}

/// Reads the vocabulary from GGUF keys.
pub fn vocab(meta: &Metadata) -> Result<Vocab<'_>> {
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
        // GGUF spells the key this way.
        sep: meta.u32(&key("seperator_token_id"))?,
        token_type_count: meta.u32(&key("token_type_count"))?,
        add_bos: meta.bool(&key("add_bos_token"))?,
        add_eos: meta.bool(&key("add_eos_token"))?,
        add_space_prefix: meta.bool(&key("add_space_prefix"))?,
        remove_extra_whitespaces: meta.bool(&key("remove_extra_whitespaces"))?,
        precompiled_charsmap: bytes(meta, &key("precompiled_charsmap"))?,
        lowercase: meta.bool(&key("normalizer.lowercase"))?,
        strip_accents: meta.bool(&key("normalizer.strip_accents"))?,
        settings: meta.str(SETTINGS)?,
        // Only written, for other programs.
        ..Vocab::default()
    })
}

/// Reads an array of signed or unsigned bytes.
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
        None => bail!(Format, "{key}: expected bytes, got {}", array.kind().name()),
    }
}
