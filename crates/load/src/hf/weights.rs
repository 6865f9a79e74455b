//! Combines the tensors of a checkpoint into weights.
//!
//! The storage format follows from the types and shapes of a module's tensors, so that layers that
//! are not quantized need no entry in the configuration.

use super::module::{Module, ModuleTensors, TensorRole, modules};
use super::quantization::{Mlx, Quantization, TernaryForm};
use super::{bitsandbytes, gptq, masters, names, packed};
use crate::arch::{Arch, Config};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::experts::SeparateExperts;
use crate::format::{Directory, TensorInfo};
use crate::quant::GROUP;
use crate::weight::{Data, Scaling, Weight, f32_bytes, floats, known, shape};
use crate::{latent, recurrent};

/// Types of values without scales.
const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];
/// Types of scales wider than a byte.
const SCALES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// Model-specific adjustments.
pub(super) struct Adjustments {
    /// GGUF name of a module to skip.
    pub(super) skipped_module: Option<&'static str>,
    /// Row of position 0 in the position embedding.
    pub(super) position_offset: u32,
    /// Number of layers, after which files may have blocks that predict later tokens; `None`: no such blocks.
    pub(super) predicts_after: Option<u32>,
}

/// Collects the weights of a checkpoint in the form of a GGUF file.
pub(super) fn collect(
    file: &Directory,
    arch: &Arch,
    quantization: &Quantization,
    adjustments: &Adjustments,
) -> Result<Vec<Weight>> {
    let modules = named(file, arch, adjustments)?;
    let conv1d = is_conv1d(file, arch, &modules);
    let plus_one = arch.norms_plus_one && !recurrent::is_converted(file);
    let mut weights = Vec::new();
    let mut experts = SeparateExperts::default();
    for (module, gguf, parts) in modules {
        if adjustments.skipped_module == Some(&gguf.name) {
            continue;
        }
        let name = gguf.tensor("weight");
        let source = Module {
            file,
            name: module,
            matrix: &name,
            tensors: &parts,
        };
        let mut weight = matrix(&source, quantization)?;
        let kind = gguf.name.rsplit('.').next().unwrap_or_default();
        let bare = weight.stack > 1 && file.tensors[weight.codes.tensor].name == module;
        if (conv1d || bare) && arch.transposed.contains(&kind) {
            weight = weight.transposed(file)?;
        }
        if plus_one && kind.contains("norm") && kind != recurrent::NORM {
            weight = weight.plus_one(file)?;
        }
        weight = recurrent::in_gguf_form(weight, file)?;
        if kind == "position_embd" && adjustments.position_offset > 0 {
            let rows = adjustments.position_offset..weight.rows;
            weight = weight.slice_rows(weight.name.clone(), rows, file)?;
        }
        match gguf.expert {
            None => weights.push(weight),
            Some(index) => experts.add(index, weight, file)?,
        }
        if let Some(bias) = parts.get(TensorRole::Bias) {
            weights.push(Weight::plain(gguf.tensor("bias"), file, bias)?);
        }
    }
    weights.extend(experts.stacked(file, arch.name)?);
    warn_of_decoded(&weights, file);
    let weights = split_shared(weights, file, arch)?;
    if !weights.iter().any(latent::is_fused) {
        return Ok(weights);
    }
    let config = Config::read(&file.metadata)?;
    latent::split(weights, &config.attention, file)
}

/// Fused gate and up projection of a shared feed-forward layer, and its down projection.
const SHARED_GATE_UP: &str = "ffn_gate_up_shexp";
const SHARED_DOWN: &str = "ffn_down_shexp";

/// Splits the gate and up projections of shared feed-forward layers. Without experts, these are the only ones, and have
/// the names of such.
fn split_shared(weights: Vec<Weight>, file: &Directory, arch: &Arch) -> Result<Vec<Weight>> {
    if !weights
        .iter()
        .any(|weight| weight.name.contains(SHARED_GATE_UP))
    {
        return Ok(weights);
    }
    let experts = file.metadata.get(&format!("{}.expert_count", arch.name));
    let end = if experts.is_some() { "_shexp" } else { "" };
    let mut all = Vec::with_capacity(weights.len());
    for weight in weights {
        if weight.name.contains(SHARED_GATE_UP) {
            let half = weight.rows / 2;
            for (part, rows) in [("ffn_gate", 0..half), ("ffn_up", half..weight.rows)] {
                let name = weight.name.replace(SHARED_GATE_UP, &format!("{part}{end}"));
                all.push(weight.slice_rows(name, rows, file)?);
            }
            continue;
        }
        let name = weight.name.replace(SHARED_DOWN, &format!("ffn_down{end}"));
        all.push(Weight { name, ..weight });
    }
    Ok(all)
}

