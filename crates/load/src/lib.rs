//! Model loading: from files to a linked model, in 18 stages.
//!
//! The order follows the dependencies. Stage 7 checks the range of every number before anything is
//! computed from it. The tuning is looked up by a digest of the weights (8), and the size of the KV
//! cache (9) depends on the tuning. Some models scale RoPE frequencies (10) by the context length,
//! which stage 9 sets.

pub mod adapter;
pub mod arch;
pub mod build;
pub mod cancel;
pub mod catalog;
pub mod chat;
mod classifier;
pub mod collect;
pub mod compiled;
mod digest;
mod drafter;
mod embedding;
mod encode;
pub mod exec;
mod experts;
pub mod finite;
pub mod hf;
mod hook_tensors;
mod hooks;
mod host_memory;
mod latent;
pub mod memory;
pub mod model;
#[rustfmt::skip] // generated
mod option_fields;
pub mod options;
pub mod output;
mod provenance;
pub mod recurrent;
mod reshape;
pub mod row_order;
pub mod rows;
pub mod selected_device;
pub mod source;
pub mod speech_model;
pub mod speech_names;
pub mod split;
mod stage;
mod sync;
pub mod tensor_scales;
pub mod tokenizer;
pub mod tuning;
pub mod weight;

pub use tabla_core::{device, dtype, op};
pub use tabla_quant as quant;

/// Options and progress of loading, and devices of the machine.
// The module `load` of the crate `tabla`.
pub mod load {
    pub use crate::encode::LM_HEAD_TYPES;
    pub use crate::memory::CACHE_TYPES;
    pub use crate::options::{
        CONTEXT_DEFAULT, CONTEXT_TRAINED, CpuExperts, DeviceChoice, DraftingHead, GpuSpeculation,
        LoadMode, LoadOptions, SEQUENCES_MAX, WeightMemory,
    };
    pub use crate::selected_device::devices;
    pub use crate::stage::{Progress, STAGES, Stage};
}

use tabla_audio as audio;
use tabla_core::{error, reserve};
use tabla_format as format;
use tabla_plan as plan;
use tabla_speech as speech;
use tabla_text as text;

use crate::device::DeviceKind;
use crate::error::{Context, Result};
use crate::exec::Executor;
use crate::exec::state::{ROWS_OFFSET, state_bytes};
use crate::model::{CheckFiles, Classifier, Embedding, LinkedTables, SpeechModel};
use crate::op::params::{Row, State};
use crate::op::table::{BufferId, Table};
use arch::Config;
use build::Build;
use catalog::Catalog;
use load::{LoadOptions, Progress, Stage};
use selected_device::{SelectedDevice, limit_host_experts};
use source::{Source, detect, open_for};
use stage::Stages;
use std::sync::{Arc, OnceLock};

