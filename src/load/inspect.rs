//! Looks into a file without linking it: for listings, estimates and tokenizers.

use super::build::{Build, scratch_bytes};
use super::catalog::Catalog;
use super::device::Device;
use super::options::LoadOptions;
use super::source::{Opened, Source, detect, open};
use super::{chat, memory, tokenizer, tuning};
use crate::arch::{self, Config};
use crate::device::Profile;
use crate::error::Result;
use crate::format::Directory;
use crate::op::table::Table;
use crate::text::{ChatTemplates, Tokenizer};
use std::sync::Arc;

/// What a model needs in memory.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// The storage type that most bytes of the weights have: what people call the quantisation.
    pub dtype: &'static str,
    /// Bytes of the weights.
    pub weight_bytes: u64,
    /// Bytes of the KV cache at this context.
    pub cache_bytes: u64,
    /// Bytes of working memory.
    pub scratch_bytes: u64,
    /// Bytes of all buffers together on a GPU, whose layouts of weights are its own; `None` on a CPU.
    /// While weights go there, what they pass through comes on top: 64 MiB at most.
    pub device_bytes: Option<u64>,
    /// Positions of the KV cache.
    pub context: u32,
}

/// The directory of a file: metadata and tensors. Reads no weights.
///
/// # Errors
///
/// As [`load`](crate::load()), without the names of stages.
pub fn open_directory(source: &Source) -> Result<Directory> {
    let Opened { file, .. } = open(source, detect(source)?)?;
    Ok(Arc::into_inner(file).expect("nobody else has it"))
}

/// The tokenizer of a file and nothing else.
///
/// # Errors
///
/// As [`load`](crate::load()), without the names of stages.
pub fn load_tokenizer(source: &Source) -> Result<Tokenizer> {
    tokenizer::read(&open(source, detect(source)?)?)
}

/// The chat templates of a file and nothing else.
///
/// # Errors
///
/// As [`load`](crate::load()), without the names of stages.
pub fn load_chat_templates(source: &Source) -> Result<ChatTemplates> {
    chat::read(&open(source, detect(source)?)?)
}

/// The tables of a model, linked to nothing.
///
/// # Errors
///
/// As [`load`](crate::load()), without the names of stages.
pub fn compile(source: &Source, options: &LoadOptions) -> Result<Vec<Table>> {
    let build = prepare(source, options, Device::choose(options)?.profile()?)?;
    build.tables()
}

/// What a model needs in memory, or why it does not run here.
///
/// # Errors
///
/// As [`load`](crate::load()), without the names of stages.
pub fn estimate(source: &Source, options: &LoadOptions) -> Result<Estimate> {
    let device = Device::choose(options)?;
    let build = prepare(source, options, device.profile()?)?;
    let tables = build.tables()?;
    tokenizer::build(build.catalog.model(), &build.config)?;
    Ok(Estimate {
        dtype: build.catalog.dtype(),
        weight_bytes: build.catalog.weight_bytes(),
        cache_bytes: build.cache.bytes,
        scratch_bytes: scratch_bytes(&tables),
        device_bytes: device.planned_bytes(&tables),
        context: build.cache.context,
    })
}

/// Everything that tables are built from, for a device of this profile.
pub(super) fn prepare(
    source: &Source,
    options: &LoadOptions,
    mut profile: Profile,
) -> Result<Build> {
    let model = open(source, detect(source)?)?;
    let config = Config::read(&model.file.metadata)?;
    let arch = arch::find(&config.architecture)?;
    let (mut catalog, mut config) = Catalog::resolve(model, arch, config.validate(arch)?, options)?;
    let tuned = tuning::follow(&mut profile, &catalog, options);
    let cache = memory::cache(arch, &config, options, &profile)?;
    catalog.add_rope(&mut config, cache.context)?;
    let chunk = memory::chunk(arch, &config, options, &cache, &profile)?;
    Ok(Build {
        arch,
        config,
        catalog: Arc::new(catalog),
        profile,
        tuned,
        cache,
        chunk,
        embeddings: options.embeddings,
        steps: options.steps,
        samplers: options.samplers()?,
    })
}
