//! Stages 14 and 15: the tables of a model, from recipe to checked table.

use super::catalog::Catalog;
use super::memory::Cache;
use crate::arch::{Arch, Config};
use crate::device::Profile;
use crate::error::Result;
use crate::model::{Facts, TableId};
use crate::op::builder::{Builder, LogitRows, Shape};
use crate::op::list::Op;
use crate::op::table::{Place, Table};
use crate::op::verify;
use crate::plan;

/// Tokens of a pass that yields logits for all of them: their rows are `[tokens, vocab]`.
const SCORE_TOKENS: u32 = 8;

/// What every table of a model is built from.
pub(super) struct Build {
    pub(super) arch: &'static Arch,
    pub(super) config: Config,
    pub(super) catalog: Catalog,
    pub(super) profile: Profile,
    pub(super) cache: Cache,
    pub(super) chunk: u32,
}

impl Build {
    /// The tables that have no random numbers: greedy, batch and score.
    pub(super) fn greedy_and_batch(&self) -> Result<[Table; 3]> {
        let greedy = self.table("greedy", 1, LogitRows::Last, |b, vocab| {
            b.pick_greedy(vocab);
        })?;
        let batch = self.table("batch", self.chunk, LogitRows::Last, |_, _| {})?;
        let score = self.table("score", SCORE_TOKENS, LogitRows::All, |_, _| {})?;
        self.catalog.check_all_used(&greedy)?;
        Ok([greedy, batch, score])
    }

    /// The sampled table.
    pub(super) fn sampled(&self) -> Result<Table> {
        self.table("sampled", 1, LogitRows::Last, |b, vocab| {
            b.pick_sampled(vocab);
        })
    }

    /// Recipe, tail, plan, checks.
    fn table(
        &self,
        name: &'static str,
        tokens: u32,
        logits: LogitRows,
        tail: fn(&mut Builder<'_>, u32),
    ) -> Result<Table> {
        let Cache {
            context,
            dtype: cache,
            ..
        } = self.cache;
        let mut b = Builder::new(
            &self.catalog,
            Shape {
                name,
                tokens,
                logits,
                context,
                cache,
            },
        );
        (self.arch.recipe)(&mut b, &self.config);
        tail(&mut b, self.config.vocab);
        let table = plan::compile(b.finish()?, &self.profile)?;
        verify::check(&table, &self.profile)?;
        Ok(table)
    }

    /// What is known of the model once its tables stand.
    pub(super) fn facts(&self, tables: &[Table]) -> Facts {
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
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            ffn: config.ffn,
            vocab: config.vocab,
            context: cache.context,
            context_trained: config.context,
            dtype: catalog.dtype(),
            parameters: catalog.parameters(),
            file_bytes: catalog.file_bytes(),
            token_bytes: token_bytes(&tables[TableId::Greedy as usize], catalog),
            cache_bytes: cache.bytes,
            scratch_bytes: scratch_bytes(tables),
            device: self.profile.to_string(),
            fallback: None,
            stages: Vec::new(),
        }
    }
}

/// Working memory of tables that share an arena.
pub(super) fn scratch_bytes(tables: &[Table]) -> u64 {
    tables.iter().map(Table::arena_bytes).max().unwrap_or(0)
}

/// Bytes of weights that one replay reads: an embedding by its row, experts by those that a token
/// takes, everything else whole.
fn token_bytes(table: &Table, catalog: &Catalog) -> u64 {
    let mut bytes = 0;
    for cmd in &table.cmds {
        for info in cmd.slots().iter().map(|slot| table.slot(*slot)) {
            let Place::Weight(index) = info.place else {
                continue;
            };
            let rows = u64::from(info.rows.max(1));
            let read = match cmd.op {
                Op::Embed | Op::EmbedAdd => 1,
                Op::Experts => u64::from(table.slot(cmd.slots()[3]).cols).min(rows),
                _ => rows,
            };
            bytes += catalog.bytes_of(index) * read / rows;
        }
    }
    bytes
}
