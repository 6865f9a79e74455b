//! Reads a model without linking it: metadata, tokenizer, tables, memory estimate.

use crate::arch::Config;
use crate::error::Result;
use crate::format::Directory;
use crate::load::build::Build;
use crate::load::compiled::tables_of;
use crate::load::options::LoadOptions;
use crate::load::selected_device::SelectedDevice;
use crate::load::source::{Opened, Source, detect, open, open_text};
use crate::load::{chat, tokenizer};
use crate::op::table::Table;
use crate::text::{ChatTemplates, Tokenizer};
use std::sync::Arc;

/// Memory that a model needs on the selected device, and its tokenizer in host memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryEstimate {
    /// Quantization type: the storage type with the most bytes.
    pub dtype: &'static str,
    /// Bytes of the weights. On a CPU those that are packed into memory or read in place from the mapped
    /// file, without embeddings: each token reads one row of the file.
    pub weight_bytes: u64,
    /// Bytes of the KV cache.
    pub cache_bytes: u64,
    /// Bytes of activations and all other buffers.
    pub scratch_bytes: u64,
    /// Bytes of all of these. Uploading the weights to a GPU needs at most 64 MiB more.
    pub device_bytes: u64,
    /// Bytes of host memory for experts on the CPU, while the model is on a GPU; 0 otherwise.
    pub host_bytes: u64,
    /// Bytes of host memory for the tokenizer.
    pub tokenizer_bytes: u64,
    /// Context length: positions of the KV cache per sequence.
    pub context: u32,
}

/// Opens a file and returns its metadata and tensor list. Reads no weights.
///
/// # Errors
///
/// As `ModelBuilder::load`, without stage names.
pub fn open_directory(source: &Source) -> Result<Directory> {
    let Opened { file, .. } = open(source, detect(source)?)?;
    Ok(Arc::into_inner(file).expect("the only reference"))
}

/// Loads only the tokenizer of a model.
///
/// # Errors
///
/// As `ModelBuilder::load`, without stage names.
pub fn load_tokenizer(source: &Source) -> Result<Tokenizer> {
    let model = open_text(source)?;
    let vocab = Config::read(&model.file.metadata).map_or(0, |config| config.vocab);
    tokenizer::of_vocab(&model, vocab)
}

/// Loads only the chat templates of a model.
///
/// # Errors
///
/// As `ModelBuilder::load`, without stage names.
pub fn load_chat_templates(source: &Source) -> Result<ChatTemplates> {
    chat::read(&open_text(source)?)
}

/// Builds the tables of a model without linking them to a device.
///
/// # Errors
///
/// As `ModelBuilder::load`, without stage names.
pub fn compile(source: &Source, options: &LoadOptions) -> Result<Vec<Table>> {
    let build = Build::prepare(source, options, SelectedDevice::choose(options)?.profile()?)?;
    tables_of(&build)
}

/// Estimates the memory that a model needs.
///
/// # Errors
///
/// As `ModelBuilder::load`, without stage names.
pub fn estimate(source: &Source, options: &LoadOptions) -> Result<MemoryEstimate> {
    let device = SelectedDevice::choose(options)?;
    let build = Build::prepare(source, options, device.profile()?)?;
    let tables = tables_of(&build)?;
    let tokenizer = tokenizer::build(build.catalog.model(), &build.config)?;
    let [memory, host] = device.memory(&build.program(tables.into()))?;
    let cache_bytes = build.cache.bytes;
    Ok(MemoryEstimate {
        dtype: build.catalog.dtype(),
        weight_bytes: memory.weights,
        cache_bytes,
        scratch_bytes: memory.total.saturating_sub(memory.weights + cache_bytes),
        device_bytes: memory.total,
        host_bytes: host.total,
        tokenizer_bytes: tokenizer.memory_bytes() as u64,
        context: build.cache.context,
    })
}
