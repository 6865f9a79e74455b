//! Scales of whole `NVFP4` matrices, which GGUF files store as separate tensors: the scale of
//! `blk.0.attn_q.weight` is `blk.0.attn_q.scale`. Stacked experts have one each.

use super::weight::{Data, Scaling, Weight, f32_bytes, floats};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::{Directory, TensorInfo};
use std::collections::HashMap;

const WEIGHT: &str = ".weight";
/// End of the name of a tensor with scales.
pub const SCALE: &str = ".scale";
/// Scale of 4-bit activations, which are not used.
const INPUT_SCALE: &str = ".input_scale";

/// The tensors that contain the scales of `NVFP4` matrices, by module name.
#[derive(Debug)]
pub struct TensorScales<'a> {
    file: &'a Directory,
    /// Indices of a matrix and of its scales.
    modules: HashMap<&'a str, [Option<usize>; 2]>,
}

impl<'a> TensorScales<'a> {
    /// Finds the matrices and scales of a GGUF file.
    pub fn of(file: &'a Directory) -> Self {
        let mut modules: HashMap<&str, [Option<usize>; 2]> = HashMap::new();
        for (i, tensor) in file.tensors.iter().enumerate() {
            let matrix = tensor.name.strip_suffix(WEIGHT);
            if let Some(module) = matrix.filter(|_| tensor.dtype == DType::Nvfp4.into()) {
                modules.entry(module).or_default()[0] = Some(i);
            }
        }
        if !modules.is_empty() {
            for (i, tensor) in file.tensors.iter().enumerate() {
                let module = tensor.name.strip_suffix(SCALE);
                if let Some(module) = module.and_then(|module| modules.get_mut(module)) {
                    module[1] = Some(i);
                }
            }
        }
        Self { file, modules }
    }

    /// Returns whether a tensor only scales an `NVFP4` matrix, or its activations.
    pub fn contain(&self, name: &str) -> bool {
        let suffixes = [SCALE, INPUT_SCALE];
        let module = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
        module.is_some_and(|module| self.modules.contains_key(module))
    }

    /// Returns the name of the matrix that a tensor scales.
    pub fn matrix_of(&self, name: &str) -> Option<&'a str> {
        let suffixes = [SCALE, INPUT_SCALE];
        let module = suffixes
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))?;
        let [matrix, _] = self.modules.get(module)?;
        matrix.map(|i| &*self.file.tensors[i].name)
    }

    /// Returns the scales of a matrix; `None` for another type and without a scale.
    ///
    /// # Errors
    ///
    /// `Format` if there is neither one scale nor one for each matrix of a stack.
    pub(super) fn scaling(&self, name: &str) -> Result<Option<Scaling>> {
        let module = name
            .strip_suffix(WEIGHT)
            .and_then(|name| self.modules.get(name));
        let Some([Some(matrix), Some(scale)]) = module.copied() else {
            return Ok(None);
        };
        let [matrix, stored] = [matrix, scale].map(|i| &self.file.tensors[i]);
        let scales = floats(self.file, stored)?;
        let count = scales.len() as u64;
        if count != 1 && count != stack(matrix) {
            bail!(
                Format,
                "tensor {} has {count} elements, expected {} for tensor {}",
                stored.name,
                stack(matrix),
                matrix.name
            );
        }
        let size = |n: u64| usize::try_from(n.max(1)).unwrap_or(usize::MAX);
        Ok(Some(Scaling {
            float: DType::F32,
            scales: Data::computed(scale, f32_bytes(&scales)),
            biases: None,
            group: [size(matrix.rows() / count), size(matrix.cols())],
        }))
    }

    /// Returns the matrices that have scales.
    ///
    /// # Errors
    ///
    /// As for [`scaling`](Self::scaling).
    pub(super) fn matrices(&self) -> Result<Vec<Weight>> {
        let mut matrices = Vec::new();
        for (i, tensor) in self.file.tensors.iter().enumerate() {
            if let Some(scaling) = self.scaling(&tensor.name)? {
                let weight = Weight::plain(tensor.name.clone(), self.file, i)?;
                matrices.push(Weight {
                    scales: Some(scaling),
                    ..weight
                });
            }
        }
        Ok(matrices)
    }

    /// Adds the scales to the weights, and removes them as weights.
    ///
    /// # Errors
    ///
    /// As for [`scaling`](Self::scaling).
    pub(super) fn attach(&self, mut weights: Vec<Weight>) -> Result<Vec<Weight>> {
        weights.retain(|weight| !self.contain(&weight.name));
        for weight in &mut weights {
            if let Some(scaling) = self.scaling(&weight.name)? {
                weight.scales = Some(scaling);
            }
        }
        Ok(weights)
    }
}

