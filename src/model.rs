//! What loading yields and decoding uses: linked tables, a tokenizer, facts.

use crate::device::Profile;
use crate::exec::Executor;
use crate::op::table::Table;
use crate::text::{ChatTemplates, Tokenizer};
use std::sync::Arc;
use std::time::Duration;

/// The tables of a model; the number is their index in [`Model::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum TableId {
    /// One token in, the likeliest next token out.
    Greedy = 0,
    /// One token in, a drawn next token out.
    Sampled = 1,
    /// A chunk of tokens in, the logits of the last one out.
    Batch = 2,
    /// A few tokens in, the logits of each out.
    Score = 3,
}

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
    /// Positions that fit the KV cache.
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
    /// Where loading spent its time.
    pub stages: Vec<(&'static str, Duration)>,
}

/// A model, ready: its tables are linked to a device.
pub struct Model {
    /// Replays the tables.
    pub(crate) executor: Box<dyn Executor>,
    /// The tables, by [`TableId`].
    pub(crate) tables: Arc<[Table]>,
    /// Text to tokens and back.
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// The chat templates of its files.
    pub(crate) chat_templates: Arc<ChatTemplates>,
    /// What is known of it.
    pub(crate) facts: Facts,
}

impl Model {
    /// What is known of it.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Text to tokens and back.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The chat templates that its files bring along.
    pub fn chat_templates(&self) -> &ChatTemplates {
        &self.chat_templates
    }

    /// The facts of its device.
    pub fn profile(&self) -> &Profile {
        self.executor.profile()
    }

    /// One of its tables.
    pub fn table(&self, id: TableId) -> &Table {
        &self.tables[id as usize]
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}
