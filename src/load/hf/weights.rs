//! Weights: which tensors of a checkpoint are one matrix, and how it is stored.
//!
//! A module is what stands in front of the last dot of a name; behind it stands what the tensor
//! is to the module. The stored form follows from the types and shapes of these parts, so that a
//! layer that was left as it is needs no word in the configuration.

use super::names;
use super::quantization::{Mlx, Quantization};
use crate::arch::Arch;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::{Directory, TensorInfo};
use crate::load::weight::{Data, Scaling, Weight, f32_bytes, floats, known, shape};
use crate::quant::GROUP;
use std::collections::{BTreeMap, HashMap};

/// What a tensor is to its module.
#[derive(Clone, Copy)]
enum Part {
    /// The numbers or their codes.
    Weight,
    Bias,
    /// What results are multiplied by.
    Scale,
    /// What MLX multiplies groups by.
    Scales,
    /// What MLX adds to groups then.
    Biases,
}

const PART_COUNT: usize = Part::Biases as usize + 1;

/// What stands behind the last dot. `weight_scale_inv` multiplies too, whatever it is called.
/// Nothing is needed of what quantizes activations, which are not quantized here, or a KV cache.
const PARTS: &[(&str, Option<Part>)] = &[
    ("weight", Some(Part::Weight)),
    ("bias", Some(Part::Bias)),
    // Of norms, in files that TensorFlow wrote first.
    ("gamma", Some(Part::Weight)),
    ("beta", Some(Part::Bias)),
    ("weight_scale", Some(Part::Scale)),
    ("weight_scale_inv", Some(Part::Scale)),
    ("scales", Some(Part::Scales)),
    ("biases", Some(Part::Biases)),
    ("input_scale", None),
    ("output_scale", None),
    ("k_scale", None),
    ("v_scale", None),
];

/// How numbers that need no scale are stored.
const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];
/// How scales of more than a byte are stored.
const SCALES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// The tensors of a module, by their place in the file.
#[derive(Default)]
struct Module([Option<usize>; PART_COUNT]);

/// What is special about a checkpoint.
pub(super) struct Special {
    /// The module that is left out, by its name in GGUF files.
    pub(super) without: Option<&'static str>,
    /// Rows that stand in front of the embedding of position 0.
    pub(super) position_offset: u32,
}

/// The weights of a checkpoint, as a GGUF file would have them.
pub(super) fn collect(
    file: &Directory,
    arch: &Arch,
    quantization: &Quantization,
    special: &Special,
) -> Result<Vec<Weight>> {
    let modules = named(file, arch)?;
    let conv1d = is_conv1d(file, arch, &modules);
    let mut weights = Vec::new();
    let mut experts: BTreeMap<String, BTreeMap<u32, Weight>> = BTreeMap::new();
    for (module, gguf, parts) in modules {
        if special.without == Some(&gguf.name) {
            continue;
        }
        let name = format!("{}.weight", gguf.name);
        let mut weight = parts.matrix(file, module, name, quantization)?;
        let kind = gguf.name.rsplit('.').next().unwrap_or_default();
        if conv1d && arch.transposed.contains(&kind) {
            weight = weight.transposed(file)?;
        }
        if arch.norms_plus_one && kind.contains("norm") {
            weight = weight.plus_one(file)?;
        }
        if kind == "position_embd" && special.position_offset > 0 {
            let rows = special.position_offset..weight.rows;
            weight = weight.stretch(weight.name.clone(), rows, file)?;
        }
        match gguf.expert {
            None => weights.push(weight),
            Some(number) => {
                let all = experts.entry(weight.name.clone()).or_default();
                if all.insert(number, weight).is_some() {
                    bail!(Format, "{module}: two experts have its number");
                }
            }
        }
        if let Some(bias) = parts.get(Part::Bias) {
            weights.push(Weight::plain(format!("{}.bias", gguf.name), file, bias)?);
        }
    }
    let wanted = file.metadata.u32(&format!("{}.expert_count", arch.name))?;
    for (name, all) in experts {
        // As many as there are, if not more: what is missing is found soon.
        let last = all.keys().last().map_or(0, |n| n.saturating_add(1));
        let count = wanted.unwrap_or(0).max(last);
        let missing = (0..count).find(|n| !all.contains_key(n));
        if let (Some(missing), Some((number, one))) = (missing, all.first_key_value()) {
            let missing = format!("experts.{missing}.");
            let tensor = one
                .tensor(file)
                .replace(&format!("experts.{number}."), &missing);
            bail!(Format, "tensor {tensor} is missing");
        }
        let parts: Vec<_> = all.into_values().collect();
        weights.push(Weight::stacked(name, &parts, file)?);
    }
    Ok(weights)
}

