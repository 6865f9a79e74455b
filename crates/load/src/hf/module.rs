//! Groups the tensors of a checkpoint by module.
//!
//! A tensor name is a module name, a dot and the role of the tensor, such as `weight` or `scales`.

use super::names;
use crate::arch::Arch;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::format::{Directory, TensorInfo};
use std::collections::HashMap;

/// Role of a tensor in its module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TensorRole {
    /// Values or quantized codes.
    Weight,
    Bias,
    /// Factor of the result.
    Scale,
    /// MLX, GPTQ, AWQ: factors of groups.
    Scales,
    /// MLX: offsets of groups, added after scaling.
    Biases,
    /// GPTQ, AWQ: codes, packed into 32-bit words.
    PackedColumns,
    /// GPTQ, AWQ: zero points of groups, packed into 32-bit words.
    PackedZeros,
    /// GPTQ: group of each column.
    ColumnGroups,
    /// `compressed-tensors`: codes, packed into 32-bit words or bytes.
    PackedRows,
    /// `compressed-tensors`: rows and columns before packing.
    Shape,
    /// `compressed-tensors`: zero points.
    ZeroPoint,
    /// `compressed-tensors`: group of each column.
    WeightGroups,
    /// `compressed-tensors`: divisor of the scales of a matrix.
    GlobalScale,
    /// `bitsandbytes`: largest magnitude of each block.
    Absmax,
    /// `bitsandbytes`: values of the codes.
    QuantMap,
    /// `bitsandbytes`: factors of the largest magnitudes, which are codes.
    NestedAbsmax,
    /// `bitsandbytes`: values of the codes of the largest magnitudes.
    NestedQuantMap,
    /// `bitsandbytes`: JSON text with the shape and the block size.
    QuantState,
    /// `bitsandbytes`: largest magnitude of each row of bytes.
    RowMaxima,
    /// `bitsandbytes`: number of the layout of bytes.
    WeightFormat,
}

const ROLE_COUNT: usize = TensorRole::WeightFormat as usize + 1;

/// Name suffixes and their roles; `None` for tensors that are ignored, such as scales of activations
/// and of the KV cache. Despite its name, `weight_scale_inv` is a factor.
const SUFFIXES: &[(&str, Option<TensorRole>)] = &[
    ("weight", Some(TensorRole::Weight)),
    ("bias", Some(TensorRole::Bias)),
    // Norms of checkpoints converted from TensorFlow.
    ("gamma", Some(TensorRole::Weight)),
    ("beta", Some(TensorRole::Bias)),
    ("weight_scale", Some(TensorRole::Scale)),
    ("weight_scale_inv", Some(TensorRole::Scale)),
    ("scales", Some(TensorRole::Scales)),
    ("biases", Some(TensorRole::Biases)),
    ("qweight", Some(TensorRole::PackedColumns)),
    ("qzeros", Some(TensorRole::PackedZeros)),
    ("g_idx", Some(TensorRole::ColumnGroups)),
    ("weight_packed", Some(TensorRole::PackedRows)),
    ("weight_shape", Some(TensorRole::Shape)),
    ("weight_zero_point", Some(TensorRole::ZeroPoint)),
    ("weight_g_idx", Some(TensorRole::WeightGroups)),
    ("weight_global_scale", Some(TensorRole::GlobalScale)),
    ("weight.absmax", Some(TensorRole::Absmax)),
    ("weight.quant_map", Some(TensorRole::QuantMap)),
    ("weight.nested_absmax", Some(TensorRole::NestedAbsmax)),
    ("weight.nested_quant_map", Some(TensorRole::NestedQuantMap)),
    (
        "weight.quant_state.bitsandbytes__nf4",
        Some(TensorRole::QuantState),
    ),
    (
        "weight.quant_state.bitsandbytes__fp4",
        Some(TensorRole::QuantState),
    ),
    ("SCB", Some(TensorRole::RowMaxima)),
    ("weight_format", Some(TensorRole::WeightFormat)),
    ("activation_scale", None),
    ("input_scale", None),
    ("input_zero_point", None),
    ("input_global_scale", None),
    ("output_scale", None),
    ("k_scale", None),
    ("v_scale", None),
];

