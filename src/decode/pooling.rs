//! Pooling: reduces the rows of a text to one embedding.

use crate::error::{Result, bail};
use crate::model::{DenseModule, Pooling};

/// Pools the rows of a text.
pub(super) struct Pooler<'a> {
    poolings: Vec<Pooling>,
    dense: &'a [DenseModule],
    normalize: bool,
    /// Number of numbers of a row.
    width: usize,
    /// Number of rows so far.
    rows: u32,
    /// Sum, maximum or selected row of each pooling method.
    pooled: Vec<f64>,
}

impl<'a> Pooler<'a> {
    /// Creates a pooler of rows with `width` numbers, whose pooled vectors pass through Dense modules.
    ///
    /// # Errors
    ///
    /// `Argument` if the Dense modules expect other pooling methods.
    pub(super) fn new(
        poolings: Vec<Pooling>,
        width: usize,
        dense: &'a [DenseModule],
    ) -> Result<Self> {
        let pooled = vec![0.0; width * poolings.len()];
        if let Some(first) = dense.first().filter(|first| first.inputs() != pooled.len()) {
            bail!(
                Argument,
                "the Dense module of the model has {} inputs, but the vectors of {} pooling methods have {} numbers: \
                 use the pooling of the model",
                first.inputs(),
                poolings.len(),
                pooled.len()
            );
        }
        Ok(Self {
            poolings,
            dense,
            normalize: false,
            width,
            rows: 0,
            pooled,
        })
    }

    /// Sets whether embeddings are normalized to length 1.
    #[expect(clippy::fn_params_excessive_bools, reason = "the value of a field")]
    pub(super) fn normalized(mut self, normalize: bool) -> Self {
        self.normalize = normalize;
        self
    }

    /// Adds a row.
    pub(super) fn add(&mut self, row: &[f32]) {
        self.rows += 1;
        let position = f64::from(self.rows);
        let parts = self.pooled.chunks_exact_mut(self.width);
        for (pooling, part) in self.poolings.iter().zip(parts) {
            let pairs = part.iter_mut().zip(row.iter().map(|x| f64::from(*x)));
            match pooling {
                // The first row initializes every method.
                _ if self.rows == 1 => pairs.for_each(|(sum, x)| *sum = x),
                Pooling::Cls => {}
                Pooling::Last => pairs.for_each(|(sum, x)| *sum = x),
                Pooling::Mean | Pooling::MeanSqrtLength => pairs.for_each(|(sum, x)| *sum += x),
                Pooling::WeightedMean => pairs.for_each(|(sum, x)| *sum += position * x),
                Pooling::Max => pairs.for_each(|(sum, x)| *sum = sum.max(x)),
            }
        }
    }

    /// Writes the leading numbers of the embedding of the rows so far and resets for the next text.
    pub(super) fn finish(&mut self, out: &mut [f32]) {
        let rows = f64::from(self.rows);
        let factor = |pooling: &Pooling| match pooling {
            Pooling::Mean => 1.0 / rows,
            Pooling::MeanSqrtLength => 1.0 / rows.sqrt(),
            Pooling::WeightedMean => 2.0 / (rows * (rows + 1.0)),
            Pooling::Cls | Pooling::Last | Pooling::Max => 1.0,
        };
        let mut vector = self.pooled.clone();
        // The factor of a single vector has no effect on its direction.
        if self.poolings.len() > 1 || !self.dense.is_empty() || !self.normalize {
            let parts = vector.chunks_exact_mut(self.width);
            for (pooling, part) in self.poolings.iter().zip(parts) {
                let factor = factor(pooling);
                part.iter_mut().for_each(|x| *x *= factor);
            }
        }
        for module in self.dense {
            vector = apply(module, &vector);
        }
        vector.truncate(out.len());
        let squares: f64 = vector.iter().map(|x| x * x).sum();
        // A zero vector cannot be normalized and stays zero.
        let scale = match self.normalize && squares > 0.0 {
            true => 1.0 / squares.sqrt(),
            false => 1.0,
        };
        for (to, x) in out.iter_mut().zip(&vector) {
            #[expect(clippy::cast_possible_truncation, reason = "embeddings are f32")]
            let number = (x * scale) as f32;
            *to = number;
        }
        self.rows = 0;
    }
}