/// The modules of a checkpoint: their names there and in GGUF files.
fn named<'a>(file: &'a Directory, arch: &Arch) -> Result<Vec<(&'a str, names::Module, Module)>> {
    let mut found = Vec::new();
    for (name, module) in modules(file, arch)? {
        let Some(gguf) = names::to_gguf(arch, name) else {
            let first = module.0.iter().flatten().next();
            let tensor = first.map_or(name, |i| &file.tensors[*i].name);
            bail!(
                Unsupported,
                "unexpected tensor {tensor}: it is no part of a model that is known here"
            );
        };
        found.push((name, gguf, module));
    }
    Ok(found)
}

/// Whether matrices that Hugging Face holds as `[in, out]` lie so: MLX has turned them. The first
/// that is fused tells, which has more rows than columns then.
fn is_conv1d(file: &Directory, arch: &Arch, modules: &[(&str, names::Module, Module)]) -> bool {
    let first = arch.transposed.first();
    let told = modules.iter().find(|(_, gguf, _)| {
        let kind = gguf.name.rsplit('.').next();
        kind.is_some() && kind == first.copied()
    });
    told.is_some_and(|(_, _, module)| {
        let weight = module.get(Part::Weight).map(|i| &file.tensors[i]);
        let quantized = module.get(Part::Scales).is_some();
        weight.is_some_and(|w| !quantized && w.cols() > w.rows())
    })
}

/// The modules of a checkpoint, in the order of its tensors.
fn modules<'a>(file: &'a Directory, arch: &Arch) -> Result<Vec<(&'a str, Module)>> {
    let mut modules: Vec<(&str, Module)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (i, tensor) in file.tensors.iter().enumerate() {
        if names::is_ignored(arch, &tensor.name) {
            continue;
        }
        let split = tensor.name.rsplit_once('.');
        let part = split.and_then(|(module, part)| {
            let (_, part) = PARTS.iter().find(|(name, _)| *name == part)?;
            Some((module, *part))
        });
        // A parameter that is no part of a module stands for itself.
        let (name, part) = part.unwrap_or((&tensor.name, Some(Part::Weight)));
        let Some(part) = part else { continue };
        let place = *places.entry(name).or_insert(modules.len());
        if place == modules.len() {
            modules.push((name, Module::default()));
        }
        let slot = &mut modules[place].1.0[part as usize];
        if slot.replace(i).is_some() {
            bail!(Format, "tensor {}: {name} has two scales", tensor.name);
        }
    }
    Ok(modules)
}

impl Module {
    fn get(&self, part: Part) -> Option<usize> {
        self.0[part as usize]
    }

    /// The matrix of this module, called `name` in GGUF files.
    fn matrix(
        &self,
        file: &Directory,
        module: &str,
        name: String,
        quantization: &Quantization,
    ) -> Result<Weight> {
        let Some(weight) = self.get(Part::Weight) else {
            bail!(Format, "tensor {module}.weight is missing");
        };
        let codes = Codes {
            file,
            name,
            index: weight,
            tensor: &file.tensors[weight],
        };
        let [scale, scales, biases] =
            [Part::Scale, Part::Scales, Part::Biases].map(|p| self.get(p));
        match (scale, scales, biases) {
            (None, None, None) => codes.plain(),
            (Some(scale), None, None) => codes.scaled(scale, quantization),
            (None, Some(scales), biases) => match quantization.mlx(module)? {
                Some(mlx) => codes.mlx(mlx, scales, biases),
                None => bail!(
                    Format,
                    "tensor {module}.scales: the configuration says nothing of quantization"
                ),
            },
            _ => bail!(
                Format,
                "{module} has scales or biases that do not go together"
            ),
        }
    }
}