/// Loads a model.
///
/// # Errors
///
/// Every error names its stage: `stage 3 format: ...`. A failed load releases everything.
#[expect(clippy::too_many_lines, reason = "one statement per stage")]
pub fn load_model(
    source: &Source,
    options: &LoadOptions,
    report: &mut dyn FnMut(&Progress),
) -> Result<LinkedTables> {
    let mut s = Stages::new(options, report);
    let device = s.run(Stage::Device, || SelectedDevice::choose(options))?;
    let (device, mut profile) = s.run(Stage::Profile, || device.checked())?;
    let (cached, kind) = s.run(Stage::Format, || {
        Ok((
            compiled::open_cached(source, options, &profile)?,
            detect(source)?,
        ))
    })?;
    let (model, options) = s.run(Stage::Weights, || match cached {
        Some(cached) => Ok(cached),
        None => Ok((open_for(source, kind, options, &profile)?, options.clone())),
    })?;
    let options = &options;
    let config = s.run(Stage::Config, || Config::read(&model.file.metadata))?;
    let arch = s.run(Stage::Architecture, || arch::find(&config.architecture))?;
    let config = s.run(Stage::Validation, || config.validate(arch))?;
    let (mut catalog, mut config) = s.run(Stage::Tensors, || {
        Catalog::resolve(model, arch, config, options)
    })?;
    let (tuned, cache) = s.run(Stage::Cache, || {
        limit_host_experts(&mut profile, &config);
        let tuned = tuning::apply_stored(&mut profile, &catalog, options);
        Ok((tuned, memory::cache(arch, &config, options, &profile)?))
    })?;
    s.run(Stage::Rope, || catalog.add_rope(&mut config, cache.context))?;
    let catalog = Arc::new(catalog);
    let tokenizer = s.run(Stage::Tokenizer, || {
        Ok(tokenizer::Building::start(&catalog, &config))
    })?;
    let chat_templates = s.run(Stage::ChatTemplates, || chat::read(catalog.model()))?;
    let properties = s.run(Stage::Embedding, || properties(&catalog, &config))?;
    let (embedding, classifier, speech) = properties;
    let chunk = s.run(Stage::Scratch, || {
        memory::chunk(arch, &config, options, &cache, &profile)
    })?;
    let (build, mut tables, is_stored) = s.run(Stage::Step, || {
        let build = Build {
            arch,
            config,
            catalog,
            profile,
            tuned,
            cache,
            chunk,
            embeddings: options.embeddings,
            gpu_speculation: options.gpu_speculation,
            samplers: options.sampler_chain()?,
            hooks: None,
        };
        let stored = compiled::read_tables(&build)?;
        let is_stored = stored.is_some();
        let tables = stored.map_or_else(|| build.steps(), Ok)?;
        Ok((build, tables, is_stored))
    })?;
    tables.extend(s.run(Stage::Batch, || match is_stored {
        true => Ok(Vec::new()),
        false => build.batches(),
    })?);
    let tables: Arc<[Table]> = tables.into();
    let mut facts = build.facts(&tables, device.fallback());
    #[cfg(feature = "gpu")]
    let gpu = device.gpu();
    let provenance = provenance::of(&build, &facts, options);
    let (file, compiled) = (
        Arc::clone(&build.catalog.model().file),
        build.catalog.model().compiled.clone(),
    );
    let check_files = check_files(&build);
    let program = build.program(tables.clone());
    let of_tables = |error| match is_stored {
        true => compiled::of_file(error),
        false => error,
    };
    let mut executor = s.run(Stage::Buffers, || {
        let linked = device.link(program, build.profile.clone(), &cache);
        linked.map_err(of_tables)
    })?;
    s.run(Stage::WarmUp, || {
        warm_up(&mut *executor, &tables).map_err(of_tables)
    })?;
    let tokenizer = s.finish(Stage::Tokenizer, || {
        let tokenizer = tokenizer.finish();
        // Everything that was read may be zeros.
        file.check_faults().and(tokenizer)
    })?;
    (facts.device, facts.upload) = (executor.profile().to_string(), executor.upload());
    facts.stages = s.took;
    Ok(LinkedTables {
        executor,
        #[cfg(feature = "gpu")]
        gpu,
        tables,
        pages: cache.pages,
        embedding,
        classifier: classifier.map(Arc::new),
        tokenizer: Arc::new(tokenizer),
        chat_templates: Arc::new(chat_templates),
        speech: speech.map(Arc::new),
        digest: Arc::new(move || match &compiled {
            Some(header) => Ok(header.digest),
            None => digest::of(&file),
        }),
        hook_compiler: Arc::new(build),
        culprit: OnceLock::new(),
        provenance,
        check_files,
        facts,
    })
}

/// Returns the check of files whose pages are read after loading: by a CPU, and by the tokenizer of a compiled model.
fn check_files(build: &Build) -> CheckFiles {
    let (profile, catalog) = (&build.profile, Arc::clone(&build.catalog));
    let on_host = profile.kind == DeviceKind::Cpu || profile.host_experts.is_some();
    let is_mapped = on_host || catalog.model().compiled.is_some();
    Arc::new(move || match is_mapped && !catalog.is_copied() {
        true => catalog.file().check_unchanged(),
        false => Ok(()),
    })
}

/// Reads the properties of embeddings, of classification heads and of speech models that the tables do
/// not contain.
fn properties(
    catalog: &Catalog,
    config: &Config,
) -> Result<(Embedding, Option<Classifier>, Option<SpeechModel>)> {
    let (model, classifier) = (catalog.model(), classifier::read(catalog)?);
    let embedding = embedding::read(catalog, config, classifier.as_ref())?;
    Ok((embedding, classifier, speech_model::read(model, config)?))
}

/// Runs every table once. A GPU computes one token, which compiles its pipelines. A CPU runs with
/// no active row, which starts its threads and reads no weights.
fn warm_up(executor: &mut dyn Executor, tables: &[Table]) -> Result<()> {
    let mut slots = tables.iter().flat_map(|table| &table.slots);
    let history = slots.find(|slot| slot.buffer == BufferId::History);
    let context = history.map_or(0, |slot| slot.cols);
    let active = u32::from(executor.profile().kind == DeviceKind::Gpu);
    let mut bytes = [0; state_bytes(1)];
    let state = State {
        active_rows: active,
        context,
        ..State::default()
    };
    bytes[..ROWS_OFFSET].copy_from_slice(bytemuck::bytes_of(&state));
    bytes[ROWS_OFFSET..].copy_from_slice(bytemuck::bytes_of(&Row::default()));
    for (at, table) in tables.iter().enumerate() {
        executor.write(BufferId::State, 0, &bytes)?;
        executor.run(at, (0..table.cmds.len()).into(), 1)?;
    }
    let mut state = [0; size_of::<State>()];
    executor
        .read(BufferId::State, 0, &mut state)
        .context("warm-up pass")
}
