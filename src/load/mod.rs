//! Loading: from a file to a model, in 18 stages.
//!
//! Validation (10) runs right behind the architecture (6): nothing is computed from a number
//! that no range has been held to.

mod catalog;
mod device;
mod memory;
mod stage;
mod tokenizer;

pub use catalog::Catalog;
pub use device::{DeviceChoice, devices};
pub use stage::{Progress, STAGES, Stage};

use crate::arch::{self, Arch, Config};
use crate::device::{DeviceKind, Precision, Profile};
use crate::dtype::DType;
use crate::error::{Context, Result};
use crate::exec::state::{Row, State, state_bytes};
use crate::exec::{Executor, Program};
use crate::format::{self, Directory};
use crate::model::{Facts, Model, TableId};
use crate::op::builder::{Builder, LogitRows, Shape};
use crate::op::table::{Place, Table};
use crate::op::verify;
use crate::plan;
use crate::text::Tokenizer;
use device::Device;
use stage::Stages;
use std::path::PathBuf;
use std::sync::Arc;

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
    /// How exactly the device computes.
    pub precision: Precision,
    /// A folder whose shaders stand in front of the embedded ones.
    pub shader_folder: Option<PathBuf>,
}

/// Positions of the KV cache when nobody asks for a number.
pub const CONTEXT_DEFAULT: u32 = 4096;

/// Tokens of a pass that yields logits for all of them: their rows are `[tokens, vocab]`.
const SCORE_TOKENS: u32 = 8;

/// Loads a model.
///
/// # Errors
///
/// Every failure names its stage: `stage 3 format: ...`. Nothing stays behind.
pub fn load(
    source: &Source,
    options: &Options,
    report: &mut dyn FnMut(&Progress),
) -> Result<Model> {
    let mut s = Stages::new(report);
    let device = s.run(Stage::Device, || Device::choose(options))?;
    let device = s.run(Stage::Shaders, || device.with_shaders(options))?;
    let kind = s.run(Stage::Format, || detect(source))?;
    let file = s.run(Stage::Weights, || open(source, kind))?;
    let config = s.run(Stage::Config, || Config::read(&file.metadata))?;
    let arch = s.run(Stage::Architecture, || arch::find(&config.architecture))?;
    let config = s.run(Stage::Validation, || config.validate())?;
    let profile = s.run(Stage::Tuning, || Ok(device.profile()))?;
    let (mut catalog, config) = s.run(Stage::Quirks, || Catalog::resolve(file, arch, config))?;
    s.run(Stage::Rope, || catalog.add_rope(&config))?;
    let tokenizer = s.run(Stage::Tokenizer, || tokenizer::build(&catalog, &config))?;
    let cache = s.run(Stage::Cache, || memory::cache(&config, options, &profile))?;
    let chunk = s.run(Stage::Scratch, || memory::chunk(&config, &cache, &profile))?;
    let build = Build {
        arch,
        config: &config,
        catalog: &catalog,
        profile: &profile,
        cache,
    };
    let [greedy, batch, score] = s.run(Stage::Greedy, || build.greedy_and_batch(chunk))?;
    let sampled = s.run(Stage::Sampled, || build.sampled())?;
    let tables: Arc<[Table]> = [greedy, sampled, batch, score].into();
    let mut facts = facts(&catalog, &config, &cache, &tables, &profile);
    let program = Program {
        tables: tables.clone(),
        tensors: Arc::new(catalog),
    };
    let mut executor = s.run(Stage::Buffers, || device.link(program))?;
    s.run(Stage::WarmUp, || warm_up(&mut *executor, &tables, &profile))?;
    s.run(Stage::Handle, || Ok(()))?;
    facts.stages = s.took;
    Ok(Model {
        executor,
        tables,
        tokenizer,
        facts,
    })
}

/// Compiles the tables of a model without a device, for `tabla table`.
///
/// # Errors
///
/// As [`load`].
pub fn compile(source: &Source, options: &Options) -> Result<Vec<Table>> {
    let device = Device::choose(options)?;
    let (catalog, config, arch) = resolve(source)?;
    let profile = device.profile();
    let cache = memory::cache(&config, options, &profile)?;
    let chunk = memory::chunk(&config, &cache, &profile)?;
    let build = Build {
        arch,
        config: &config,
        catalog: &catalog,
        profile: &profile,
        cache,
    };
    let [greedy, batch, score] = build.greedy_and_batch(chunk)?;
    Ok(vec![greedy, build.sampled()?, batch, score])
}

/// Builds the tokenizer of a file and nothing else, for `tabla tokenize`.
///
/// # Errors
///
/// As [`load`].
pub fn load_tokenizer(source: &Source) -> Result<Tokenizer> {
    let file = open(source, detect(source)?)?;
    tokenizer::from_metadata(&file.metadata)
}

/// Opens a file and resolves its architecture, without a device.
fn resolve(source: &Source) -> Result<(Catalog, Config, &'static Arch)> {
    let file = open(source, detect(source)?)?;
    let config = Config::read(&file.metadata)?;
    let arch = arch::find(&config.architecture)?;
    let (mut catalog, config) = Catalog::resolve(file, arch, config.validate()?)?;
    catalog.add_rope(&config)?;
    Ok((catalog, config, arch))
}

/// Opens the directory of a file: metadata and tensors, for `tabla inspect`.
///
/// # Errors
///
/// As [`load`].
pub fn open_directory(source: &Source) -> Result<Directory> {
    open(source, detect(source)?)
}

/// What a file needs in memory and whether this build can run it.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// Bytes of the weights.
    pub weight_bytes: u64,
    /// Bytes of the KV cache at this context.
    pub cache_bytes: u64,
    /// Bytes of working memory.
    pub scratch_bytes: u64,
    /// Positions of the KV cache.
    pub context: u32,
}