/// `W x + bias`, or its `tanh`.
fn apply(module: &DenseModule, x: &[f64]) -> Vec<f64> {
    let rows = module.weights.chunks_exact(module.inputs());
    let dot = |row: &[f32]| -> f64 {
        let products = row.iter().zip(x).map(|(w, x)| f64::from(*w) * x);
        products.sum()
    };
    let results = rows.zip(&module.bias);
    let results = results.map(|(row, bias)| dot(row) + f64::from(*bias));
    match module.tanh {
        true => results.map(f64::tanh).collect(),
        false => results.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(poolings: &[Pooling]) -> Pooler<'static> {
        Pooler::new(poolings.to_vec(), 3, &[]).unwrap()
    }

    /// Pools two rows, after the rows of another text.
    fn pooled(mut pool: Pooler<'_>, dim: usize) -> Vec<f32> {
        let mut out = vec![0.0; dim];
        for rows in [
            &[[9.0, 9.0, 9.0]][..],
            &[[1.0, -2.0, 5.0], [5.0, -6.0, 3.0]],
        ] {
            rows.iter().for_each(|row| pool.add(row));
            pool.finish(&mut out);
        }
        out
    }

    #[test]
    fn pools_rows_with_every_method() {
        let root = 2f32.sqrt();
        for (pooling, expected) in [
            (Pooling::Mean, [3.0, -4.0, 4.0]),
            (Pooling::Cls, [1.0, -2.0, 5.0]),
            (Pooling::Last, [5.0, -6.0, 3.0]),
            (Pooling::Max, [5.0, -2.0, 5.0]),
            (
                Pooling::MeanSqrtLength,
                [6.0 / root, -8.0 / root, 8.0 / root],
            ),
            (Pooling::WeightedMean, [11.0 / 3.0, -14.0 / 3.0, 11.0 / 3.0]),
        ] {
            let difference = |(a, b): (&f32, &f32)| (a - b).abs();
            let found = pooled(pool(&[pooling]), 3);
            assert!(
                found
                    .iter()
                    .zip(&expected)
                    .map(difference)
                    .all(|d| d < 1e-6),
                "{found:?}"
            );
            assert_eq!(pooled(pool(&[pooling]), 2), found[..2]);
        }
        let unit = pool(&[Pooling::Mean]).normalized(true);
        assert_eq!(pooled(unit, 2), [0.6, -0.8]);
    }

    #[test]
    fn vectors_of_several_methods_are_concatenated() {
        let found = pooled(pool(&[Pooling::Last, Pooling::Mean]), 6);
        assert_eq!(found, [5.0, -6.0, 3.0, 3.0, -4.0, 4.0]);
        let unit = pool(&[Pooling::Cls, Pooling::Mean]).normalized(true);
        let length = (1.0f32 + 4.0 + 25.0 + 9.0 + 16.0 + 16.0).sqrt();
        assert!((pooled(unit, 6)[5] - 4.0 / length).abs() < 1e-6);
    }

    #[test]
    fn dense_modules_follow_pooling() {
        let module = DenseModule {
            weights: vec![1.0, 0.5, 0.0, 0.0, 0.0, 0.25],
            bias: vec![0.0, -2.0],
            tanh: true,
        };
        let dense = [module];
        let mean = Pooler::new(vec![Pooling::Mean], 3, &dense).unwrap();
        assert_eq!(pooled(mean, 2), [1.0f32.tanh(), (-1.0f32).tanh()]);
        let both = Pooler::new(vec![Pooling::Mean, Pooling::Cls], 3, &dense);
        assert!(both.is_err_and(|e| e.message().contains("3 inputs")));
    }

    #[test]
    fn zero_vector_is_not_normalized() {
        let mut pool = pool(&[Pooling::Mean]).normalized(true);
        let mut out = [1.0; 2];
        pool.add(&[0.0, 0.0, 0.0]);
        pool.finish(&mut out);
        assert_eq!(out, [0.0, 0.0]);
    }
}
