//! Reads the quantization settings of `config.json` that cannot be derived from the tensors.

use super::config::{HfConfig, shown};
use crate::dtype::DType;
use crate::error::{Result, bail};
use serde_json::Value;

/// Quantization settings of a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Quantization {
    /// MLX's `quantization` object: defaults, and overrides by module name.
    mlx: Option<Value>,
    /// Possible block sizes of a scale: rows and columns.
    pub(super) blocks: Vec<[u64; 2]>,
    /// How ternary weights are stored.
    pub(super) ternary: TernaryForm,
}

/// How a checkpoint stores ternary weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum TernaryForm {
    /// Digits, and a scale that results are multiplied by.
    #[default]
    Multiplied,
    /// Digits, and a scale that results are divided by.
    Divided,
    /// The weights of training, which are rounded while loading.
    Masters,
}

/// MLX quantization of a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mlx {
    /// Type of the codes.
    pub(super) codes: DType,
    /// Bits per code.
    pub(super) bits: u64,
    /// Type of the scales; `None` for any float type, with biases.
    pub(super) scales: Option<DType>,
    /// Columns per scale.
    pub(super) group: u64,
}

/// MLX modes (`mlx.core.quantize`): mode, bits, codes, scales, default group size. The first entry
/// of a mode has its default bits.
const MODES: &[(&str, u64, DType, Option<DType>, u64)] = &[
    ("affine", 4, DType::Affine4, None, 64),
    ("affine", 2, DType::Affine2, None, 64),
    ("affine", 3, DType::Affine3, None, 64),
    ("affine", 5, DType::Affine5, None, 64),
    ("affine", 6, DType::Affine6, None, 64),
    ("affine", 8, DType::Affine8, None, 64),
    ("mxfp4", 4, DType::E2m1, Some(DType::E8m0), 32),
    ("mxfp8", 8, DType::E4m3, Some(DType::E8m0), 32),
    ("nvfp4", 4, DType::E2m1, Some(DType::E4m3), 16),
];

/// Supported values of `quantization_config.quant_method`.
const METHODS: &[&str] = &["fp8", "compressed-tensors", "mxfp4", "bitnet"];

/// Supported formats of `compressed-tensors`.
const FORMATS: &[&str] = &[
    "float-quantized",
    "int-quantized",
    "naive-quantized",
    "dense",
];

impl Quantization {
    /// Reads the quantization settings.
    pub(super) fn read(config: &HfConfig) -> Result<Self> {
        if let Some(mlx) = config.find("quantization") {
            return Ok(Self {
                mlx: Some(mlx.clone()),
                ..Self::default()
            });
        }
        let key = |name: &str| format!("quantization_config.{name}");
        let Some(method) = config.text(&key("quant_method"))? else {
            return Ok(Self::default());
        };
        if !METHODS.contains(&method) {
            bail!(
                Unsupported,
                "quantization_config: unsupported method {method:?}; supported are {}",
                METHODS.join(", ")
            );
        }
        if let Some(format) = config.text(&key("format"))?
            && !FORMATS.contains(&format)
        {
            bail!(
                Unsupported,
                "quantization_config: unsupported format {format:?}; supported are {}",
                FORMATS.join(", ")
            );
        }
        let ternary = ternary_form(config)?;
        if let Some(rotated) = config.find(&key("transform_config"))
            && rotated.as_object().is_none_or(|object| !object.is_empty())
        {
            bail!(
                Unsupported,
                "quantization_config: unsupported transform_config {}",
                shown(rotated)
            );
        }
        Ok(Self {
            mlx: None,
            blocks: blocks(config),
            ternary,
        })
    }

    /// Returns the MLX quantization of a module; `None` for other checkpoints.
    pub(super) fn mlx(&self, module: &str) -> Result<Option<Mlx>> {
        let Some(all) = &self.mlx else {
            return Ok(None);
        };
        let own = all.get(module).filter(|own| own.is_object());
        let field = |name: &str| {
            let value = own.unwrap_or(all).get(name);
            value.filter(|value| !value.is_null())
        };
        let mode = field("mode").map_or(Some("affine"), Value::as_str);
        let bits = field("bits").map(Value::as_u64);
        let row = MODES
            .iter()
            .find(|row| mode == Some(row.0) && bits.is_none_or(|bits| bits == Some(row.1)));
        let Some(&(_, bits, codes, scales, default)) = row else {
            let own = own.unwrap_or(all);
            bail!(
                Unsupported,
                "unsupported quantization of {module}: {}",
                shown(own)
            );
        };
        let group = field("group_size").map_or(Some(default), Value::as_u64);
        let Some(group) = group.filter(|group| *group > 0) else {
            bail!(Format, "quantization of {module}: invalid group_size");
        };
        Ok(Some(Mlx {
            codes,
            bits,
            scales,
            group,
        }))
    }
}

/// Returns how ternary weights are stored.
///
/// # Errors
///
/// `Unsupported` for online quantization by a class that `transformers` uses only for digits, and for
/// modules that are not quantized, except the output projection.
fn ternary_form(config: &HfConfig) -> Result<TernaryForm> {
    let key = |name: &str| format!("quantization_config.{name}");
    // Without `linear_class`, `transformers` uses the class that divides.
    let multiplies = config.text(&key("linear_class"))? == Some("autobitlinear");
    let online = config.text(&key("quantization_mode"))? == Some("online");
    if !online {
        return Ok(match multiplies {
            true => TernaryForm::Multiplied,
            false => TernaryForm::Divided,
        });
    }
    let excluded = config.find(&key("modules_to_not_convert"));
    let excluded = excluded.and_then(Value::as_array);
    let is_head = |module: &Value| module.as_str() == Some("lm_head");
    if !multiplies || excluded.is_some_and(|modules| !modules.iter().all(is_head)) {
        bail!(
            Unsupported,
            "quantization_config: online quantization is supported only with linear_class \
             \"autobitlinear\" and of all modules except lm_head"
        );
    }
    Ok(TernaryForm::Masters)
}

/// Returns all block sizes of the configuration: `fp8` has one, `compressed-tensors` one per group
/// of modules.
fn blocks(config: &HfConfig) -> Vec<[u64; 2]> {
    let pair = |value: &Value| Some([value.get(0)?.as_u64()?, value.get(1)?.as_u64()?]);
    let one = config.find("quantization_config.weight_block_size");
    let groups = config.find("quantization_config.config_groups");
    let groups = groups.and_then(Value::as_object).into_iter().flatten();
    let weights = groups.filter_map(|(_, group)| group.get("weights"));
    let of_group = |weights: &Value| {
        let row = weights.get("group_size").and_then(Value::as_u64);
        let block = weights.get("block_structure").and_then(pair);
        block.or(row.map(|row| [1, row]))
    };
    let blocks = one
        .and_then(pair)
        .into_iter()
        .chain(weights.filter_map(of_group));
    blocks.filter(|block| !block.contains(&0)).collect()
}
