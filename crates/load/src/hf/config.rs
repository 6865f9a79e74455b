//! Reads values of a `config.json`.

use crate::arch::{self, Arch, ConfigRule, HfModel, Traits};
use crate::error::{Error, ErrorKind, Result, bail};
use serde_json::Value;
use std::borrow::Cow;

/// Object with the language model's configuration in multimodal models.
const NESTED: &str = "text_config";

/// Key of bidirectional attention.
pub(super) const BIDIRECTIONAL: &str = "use_bidirectional_attention";

/// A configuration file. `null` counts as absent.
#[derive(Debug)]
pub(super) struct HfConfig {
    root: Value,
    /// Defaults and rule of the `model_type`.
    pub(super) hf_model: &'static HfModel,
    /// Values of absent keys. They do not replace a `null`.
    defaults: Value,
    /// Whether `mlx-lm` converted the weights.
    pub(super) is_converted: bool,
    /// Number of blocks that predict later tokens and can draft tokens: 1 or 0.
    pub(super) predictors: u32,
}

impl HfConfig {
    /// Reads the text of a configuration file.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let text = &finite(text);
        let root = match serde_json::from_str(text) {
            Ok(root @ Value::Object(_)) => root,
            Ok(_) => bail!(Format, "expected a JSON object"),
            Err(e) => {
                let message = format_args!("invalid JSON: {e}");
                return Err(Error::new(ErrorKind::Format, message).caused_by(e));
            }
        };
        let mut config = Self {
            root,
            hf_model: arch::hf_model(""),
            defaults: Value::Null,
            is_converted: false,
            predictors: 0,
        };
        if let Some(model_type) = config.find("model_type").and_then(Value::as_str) {
            config.hf_model = arch::hf_model(model_type);
            let defaults = serde_json::from_str(config.hf_model.json);
            config.defaults = defaults.expect("built-in defaults are valid JSON");
        }
        Ok(config)
    }

    /// Returns the value at a path: of the nested language model, otherwise of the root, otherwise
    /// the default.
    pub(super) fn find(&self, path: &str) -> Option<&Value> {
        self.explicit(path).or_else(|| {
            // An explicit `null` or a partial object suppresses the default.
            let first = path.split('.').next().unwrap_or_default();
            let absent = self.roots().all(|root| root.get(first).is_none());
            // `rope_scaling` is the former name of `rope_parameters`, which had no `rope_theta`.
            let renamed = first == "rope_parameters"
                && path != "rope_parameters.rope_theta"
                && self.explicit("rope_scaling").is_some();
            descend(&self.defaults, path).filter(|_| absent && !renamed)
        })
    }

    /// Returns the first path with an explicit value, otherwise the first with a default.
    pub(super) fn first<'a>(&self, paths: &[&'a str]) -> Option<&'a str> {
        let explicit = paths.iter().find(|path| self.explicit(path).is_some());
        let path = explicit.or_else(|| paths.iter().find(|path| self.find(path).is_some()));
        path.copied()
    }

    fn explicit(&self, path: &str) -> Option<&Value> {
        let mut values = self.roots().filter_map(|root| descend(root, path));
        values.find(|value| !value.is_null())
    }

    fn roots(&self) -> impl Iterator<Item = &Value> {
        [self.root.get(NESTED), Some(&self.root)]
            .into_iter()
            .flatten()
    }

    /// Reads a 32-bit unsigned integer. Accepts integral floats, which some files use.
    pub(super) fn integer(&self, path: &str) -> Result<Option<u32>> {
        self.typed(path, "an integer from 0 to 4294967295", integer)
    }

    /// Reads a finite number.
    pub(super) fn float(&self, path: &str) -> Result<Option<f32>> {
        self.typed(path, "a finite f32", float)
    }

    /// Reads a boolean.
    pub(super) fn boolean(&self, path: &str) -> Result<Option<bool>> {
        self.typed(path, "true or false", Value::as_bool)
    }

    /// Reads a string.
    pub(super) fn text(&self, path: &str) -> Result<Option<&str>> {
        self.typed(path, "a string", Value::as_str)
    }

    /// Reads a list of numbers.
    pub(super) fn floats(&self, path: &str) -> Result<Option<Vec<f32>>> {
        let list = |value: &Value| value.as_array()?.iter().map(float).collect();
        self.typed(path, "a list of finite f32", list)
    }

    /// Returns the keys with this prefix whose value is `true`.
    pub(super) fn flags(&self, prefix: &str) -> Vec<&str> {
        let all = self.root.as_object().into_iter().flatten();
        let set =
            all.filter(|(name, value)| name.starts_with(prefix) && **value == Value::Bool(true));
        set.map(|(name, _)| name.as_str()).collect()
    }

    /// Reads the value at a path with `read`. `expected` describes the type in the error.
    pub(super) fn typed<'a, T>(
        &'a self,
        path: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.find(path) else {
            return Ok(None);
        };
        match read(value) {
            Some(typed) => Ok(Some(typed)),
            None => bail!(Format, "{path}: expected {expected}, got {}", shown(value)),
        }
    }

    /// Returns the model type: the class if the registry lists it, otherwise `model_type`, otherwise
    /// the class, for old files.
    pub(super) fn model_type(&self) -> Result<&str> {
        let class = self.class();
        let model_type = self.text("model_type")?;
        let is_supported = |name: &str| arch::of_model_type(name).is_some();
        let known =
            class.filter(|class| is_supported(class) && model_type.is_none_or(is_supported));
        match known.or(model_type).or(class) {
            Some(name) => Ok(name),
            None => bail!(Format, "model_type is missing"),
        }
    }

    /// Returns the class of the model in `transformers`.
    pub(super) fn class(&self) -> Option<&str> {
        self.find("architectures")
            .and_then(|list| list.get(0)?.as_str())
    }

    /// Returns the name of the architecture, if it is supported. A model type with bidirectional attention
    /// is an encoder.
    pub(super) fn arch(&self) -> Result<Option<&'static str>> {
        let model_type = self.model_type()?;
        let encoder = self
            .is_bidirectional()
            .then(|| arch::encoder_of_model_type(model_type));
        let arch = encoder
            .flatten()
            .or_else(|| arch::of_model_type(model_type));
        let Some(arch) = arch else {
            return Ok(None);
        };
        if self.is_drafter()? {
            return Ok(Some(arch::EAGLE3));
        }
        let activation = self.text("hidden_act")?;
        let layers = self.layer_kinds()?.unwrap_or_default();
        Ok(Some(arch.name_of(&Traits {
            activation,
            layers: &layers,
            experts: self.expert_count()?,
        })))
    }

    /// Returns whether the files are an EAGLE-3 drafter, which is a single layer with a vocabulary of its own.
    fn is_drafter(&self) -> Result<bool> {
        let layers = self.integer("num_hidden_layers")?;
        Ok(self.integer("draft_vocab_size")?.is_some() && layers == Some(1))
    }

    /// Returns whether attention is bidirectional in all layers.
    pub(super) fn is_bidirectional(&self) -> bool {
        self.find(BIDIRECTIONAL)
            .is_some_and(|value| value == true || value == "all")
    }

    /// Returns whether the output projection is tied to the embedding; `None` if not configured.
    pub(super) fn tied(&self) -> Result<Option<bool>> {
        let path = self.first(&["tie_word_embeddings", "tie_embedding"]);
        let path = path.unwrap_or("tie_word_embeddings");
        self.boolean(path)
    }

    /// Returns the row of position 0 in the position embedding.
    pub(super) fn position_offset(&self) -> Result<u32> {
        if self.hf_model.rule != Some(ConfigRule::PositionsAfterPadding) {
            return Ok(0);
        }
        let padding = self.integer("pad_token_id")?;
        Ok(padding.map_or(0, |id| id.saturating_add(1)))
    }

    /// Returns the number of layers if blocks that predict later tokens may follow them. Some files lack the tensors.
    pub(super) fn predicts_after(&self, arch: &Arch) -> Result<Option<u32>> {
        if arch.name == arch::EAGLE3 {
            // All of a drafter is such a block.
            return Ok(Some(0));
        }
        let blocks = self.first(&["num_nextn_predict_layers", "mtp_num_hidden_layers"]);
        let blocks = blocks
            .map_or(Ok(None), |path| self.integer(path))?
            .unwrap_or(0);
        // Some files have the tensors and not the key.
        let named = arch.names.predictor.is_some();
        let layers = self.integer("num_hidden_layers")?;
        Ok(layers.filter(|_| blocks > 0 || named))
    }

    /// Returns `eos_token_id`, a number or a list of numbers.
    pub(super) fn eos_tokens(&self) -> Result<Vec<u32>> {
        let list = |value: &Value| match value {
            Value::Array(list) => list.iter().map(integer).collect(),
            scalar => integer(scalar).map(|id| vec![id]),
        };
        let ids = self.typed("eos_token_id", "a token or a list of tokens", list)?;
        Ok(ids.unwrap_or_default())
    }
}