/// Tensor indices of a module, by role.
#[derive(Default)]
pub(super) struct ModuleTensors([Option<usize>; ROLE_COUNT]);

impl ModuleTensors {
    pub(super) fn get(&self, role: TensorRole) -> Option<usize> {
        self.0[role as usize]
    }

    /// Returns the tensor with the lowest role.
    pub(super) fn first(&self) -> Option<usize> {
        self.0.iter().flatten().next().copied()
    }
}

/// A module of a checkpoint: its tensors and names.
#[derive(Clone, Copy)]
pub(super) struct Module<'a> {
    pub(super) file: &'a Directory,
    /// Name in the checkpoint.
    pub(super) name: &'a str,
    /// GGUF name of the matrix.
    pub(super) matrix: &'a str,
    pub(super) tensors: &'a ModuleTensors,
}

impl<'a> Module<'a> {
    /// Returns the index and the tensor with a role.
    pub(super) fn find(&self, role: TensorRole) -> Option<(usize, &'a TensorInfo)> {
        let index = self.tensors.get(role)?;
        Some((index, &self.file.tensors[index]))
    }

    /// Returns the index and the tensor with a role.
    ///
    /// # Errors
    ///
    /// `Format` if the module has no such tensor.
    pub(super) fn required(&self, role: TensorRole) -> Result<(usize, &'a TensorInfo)> {
        self.find(role).ok_or_else(|| {
            let suffix = SUFFIXES.iter().find(|(_, own)| *own == Some(role));
            let suffix = suffix.map_or("", |(suffix, _)| suffix);
            let message = format_args!("tensor {}.{suffix} is missing", self.name).to_string();
            Error::new(ErrorKind::Format, message)
        })
    }
}

/// Groups the tensors of a checkpoint by module, in file order.
pub(super) fn modules<'a>(
    file: &'a Directory,
    arch: &Arch,
) -> Result<Vec<(&'a str, ModuleTensors)>> {
    let mut modules: Vec<(&str, ModuleTensors)> = Vec::new();
    let mut indices: HashMap<&str, usize> = HashMap::new();
    // The projection of a classification head that reads the pooler or the head of pretraining.
    let classifies = file.tensor("classifier.weight").is_some();
    for (i, tensor) in file.tensors.iter().enumerate() {
        if names::is_ignored(arch, &tensor.name)
            || !classifies && names::is_classifier_only(arch, &tensor.name)
        {
            continue;
        }
        let named = SUFFIXES.iter().find_map(|(suffix, role)| {
            let module = tensor.name.strip_suffix(suffix)?.strip_suffix('.')?;
            Some((module, *role))
        });
        let ending = || {
            let (module, ending) = names::split_ending(&tensor.name)?;
            let role = match ending {
                names::SCALES => TensorRole::Scales,
                names::BIAS => TensorRole::Bias,
                _ => TensorRole::Weight,
            };
            Some((module, Some(role)))
        };
        // A parameter without a known suffix is a module of its own.
        let (name, role) = named
            .or_else(ending)
            .unwrap_or((&tensor.name, Some(TensorRole::Weight)));
        let Some(role) = role else { continue };
        let index = *indices.entry(name).or_insert(modules.len());
        if index == modules.len() {
            modules.push((name, ModuleTensors::default()));
        }
        let slot = &mut modules[index].1.0[role as usize];
        if let Some(other) = slot.replace(i) {
            let other = &file.tensors[other].name;
            bail!(
                Format,
                "tensor {}: {name} has two tensors of this role, also {other}",
                tensor.name
            );
        }
    }
    Ok(modules)
}

/// Checks the type and the dimensions of a tensor, the fastest varying first.
///
/// # Errors
///
/// `Format`.
pub(super) fn expect(tensor: &TensorInfo, types: &[&str], dims: &[u64]) -> Result<()> {
    if types.contains(&tensor.dtype.name()) && tensor.dims == dims {
        return Ok(());
    }
    let in_file_order = |dims: &[u64]| dims.iter().rev().copied().collect::<Vec<_>>();
    bail!(
        Format,
        "tensor {} is {} {:?}, expected {} {:?}",
        tensor.name,
        tensor.dtype,
        in_file_order(&tensor.dims),
        types.join(" or "),
        in_file_order(dims)
    );
}
