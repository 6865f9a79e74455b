//! Loading: from a file to a model, in 18 stages.
//!
//! Validation (10) runs right behind the architecture (6): nothing is computed from a number
//! that no range has been held to. What was measured of a model (7) is found by its weights, which come
//! with the quirks (8). The cache's size (12) comes before the frequencies (9), which some files
//! scale by it.

mod build;
mod catalog;
mod chat;
mod compare;
mod device;
mod digest;
mod embedding;
mod hf;
mod hidden;
mod inspect;
mod memory;
#[cfg(test)]
mod parity;
mod provenance;
mod quantize;
mod reshape;
mod split;
mod stage;
mod tokenizer;
mod tune;
mod tuning;
mod weight;

pub use compare::{Comparison, Difference, compare};
pub use device::{DeviceChoice, devices};
pub use hidden::{HiddenStates, LayerDifference, hidden_states};
pub use inspect::{
    Estimate, compile, estimate, load_chat_templates, load_tokenizer, open_directory,
};
pub use memory::CACHE_TYPES;
pub use quantize::{
    Export, HEAD_TYPES, MIXES, Mix, Quantize, Quantized, Written, export, quantize,
};
pub use stage::{Progress, STAGES, Stage};
pub use tune::{Gain, Group, Measured, tune};
pub use tuning::Tuning;

use crate::arch::{self, Config};
use crate::device::{DeviceKind, GpuFeatures, Precision, Replay};
use crate::dtype::DType;
use crate::error::{Context, Result};
use crate::exec::cpu::Level;
use crate::exec::state::{ROWS_OFFSET, Row, State, state_bytes};
use crate::exec::{Executor, Program};
use crate::format::{self, Directory};
use crate::model::Linked;
use crate::op::sampler::SamplerKind;
use crate::op::table::{Place, Table};
use crate::quant::i2_s;
use build::Build;
use catalog::Catalog;
use device::Device;
use stage::Stages;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weight::Weight;

/// Where a model comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file of the user's.
    Path(PathBuf),
    /// The small story model that is part of the library.
    BuiltIn,
}

/// The story model, made by `models/make.py`.
static BUILT_IN: &[u8] = include_bytes!("../../models/story.gguf");

/// Where weights are while a CPU computes with them: quantised ones and, with AMX and fast, BF16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightMemory {
    /// Packed where they fit into the memory that is free, else mapped.
    #[default]
    Auto,
    /// In the file's own pages: loading reads none of them, and every process shares them.
    Mapped,
    /// Rearranged while loading, in huge pages of their own: tokens come faster.
    Packed,
}

/// The tables that the steps of a single sequence go through on a GPU. A CPU computes the same bits by
/// all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepTables {
    /// The one of a lone row, which is the fastest.
    #[default]
    Lone,
    /// Those of two rows and more, as steps of several sequences do: guesses at tokens
    /// ([`Speculate`](crate::Speculate)) can be checked.
    Wide,
}