/// Returns the number of matrices of a tensor.
fn stack(tensor: &TensorInfo) -> u64 {
    let outer = tensor.dims.iter().skip(2);
    outer.fold(1, |n, dim| n.saturating_mul(*dim))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::open_bytes;
    use crate::format::write::Writer;

    /// A file with a stack of two matrices of three rows, a matrix and one of another type, and these
    /// scales of the stack.
    fn file(scales: &[f32]) -> Directory {
        let mut w = Writer::new();
        w.tensor(
            "blk.0.ffn_up_exps.weight",
            DType::Nvfp4,
            &[64, 3, 2],
            vec![1; 6 * 36],
        )
        .tensor("blk.0.attn_q.weight", DType::Nvfp4, &[64, 2], vec![1; 72])
        .tensor("blk.0.ffn_gate_inp.weight", DType::F32, &[1, 1], vec![0; 4]);
        let mut vector = |name: &str, x: &[f32]| {
            w.tensor(name, DType::F32, &[x.len() as u64], f32_bytes(x));
        };
        vector("blk.0.ffn_up_exps.scale", scales);
        vector("blk.0.ffn_up_exps.input_scale", &[1.0, 1.0]);
        vector("blk.0.ffn_gate_inp.scale", &[3.0]);
        open_bytes("test", w.finish().unwrap()).unwrap()
    }

    fn weights(file: &Directory) -> Vec<Weight> {
        let all = file.tensors.iter().enumerate();
        all.map(|(i, t)| Weight::plain(t.name.clone(), file, i).unwrap())
            .collect()
    }

    #[test]
    fn scales_of_nvfp4_become_part_of_the_weight() {
        let file = file(&[0.5, -2.0]);
        let scales = TensorScales::of(&file);
        let weights = scales.attach(weights(&file)).unwrap();
        let names: Vec<_> = weights.iter().map(|w| w.name.as_str()).collect();
        let expected = [
            "blk.0.ffn_up_exps.weight",
            "blk.0.attn_q.weight",
            "blk.0.ffn_gate_inp.weight",
            // A tensor of its own: the matrix has another type.
            "blk.0.ffn_gate_inp.scale",
        ];
        assert_eq!(names, expected);
        let own = weights[0].scales(&file).unwrap();
        assert_eq!((own.float, own.group), (DType::F32, [3, 64]));
        assert_eq!(own.bytes, f32_bytes(&[0.5, -2.0]));
        assert!(weights[1..].iter().all(|w| w.scales.is_none()));
        let matrix = scales.matrix_of("blk.0.ffn_up_exps.input_scale");
        assert_eq!(matrix, Some("blk.0.ffn_up_exps.weight"));
    }

    #[test]
    fn halves_of_stacked_matrices_keep_their_scales() {
        let file = file(&[0.5, -2.0]);
        let weights = TensorScales::of(&file).attach(weights(&file)).unwrap();
        let [_, second] = [0, 1].map(|n| {
            let rows = 3 * n + 1..3 * n + 3;
            weights[0].slice_rows("part".into(), rows, &file).unwrap()
        });
        let own = second.scales(&file).unwrap();
        assert_eq!((own.bytes, own.group), (&*f32_bytes(&[-2.0]), [3, 64]));
        let both = weights[0].slice_rows("part".into(), 2..4, &file);
        assert!(both.is_err(), "rows of two matrices");
    }

    #[test]
    fn rejects_a_wrong_number_of_scales() {
        let file = file(&[1.0; 3]);
        let e = TensorScales::of(&file).attach(weights(&file)).unwrap_err();
        let expected = "tensor blk.0.ffn_up_exps.scale has 3 elements, expected 2 for tensor \
            blk.0.ffn_up_exps.weight";
        assert_eq!(e.message(), expected);
    }
}
