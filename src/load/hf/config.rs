//! config.json: the numbers of a model, as the keys that GGUF has for them.

use crate::arch;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::format::write::Writer;
use crate::format::{self, Metadata};
use serde_json::Value;

/// How a value is read.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Integer,
    Float,
    Text,
}

use Kind::{Float, Integer, Text};

/// Key behind the architecture's name, how it is read, and where `config.json` has it: paths
/// with dots between the names of objects. The first that is there counts.
pub(super) const KEYS: &[(&str, Kind, &[&str])] = &[
    ("block_count", Integer, &["num_hidden_layers", "n_layer"]),
    (
        "context_length",
        Integer,
        &["max_position_embeddings", "n_positions"],
    ),
    ("embedding_length", Integer, &["hidden_size", "n_embd"]),
    (
        "feed_forward_length",
        Integer,
        &["intermediate_size", "n_inner"],
    ),
    (
        "attention.head_count",
        Integer,
        &["num_attention_heads", "n_head"],
    ),
    ("attention.head_count_kv", Integer, &["num_key_value_heads"]),
    ("attention.key_length", Integer, &["head_dim"]),
    ("attention.value_length", Integer, &["head_dim"]),
    ("attention.layer_norm_rms_epsilon", Float, &["rms_norm_eps"]),
    (
        "expert_count",
        Integer,
        &["num_local_experts", "num_experts", "n_routed_experts"],
    ),
    ("vocab_size", Integer, &["vocab_size"]),
    (
        "hidden_activation",
        Text,
        &["hidden_activation", "hidden_act"],
    ),
    (
        "rope.freq_base",
        Float,
        &[
            "rope_theta",
            "rope_parameters.rope_theta",
            "rope_parameters.full_attention.rope_theta",
        ],
    ),
    (
        "rope.freq_base_swa",
        Float,
        &[
            "rope_local_base_freq",
            "rope_parameters.sliding_attention.rope_theta",
        ],
    ),
    ("rope.scaling.factor", Float, FACTOR),
    (
        "rope.scaling.low_freq_factor",
        Float,
        &[
            "rope_scaling.low_freq_factor",
            "rope_parameters.low_freq_factor",
        ],
    ),
    (
        "rope.scaling.high_freq_factor",
        Float,
        &[
            "rope_scaling.high_freq_factor",
            "rope_parameters.high_freq_factor",
        ],
    ),
    (
        "rope.scaling.original_context_length",
        Integer,
        &[
            "rope_scaling.original_max_position_embeddings",
            "rope_parameters.original_max_position_embeddings",
            "original_max_position_embeddings",
        ],
    ),
];

/// Where the factor of the scaling stands.
const FACTOR: &[&str] = &[
    "rope_scaling.factor",
    "rope_parameters.factor",
    "rope_parameters.full_attention.factor",
];

/// Where the kind of scaling stands; `type` is the older name.
const SCALING: &[&str] = &[
    "rope_scaling.rope_type",
    "rope_scaling.type",
    "rope_parameters.rope_type",
    "rope_parameters.full_attention.rope_type",
];

/// Where models that also see or hear have the numbers of their language model.
const NESTED: &str = "text_config";

/// Models whose first position is that behind the number of the padding token.
const OFFSET_POSITIONS: &[&str] = &["roberta", "xlm-roberta"];

/// Layers at most, as in [`arch::Config::validate`]: lists of them are made before it.
const LAYERS_MAX: u32 = 4096;

/// A configuration file: an object whose `null`s count as absent.
#[derive(Debug)]
pub(super) struct Config {
    root: Value,
}

impl Config {
    /// Reads the text of a configuration file.
    pub(super) fn parse(text: &str) -> Result<Self> {
        match serde_json::from_str(text) {
            Ok(root @ Value::Object(_)) => Ok(Self { root }),
            Ok(_) => bail!(Format, "the JSON is no object"),
            Err(e) => {
                let message = format_args!("the JSON is damaged: {e}");
                Err(Error::new(ErrorKind::Format, message).caused_by(e))
            }
        }
    }

