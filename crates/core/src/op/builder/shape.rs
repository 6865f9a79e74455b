//! What a table is built for: its shape, and the tensors of the model.

use crate::dtype::DType;
use crate::op::pages::Pages;

/// Tokens that are no prompt but one of each of several sequences: their products stay as near to
/// those of one token as they can, so that a sequence picks the same tokens in company as alone.
pub const FEW_TOKENS: u32 = 32;

/// What a table is built for.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Name of the table.
    pub name: &'static str,
    /// Tokens that go through at once.
    pub tokens: u32,
    /// Which rows get logits.
    pub logits: LogitRows,
    /// Sequences that the KV cache holds.
    pub sequences: u32,
    /// Positions of each.
    pub context: u32,
    /// How the KV cache lies in pages.
    pub pages: Pages,
    /// Storage of the KV cache.
    pub cache: DType,
    /// Positions that attention of few tokens takes at a time; 0: all.
    pub part: u32,
}

/// Which rows get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitRows {
    /// The last live row, into [`BufferId::Logits`](crate::op::table::BufferId::Logits).
    Last,
    /// Every row, into [`BufferId::Scores`](crate::op::table::BufferId::Scores).
    All,
    /// None: the table ends with the normed rows of the last layer, in [`BufferId::Hidden`](crate::op::table::BufferId::Hidden).
    None,
}

/// What the builder asks of a model's tensors.
pub trait Weights {
    /// The tensor of this name.
    fn find(&self, name: &str) -> Option<WeightInfo>;

    /// The name that the model's files have for it, in messages.
    fn spelling(&self, name: &str) -> String {
        name.to_string()
    }
}

/// A tensor as the builder sees it.
#[derive(Clone, Copy, Debug)]
pub struct WeightInfo {
    /// Its place among the model's tensors.
    pub index: u32,
    /// How it is stored.
    pub dtype: DType,
    /// Rows: outputs.
    pub rows: u32,
    /// Elements of a row: inputs.
    pub cols: u32,
    /// The one scale of a matrix of ternary digits, where its activations go to int8 first.
    pub scale: Option<f32>,
}
