//! config.json: how a checkpoint was quantized, as far as its tensors do not say it themselves.

use super::config::{Config, shown};
use crate::dtype::DType;
use crate::error::{Result, bail};
use serde_json::Value;

/// How the weights of a checkpoint are stored.
#[derive(Debug, Default)]
pub(super) struct Quantization {
    /// MLX's description: that of most layers, and those of others by their names.
    mlx: Option<Value>,
    /// Rows and columns that may share a scale, as the description says.
    pub(super) blocks: Vec<[u64; 2]>,
    /// Whether results are divided by the scale of a ternary weight.
    pub(super) ternary_divides: bool,
}

/// How MLX stores a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mlx {
    /// The codes.
    pub(super) codes: DType,
    /// Bits of a code.
    pub(super) bits: u64,
    /// Storage of the scales; `None` for floats of any kind, with biases beside them.
    pub(super) scales: Option<DType>,
    /// Elements of a row that share a scale.
    pub(super) group: u64,
}

/// Mode and bits of MLX (`mlx.core.quantize`): codes, scales, elements of a group by default. The
/// first of a mode has the bits by default.
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

/// Methods of `quantization_config` whose tensors are read.
const METHODS: &[&str] = &["fp8", "compressed-tensors", "bitnet"];

/// Formats of `compressed-tensors` whose tensors are read.
const FORMATS: &[&str] = &[
    "float-quantized",
    "int-quantized",
    "naive-quantized",
    "dense",
];

impl Quantization {
    /// Reads what the configuration says.
    pub(super) fn read(config: &Config) -> Result<Self> {
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
                "quantization_config: the method {method:?} is not supported; known are {}",
                METHODS.join(", ")
            );
        }
        if let Some(format) = config.text(&key("format"))?
            && !FORMATS.contains(&format)
        {
            bail!(
                Unsupported,
                "quantization_config: the format {format:?} is not supported; known are {}",
                FORMATS.join(", ")
            );
        }
        if config.text(&key("quantization_mode"))? == Some("online") {
            bail!(
                Unsupported,
                "quantization_config: weights that are quantized while the model runs"
            );
        }
        if let Some(rotated) = config.find(&key("transform_config"))
            && rotated.as_object().is_none_or(|object| !object.is_empty())
        {
            bail!(
                Unsupported,
                "quantization_config: transform_config {}",
                shown(rotated)
            );
        }
        Ok(Self {
            mlx: None,
            blocks: blocks(config),
            // As `transformers` reads a file that does not name its layers' class.
            ternary_divides: config.text(&key("linear_class"))? != Some("autobitlinear"),
        })
    }

    /// How MLX has stored this module; `None` where the configuration does not speak of MLX.
    pub(super) fn mlx(&self, module: &str) -> Result<Option<Mlx>> {
        let Some(all) = &self.mlx else {
            return Ok(None);
        };
        let own = all.get(module).filter(|own| own.is_object());
        let say = |name: &str| {
            let found = own.unwrap_or(all).get(name);
            found.filter(|value| !value.is_null())
        };
        let mode = say("mode").map_or(Some("affine"), Value::as_str);
        let bits = say("bits").map(Value::as_u64);
        let row = MODES
            .iter()
            .find(|row| mode == Some(row.0) && bits.is_none_or(|bits| bits == Some(row.1)));
        let Some(&(_, bits, codes, scales, default)) = row else {
            let own = own.unwrap_or(all);
            bail!(
                Unsupported,
                "quantization of {module}: {} is not known",
                shown(own)
            );
        };
        let group = say("group_size").map_or(Some(default), Value::as_u64);
        let Some(group) = group.filter(|group| *group > 0) else {
            bail!(Format, "quantization of {module}: group_size is no size");
        };
        Ok(Some(Mlx {
            codes,
            bits,
            scales,
            group,
        }))
    }
}

/// Every size of a block that the configuration speaks of: `fp8` has one, `compressed-tensors`
/// one for each group of modules.
fn blocks(config: &Config) -> Vec<[u64; 2]> {
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