/// How a model is loaded.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which device replays the tables.
    pub device: DeviceChoice,
    /// Threads on a CPU; 0 takes every core.
    pub threads: u32,
    /// Positions of the KV cache; 0 takes what the model was trained for, [`CONTEXT_DEFAULT`]
    /// at most.
    pub context: u32,
    /// Sequences that the KV cache holds, each of so many positions: they go on together;
    /// 0 is 1, and [`SEQUENCES_MAX`] are the most.
    pub sequences: u32,
    /// How exactly the device computes.
    pub precision: Precision,
    /// Where a CPU has its weights.
    pub weights: WeightMemory,
    /// The GPU adapter, by a part of its name or its index in [`devices`]; the best one where absent.
    /// Who names one gets it or an error, and never the CPU.
    pub adapter: Option<String>,
    /// What is asked of a GPU.
    pub gpu_features: GpuFeatures,
    /// How a GPU replays tables.
    pub replay: Replay,
    /// A folder whose shaders stand in front of the embedded ones.
    pub shader_folder: Option<PathBuf>,
    /// A folder of tunings, as [`Tuning::write`] fills it: a GPU's tables follow that of this model on
    /// this adapter, where there is one. Sums may then have another order.
    pub tuning_folder: Option<PathBuf>,
    /// A folder that keeps a GPU's compiled kernels for the next load, where its driver gives them
    /// out; nothing is kept where absent.
    pub kernel_folder: Option<PathBuf>,
    /// Tokens of a prefill chunk at most; 0 takes what suits the device.
    pub chunk_tokens: u32,
    /// The CPU's instruction set; `None` takes the best, or what `TABLA_CPU` names.
    pub level: Option<Level>,
    /// The samplers of the tables, in their order: what is not among them stays off. `None` takes
    /// [`SamplerKind::DEFAULT`].
    pub samplers: Option<Vec<SamplerKind>>,
    /// Whether a model that generates text yields embeddings too. Encoders always do.
    pub embeddings: bool,
    /// How the tensors of type `I2_S` are laid out, which no file says.
    pub i2s_layout: i2_s::Layout,
    /// The storage type of [`HEAD_TYPES`] that the head is encoded in anew; `None` leaves it as it
    /// is stored. An embedding that is the head too stays what it is for looking tokens up.
    pub head_type: Option<DType>,
    /// The storage type of the KV cache, of [`CACHE_TYPES`]; `None` takes f16, or f32 where
    /// [`precision`](Self::precision) is exact.
    pub cache_type: Option<DType>,
    /// The tables that the steps of a single sequence go through.
    pub steps: StepTables,
    /// Bytes of the KV cache for prefixes: what was computed for sequences that have gone, and waits for
    /// whoever comes with the same tokens. They come on top of what the sequences take, in whole pages
    /// of 64 positions, and the oldest go first. `None` takes no more, and lets prefixes have what the
    /// sequences leave; with 0 nothing stays, and a session that goes on is computed anew.
    pub prefix_bytes: Option<u64>,
    /// Set from any thread, it stops the load in front of its next stage.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Options {
    /// The samplers of the tables, each there once.
    fn samplers(&self) -> Result<Vec<SamplerKind>> {
        let chain = self.samplers.as_deref().unwrap_or(SamplerKind::DEFAULT);
        SamplerKind::check(chain)?;
        Ok(chain.to_vec())
    }
}

/// Positions of the KV cache when nobody asks for a number.
pub const CONTEXT_DEFAULT: u32 = 4096;

/// Sequences of a KV cache at most.
pub const SEQUENCES_MAX: u32 = 256;

/// Loads a model.
///
/// # Errors
///
/// Every failure names its stage: `stage 3 format: ...`. Nothing stays behind.
pub(crate) fn load(
    source: &Source,
    options: &Options,
    report: &mut dyn FnMut(&Progress),
) -> Result<Linked> {
    let mut s = Stages::new(options, report);
    let device = s.run(Stage::Device, || Device::choose(options))?;
    let device = s.run(Stage::Shaders, || device.check_shaders())?;
    let kind = s.run(Stage::Format, || detect(source))?;
    let model = s.run(Stage::Weights, || open(source, kind))?;
    let config = s.run(Stage::Config, || Config::read(&model.file.metadata))?;
    let arch = s.run(Stage::Architecture, || arch::find(&config.architecture))?;
    let config = s.run(Stage::Validation, || config.validate(arch))?;
    let (mut catalog, mut config) = s.run(Stage::Quirks, || {
        Catalog::resolve(model, arch, config, options)
    })?;
    let (profile, tuned) = s.run(Stage::Tuning, || {
        let mut profile = device.profile()?;
        let tuned = tuning::follow(&mut profile, &catalog, options);
        Ok((profile, tuned))
    })?;
    let cache = s.run(Stage::Cache, || {
        memory::cache(arch, &config, options, &profile)
    })?;
    s.run(Stage::Rope, || catalog.add_rope(&mut config, cache.context))?;
    let (tokenizer, chat_templates) = s.run(Stage::Tokenizer, || {
        let tokenizer = tokenizer::build(&catalog, &config)?;
        Ok((tokenizer, chat::read(catalog.model())?))
    })?;
    let chunk = s.run(Stage::Scratch, || {
        memory::chunk(arch, &config, options, &cache, &profile)
    })?;
    let build = Build {
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
    };
    let mut tables = s.run(Stage::Step, || build.steps())?;
    tables.extend(s.run(Stage::Batch, || build.batches())?);
    let tables: Arc<[Table]> = tables.into();
    let mut facts = build.facts(&tables);
    facts.fallback = device.fallback();
    let provenance = provenance::of(&build, &facts, options);
    let file = Arc::clone(&build.catalog.model().file);
    let embedding = embedding::read(build.catalog.model())?;
    let program = Program {
        tables: tables.clone(),
        tensors: build.catalog,
    };
    #[cfg(feature = "gpu")]
    let gpu = device.gpu().cloned();
    let mut executor = s.run(Stage::Buffers, || {
        device.link(program, build.profile, &cache)
    })?;
    s.run(Stage::WarmUp, || warm_up(&mut *executor, &tables))?;
    s.run(Stage::Handle, || Ok(()))?;
    facts.device = executor.profile().to_string();
    facts.upload = executor.upload();
    facts.stages = s.took;
    Ok(Linked {
        executor,
        #[cfg(feature = "gpu")]
        gpu,
        tables,
        pages: cache.pages,
        embedding,
        tokenizer: Arc::new(tokenizer),
        chat_templates: Arc::new(chat_templates),
        digest: Arc::new(move || digest::of(&file)),
        provenance,
        facts,
    })
}