/// Estimates the memory of a model by compiling its tables.
///
/// # Errors
///
/// Whatever keeps the model from running here: this is the verdict of `tabla inspect`.
pub fn estimate(source: &Source, options: &Options) -> Result<Estimate> {
    let device = Device::choose(options)?;
    let (catalog, config, arch) = resolve(source)?;
    let profile = device.profile();
    let cache = memory::cache(&config, options, &profile)?;
    let chunk = memory::chunk(&config, &cache, &profile)?;
    let build = Build {
        arch,
        config: &config,
        catalog: &catalog,
        profile: &profile,
        cache,
    };
    let tables = build.greedy_and_batch(chunk)?;
    tokenizer::build(&catalog, &config)?;
    Ok(Estimate {
        weight_bytes: catalog.weight_bytes(),
        cache_bytes: cache.bytes,
        scratch_bytes: tables.iter().map(Table::arena_bytes).max().unwrap_or(0),
        context: cache.context,
    })
}

fn detect(source: &Source) -> Result<format::Kind> {
    match source {
        Source::Path(path) => format::detect(path),
        Source::BuiltIn => Ok(format::Kind::Gguf),
    }
}

fn open(source: &Source, kind: format::Kind) -> Result<Directory> {
    match (source, kind) {
        (Source::Path(path), format::Kind::Gguf) => format::open(path),
        (Source::BuiltIn, _) => format::open_bytes("built-in", BUILT_IN),
    }
}

/// What every table of a model is built from.
struct Build<'a> {
    arch: &'static Arch,
    config: &'a Config,
    catalog: &'a Catalog,
    profile: &'a Profile,
    cache: memory::Cache,
}

impl Build<'_> {
    fn greedy_and_batch(&self, chunk: u32) -> Result<[Table; 3]> {
        let greedy = self.table("greedy", 1, LogitRows::Last, Builder::pick_greedy)?;
        let batch = self.table("batch", chunk, LogitRows::Last, |_, _| {})?;
        let score = self.table("score", SCORE_TOKENS, LogitRows::All, |_, _| {})?;
        Ok([greedy, batch, score])
    }

    fn sampled(&self) -> Result<Table> {
        self.table("sampled", 1, LogitRows::Last, Builder::pick_sampled)
    }

    /// Recipe, tail, plan, checks.
    fn table(
        &self,
        name: &'static str,
        tokens: u32,
        logits: LogitRows,
        tail: fn(&mut Builder<'_>, u32),
    ) -> Result<Table> {
        let memory::Cache {
            context,
            dtype: cache,
            ..
        } = self.cache;
        let mut b = Builder::new(
            self.catalog,
            Shape {
                name,
                tokens,
                logits,
                context,
                cache,
            },
        );
        (self.arch.recipe)(&mut b, self.config);
        tail(&mut b, self.config.vocab);
        let table = plan::compile(b.finish()?, self.profile)?;
        verify::check(&table, self.profile)?;
        Ok(table)
    }
}

/// One pass. A GPU computes a token, so that its pipelines are warm; a CPU walks the table with
/// no row alive, which wakes its threads and reads no weights.
fn warm_up(executor: &mut dyn Executor, tables: &[Table], profile: &Profile) -> Result<()> {
    let context = tables[TableId::Greedy as usize]
        .slots
        .iter()
        .find(|slot| slot.place == Place::History)
        .map_or(0, |slot| slot.cols);
    let live = u32::from(profile.kind == DeviceKind::Gpu);
    let mut bytes = [0; state_bytes(1)];
    let state = State {
        live,
        context,
        temperature: 1.0,
        top_p: 1.0,
        repeat_penalty: 1.0,
        ..State::default()
    };
    bytes[..size_of::<State>()].copy_from_slice(bytemuck::bytes_of(&state));
    bytes[size_of::<State>()..].copy_from_slice(bytemuck::bytes_of(&Row::default()));
    for (at, table) in tables.iter().enumerate() {
        executor.write(Place::State, 0, &bytes)?;
        executor.run(at, 0..table.cmds.len(), 1)?;
    }
    let mut state = [0; size_of::<State>()];
    executor
        .read(Place::State, 0, &mut state)
        .context("after the first pass")
}

fn facts(
    catalog: &Catalog,
    config: &Config,
    cache: &memory::Cache,
    tables: &[Table],
    profile: &Profile,
) -> Facts {
    let greedy = &tables[TableId::Greedy as usize];
    let is_weight = |dtype: DType| dtype != DType::U32;
    let weights = greedy
        .cmds
        .iter()
        .flat_map(|cmd| cmd.slots().first().map(|s| (cmd, s)));
    let token_bytes = weights
        .map(|(cmd, slot)| (cmd, greedy.slot(*slot)))
        .filter(|(_, info)| matches!(info.place, Place::Weight(_)) && is_weight(info.dtype))
        .map(|(cmd, info)| match cmd.op {
            crate::op::list::Op::Embed => info.bytes() / u64::from(info.rows.max(1)),
            _ => info.bytes(),
        })
        .sum();
    Facts {
        name: catalog.name().to_string(),
        architecture: config.architecture.clone(),
        layers: config.layers,
        dim: config.dim,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        ffn: config.ffn,
        vocab: config.vocab,
        context: cache.context,
        context_trained: config.context,
        parameters: catalog.parameters(),
        file_bytes: catalog.file_bytes(),
        token_bytes,
        cache_bytes: cache.bytes,
        scratch_bytes: tables.iter().map(Table::arena_bytes).max().unwrap_or(0),
        device: profile.to_string(),
        stages: Vec::new(),
    }
}
