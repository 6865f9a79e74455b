//! Weights and shapes of tests.

use crate::builder::{LogitRows, Shape, WeightInfo, Weights};
use tabla_core::dtype::DType;
use tabla_core::op::pages::Pages;

/// Weights of type F32: index, rows and columns of each name.
pub(crate) struct F32s<F>(pub(crate) F);

impl<F: Fn(&str) -> [u32; 3]> Weights for F32s<F> {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        let [index, rows, cols] = (self.0)(name);
        Some(WeightInfo {
            index,
            dtype: DType::F32,
            rows,
            cols,
            scale: None,
        })
    }
}

/// All weights are the same.
pub(crate) struct Same(pub(crate) WeightInfo);

impl Weights for Same {
    fn find(&self, _: &str) -> Option<WeightInfo> {
        Some(self.0)
    }
}

/// Square matrices of 8 rows.
pub(crate) const SQUARE: Same = Same(WeightInfo {
    index: 0,
    dtype: DType::F32,
    rows: 8,
    cols: 8,
    scale: None,
});

/// A table with this many rows, of one sequence with a context of 8.
pub(crate) fn shape(tokens: u32) -> Shape {
    Shape {
        name: "test",
        tokens,
        logits: LogitRows::Last,
        sequences: 1,
        context: 8,
        pages: Pages::new(1, 8, &[], tokens),
        cache: DType::F32,
        part: 0,
    }
}
