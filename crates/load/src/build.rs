//! Builds the tables of a model: recipe, sampling stages, planning, verification.

use super::catalog::Catalog;
use super::classifier;
use super::hook_tensors::TableHooks;
use super::memory::{self, Cache};
use super::options::{GpuSpeculation, LoadOptions};
use super::selected_device::limit_host_experts;
use super::source::{Source, detect, open_for};
use super::speech_model;
use super::tuning;
use crate::arch::{self, Arch, Config, Drafting};
use crate::device::{DeviceKind, Profile};
use crate::error::{Result, bail};
use crate::exec::{Program, Tensors};
use crate::model::{Facts, SCORE_TOKENS, TableId, Tuned};
use crate::op::hooks::CaptureLayout;
use crate::op::list::Op;
use crate::op::operands::{experts, grouped_gemm};
use crate::op::sampler::SamplerKind;
use crate::op::table::FEW_TOKENS;
use crate::op::table::{BufferId, Table};
use crate::plan;
use crate::plan::builder::{Builder, Graph, LogitRows, Shape};
use crate::plan::verify;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Inputs of every table of a model.
#[derive(Clone, Debug)]
pub struct Build {
    /// Architecture.
    pub arch: &'static Arch,
    /// Hyperparameters.
    pub config: Config,
    /// Weights.
    pub catalog: Arc<Catalog>,
    /// Device that the tables are planned for.
    pub profile: Profile,
    pub(super) tuned: Tuned,
    /// KV cache.
    pub cache: Cache,
    /// Number of tokens of the tables for prompts.
    pub chunk: u32,
    /// Whether a decoder also gets an embedding table.
    pub(super) embeddings: bool,
    /// Whether a GPU gets tables for several tokens of one sequence.
    pub(super) gpu_speculation: GpuSpeculation,
    /// Sampler chain of the decode tables.
    pub(super) samplers: Vec<SamplerKind>,
    /// What the tables compute in addition.
    pub(super) hooks: Option<Arc<TableHooks>>,
}

impl Build {
    /// Reads a model for a device with this profile.
    ///
    /// # Errors
    ///
    /// As [`load_model`](crate::load_model), without stage names.
    pub fn prepare(source: &Source, options: &LoadOptions, mut profile: Profile) -> Result<Self> {
        let model = open_for(source, detect(source)?, options, &profile)?;
        let config = Config::read(&model.file.metadata)?;
        let arch = arch::find(&config.architecture)?;
        let (mut catalog, mut config) =
            Catalog::resolve(model, arch, config.validate(arch)?, options)?;
        limit_host_experts(&mut profile, &config);
        let tuned = tuning::apply_stored(&mut profile, &catalog, options);
        let cache = memory::cache(arch, &config, options, &profile)?;
        catalog.add_rope(&mut config, cache.context)?;
        let chunk = memory::chunk(arch, &config, options, &cache, &profile)?;
        Ok(Self {
            arch,
            config,
            catalog: Arc::new(catalog),
            profile,
            tuned,
            cache,
            chunk,
            embeddings: options.embeddings,
            gpu_speculation: options.gpu_speculation,
            samplers: options.sampler_chain()?,
            hooks: None,
        })
    }

    /// Builds the decode tables, which sample a token for each row, in ascending order of rows.
    /// Empty for an encoder.
    pub fn steps(&self) -> Result<Vec<Table>> {
        if self.arch.encoder {
            return Ok(Vec::new());
        }
        let tables = self.step_rows().map(|rows| self.step(rows));
        let mut tables = tables.collect::<Result<Vec<_>>>()?;
        // The encoder of a speech model is a table of its own.
        if self.config.speech.is_none() && self.hooks.is_none() {
            let draft = self.draft()?;
            if let Some(draft) = &draft {
                self.check_drafting(draft, [&tables[0], &self.head_keys()?])?;
            }
            let used: Vec<_> = tables.first().into_iter().chain(&draft).collect();
            self.catalog.check_all_used(&used)?;
            tables.extend(draft);
        }
        Ok(tables)
    }

    /// Returns the numbers of rows of the decode tables.
    pub(super) fn step_rows(&self) -> impl Iterator<Item = u32> + use<> {
        memory::step_rows(match self.gpu_speculation {
            GpuSpeculation::Off => self.cache.rows(),
            GpuSpeculation::On => self.cache.rows().max(SCORE_TOKENS),
        })
    }

    /// Returns the number of rows of the table that aligns tokens with audio.
    pub(super) fn align_rows(&self) -> u32 {
        FEW_TOKENS.min(self.cache.context)
    }