/// Logs that matrices of codes were decoded to floats, which need more memory than the file.
fn warn_of_decoded(weights: &[Weight], file: &Directory) {
    let is_decoded = |weight: &&Weight| {
        let stored = file.tensors[weight.codes.tensor].dtype.name();
        FLOATS.contains(&weight.dtype) && weight.rows > 1 && ["i32", "u32", "u8"].contains(&stored)
    };
    let decoded: Vec<_> = weights.iter().filter(is_decoded).collect();
    if let Some(first) = decoded.first() {
        let bytes: u64 = decoded.iter().map(|weight| weight.bytes(file)).sum();
        tracing::warn!(
            "{} quantized matrices, such as {}, were decoded to {} ({bytes} bytes), because no quantized type has \
             their values",
            decoded.len(),
            first.tensor(file),
            first.dtype
        );
    }
}

/// A module: its name in the checkpoint, its GGUF name and its tensors.
type NamedModule<'a> = (&'a str, names::GgufModule, ModuleTensors);

/// Returns the modules of a checkpoint with their GGUF names.
fn named<'a>(
    file: &'a Directory,
    arch: &Arch,
    adjustments: &Adjustments,
) -> Result<Vec<NamedModule<'a>>> {
    let mut named = Vec::new();
    for (name, module) in modules(file, arch)? {
        let layers = adjustments.predicts_after;
        let predictor = layers.and_then(|layers| names::of_predictor(arch, name, layers));
        let layer_name = predictor.as_deref().unwrap_or(name);
        // Only the first of these blocks is used.
        let layer = names::layer_of(arch, layer_name);
        let may_follow = predictor.is_some() || arch.names.predictor.is_none();
        if let (Some(layer), Some(layers)) = (layer, layers)
            && layer > layers
            && may_follow
        {
            continue;
        }
        let Some(gguf) = names::to_gguf(arch, layer_name) else {
            let tensor = module.first().map_or(name, |i| &file.tensors[i].name);
            bail!(
                Unsupported,
                "unexpected tensor {tensor}: not part of the architecture {:?}",
                arch.name
            );
        };
        named.push((name, gguf, module));
    }
    Ok(named)
}

/// Returns whether `Conv1D` matrices are stored as `[in, out]`, as by Hugging Face; MLX transposes
/// them. Decided by the shape of the first fused module, which has more outputs than inputs.
fn is_conv1d(file: &Directory, arch: &Arch, modules: &[NamedModule<'_>]) -> bool {
    let first = arch.transposed.first();
    let fused = modules.iter().find(|(_, gguf, _)| {
        let kind = gguf.name.rsplit('.').next();
        kind.is_some() && kind == first.copied()
    });
    fused.is_some_and(|(_, _, module)| {
        let weight = module.get(TensorRole::Weight).map(|i| &file.tensors[i]);
        let quantized = module.get(TensorRole::Scales).is_some();
        weight.is_some_and(|w| !quantized && w.cols() > w.rows())
    })
}

/// Builds the matrix of a module.
fn matrix(module: &Module<'_>, quantization: &Quantization) -> Result<Weight> {
    if module.find(TensorRole::PackedColumns).is_some() {
        return gptq::weight(module, quantization.packing.as_ref());
    }
    if module.find(TensorRole::PackedRows).is_some() {
        return packed::weight(module);
    }
    if module.find(TensorRole::QuantState).is_some() {
        return bitsandbytes::weight_of_4_bits(module);
    }
    if module.find(TensorRole::RowMaxima).is_some() {
        return bitsandbytes::weight_of_8_bits(module);
    }
    let Some((index, tensor)) = module.find(TensorRole::Weight) else {
        let scales = module.find(TensorRole::Scales);
        let ending = scales.and_then(|(_, scales)| names::split_ending(&scales.name));
        let ending = ending.map_or(".weight", |_| names::CODES);
        bail!(Format, "tensor {}{ending} is missing", module.name);
    };
    let (file, path) = (module.file, module.name);
    if let Some((_, zeros)) = module.find(TensorRole::ZeroPoint)
        && file.bytes(zeros).iter().any(|byte| *byte != 0)
    {
        return packed::bytes_with_zeros(module);
    }
    let codes = Codes {
        file,
        name: module.matrix.to_string(),
        index,
        tensor,
    };
    let roles = [TensorRole::Scale, TensorRole::Scales, TensorRole::Biases];
    let [scale, scales, biases] = roles.map(|role| module.tensors.get(role));
    match (scale, scales, biases) {
        (None, None, None) if tensor.name.ends_with(names::CODES) => {
            bail!(Format, "tensor {path}{} is missing", names::SCALES)
        }
        (None, None, None) if codes.is_master(quantization) => codes.ternarized(),
        (None, None, None) => codes.plain(),
        (Some(scale), None, None) => codes.scaled(scale, quantization),
        (None, Some(scales), None) if tensor.dtype.name() == "u8" => codes.mxfp4(scales),
        (None, Some(scales), biases) => match quantization.mlx(path)? {
            Some(mlx) => codes.mlx(mlx, scales, biases),
            None => bail!(
                Format,
                "tensor {path}.scales: the configuration has no quantization object"
            ),
        },
        _ => bail!(
            Format,
            "{path}: unsupported combination of scales and biases"
        ),
    }
}

/// The weight tensor of a module, before its storage format is determined.
struct Codes<'a> {
    file: &'a Directory,
    /// GGUF name.
    name: String,
    index: usize,
    tensor: &'a TensorInfo,
}