    /// What stands at a path: in the language model's own object, else outside.
    pub(super) fn find(&self, path: &str) -> Option<&Value> {
        let nested = self
            .root
            .get(NESTED)
            .and_then(|nested| descend(nested, path));
        nested.or_else(|| descend(&self.root, path))
    }

    /// An integer that fits 32 bits without sign; files write some as floats.
    pub(super) fn integer(&self, path: &str) -> Result<Option<u32>> {
        self.typed(path, "an integer from 0 to 4294967295", integer)
    }

    /// A number.
    pub(super) fn float(&self, path: &str) -> Result<Option<f32>> {
        #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
        let rounded = |v: &Value| v.as_f64().map(|n| n as f32).filter(|n| n.is_finite());
        self.typed(path, "a finite f32", rounded)
    }

    /// A truth value.
    pub(super) fn boolean(&self, path: &str) -> Result<Option<bool>> {
        self.typed(path, "true or false", Value::as_bool)
    }

    /// A text.
    pub(super) fn text(&self, path: &str) -> Result<Option<&str>> {
        self.typed(path, "a string", Value::as_str)
    }

    fn typed<'a, T>(
        &'a self,
        path: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.find(path) else {
            return Ok(None);
        };
        match read(value) {
            Some(found) => Ok(Some(found)),
            None => bail!(Format, "{path}: wanted {wanted}, found {}", shown(value)),
        }
    }

    /// What kind of model this is: `model_type`, or the class where an old file has none.
    fn model_type(&self) -> Result<&str> {
        let class = || self.find("architectures")?.get(0)?.as_str();
        match self.text("model_type")?.or_else(class) {
            Some(name) => Ok(name),
            None => bail!(Format, "model_type is missing"),
        }
    }

    /// Whether the head is the embedding; `None` where the tensors decide.
    pub(super) fn tied(&self) -> Result<Option<bool>> {
        self.boolean("tie_word_embeddings")
    }

    /// Rows of the position embedding in front of position 0: models whose positions are counted
    /// from behind the padding token's number.
    pub(super) fn position_offset(&self) -> Result<u32> {
        if !OFFSET_POSITIONS.contains(&self.model_type()?) {
            return Ok(0);
        }
        let padding = self.integer("pad_token_id")?.unwrap_or(1);
        Ok(padding.saturating_add(1))
    }

    /// The tokens that end a text: `eos_token_id` is a number or a list of them.
    pub(super) fn ends(&self) -> Result<Vec<u32>> {
        let list = |value: &Value| match value {
            Value::Array(list) => list.iter().map(integer).collect(),
            one => integer(one).map(|id| vec![id]),
        };
        let found = self.typed("eos_token_id", "a token or a list of tokens", list)?;
        Ok(found.unwrap_or_default())
    }

    /// The keys that a GGUF file of this model would have, but for the tokenizer's. Of an
    /// architecture that is not known, its name.
    pub(super) fn metadata(&self, name: &str) -> Result<Metadata> {
        let mut w = Writer::new();
        let model_type = self.model_type()?;
        let arch = arch::of_model_type(model_type);
        w.set("general.architecture", arch.unwrap_or(model_type));
        w.set("general.name", name);
        if let Some(arch) = arch {
            self.write_keys(arch, &mut w)?;
            self.write_scaling(arch, &mut w)?;
            self.write_windows(arch, &mut w)?;
        }
        Ok(format::open_bytes("the configuration", w.finish()?)?.metadata)
    }

    fn write_keys(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        for (key, kind, paths) in KEYS {
            let Some(path) = paths.iter().find(|path| self.find(path).is_some()) else {
                continue;
            };
            let key = format!("{arch}.{key}");
            match kind {
                Integer => self.integer(path)?.map(|n| w.set(&key, n)),
                Float => self.float(path)?.map(|n| w.set(&key, n)),
                Text => self.text(path)?.map(|t| w.set(&key, t)),
            };
        }
        Ok(())
    }

    /// How RoPE is scaled, and how much of a head it turns.
    fn write_scaling(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        for name in ["rope_scaling", "rope_parameters"] {
            if let Some(value) = self.find(name).filter(|value| !value.is_object()) {
                bail!(Format, "{name}: wanted an object, found {value}");
            }
        }
        for path in SCALING {
            if let Some(kind) = self.text(path)? {
                let kind = if kind == "default" { "none" } else { kind };
                if kind != "none" && !FACTOR.iter().any(|path| self.find(path).is_some()) {
                    bail!(Format, "{path}: {kind:?} has no factor beside it");
                }
                w.set(&format!("{arch}.rope.scaling.type"), kind);
                break;
            }
        }
        let share = "partial_rotary_factor";
        let share = match self.float(share)? {
            None => self.float(&format!("rope_parameters.{share}"))?,
            found => found,
        };
        if let (Some(share), Some(head_dim)) = (share, self.head_dim()?) {
            #[expect(clippy::cast_possible_truncation, reason = "as `int` does in Python")]
            #[expect(
                clippy::cast_sign_loss,
                reason = "a negative one becomes 0, the whole head"
            )]
            let turned = (f64::from(head_dim) * f64::from(share)) as u32;
            w.set(&format!("{arch}.rope.dimension_count"), turned);
        }
        Ok(())
    }

    fn head_dim(&self) -> Result<Option<u32>> {
        let (dim, heads) = (
            self.integer("hidden_size")?,
            self.integer("num_attention_heads")?,
        );
        let even = dim
            .zip(heads)
            .and_then(|(dim, heads)| dim.checked_div(heads));
        Ok(self.integer("head_dim")?.or(even))
    }

    /// The window of the layers that do not see all positions, and which layers those are.
    fn write_windows(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let off = self.boolean("use_sliding_window")? == Some(false);
        let window = self.integer("sliding_window")?.unwrap_or(0);
        let slides = self.sliding_layers()?;
        if !off && window > 0 && slides.contains(&true) {
            w.set(&format!("{arch}.attention.sliding_window"), window);
            w.list(&format!("{arch}.attention.sliding_window_pattern"), &slides);
        }
        Ok(())
    }

    /// For each layer, whether it has a window, should the model have one: by name, or all but
    /// every n-th, or all from one on.
    fn sliding_layers(&self) -> Result<Vec<bool>> {
        let layers = self
            .integer("num_hidden_layers")?
            .unwrap_or(0)
            .min(LAYERS_MAX);
        if let Some(types) = self.typed("layer_types", "a list", Value::as_array)? {
            if types.len() != layers as usize {
                bail!(
                    Format,
                    "layer_types: {} types for {layers} layers",
                    types.len()
                );
            }
            let slides = |kind: &Value| match kind.as_str() {
                Some("sliding_attention") => Ok(true),
                Some("full_attention") => Ok(false),
                _ => bail!(Unsupported, "layer_types: {} is not known", shown(kind)),
            };
            return types.iter().map(slides).collect();
        }
        let pattern = match self.integer("sliding_window_pattern")? {
            None => self.integer("_sliding_window_pattern")?,
            found => found,
        };
        let first = self.integer("max_window_layers")?.unwrap_or(0);
        Ok((0..layers)
            .map(|layer| match pattern {
                Some(n) => (layer + 1).checked_rem(n) != Some(0),
                None => layer >= first,
            })
            .collect())
    }
}