/// The files of a model.
#[derive(Debug)]
struct Opened {
    /// Metadata in the keys of GGUF files, and the tensors as they are stored.
    file: Arc<Directory>,
    /// What stands beside safetensors.
    folder: Option<hf::Folder>,
}

impl Opened {
    /// The weights of a folder as they are stored, fused modules in one; none of a GGUF file.
    fn folder_weights(&self) -> Result<Vec<Weight>> {
        let Some(folder) = &self.folder else {
            return Ok(Vec::new());
        };
        let name = self.file.metadata.str("general.architecture")?;
        folder.weights(&self.file, arch::find(name.unwrap_or_default())?)
    }
}

fn detect(source: &Source) -> Result<format::Kind> {
    match source {
        Source::Path(path) => format::detect(path),
        Source::BuiltIn => Ok(format::Kind::Gguf),
    }
}

fn open(source: &Source, kind: format::Kind) -> Result<Opened> {
    let mut file = match source {
        Source::Path(path) => format::open(path)?,
        Source::BuiltIn => format::open_bytes("built-in", BUILT_IN)?,
    };
    let mut folder = None;
    if kind == format::Kind::Safetensors {
        let found = hf::Folder::of(&file)?;
        file.metadata = found.metadata()?;
        folder = Some(found);
    }
    let file = Arc::new(file);
    Ok(Opened { file, folder })
}

/// One pass. A GPU computes a token, so that its pipelines are warm; a CPU walks the table with
/// no row alive, which wakes its threads and reads no weights.
fn warm_up(executor: &mut dyn Executor, tables: &[Table]) -> Result<()> {
    let mut slots = tables.iter().flat_map(|table| &table.slots);
    let history = slots.find(|slot| slot.place == Place::History);
    let context = history.map_or(0, |slot| slot.cols);
    let live = u32::from(executor.profile().kind == DeviceKind::Gpu);
    let mut bytes = [0; state_bytes(1)];
    let state = State {
        live,
        context,
        ..State::default()
    };
    bytes[..ROWS_OFFSET].copy_from_slice(bytemuck::bytes_of(&state));
    bytes[ROWS_OFFSET..].copy_from_slice(bytemuck::bytes_of(&Row::default()));
    for (at, table) in tables.iter().enumerate() {
        executor.write(Place::State, 0, &bytes)?;
        executor.run(at, (0..table.cmds.len()).into(), 1)?;
    }
    let mut state = [0; size_of::<State>()];
    executor
        .read(Place::State, 0, &mut state)
        .context("after the first pass")
}
