//! Inputs of the builder: the shape of the table and the tensors of the model.

use tabla_core::dtype::DType;
use tabla_core::op::pages::Pages;

/// Shape of a table.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Name of the table.
    pub name: &'static str,
    /// Number of tokens per pass.
    pub tokens: u32,
    /// Rows that logits are computed for.
    pub logits: LogitRows,
    /// Number of sequences in the KV cache.
    pub sequences: u32,
    /// Number of positions per sequence.
    pub context: u32,
    /// Page layout of the KV cache.
    pub pages: Pages,
    /// Storage type of the KV cache.
    pub cache: DType,
    /// Number of positions per part of split attention for few tokens; 0 disables splitting.
    pub part: u32,
}

/// Rows that logits are computed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitRows {
    /// The last active row, into [`BufferId::Logits`](tabla_core::op::table::BufferId::Logits).
    Last,
    /// All rows, into [`BufferId::Scores`](tabla_core::op::table::BufferId::Scores).
    All,
    /// None: the output is a row for each token, in
    /// [`BufferId::Hidden`](tabla_core::op::table::BufferId::Hidden).
    None,
}

/// Tensor lookup of a model.
pub trait Weights {
    /// Finds a tensor by name.
    fn find(&self, name: &str) -> Option<WeightInfo>;

    /// Returns the name of the tensor in the model files, for messages.
    fn spelling(&self, name: &str) -> String {
        name.to_string()
    }
}

/// Properties of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct WeightInfo {
    /// Index among the tensors of the model.
    pub index: u32,
    /// Storage type.
    pub dtype: DType,
    /// Number of rows (outputs).
    pub rows: u32,
    /// Number of columns (inputs).
    pub cols: u32,
    /// Scale of a ternary matrix that is multiplied by int8 activations.
    pub scale: Option<f32>,
}