/// Replaces infinity, which Python writes although JSON does not have it, by the object that `transformers` 5 writes.
fn finite(text: &str) -> Cow<'_, str> {
    const INFINITY: &str = "Infinity";
    if !text.contains(INFINITY) {
        return Cow::Borrowed(text);
    }
    let (mut finite, mut rest) = (String::with_capacity(text.len()), text);
    let mut quoted = false;
    while let Some(c) = rest.chars().next() {
        if !quoted && let Some(after) = rest.strip_prefix(INFINITY) {
            finite.push_str(r#"{"__float__": "Infinity"}"#);
            rest = after;
            continue;
        }
        let mut len = c.len_utf8();
        if quoted && c == '\\' {
            len += rest[len..].chars().next().map_or(0, char::len_utf8);
        }
        quoted ^= c == '"';
        finite.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    Cow::Owned(finite)
}

fn descend<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(root, |value, name| value.get(name))
}

pub(super) fn integer(value: &Value) -> Option<u32> {
    let whole =
        |n: f64| (n.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&n)).then_some(n);
    #[expect(clippy::cast_possible_truncation, reason = "checked range")]
    #[expect(clippy::cast_sign_loss, reason = "checked range")]
    value.as_f64().and_then(whole).map(|n| n as u32)
}

fn float(value: &Value) -> Option<f32> {
    #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
    let rounded = value.as_f64().map(|n| n as f32);
    rounded.filter(|n| n.is_finite())
}

/// Formats a value for a message, truncated to 60 characters.
pub(super) fn shown(value: &Value) -> String {
    const SHOWN: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
