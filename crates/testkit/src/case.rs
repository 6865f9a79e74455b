//! Test cases of operations.
//!
//! A case emits one operation through the builder and is compiled like any table, so that grids
//! are tested too. [`crate::rig`] fills the operands with pseudo-random numbers, runs the
//! operation on a device and compares the results.

use tabla_core::dtype::DType;
use tabla_core::exec::state::Sampler;
use tabla_core::op::builder::{Builder, LogitRows, WeightInfo, Weights};

/// One operation on one set of shapes.
#[derive(Clone, Copy)]
pub struct Case {
    /// What is odd about it.
    pub name: &'static str,
    /// Tokens that the table is built for.
    pub tokens: u32,
    /// Tokens that live; rows beyond must stay untouched.
    pub live: u32,
    /// Position of the first row; the others follow.
    pub position: u32,
    /// Rows of a sequence; behind them the next sequence begins at the same position.
    pub sequence: u32,
    /// Positions of the KV cache.
    pub context: u32,
    /// Positions that a query sees, its own among them; 0: all.
    pub window: u32,
    /// Storage of the KV cache.
    pub cache: DType,
    /// Which rows have logits.
    pub logits: LogitRows,
    /// The weights by name, `[rows, cols]`.
    pub weights: &'static [(&'static str, DType, u32, u32)],
    /// The one scale of its weights, where they are multiplied as ternary digits.
    pub scale: Option<f32>,
    /// Emits the operation; its inputs come from [`Builder::input`].
    pub emit: fn(&mut Builder<'_>),
    /// Sets how tokens are picked.
    pub sampler: fn(&mut Sampler),
    /// Greatest difference from the reference, relative to the largest number of the result.
    pub tolerance: f32,
}

impl Weights for Case {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        let index = self.weights.iter().position(|w| w.0 == name)?;
        let (_, dtype, rows, cols) = self.weights[index];
        let index = u32::try_from(index).expect("a handful of weights");
        Some(WeightInfo {
            index,
            dtype,
            rows,
            cols,
            scale: self.scale,
        })
    }
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Defaults of a case.
pub(crate) const PLAIN: Case = Case {
    name: "",
    tokens: 1,
    live: 1,
    position: 0,
    sequence: u32::MAX,
    context: 16,
    window: 0,
    cache: DType::F32,
    logits: LogitRows::Last,
    weights: &[],
    scale: None,
    emit: |_| {},
    sampler: |_| {},
    tolerance: 1e-5,
};
