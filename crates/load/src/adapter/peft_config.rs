//! The `adapter_config.json` of `peft`.

use super::pair::RANK_MAX;
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::text::FullMatch;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Keys whose values must be absent, `null`, false or empty, and what they enable.
const REFUSED: &[(&str, &str)] = &[
    ("modules_to_save", "storing whole modules"),
    ("trainable_token_indices", "training of tokens"),
    ("layer_replication", "replication of layers"),
    ("target_parameters", "LoRA of single parameters"),
    ("use_dora", "DoRA"),
    ("lora_bias", "LoRA with biases"),
    ("alora_invocation_tokens", "activated LoRA"),
    ("use_qalora", "QALoRA"),
    ("use_bdlora", "BD-LoRA"),
    ("arrow_config", "Arrow"),
    ("kasa_config", "KaSA"),
    ("monteclora_config", "MonteCLoRA"),
    ("velora_config", "VeLoRA"),
];

/// Values of `init_lora_weights` that leave the weights of the model unchanged, besides booleans.
/// Others, such as `pissa`, move a part of them to the adapter.
const INITIALIZATIONS: [&str; 4] = ["gaussian", "eva", "orthogonal", "mica"];

/// Maximum number of patterns. Adapters with ranks of single modules have one per module.
const PATTERNS_MAX: usize = 1 << 14;
/// Time limit of matching patterns.
const TIME: Duration = Duration::from_secs(20);

/// The values that define the ranks and the scales of modules.
#[derive(Debug)]
pub(super) struct PeftConfig {
    rank: u32,
    alpha: f64,
    /// Whether the scale is `alpha / sqrt(rank)` instead of `alpha / rank`.
    rslora: bool,
    ranks: Vec<Pattern<u32>>,
    alphas: Vec<Pattern<f64>>,
    deadline: Instant,
}

/// A value of modules whose name matches.
#[derive(Debug)]
struct Pattern<T> {
    module: FullMatch,
    value: T,
}

impl PeftConfig {
    /// Reads the text of the file.
    ///
    /// # Errors
    ///
    /// `Format` for invalid values, `Unsupported` for other methods than LoRA.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let root: Value = serde_json::from_str(text).map_err(|e| {
            Error::new(ErrorKind::Format, format_args!("invalid JSON: {e}")).caused_by(e)
        })?;
        check_method(&root)?;
        let rslora = match root.get("use_rslora") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(value)) => *value,
            Some(other) => bail!(Format, "use_rslora is {other}, expected a boolean"),
        };
        let Some(rank) = root.get("r") else {
            bail!(Format, "r is missing");
        };
        let Some(alpha) = root.get("lora_alpha") else {
            bail!(Format, "lora_alpha is missing");
        };
        Ok(Self {
            rank: rank_of(rank).context("r")?,
            alpha: number(alpha).context("lora_alpha")?,
            rslora,
            ranks: patterns(&root, "rank_pattern", &rank_of)?,
            alphas: patterns(&root, "alpha_pattern", &number)?,
            deadline: Instant::now() + TIME,
        })
    }

    /// Returns the rank of a module.
    pub(super) fn rank(&self, module: &str) -> Result<u32> {
        Ok(self.first(&self.ranks, module)?.unwrap_or(self.rank))
    }

    /// Returns the scale of a module with this rank.
    pub(super) fn scale(&self, module: &str, rank: u32) -> Result<f64> {
        let alpha = self.first(&self.alphas, module)?.unwrap_or(self.alpha);
        let rank = f64::from(rank);
        Ok(if self.rslora {
            alpha / rank.sqrt()
        } else {
            alpha / rank
        })
    }

    /// Returns the value of the first pattern that matches the module.
    fn first<T: Copy>(&self, patterns: &[Pattern<T>], module: &str) -> Result<Option<T>> {
        for pattern in patterns {
            if pattern.module.matches(module)? {
                return Ok(Some(pattern.value));
            }
            if Instant::now() > self.deadline {
                bail!(
                    TooLarge,
                    "matching rank_pattern and alpha_pattern exceeds {} seconds",
                    TIME.as_secs()
                );
            }
        }
        Ok(None)
    }
}

/// Rejects other methods than plain LoRA.
fn check_method(root: &Value) -> Result<()> {
    match root.get("peft_type") {
        Some(Value::String(name)) if name == "LORA" => {}
        Some(other) => bail!(Unsupported, "peft_type is {other}, expected \"LORA\""),
        None => bail!(Format, "peft_type is missing, expected \"LORA\""),
    }
    for (key, what) in REFUSED {
        let enabled = root.get(*key).filter(|value| is_set(value));
        if let Some(value) = enabled {
            bail!(Unsupported, "{key} is {value}: {what} is not supported");
        }
    }
    match root.get("bias") {
        None | Some(Value::Null) => {}
        Some(Value::String(bias)) if bias == "none" => {}
        Some(other) => bail!(
            Unsupported,
            "bias is {other}: trained biases are not supported, expected \"none\""
        ),
    }
    match root.get("init_lora_weights") {
        None | Some(Value::Null | Value::Bool(_)) => Ok(()),
        Some(Value::String(name)) if INITIALIZATIONS.contains(&&*name.to_lowercase()) => Ok(()),
        Some(other) => bail!(
            Unsupported,
            "init_lora_weights is {other}, which changes the weights of the model: save the adapter \
             with path_initial_model_for_weight_conversion"
        ),
    }
}

/// Returns whether a value enables its key, as in Python.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// Reads patterns and their values in file order: the first that matches applies. A pattern matches
/// the end of a module name, from a dot on or the whole name.
fn patterns<T>(
    root: &Value,
    key: &str,
    value: &dyn Fn(&Value) -> Result<T>,
) -> Result<Vec<Pattern<T>>> {
    let map = match root.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(map)) => map,
        Some(other) => bail!(Format, "{key} is {other}, expected an object"),
    };
    if map.len() > PATTERNS_MAX {
        bail!(
            TooLarge,
            "{key} has {} patterns, expected at most {PATTERNS_MAX}",
            map.len()
        );
    }
    let pattern = |(pattern, number): (&String, &Value)| {
        let read = || {
            FullMatch::new(pattern)?;
            Ok(Pattern {
                module: FullMatch::new(&format!(r"(?:.*\.)?(?:{pattern})"))?,
                value: value(number)?,
            })
        };
        read().context(format_args!("{key}: {pattern:?}"))
    };
    map.iter().map(pattern).collect()
}

fn rank_of(value: &Value) -> Result<u32> {
    match value.as_u64().and_then(|rank| u32::try_from(rank).ok()) {
        Some(rank @ 1..=RANK_MAX) => Ok(rank),
        _ => bail!(
            Format,
            "rank {value}, expected an integer from 1 to {RANK_MAX}"
        ),
    }
}

fn number(value: &Value) -> Result<f64> {
    match value.as_f64() {
        Some(number) if number.is_finite() => Ok(number),
        _ => bail!(Format, "{value}, expected a finite number"),
    }
}
