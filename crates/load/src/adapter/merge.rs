//! Merging: adds the product of A and B to rows of a weight.

use crate::model::AdapterModule;

/// A module of an adapter that is added to rows of a matrix, which can be a fused weight.
#[derive(Clone, Copy, Debug)]
pub struct Merge<'a> {
    /// The two matrices.
    pub module: &'a AdapterModule,
    /// Factor of the change.
    pub scale: f32,
    /// Row of the matrix that the first row of the module belongs to.
    pub first_row: usize,
}

impl Merge<'_> {
    /// Adds the change to a row of the matrix: `w[j] += scale * sum over r of B[row, r] A[r, j]`,
    /// with sums in f64. Other rows than those of the module remain unchanged.
    ///
    /// # Panics
    ///
    /// If `weights` does not have the length of the inputs.
    pub(crate) fn add_to_row(&self, row: usize, weights: &mut [f32]) {
        let Self { module, scale, .. } = *self;
        let [rank, inputs] = [module.rank, module.inputs].map(|n| n as usize);
        assert_eq!(
            weights.len(),
            inputs,
            "length of a row of {}",
            module.tensor
        );
        let row = row.checked_sub(self.first_row);
        let Some(row) = row.filter(|row| *row < module.outputs as usize) else {
            return;
        };
        let factors = &module.b[row * rank..][..rank];
        let mut sums = vec![0.0f64; inputs];
        for (factor, a) in factors.iter().zip(module.a.chunks_exact(inputs)) {
            let factor = f64::from(*factor);
            for (sum, a) in sums.iter_mut().zip(a) {
                *sum += factor * f64::from(*a);
            }
        }
        for (w, sum) in weights.iter_mut().zip(sums) {
            #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
            let merged = (f64::from(*w) + f64::from(scale) * sum) as f32;
            *w = merged;
        }
    }
}
