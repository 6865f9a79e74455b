//! Test cases of operations.
//!
//! A case emits one operation through the builder and is compiled like any table, so that grids are
//! tested too. [`crate::rig`] fills the operands with pseudo-random numbers, runs the operation on
//! a device and compares the results.

use tabla_core::dtype::DType;
use tabla_core::op::params::Sampler;
use tabla_plan::builder::{Builder, LogitRows, WeightInfo, Weights};

/// One operation on one set of shapes.
#[derive(Clone, Copy)]
pub struct Case {
    /// Name, for messages.
    pub name: &'static str,
    /// Number of rows of the table.
    pub tokens: u32,
    /// Number of active rows; the others must not change.
    pub live: u32,
    /// Position of the first row; positions of the others are consecutive.
    pub position: u32,
    /// Number of rows per sequence; each sequence begins at the same position.
    pub sequence: u32,
    /// Context length in positions.
    pub context: u32,
    /// Sliding window in positions, including that of the query; 0: all.
    pub window: u32,
    /// Storage type of the KV cache.
    pub cache: DType,
    /// Rows with logits.
    pub logits: LogitRows,
    /// Name, storage type, rows and columns of the weights.
    pub weights: &'static [(&'static str, DType, u32, u32)],
    /// Scale of the weights, if they are multiplied as ternary digits.
    pub scale: Option<f32>,
    /// Emits the operation, with inputs from [`Builder::input`].
    pub emit: fn(&mut Builder<'_>),
    /// Sets the sampler parameters.
    pub sampler: fn(&mut Sampler),
    /// Maximum difference from the reference, relative to the largest magnitude of the result.
    pub tolerance: f32,
}

/// Methods that replace one field each.
macro_rules! setters {
    ($($field:ident: $type:ty),+) => {
        $(pub(crate) const fn $field(self, $field: $type) -> Self {
            Self { $field, ..self }
        })+
    };
}

impl Case {
    /// Returns a case of `tokens` rows, of which `live` are active: one sequence from position 0 of
    /// 16, without weights.
    pub(crate) const fn new(
        name: &'static str,
        tokens: u32,
        live: u32,
        emit: fn(&mut Builder<'_>),
    ) -> Self {
        Self {
            name,
            tokens,
            live,
            position: 0,
            sequence: u32::MAX,
            context: 16,
            window: 0,
            cache: DType::F32,
            logits: LogitRows::Last,
            weights: &[],
            scale: None,
            emit,
            sampler: |_| {},
            tolerance: 1e-5,
        }
    }

    /// Begins at a position of a context.
    pub(crate) const fn at(self, position: u32, context: u32) -> Self {
        Self {
            position,
            context,
            ..self
        }
    }

    /// Samples every row, each of a sequence of its own.
    pub(crate) const fn sampled_rows(self) -> Self {
        self.sequence(1).logits(LogitRows::All)
    }

    setters! {
        sequence: u32,
        window: u32,
        cache: DType,
        logits: LogitRows,
        weights: &'static [(&'static str, DType, u32, u32)],
        scale: Option<f32>,
        sampler: fn(&mut Sampler),
        tolerance: f32
    }
}

impl Weights for Case {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        let index = self.weights.iter().position(|w| w.0 == name)?;
        let (_, dtype, rows, cols) = self.weights[index];
        let index = u32::try_from(index).expect("few weights");
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