fn descend<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    let found = path
        .split('.')
        .try_fold(root, |value, name| value.get(name));
    found.filter(|value| !value.is_null())
}

fn integer(value: &Value) -> Option<u32> {
    let whole =
        |n: f64| (n.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&n)).then_some(n);
    #[expect(clippy::cast_possible_truncation, reason = "held to the range")]
    #[expect(clippy::cast_sign_loss, reason = "held to the range")]
    value.as_f64().and_then(whole).map(|n| n as u32)
}

/// A value in a message: the beginning of it.
pub(super) fn shown(value: &Value) -> String {
    const SHOWN: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;
    use serde_json::json;

    fn config(value: &Value) -> Config {
        Config::parse(&value.to_string()).unwrap()
    }

    /// The numbers that the recipes would see.
    fn numbers(value: &Value) -> Result<arch::Config> {
        arch::Config::read(&config(value).metadata("test")?)?.validate()
    }

    /// A configuration as `transformers` 4 wrote it, with changes.
    fn small(changes: Value) -> Value {
        let mut all = json!({
            "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
            "vocab_size": 288, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "hidden_act": "silu", "head_dim": null, "rope_scaling": null,
        });
        let Value::Object(changes) = changes else {
            panic!("an object");
        };
        all.as_object_mut().unwrap().extend(changes);
        all
    }

    fn refused(changes: Value, part: &str) {
        let e = numbers(&small(changes)).expect_err(part);
        assert!(e.message().contains(part), "{part:?} is not in: {e}");
    }

    #[test]
    fn numbers_of_old_and_new_files() {
        let c = numbers(&small(json!({}))).unwrap();
        assert_eq!((c.layers, c.dim, c.heads, c.kv_heads), (4, 64, 4, 2));
        assert_eq!((c.head_dim, c.ffn, c.vocab), (16, 96, 288));
        assert_eq!((c.context, c.rope_theta), (8192, 1e4));
        let wide = numbers(&small(json!({ "head_dim": 32, "model_type": "qwen3" }))).unwrap();
        assert_eq!((wide.head_dim, wide.architecture.as_str()), (32, "qwen3"));
        let other = numbers(&small(json!({ "model_type": "mistral" }))).unwrap();
        assert_eq!(other.architecture, "llama");
        let floats = json!({ "max_position_embeddings": 4096.0, "rope_theta": 500_000 });
        let floats = numbers(&small(floats)).unwrap();
        assert_eq!((floats.context, floats.rope_theta), (4096, 5e5));
    }

    #[test]
    fn rope_is_scaled_alike_in_all_spellings() {
        let llama3 = json!({ "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32, "rope_type": "llama3" });
        let old = numbers(&small(json!({ "rope_scaling": llama3 }))).unwrap();
        let mut parameters = llama3.clone();
        parameters["rope_theta"] = json!(10000.0);
        let new = json!({ "rope_theta": null, "rope_parameters": parameters });
        assert_eq!(numbers(&small(new)).unwrap(), old);
        let wanted = arch::RopeScaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 4.0,
            original: 32.0,
        };
        assert_eq!(old.rope_scaling, wanted);
        let linear = json!({ "rope_scaling": { "type": "linear", "factor": 4 } });
        let linear = numbers(&small(linear)).unwrap().rope_scaling;
        assert_eq!(linear, arch::RopeScaling::Linear { factor: 4.0 });
        let none = json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 7e5 }, "rope_theta": null });
        let none = numbers(&small(none)).unwrap();
        assert_eq!(
            (none.rope_scaling, none.rope_theta),
            (arch::RopeScaling::None, 7e5)
        );
        refused(
            json!({ "rope_scaling": { "type": "yarn", "factor": 4.0 } }),
            "yarn",
        );
        refused(
            json!({ "rope_scaling": { "rope_type": "llama3" } }),
            "rope_scaling.rope_type: \"llama3\" has no factor",
        );
        refused(
            json!({ "rope_parameters": 4 }),
            "rope_parameters: wanted an object, found 4",
        );
        let part = numbers(&small(json!({ "partial_rotary_factor": 0.5 }))).unwrap();
        assert_eq!(part.rope_dim, 8);
    }

    #[test]
    fn a_language_model_may_be_nested() {
        let mut inner = small(json!({ "vocab_size": null }));
        inner["model_type"] = json!("qwen2");
        let outer = json!({ "model_type": "sees", "text_config": inner, "vocab_size": 300,
            "eos_token_id": [7, 9], "tie_word_embeddings": true });
        let c = numbers(&outer).unwrap();
        assert_eq!((c.architecture.as_str(), c.vocab), ("qwen2", 300));
        assert_eq!(config(&outer).tied().unwrap(), Some(true));
        assert_eq!(config(&outer).ends().unwrap(), [7, 9]);
    }

    #[test]
    fn layers_may_see_a_window() {
        let windows = |changes: Value| {
            let meta = config(&small(changes)).metadata("test").unwrap();
            let window = meta.u32("llama.attention.sliding_window").unwrap()?;
            let pattern = meta.bools("llama.attention.sliding_window_pattern");
            Some((window, pattern.unwrap().unwrap()))
        };
        let (full, slides) = ("full_attention", "sliding_attention");
        for (changes, wanted) in [
            (json!({ "sliding_window": null }), None),
            (json!({ "sliding_window": 9 }), Some((9, vec![true; 4]))),
            (
                json!({ "sliding_window": 9, "use_sliding_window": false }),
                None,
            ),
            (
                json!({ "sliding_window": 9, "sliding_window_pattern": 3 }),
                Some((9, vec![true, true, false, true])),
            ),
            (
                json!({ "sliding_window": 9, "layer_types": [slides, full, full, slides] }),
                Some((9, vec![true, false, false, true])),
            ),
            (
                json!({ "sliding_window": 9, "use_sliding_window": true, "max_window_layers": 3 }),
                Some((9, vec![false, false, false, true])),
            ),
            (
                json!({ "sliding_window": 9, "layer_types": [full, full, full, full] }),
                None,
            ),
        ] {
            assert_eq!(windows(changes.clone()), wanted, "{changes}");
        }
        let c = numbers(&small(json!({ "sliding_window": 512 }))).unwrap();
        assert_eq!(c.context, 512);
        refused(json!({ "layer_types": [full] }), "1 types for 4 layers");
        let other = json!([full, "linear_attention", "x", "y"]);
        refused(
            json!({ "layer_types": other }),
            "\"linear_attention\" is not known",
        );
    }

    #[test]
    fn ends_are_one_or_several() {
        let ends = |changes: Value| config(&small(changes)).ends();
        assert!(ends(json!({})).unwrap().is_empty());
        assert!(ends(json!({ "eos_token_id": null })).unwrap().is_empty());
        assert_eq!(ends(json!({ "eos_token_id": 2 })).unwrap(), [2]);
        assert_eq!(ends(json!({ "eos_token_id": [2, 5] })).unwrap(), [2, 5]);
        for bad in [json!(-1), json!("</s>"), json!([2, "x"]), json!(1.5)] {
            let e = ends(json!({ "eos_token_id": bad })).unwrap_err();
            assert!(e.message().contains("eos_token_id"), "{e}");
        }
    }

    #[test]
    fn an_unknown_model_is_named_whatever_else_it_says() {
        let strange = json!({ "model_type": "newest", "hidden_size": "huge", "layer_types": 3 });
        let meta = config(&strange).metadata("test").unwrap();
        let name = arch::Config::read(&meta).unwrap().architecture;
        let e = arch::find(&name).unwrap_err();
        let wanted = "architecture \"newest\" is not known; known are llama";
        assert!(e.message().starts_with(wanted), "{e}");
        let class = json!({ "architectures": ["NewestForCausalLM"] });
        let meta = config(&class).metadata("test").unwrap();
        let name = meta.str("general.architecture").unwrap();
        assert_eq!(name, Some("NewestForCausalLM"));
    }

    #[test]
    fn values_that_do_not_fit_are_named() {
        let size = "hidden_size: wanted an integer from 0 to 4294967295, found -1";
        refused(json!({ "hidden_size": -1 }), size);
        refused(json!({ "hidden_size": 1e300 }), "found 1e+300");
        refused(json!({ "hidden_size": 64.5 }), "found 64.5");
        refused(json!({ "hidden_size": "64" }), "found \"64\"");
        refused(json!({ "rope_theta": "x".repeat(500) }), "xxx...");
        refused(json!({ "rope_theta": 1e300 }), "rope_theta");
        refused(json!({ "hidden_act": 3 }), "hidden_act: wanted a string");
        refused(json!({ "hidden_act": "gelu" }), "gelu");
        refused(json!({ "model_type": null }), "model_type is missing");
        refused(
            json!({ "num_hidden_layers": 4_000_000_000u32 }),
            "over the limit",
        );
        refused(json!({ "num_local_experts": 8 }), "mixtures of experts");
        refused(json!({ "hidden_size": null }), "missing or 0");
        for text in ["", "[]", "3", "{\"a\":", "\u{feff}{}"] {
            Config::parse(text).unwrap_err();
        }
        let deep = "[".repeat(100_000);
        Config::parse(&format!("{{\"a\":{deep}")).unwrap_err();
    }
}