    /// Builds the decode table with this number of rows.
    pub fn step(&self, rows: u32) -> Result<Table> {
        let logits = if rows == 1 {
            LogitRows::Last
        } else {
            LogitRows::All
        };
        let speech = match self.config.speech {
            Some(_) => Some(speech_model::tokens(self.config.vocab)?),
            None => None,
        };
        self.table(TableId::Step, rows, logits, |b, vocab| match speech {
            Some(tokens) => b.speech_stages(vocab, tokens),
            None => b.sampling_stages(vocab, &self.samplers),
        })
    }

    /// Checks that a step and the table of keys write all that the drafting head reads.
    fn check_drafting(&self, draft: &Table, [step, keys]: [&Table; 2]) -> Result<()> {
        let caches = |table: &Table| {
            let buffers = table.slots.iter().map(|slot| slot.buffer);
            let caches = buffers.filter(|buffer| matches!(buffer, BufferId::Keys(_)));
            caches.collect::<HashSet<_>>()
        };
        match caches(draft).is_subset(&(&caches(step) | &caches(keys))) {
            true => Ok(()),
            false => bail!(
                Unsupported,
                "drafting heads of models of the architecture {:?} are not supported",
                self.arch.name
            ),
        }
    }

    /// Builds the table of the drafting head, if there is one. Requests with hooks use that of the model.
    fn draft(&self) -> Result<Option<Table>> {
        if self.config.drafting.is_none() {
            return Ok(None);
        }
        let mut b = self.builder(TableId::Draft, 1, LogitRows::Last);
        arch::draft_recipe(&mut b, &self.config, self.arch);
        b.sampling_stages(self.config.vocab, &self.samplers);
        self.plan(b.finish()?).map(Some)
    }

    /// Builds the table of the keys and values of the drafting head.
    fn head_keys(&self) -> Result<Table> {
        let mut b = self.builder(TableId::HeadKeys, self.chunk, LogitRows::None);
        arch::head_keys_recipe(&mut b, &self.config, self.arch);
        self.plan(b.finish()?)
    }

    /// Builds the tables for chunks of tokens: the prefill table and, if enabled, the embedding
    /// table. An encoder has only the embedding table.
    pub fn batches(&self) -> Result<Vec<Table>> {
        let mut tables = vec![self.chunk_table()?];
        if self.arch.encoder {
            self.catalog.check_all_used(&[&tables[0]])?;
        } else if let Some(encoder) = &self.config.speech {
            let frames = 2 * encoder.context;
            let (id, logits) = (TableId::Encode, LogitRows::None);
            tables.push(self.table_of(arch::encoder_recipe, id, frames, logits, |_, _| {})?);
            let (id, logits) = (TableId::Align, LogitRows::All);
            let rows = self.align_rows();
            tables.push(self.table_of(arch::aligner_recipe, id, rows, logits, |_, _| {})?);
            self.catalog.check_all_used(&[&tables[0], &tables[1]])?;
        } else if self.embeddings {
            tables.push(self.embed()?);
        }
        if self.config.drafting.is_some() && self.hooks.is_none() {
            tables.push(self.head_keys()?);
        }
        Ok(tables)
    }

    /// Builds all tables.
    pub fn tables(&self) -> Result<Vec<Table>> {
        let mut tables = self.steps()?;
        tables.extend(self.batches()?);
        Ok(tables)
    }

    /// Returns the input of linking for these tables.
    pub fn program(&self, tables: Arc<[Table]>) -> Program {
        let tensors: Arc<dyn Tensors> = match &self.hooks {
            Some(hooks) => hooks.tensors.clone(),
            None => self.catalog.clone(),
        };
        Program { tables, tensors }
    }

    /// Builds the table with the most tokens: the prefill table, or an encoder's embedding table.
    pub fn chunk_table(&self) -> Result<Table> {
        if self.arch.encoder {
            return self.embed();
        }
        self.table(TableId::Batch, self.chunk, LogitRows::Last, |_, _| {})
    }

    fn embed(&self) -> Result<Table> {
        self.table(self.rows_id(), self.chunk, LogitRows::None, |_, _| {})
    }

    /// Returns the name of the table that ends with rows.
    pub fn rows_id(&self) -> TableId {
        match classifier::is_present(&self.catalog) {
            true => TableId::Classify,
            false => TableId::Embed,
        }
    }

    /// Builds the table that computes logits from the residual stream of several tokens.
    pub(super) fn lens(&self, hooks: u32) -> Result<Table> {
        let rows = FEW_TOKENS.min(self.chunk);
        let mut b = self.builder(TableId::Lens, rows, LogitRows::All);
        (self.arch.recipe)(&mut b, &self.config);
        self.plan(b.finish_head(hooks)?)
    }