/// The codes of a weight while it is told what they are.
struct Codes<'a> {
    file: &'a Directory,
    /// The name in GGUF files.
    name: String,
    index: usize,
    tensor: &'a TensorInfo,
}

impl Codes<'_> {
    /// Floats as they are. Other numbers mean nothing without a scale.
    fn plain(self) -> Result<Weight> {
        let TensorInfo { name, dtype, .. } = self.tensor;
        if !dtype.known().is_some_and(|known| FLOATS.contains(&known)) {
            bail!(
                Format,
                "tensor {name} is {dtype}, and there is no {name}_scale, {name}_scale_inv or {}scales",
                name.strip_suffix("weight").unwrap_or(name)
            );
        }
        Weight::plain(self.name, self.file, self.index)
    }

    /// MLX's codes: `bits` each, packed into words, with a scale for `group` of them in a row.
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
                "tensor {name} is {} of {words} columns, wanted words of {} bits in groups of {}",
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
                    "tensor {} is {:?}, wanted {groups:?} for codes of {} bits in groups of {}",
                    part.name,
                    part.dims,
                    mlx.bits,
                    mlx.group
                );
            }
        }
        let stored = &file.tensors[scales];
        let same = |biases: usize| file.tensors[biases].dtype == stored.dtype;
        let (float, sound) = match mlx.scales {
            // Floats of a byte, which these files call bytes.
            Some(float) => (float, stored.dtype.name() == "u8" && biases.is_none()),
            None => (known(stored)?, biases.is_some_and(same)),
        };
        if !sound || mlx.scales.is_none() && !SCALES.contains(&float) {
            bail!(
                Format,
                "tensor {} is {}, which are no scales for {name}, or there are biases missing or too many",
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
        let mut weight = self.with(mlx.codes, [rows, cols], scaling)?;
        weight.stack = u32::try_from(stack).unwrap_or(1).max(1);
        Ok(weight)
    }

    /// Codes with a scale for all, for each row or for each block.
    fn scaled(self, scale: usize, quantization: &Quantization) -> Result<Weight> {
        let [rows, cols] = shape(self.tensor)?;
        let stored = &self.file.tensors[scale];
        let codes = match (self.tensor.dtype.known(), self.tensor.dtype.name()) {
            (Some(codes @ (DType::E4m3 | DType::I8)), _) => codes,
            (None, "u8") => return self.ternary(scale, quantization),
            (_, other) => bail!(
                Unsupported,
                "tensor {} is {other} and has the scale {}",
                self.tensor.name,
                stored.name
            ),
        };
        let float = known(stored)?;
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
                "tensor {} is {float} {:?}, which are no scales for {rows} rows of {cols} columns",
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
        self.with(codes, [rows, cols], scaling)
    }

    /// Ternary digits, four rows in a byte, with one scale, which multiplies or divides.
    fn ternary(self, scale: usize, quantization: &Quantization) -> Result<Weight> {
        let [packed, cols] = shape(self.tensor)?;
        let stored = &self.file.tensors[scale];
        let value = match floats(self.file, stored)?[..] {
            [value] if quantization.ternary_divides => 1.0 / value,
            [value] => value,
            _ => bail!(Format, "tensor {} is not one scale", stored.name),
        };
        let Some(rows) = packed.checked_mul(4) else {
            bail!(
                TooLarge,
                "tensor {}: four times {packed} rows",
                self.tensor.name
            );
        };
        let scaling = Scaling {
            float: DType::F32,
            scales: Data::computed(scale, f32_bytes(&[value])),
            biases: None,
            group: [rows, cols].map(|n| n.max(1) as usize),
        };
        self.with(DType::Ternary, [rows, cols], scaling)
    }

    /// The weight, unless kernels would read over the end of a row or of a group.
    fn with(self, dtype: DType, [rows, cols]: [u32; 2], scaling: Scaling) -> Result<Weight> {
        let (columns, block) = (cols as usize, dtype.facts().block);
        let group = scaling.group[1];
        let by_rows = dtype != DType::Ternary;
        if by_rows && !columns.is_multiple_of(block)
            || group < columns && !group.is_multiple_of(GROUP)
        {
            bail!(
                Unsupported,
                "tensor {}: rows of {cols} columns in groups of {group}, wanted multiples of \
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
