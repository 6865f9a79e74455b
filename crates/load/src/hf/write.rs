//! Writes `config.json` from GGUF keys: the reverse of [`Folder::metadata`](super::Folder).

use super::keys::{KEYS, ValueKind};
use super::layers::{FULL, SLIDING};
use super::rope::SCALING;
use crate::arch::{self, ARCHS, Arch, HfModel, RopeScaling, Rotation};
use crate::error::{Result, bail};
use crate::format::Metadata;
use serde_json::{Map, Value, json};

/// Properties of the tensors that the configuration depends on.
#[expect(missing_debug_implementations, reason = "has a closure")]
pub struct TensorFacts<'a> {
    /// Rows of the embedding.
    pub vocab: usize,
    /// Returns whether there is a tensor with this GGUF name.
    pub has: &'a dyn Fn(&str) -> bool,
    /// RoPE frequency factors, if the file has any.
    pub rope_factors: Option<Vec<f32>>,
    /// `torch_dtype` of the largest tensor.
    pub dtype: &'static str,
}

/// Integers that are copied when writing, but need special handling when reading.
const NUMBERS: &[(&str, &str)] = &[
    ("context_length", "max_position_embeddings"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.sliding_window", "sliding_window"),
];

/// Returns the `config.json` of a model.
///
/// # Errors
///
/// `Unsupported` for a model that `config.json` cannot describe.
pub fn config(meta: &Metadata, tensors: &TensorFacts<'_>) -> Result<Value> {
    let config = arch::Config::read(meta)?;
    let arch = arch::find(&config.architecture)?;
    let config = config.validate(arch)?;
    check_exportable(arch, meta)?;
    let exported: Vec<_> = arch.exported().collect();
    let with_window = usize::from(config.attention.window > 0 && exported.len() > 1);
    let mut root = Map::new();
    write_class(exported[with_window], &mut root);
    let keys = ArchKeys {
        meta,
        arch: arch.name,
    };
    for (key, kind, paths) in KEYS {
        if let (Some(value), Some(path)) = (keys.value(key, *kind)?, paths.first()) {
            put(&mut root, path, value);
        }
    }
    for (key, name) in NUMBERS {
        let number = keys.value(key, ValueKind::Integer)?;
        root.insert((*name).to_string(), number.unwrap_or_default());
    }
    keys.write_layers(&mut root)?;
    let scaling = match &tensors.rope_factors {
        Some(factors) => llama3_of_factors(&config.rope.rotations[0], factors)?,
        None => keys.scaling()?,
    };
    root.insert("rope_scaling".into(), scaling);
    root.insert("head_dim".into(), config.attention.head_dim.into());
    root.insert("vocab_size".into(), tensors.vocab.into());
    let tied = !(tensors.has)("output.weight");
    root.insert("tie_word_embeddings".into(), tied.into());
    let biases = (tensors.has)("blk.0.attn_q.bias");
    root.insert("attention_bias".into(), biases.into());
    let biases = (tensors.has)("blk.0.ffn_down.bias");
    root.insert("mlp_bias".into(), biases.into());
    root.insert("torch_dtype".into(), tensors.dtype.into());
    let activation = root.get("hidden_activation").cloned();
    let activation = activation.unwrap_or_else(|| "silu".into());
    root.insert("hidden_act".into(), activation);
    let token = |key: &str| meta.u32(&format!("tokenizer.ggml.{key}_token_id"));
    root.insert("bos_token_id".into(), token("bos")?.into());
    let mut eos_tokens = Vec::new();
    for key in ["eos", "eot", "eom"] {
        eos_tokens.extend(token(key)?.filter(|id| !eos_tokens.contains(id)));
    }
    let eos_tokens = match eos_tokens[..] {
        [] => Value::Null,
        [id] => id.into(),
        _ => eos_tokens.into(),
    };
    root.insert("eos_token_id".into(), eos_tokens);
    Ok(root.into())
}

/// Writes the class and the type of a model.
pub(super) fn write_class(model: &HfModel, root: &mut Map<String, Value>) {
    root.insert("architectures".into(), json!([model.class]));
    root.insert("model_type".into(), json!(model.types.first()));
}

/// Checks that a model can be exported.
///
/// # Errors
///
/// `Unsupported`, with the supported architectures.
pub fn check_exportable(arch: &Arch, meta: &Metadata) -> Result<()> {
    if arch.exported().next().is_none() {
        let supported = ARCHS.iter().filter(|a| a.exported().next().is_some());
        let supported: Vec<_> = supported.map(|a| a.name).collect();
        bail!(
            Unsupported,
            "cannot export architecture {:?} to Hugging Face format; supported are {}",
            arch.name,
            supported.join(", ")
        );
    }
    if !arch::is_speech(arch.name) && arch::Config::read(meta)?.experts.count > 0 {
        bail!(
            Unsupported,
            "cannot export architecture {:?} with experts to Hugging Face format",
            arch.name
        );
    }
    Ok(())
}

/// Reads GGUF keys with the prefix of an architecture.
struct ArchKeys<'a> {
    meta: &'a Metadata,
    arch: &'static str,
}

