//! The tables in a compiled model, and the key of what they were planned for.

use super::check::{Expected, check};
use super::tables as columns;
use crate::build::Build;
use crate::catalog::Catalog;
use crate::device::DeviceKind;
use crate::error::{Context, Result, bail};
use crate::exec::Tensors;
use crate::format::write::Writer;
use crate::model::TableId;
use crate::op::table::Table;
use crate::plan::builder::WeightInfo;
use blake3::Hasher;

/// Returns the prefix of the keys of the tables for a device.
fn prefix(build: &Build) -> &'static str {
    match build.profile.kind {
        DeviceKind::Cpu => "tabla.tables.cpu",
        DeviceKind::Gpu => "tabla.tables.gpu",
    }
}

/// Adds the tables of a model to a compiled one.
///
/// # Errors
///
/// `Internal` if the tables are not those of the build.
pub(super) fn write(to: &mut Writer<'_>, build: &Build, all: &[Table]) -> Result<()> {
    let found = all.iter().map(|table| (table.name, table.tokens));
    let expected = build.table_ids();
    if !found.eq(expected.iter().map(|(id, tokens)| (id.name(), *tokens))) {
        bail!(Internal, "the tables are not {expected:?}");
    }
    let prefix = prefix(build);
    to.set(&format!("{prefix}.key"), &*key(build));
    columns::write(to, prefix, all);
    Ok(())
}

/// Returns the tables of a model: those of a compiled one, or new ones.
///
/// # Errors
///
/// Those of planning, and of tables that do not fit the model.
pub fn tables(build: &Build) -> Result<Vec<Table>> {
    read(build)?.map_or_else(|| build.tables(), Ok)
}

/// Returns the tables of a compiled model if they were planned for this device and these options, otherwise `None`.
///
/// # Errors
///
/// `Format` for tables that do not fit the model.
pub(crate) fn read(build: &Build) -> Result<Option<Vec<Table>>> {
    let catalog = &build.catalog;
    let metadata = &catalog.model().file.metadata;
    let prefix = prefix(build);
    let stored = metadata.str(&format!("{prefix}.key"))?;
    if stored.is_none_or(|stored| stored != key(build)) {
        return Ok(None);
    }
    let tables = columns::read(metadata, prefix).context("compiled model")?;
    let expected = Expected {
        tables: &build.table_ids(),
        weights: &weights(catalog),
        constants: &constants(catalog),
        pages: build.cache.pages,
        sequences: build.cache.rows(),
        context: build.cache.context,
        vocab: build.config.vocab,
    };
    check(&tables, &expected, &build.profile).context("compiled model")?;
    Ok(Some(tables))
}

/// Returns the weights that tables may refer to.
pub(super) fn weights(catalog: &Catalog) -> Vec<WeightInfo> {
    let weights = (0..).zip(catalog.weights());
    let weights = weights.map(|(index, weight)| WeightInfo {
        index,
        dtype: weight.dtype,
        rows: weight.rows,
        cols: weight.cols,
        scale: None,
    });
    weights.collect()
}

/// Returns the sizes in bytes of the constants that tables may refer to.
pub(super) fn constants(catalog: &Catalog) -> Vec<u64> {
    let constants = 0..catalog.constants();
    constants
        .map(|i| catalog.constant(i).len() as u64)
        .collect()
}

/// Returns a digest of everything that planning depends on besides the weights.
fn key(build: &Build) -> String {
    let (profile, cache) = (&build.profile, &build.cache);
    let texts = [
        columns::version().to_string(),
        format!("{:?} {}", build.table_ids(), cache.rows()),
        format!("{} {:?} {:?}", cache.context, cache.dtype, cache.pages),
        format!("{:?} {:?}", build.samplers, build.config.drafting),
        format!("{:?} {} {}", profile.kind, profile.cores, profile.grid_max),
        format!("{} {}", profile.binding_bytes_max, profile.bindings_max),
        format!("{:?} {:?}", profile.variants, profile.tuned_kernels),
        format!("{} {:?}", profile.attention_part, profile.host_experts),
    ];
    let mut hasher = Hasher::new();
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().to_hex()[..16].to_string()
}

impl Build {
    /// Returns the name and the number of tokens of each table, in order.
    fn table_ids(&self) -> Vec<(TableId, u32)> {
        let (chunk, drafts) = (self.chunk, self.config.drafting.is_some());
        if self.arch.encoder {
            return vec![(self.rows_id(), chunk)];
        }
        let mut ids: Vec<_> = self.step_rows().map(|rows| (TableId::Step, rows)).collect();
        if let Some(encoder) = &self.config.speech {
            ids.push((TableId::Batch, chunk));
            ids.push((TableId::Encode, 2 * encoder.context));
            ids.push((TableId::Align, self.align_rows()));
        } else {
            ids.extend(drafts.then_some((TableId::Draft, 1)));
            ids.push((TableId::Batch, chunk));
            ids.extend(self.embeddings.then_some((TableId::Embed, chunk)));
        }
        ids.extend(drafts.then_some((TableId::HeadKeys, chunk)));
        ids
    }
}