    /// Returns the layout of the values that the hooks store, which is the same in all tables.
    pub(super) fn capture_layout(&self) -> Result<CaptureLayout> {
        let (id, logits) = match self.arch.encoder {
            true => (self.rows_id(), LogitRows::None),
            false => (TableId::Batch, LogitRows::Last),
        };
        let mut b = self.builder(id, self.chunk, logits);
        (self.arch.recipe)(&mut b, &self.config);
        b.finish_layout()
    }

    /// Runs the recipe and `sampling`, plans the table and verifies it.
    fn table(
        &self,
        id: TableId,
        tokens: u32,
        logits: LogitRows,
        sampling: impl FnOnce(&mut Builder<'_>, u32),
    ) -> Result<Table> {
        self.table_of(self.arch.recipe, id, tokens, logits, sampling)
    }

    fn table_of(
        &self,
        recipe: fn(&mut Builder<'_>, &Config),
        id: TableId,
        tokens: u32,
        logits: LogitRows,
        sampling: impl FnOnce(&mut Builder<'_>, u32),
    ) -> Result<Table> {
        let mut b = self.builder(id, tokens, logits);
        recipe(&mut b, &self.config);
        sampling(&mut b, self.config.vocab);
        self.plan(b.finish()?)
    }

    fn builder(&self, id: TableId, tokens: u32, logits: LogitRows) -> Builder<'_> {
        let shape = Shape {
            name: id.name(),
            tokens,
            logits,
            sequences: self.cache.rows(),
            context: self.cache.context,
            pages: self.cache.pages,
            cache: self.cache.dtype,
            part: self.profile.attention_part,
        };
        match &self.hooks {
            Some(hooks) => Builder::new(&*hooks.tensors, shape).hooked(hooks.of_builder()),
            None => Builder::new(&*self.catalog, shape),
        }
    }

    fn plan(&self, graph: Graph) -> Result<Table> {
        let table = plan::compile(graph, &self.profile)?;
        verify::check(&table, &self.profile)?;
        Ok(table)
    }

    /// Returns the facts of the model.
    pub fn facts(&self, tables: &[Table], fallback: Option<String>) -> Facts {
        let Self {
            config,
            catalog,
            cache,
            ..
        } = self;
        Facts {
            name: catalog.name().to_string(),
            architecture: config.architecture.clone(),
            layers: config.layers,
            dim: config.dim,
            heads: config.attention.heads,
            kv_heads: config.attention.kv_heads,
            head_dim: config.attention.head_dim,
            ffn: config.ffn.width,
            vocab: config.vocab,
            sequences: cache.sequences,
            speculates: self.gpu_speculation == GpuSpeculation::On
                || cache.rows() > 1
                || self.profile.kind == DeviceKind::Cpu,
            drafting_head: config.drafting.as_ref().map(Drafting::name),
            context: cache.context,
            context_trained: config.context,
            dtype: catalog.dtype(),
            parameters: catalog.parameters(),
            file_bytes: catalog.file_bytes(),
            token_bytes: token_bytes(&tables[0], catalog),
            cache_bytes: cache.bytes,
            state_bytes: memory::state_bytes(config),
            scratch_bytes: scratch_bytes(tables),
            device: self.profile.to_string(),
            fallback,
            tuned: self.tuned.clone(),
            upload: None,
            stages: Vec::new(),
        }
    }
}

/// Returns the scratch bytes of tables that share an arena.
pub(super) fn scratch_bytes(tables: &[Table]) -> u64 {
    tables.iter().map(Table::arena_bytes).max().unwrap_or(0)
}

/// Returns the bytes of weights that one token reads: one row of an embedding, the selected experts,
/// all of other weights.
fn token_bytes(table: &Table, catalog: &Catalog) -> u64 {
    let mut bytes = 0;
    let mut vectors = BTreeSet::new();
    for cmd in &table.cmds {
        for info in cmd.slots().iter().map(|slot| table.slot(*slot)) {
            let BufferId::Weight(index, first) = info.buffer else {
                continue;
            };
            // Several commands may read one norm vector.
            if info.rows == 1 && !vectors.insert(index) {
                continue;
            }
            let total_rows = u64::from(catalog.rows_of(index).max(1));
            let read_rows = match (cmd.kernel.op, first) {
                (Op::Embed | Op::EmbedAdd, 0) => 1,
                (Op::Experts | Op::GroupedGemm, 0) => {
                    const { assert!(experts::AT.y == grouped_gemm::AT.y) };
                    u64::from(table.slot(cmd.slots()[experts::AT.y]).cols).min(total_rows)
                }
                (Op::Embed | Op::EmbedAdd | Op::Experts | Op::GroupedGemm, _) => 0,
                _ => u64::from(info.rows),
            };
            bytes += catalog.bytes_of(index) * read_rows / total_rows;
        }
    }
    bytes
}