impl Codes<'_> {
    /// Builds a weight of plain floats.
    fn plain(self) -> Result<Weight> {
        let TensorInfo { name, dtype, .. } = self.tensor;
        if !dtype.known().is_some_and(|known| FLOATS.contains(&known)) {
            bail!(
                Format,
                "tensor {name} is {dtype}, but {name}_scale, {name}_scale_inv and {}scales are missing",
                name.strip_suffix("weight").unwrap_or(name)
            );
        }
        Weight::plain(self.name, self.file, self.index)
    }

    /// Returns whether the tensor is a matrix of a layer with the weights of training, which are rounded
    /// to ternary values.
    fn is_master(&self, quantization: &Quantization) -> bool {
        quantization.ternary == TernaryForm::Masters
            && self.name.starts_with("blk.")
            && self.tensor.dims.len() == 2
    }

    /// Builds a ternary weight from weights of training.
    fn ternarized(self) -> Result<Weight> {
        let file = self.file;
        masters::ternarized(self.plain()?, file)
    }

    /// Builds a weight of MLX codes, packed into 32-bit words, with a scale per group of columns.
    fn mlx(self, mlx: Mlx, scales: usize, biases: Option<usize>) -> Result<Weight> {
        let [rows, words] = shape(self.tensor)?;
        let bits = u64::from(words) * 32;
        let cols = bits / mlx.bits;
        let groups = [cols / mlx.group, rows.into()];
        let whole = bits.is_multiple_of(mlx.bits) && cols.is_multiple_of(mlx.group);
        let (file, name) = (self.file, &self.tensor.name);
        if self.tensor.dtype.known() != Some(DType::U32) || !whole {
            bail!(
                Format,
                "tensor {name} is {} with {words} columns, expected u32 words of {}-bit codes in \
                 groups of {}",
                self.tensor.dtype,
                mlx.bits,
                mlx.group
            );
        }
        let parts = [Some(scales), biases].into_iter().flatten();
        for part in parts.map(|part| &file.tensors[part]) {
            if [part.cols(), part.rows()] != groups {
                bail!(
                    Format,
                    "tensor {} has shape {:?}, expected {groups:?} for {}-bit codes in groups of {}",
                    part.name,
                    part.dims,
                    mlx.bits,
                    mlx.group
                );
            }
        }
        let stored = &file.tensors[scales];
        let same = |biases: usize| file.tensors[biases].dtype == stored.dtype;
        let (float, valid) = match mlx.scales {
            // These files store 8-bit floats as u8.
            Some(float) => (float, stored.dtype.name() == "u8" && biases.is_none()),
            None => (known(stored)?, biases.is_some_and(same)),
        };
        if !valid || mlx.scales.is_none() && !SCALES.contains(&float) {
            bail!(
                Format,
                "tensor {} of type {} does not match {name}, or its biases are missing or unexpected",
                stored.name,
                stored.dtype
            );
        }
        let cols = u32::try_from(cols).unwrap_or(u32::MAX);
        let group = [1, usize::try_from(mlx.group).unwrap_or(usize::MAX)];
        let scaling = Scaling {
            float,
            scales: Data::in_place(scales),
            biases: biases.map(Data::in_place),
            group,
        };
        let stack = self.tensor.dims.get(2).copied().unwrap_or(1);
        let mut weight = self.build(mlx.codes, [rows, cols], scaling)?;
        weight.stack = u32::try_from(stack).unwrap_or(1).max(1);
        Ok(weight)
    }

    /// Builds a stacked weight of 4-bit floats with a scale per 32 columns: blocks `[experts, rows, groups, 16]`,
    /// scales `[experts, rows, groups]`.
    fn mxfp4(self, scales: usize) -> Result<Weight> {
        let stored = &self.file.tensors[scales];
        let fits = |stack: u64, rows: u64, groups: u64| {
            let [stack, all] = [stack, stack.checked_mul(rows)?].map(u32::try_from);
            let cols = u32::try_from(groups.checked_mul(32)?);
            Some([stack.ok()?, all.ok()?, cols.ok()?])
        };
        let shape = match (&*self.tensor.dims, &*stored.dims) {
            ([16, blocks @ ..], scales) if blocks == scales => match *blocks {
                [groups, rows, stack] => fits(stack, rows, groups),
                _ => None,
            },
            _ => None,
        };
        let Some([stack, rows, cols]) = shape.filter(|_| stored.dtype.name() == "u8") else {
            bail!(
                Format,
                "tensor {} has shape {:?}, its scales {} have {:?}, expected [16, groups, rows, experts] and \
                 [groups, rows, experts] of u8",
                self.tensor.name,
                self.tensor.dims,
                stored.name,
                stored.dims
            );
        };
        let scaling = Scaling {
            float: DType::E8m0,
            scales: Data::in_place(scales),
            biases: None,
            group: [1, 32],
        };
        let weight = self.build(DType::E2m1, [rows, cols], scaling)?;
        Ok(Weight { stack, ..weight })
    }

    /// Builds a weight of codes with a scale per tensor, per row or per block.
    fn scaled(self, scale: usize, quantization: &Quantization) -> Result<Weight> {
        let [rows, cols] = shape(self.tensor)?;
        let stored = &self.file.tensors[scale];
        let codes = match (self.tensor.dtype.known(), self.tensor.dtype.name()) {
            (Some(codes @ (DType::E4m3 | DType::I8)), _) => codes,
            (None, "u8") => return self.ternary(scale, quantization),
            (_, other) => bail!(
                Unsupported,
                "tensor {}: unsupported type {other} with scale {}",
                self.tensor.name,
                stored.name
            ),
        };
        // These files store powers of two as u8.
        let float = match (codes, stored.dtype.name()) {
            (DType::E4m3, "u8") => DType::E8m0,
            _ => known(stored)?,
        };
        let count = match *stored.dims {
            [1] => Some([1, 1]),
            [n] => Some([n, 1]),
            [n, m] => Some([m, n]),
            _ => None,
        };
        let group = count.and_then(|count| {
            let [all_rows, all_cols] = [rows, cols].map(|n| u64::from(n.max(1)));
            let whole = [[1, all_cols], [all_rows, all_cols]];
            let mut sizes = whole.iter().chain(&quantization.blocks);
            let fits = |size: &&[u64; 2]| {
                let counts = [
                    u64::from(rows).div_ceil(size[0]),
                    u64::from(cols).div_ceil(size[1]),
                ];
                counts == count
            };
            let [rows, cols] = *sizes.find(fits)?;
            Some([usize::try_from(rows).ok()?, usize::try_from(cols).ok()?])
        });
        let Some(group) = group.filter(|_| SCALES.contains(&float) || float == DType::E8m0) else {
            bail!(
                Unsupported,
                "tensor {}: unsupported scales {float} {:?} for {rows} rows of {cols} columns",
                stored.name,
                stored.dims
            );
        };
        let scaling = Scaling {
            float,
            scales: Data::in_place(scale),
            biases: None,
            group,
        };
        self.build(codes, [rows, cols], scaling)
    }

    /// Builds a ternary weight, packed four rows per byte, with one scale.
    fn ternary(self, scale: usize, quantization: &Quantization) -> Result<Weight> {
        let [packed, cols] = shape(self.tensor)?;
        let stored = &self.file.tensors[scale];
        let value = match floats(self.file, stored)?[..] {
            [value] if quantization.ternary == TernaryForm::Divided => 1.0 / value,
            [value] => value,
            _ => bail!(Format, "tensor {}: expected one scale", stored.name),
        };
        let Some(rows) = packed.checked_mul(4) else {
            bail!(
                TooLarge,
                "tensor {}: 4 * {packed} rows do not fit 32 bits",
                self.tensor.name
            );
        };
        let scaling = Scaling {
            float: DType::F32,
            scales: Data::computed(scale, f32_bytes(&[value])),
            biases: None,
            group: [rows, cols].map(|n| n.max(1) as usize),
        };
        self.build(DType::Ternary, [rows, cols], scaling)
    }

    /// Builds the weight after checking that rows and groups are multiples of the block size, because
    /// kernels read whole blocks.
    fn build(self, dtype: DType, [rows, cols]: [u32; 2], scaling: Scaling) -> Result<Weight> {
        let (columns, block) = (cols as usize, dtype.facts().block);
        let group = scaling.group[1];
        let by_rows = dtype != DType::Ternary;
        if by_rows && !columns.is_multiple_of(block)
            || group < columns && !group.is_multiple_of(GROUP)
        {
            bail!(
                Unsupported,
                "tensor {}: rows of {cols} columns in groups of {group}, expected multiples of \
                 {block} and of {GROUP}",
                self.tensor.name
            );
        }
        Ok(Weight {
            name: self.name,
            dtype,
            rows,
            cols,
            stack: 1,
            codes: Data::in_place(self.index),
            scales: Some(scaling),
        })
    }
}
