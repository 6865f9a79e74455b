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
    /// How columns are packed; `None` for methods without packed columns.
    pub(super) packing: Option<Packing>,
}

/// How GPTQ and AWQ pack columns.
#[derive(Debug, PartialEq)]
pub(super) enum Packing {
    Gptq(Gptq),
    Awq {
        /// Columns per scale; `None` for whole rows.
        group: Option<u64>,
    },
}

/// Settings of GPTQ.
#[derive(Debug, PartialEq)]
pub(super) struct Gptq {
    /// Bits per code; `None` if they differ by module.
    pub(super) bits: Option<u64>,
    /// Columns per scale; `None` for whole rows, and if it differs by module.
    pub(super) group: Option<u64>,
    /// Difference of a zero point and its stored value.
    pub(super) zero_offset: u16,
    /// Whether columns were quantized in the order of their activations, so that groups are scattered.
    pub(super) act_order: bool,
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
const METHODS: &[&str] = &[
    "fp8",
    "compressed-tensors",
    "gptq",
    "awq",
    "bitsandbytes",
    "mxfp4",
    "bitnet",
];

/// Supported formats of `compressed-tensors`.
const FORMATS: &[&str] = &[
    "pack-quantized",
    "float-quantized",
    "int-quantized",
    "naive-quantized",
    "mixed-precision",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
    "dense",
];

/// Supported formats of GPTQ, and the difference of a zero point and its stored value.
const GPTQ_FORMATS: &[(&str, u16)] = &[("gptq", 1), ("gptq_v2", 0)];

/// Supported format of AWQ.
const AWQ_FORMAT: &str = "gemm";

/// Bits per code of AWQ.
const AWQ_BITS: u64 = 4;

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
        let packing = match method {
            "gptq" => Some(Packing::Gptq(gptq(config)?)),
            "awq" => Some(awq(config)?),
            "compressed-tensors" => {
                check_formats(config)?;
                None
            }
            _ => None,
        };
        note_activations(config);
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
            packing,
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

/// Rejects formats of `compressed-tensors` that are not supported, of all modules or of a group, and sparse weights.
fn check_formats(config: &HfConfig) -> Result<()> {
    let groups = config.find("quantization_config.config_groups");
    let groups = groups.and_then(Value::as_object).into_iter().flatten();
    let own = groups.filter_map(|(_, group)| group.get("format")?.as_str());
    let all = config.text("quantization_config.format")?.into_iter();
    if let Some(format) = all.chain(own).find(|format| !FORMATS.contains(format)) {
        bail!(
            Unsupported,
            "quantization_config: unsupported format {format:?}; supported are {}",
            FORMATS.join(", ")
        );
    }
    let sparse = config.text("quantization_config.sparsity_config.format")?;
    match sparse.filter(|format| *format != "dense") {
        None => Ok(()),
        Some(format) => bail!(
            Unsupported,
            "quantization_config: unsupported sparsity_config.format {format:?}, expected \"dense\""
        ),
    }
}

/// Logs that activations stay unquantized.
fn note_activations(config: &HfConfig) {
    let groups = config.find("quantization_config.config_groups");
    let mut groups = groups.and_then(Value::as_object).into_iter().flatten();
    let quantizes = |group: &Value| group.get("input_activations").is_some_and(Value::is_object);
    let scheme = config.find("quantization_config.activation_scheme");
    if scheme.is_some() || groups.any(|(_, group)| quantizes(group)) {
        tracing::info!(
            "quantization_config: activations stay unquantized; their settings are not used"
        );
    }
}

/// Reads the number of columns per scale; `None` for -1, which means whole rows.
fn group_size(config: &HfConfig) -> Result<Option<u64>> {
    let group = |value: &Value| match value.as_i64()? {
        -1 => Some(None),
        group => Some(Some(u64::try_from(group).ok().filter(|n| *n > 0)?)),
    };
    let key = "quantization_config.group_size";
    Ok(config
        .typed(key, "a positive integer or -1", group)?
        .flatten())
}

/// Reads the settings of GPTQ.
fn gptq(config: &HfConfig) -> Result<Gptq> {
    let key = |name: &str| format!("quantization_config.{name}");
    let own = config.text(&key("checkpoint_format"))?;
    let format = own
        .or(config.text(&key("format"))?)
        .unwrap_or(GPTQ_FORMATS[0].0);
    let marlin = config.boolean(&key("is_marlin_format"))? == Some(true);
    let known = GPTQ_FORMATS.iter().find(|row| row.0 == format && !marlin);
    let Some((_, zero_offset)) = known else {
        bail!(
            Unsupported,
            "quantization_config: unsupported checkpoint_format {:?} of gptq; supported are gptq and gptq_v2",
            if marlin { "marlin" } else { format }
        );
    };
    // Rules for single modules, by regular expressions.
    let differs = config.find(&key("dynamic"));
    let same = differs
        .and_then(Value::as_object)
        .is_none_or(serde_json::Map::is_empty);
    Ok(Gptq {
        bits: config
            .integer(&key("bits"))?
            .filter(|_| same)
            .map(u64::from),
        group: group_size(config)?.filter(|_| same),
        zero_offset: *zero_offset,
        act_order: config.boolean(&key("desc_act"))? == Some(true),
    })
}

/// Reads the settings of AWQ.
fn awq(config: &HfConfig) -> Result<Packing> {
    let key = |name: &str| format!("quantization_config.{name}");
    let version = config
        .text(&key("version"))?
        .or(config.text(&key("format"))?);
    let version = version.unwrap_or(AWQ_FORMAT);
    if !version.eq_ignore_ascii_case(AWQ_FORMAT) {
        bail!(
            Unsupported,
            "quantization_config: unsupported version {version:?} of awq, expected {AWQ_FORMAT:?}"
        );
    }
    if config.text(&key("backend"))? == Some("llm-awq") {
        bail!(
            Unsupported,
            "quantization_config: unsupported backend \"llm-awq\" of awq, expected \"autoawq\""
        );
    }
    let bits = config.integer(&key("bits"))?.map_or(AWQ_BITS, u64::from);
    if bits != AWQ_BITS {
        bail!(
            Unsupported,
            "quantization_config: awq with {bits} bits, expected {AWQ_BITS}"
        );
    }
    if config.boolean(&key("zero_point"))? == Some(false) {
        bail!(
            Unsupported,
            "quantization_config: awq without zero points, expected zero_point true"
        );
    }
    Ok(Packing::Awq {
        group: group_size(config)?,
    })
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