impl ArchKeys<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    fn value(&self, key: &str, kind: ValueKind) -> Result<Option<Value>> {
        let (meta, key) = (self.meta, self.key(key));
        Ok(match kind {
            ValueKind::Integer => meta.u32(&key)?.map(Value::from),
            ValueKind::Float => meta.f32(&key)?.map(decimal),
            ValueKind::Text => meta.str(&key)?.map(Value::from),
            ValueKind::Flag => meta.bool(&key)?.map(Value::from),
        })
    }

    /// Writes the values that differ between layers.
    fn write_layers(&self, root: &mut Map<String, Value>) -> Result<()> {
        let pattern = self
            .meta
            .bools(&self.key("attention.sliding_window_pattern"));
        if let Some(sliding) = pattern? {
            let kind = |sliding| if sliding { SLIDING } else { FULL };
            let kinds: Vec<_> = sliding.into_iter().map(kind).collect();
            root.insert("layer_types".into(), kinds.into());
            root.insert("use_sliding_window".into(), true.into());
        }
        if let Some(rope_layers) = self.meta.bools(&self.key("rope.layers"))? {
            let rope_layers: Vec<_> = rope_layers.into_iter().map(u8::from).collect();
            root.insert("no_rope_layers".into(), rope_layers.into());
        }
        Ok(())
    }

    /// Returns the `rope_scaling` object.
    fn scaling(&self) -> Result<Value> {
        let kind = self.meta.str(&self.key("rope.scaling.type"))?;
        let legacy = self.value("rope.scale_linear", ValueKind::Float)?;
        let mut object = Map::new();
        match (kind, legacy) {
            (None, Some(factor)) => {
                object.insert("rope_type".into(), "linear".into());
                object.insert("factor".into(), factor);
            }
            (None | Some("none"), _) => return Ok(Value::Null),
            (Some(kind), _) => {
                object.insert("rope_type".into(), kind.into());
            }
        }
        for (key, kind, name) in SCALING {
            if let Some(value) = self.value(&format!("rope.scaling.{key}"), *kind)? {
                object.insert((*name).to_string(), value);
            }
        }
        Ok(object.into())
    }
}

/// Returns the f64 with the shortest decimal form that rounds to this f32.
fn decimal(x: f32) -> Value {
    let shortest = x.to_string().parse::<f64>();
    shortest.map_or(Value::Null, Value::from)
}

/// Inserts a value at a dotted path.
fn put(root: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => _ = root.insert(path.into(), value),
        Some((name, rest)) => {
            let object = root.entry(name).or_insert_with(|| json!({}));
            if let Value::Object(object) = object {
                put(object, rest, value);
            }
        }
    }
}

/// Finds the parameters of the Llama 3 scaling rule that give these factors. The largest factor is
/// the scaling factor; all models use the same wavelength bounds.
fn llama3_of_factors(rope: &Rotation, factors: &[f32]) -> Result<Value> {
    let mut rope = rope.clone();
    rope.scaling = RopeScaling::None;
    let expected = rope.freqs(Some(factors), 0)?;
    let factor = factors.iter().fold(1.0f32, |m, f| m.max(*f));
    // Tries original context lengths from 32 to 1 M.
    for original in (5..=20).map(|n| 1u32 << n) {
        rope.scaling = RopeScaling::Llama3 {
            factor,
            low: 1.0,
            high: 4.0,
            original: original as f32,
        };
        let actual = rope.freqs(None, 0)?;
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs();
        if actual.iter().zip(&expected).all(near) {
            return Ok(json!({
                "rope_type": "llama3",
                "factor": decimal(factor),
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": original,
            }));
        }
    }
    bail!(
        Unsupported,
        "rope_freqs.weight: the factors match no scaling rule of config.json"
    );
}
