//! What loading yields and decoding uses: linked tables, a tokenizer, facts.

use crate::device::DeviceKind;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::{Executor, Upload};
use crate::op::builder::FEW_TOKENS;
use crate::op::pages::{PAGE, Pages};
use crate::op::table::{BufferId, SlotInfo, Table};
use crate::text::{ChatTemplates, Tokenizer};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The tables of a model. An encoder has the one for embeddings alone; other models have it
/// where they were loaded with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableId {
    /// One token in, the next one out, by one of its tails. Further tables of this name do so for
    /// several rows: a token of several sequences each, or some tokens of one.
    Step,
    /// A chunk of tokens in, the logits of the last one out.
    Batch,
    /// A chunk of tokens in, the last layer's normed rows out.
    EmbedOptions,
}

impl TableId {
    /// Its name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Batch => "batch",
            Self::EmbedOptions => "embed",
        }
    }
}

/// Rows of the tables for steps, at most.
pub(crate) const STEP_ROWS_MAX: u32 = FEW_TOKENS;

/// Rows of the widest table for steps at least: for tokens of one sequence, which are scored or guessed.
pub(crate) const SCORE_TOKENS: u32 = 8;

/// Facts about a loaded model.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The maker's name for it; empty where the file has none.
    pub name: String,
    /// Architecture, as the file names it.
    pub architecture: String,
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub dim: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Width of the feed-forward layer.
    pub ffn: u32,
    /// Tokens of the vocabulary, which is also the length of a row of logits.
    pub vocab: u32,
    /// Sequences that the KV cache holds.
    pub sequences: u32,
    /// Whether guesses at tokens can be checked: their rows are computed as lone ones are.
    pub speculates: bool,
    /// Positions of each that fit it.
    pub context: u32,
    /// Positions that the model was trained for.
    pub context_trained: u32,
    /// The storage type that most bytes of the weights have: what people call the quantisation.
    pub dtype: &'static str,
    /// Elements of all weights.
    pub parameters: u64,
    /// Bytes of the file or files.
    pub file_bytes: u64,
    /// Bytes of the weights that one decoded token reads.
    pub token_bytes: u64,
    /// Bytes of the KV cache.
    pub cache_bytes: u64,
    /// Bytes of working memory.
    pub scratch_bytes: u64,
    /// The device, in words.
    pub device: String,
    /// Why the CPU replays although a GPU would have been taken.
    pub fallback: Option<String>,
    /// Whether its tables follow what [`tune`](crate::tune) measured.
    pub tuned: Tuned,
    /// What was sent to a GPU; `None` on a CPU.
    pub upload: Option<Upload>,
    /// Where loading spent its time.
    pub stages: Vec<(&'static str, Duration)>,
}

/// What became of the folder of tunings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tuned {
    /// None of this model on this device is there, or nobody gave a folder.
    No,
    /// This file was followed.
    By(PathBuf),
    /// One is there and was not followed: which, and why.
    Left(String),
}

/// What becomes of the rows of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first one.
    Cls,
    /// The last one.
    Last,
    /// The largest number of each column.
    Max,
}

impl Pooling {
    /// Every pooling.
    pub const ALL: &'static [Self] = &[Self::Mean, Self::Cls, Self::Last, Self::Max];

    /// Its name in files of sentence-transformers and in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Cls => "cls",
            Self::Last => "last",
            Self::Max => "max",
        }
    }
}

/// What the files of a model say of its embeddings.
#[derive(Clone, Debug, Default)]
pub struct Embedding {
    /// How the rows of a text become one; `None` where nothing is said.
    pub pooling: Option<Pooling>,
    /// Whether embeddings have the length 1; `None` where nothing is said.
    pub normalize: Option<bool>,
    /// The longest text in tokens; `None` where nothing is said.
    pub length: Option<u32>,
    /// What stands before texts of a kind (`query`, `document`): name and text.
    pub prompts: Vec<(String, String)>,
    /// The name of the prompt that is taken when none is asked for.
    pub default_prompt: Option<String>,
}

/// A model whose tables are linked to a device.
pub(crate) struct LinkedTables {
    /// Replays the tables.
    pub(crate) executor: Box<dyn Executor>,
    /// The tables, each with the name of a [`TableId`].
    pub(crate) tables: Arc<[Table]>,
    /// How its KV cache lies in pages.
    pub(crate) pages: Pages,
    /// What its files say of embeddings.
    pub(crate) embedding: Embedding,
    /// Text to tokens and back.
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// The chat templates of its files.
    pub(crate) chat_templates: Arc<ChatTemplates>,
    /// Computes the digest of its files.
    pub(crate) digest: Digesting,
    /// What the bits of its KV cache depend on beside its files, in words.
    pub(crate) provenance: String,
    /// What is known of it.
    pub(crate) facts: Facts,
}

/// Reads the files of a model, which have to be as they were when it was loaded, for its digest.
pub(crate) type Digesting = Arc<dyn Fn() -> Result<[u8; 32]> + Send + Sync>;

impl LinkedTables {
    /// Whether a token that goes through a table for steps leaves other bits in the cache than one
    /// that goes through a chunk: a CPU computes both alike.
    pub(crate) fn apart(&self) -> bool {
        self.executor.profile().kind == DeviceKind::Gpu
    }

    /// The bytes of a page in a layer whose keys or values these are, and whether it has a window;
    /// `None` of other places.
    pub(crate) fn page_of(&self, slot: &SlotInfo) -> Option<(usize, bool)> {
        let cache = matches!(slot.place, BufferId::Keys(_) | BufferId::Values(_));
        let bytes = slot.dtype.bytes(u64::from(slot.cols) * u64::from(PAGE));
        let bytes = usize::try_from(bytes?).ok()?;
        cache.then_some((bytes, slot.rows != self.pages.whole_pool * PAGE))
    }

    /// The place of a table among all.
    ///
    /// # Errors
    ///
    /// `State` where the model has no such table.
    pub(crate) fn at(&self, id: TableId) -> Result<usize> {
        let at = self.tables.iter().position(|table| table.name == id.name());
        at.map_or_else(|| Err(self.lacks(id)), Ok)
    }

    fn lacks(&self, id: TableId) -> Error {
        let message = match id {
            TableId::EmbedOptions => "the model was loaded without its table for embeddings",
            _ => "the model is an encoder: it yields embeddings and generates no text",
        };
        Error::new(ErrorKind::State, message)
    }
}

impl std::fmt::Debug for LinkedTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkedTables")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}
