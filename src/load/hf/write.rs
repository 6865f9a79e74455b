//! config.json from the keys of a GGUF file: the reverse of [`Folder::metadata`](super::Folder).

use super::keys::{KEYS, Kind};
use super::layers::{FULL, SLIDING};
use super::rope::SCALING;
use crate::arch::{self, ARCHS, Arch, RopeScaling, Rotation};
use crate::error::{Result, bail};
use crate::format::Metadata;
use serde_json::{Map, Value, json};

/// What the tensors say of a configuration.
pub(in crate::load) struct Shape<'a> {
    /// Rows of the embedding.
    pub(in crate::load) vocab: usize,
    /// Whether there is a tensor of this name of GGUF.
    pub(in crate::load) has: &'a dyn Fn(&str) -> bool,
    /// The divisors of RoPE's frequencies, where the file has some.
    pub(in crate::load) rope_factors: Option<Vec<f32>>,
    /// What `transformers` calls the type of most numbers.
    pub(in crate::load) dtype: &'static str,
}

/// Numbers that are written as they are, and read with more thought.
const NUMBERS: &[(&str, &str)] = &[
    ("context_length", "max_position_embeddings"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.sliding_window", "sliding_window"),
];

/// The configuration of a model.
///
/// # Errors
///
/// `Unsupported` for what a configuration cannot say.
pub(in crate::load) fn config(meta: &Metadata, shape: &Shape<'_>) -> Result<Value> {
    let numbers = arch::Config::read(meta)?;
    let found = arch::find(&numbers.architecture)?;
    let numbers = numbers.validate(found)?;
    check_written(found)?;
    let mut types = found.model_types.iter().zip(found.classes);
    let windows = usize::from(numbers.window > 0 && types.len() > 1);
    let (model_type, class) = types.nth(windows).unzip();
    let mut root = Map::new();
    root.insert("architectures".into(), json!([class]));
    root.insert("model_type".into(), json!(model_type));
    let said = Said {
        meta,
        arch: found.name,
    };
    for (key, kind, paths) in KEYS {
        if let (Some(value), Some(path)) = (said.value(key, *kind)?, paths.first()) {
            put(&mut root, path, value);
        }
    }
    for (key, name) in NUMBERS {
        let number = said.value(key, Kind::Integer)?;
        root.insert((*name).to_string(), number.unwrap_or_default());
    }
    said.layers(&mut root)?;
    let scaling = match &shape.rope_factors {
        Some(factors) => by_divisors(&numbers.ropes[0], factors)?,
        None => said.scaling()?,
    };
    root.insert("rope_scaling".into(), scaling);
    root.insert("head_dim".into(), numbers.head_dim.into());
    root.insert("vocab_size".into(), shape.vocab.into());
    let tied = !(shape.has)("output.weight");
    root.insert("tie_word_embeddings".into(), tied.into());
    let biases = (shape.has)("blk.0.attn_q.bias");
    root.insert("attention_bias".into(), biases.into());
    let biases = (shape.has)("blk.0.ffn_down.bias");
    root.insert("mlp_bias".into(), biases.into());
    root.insert("torch_dtype".into(), shape.dtype.into());
    let activation = root.get("hidden_activation").cloned();
    let activation = activation.unwrap_or_else(|| "silu".into());
    root.insert("hidden_act".into(), activation);
    let token = |key: &str| meta.u32(&format!("tokenizer.ggml.{key}_token_id"));
    root.insert("bos_token_id".into(), token("bos")?.into());
    let mut ends = Vec::new();
    for key in ["eos", "eot", "eom"] {
        ends.extend(token(key)?.filter(|id| !ends.contains(id)));
    }
    let ends = match ends[..] {
        [] => Value::Null,
        [end] => end.into(),
        _ => ends.into(),
    };
    root.insert("eos_token_id".into(), ends);
    Ok(root.into())
}

/// Refuses a family whose models are not written for `transformers`.
///
/// # Errors
///
/// `Unsupported`, with the families that are known.
pub(in crate::load) fn check_written(arch: &Arch) -> Result<()> {
    if arch.classes.is_empty() {
        let known = ARCHS.iter().filter(|a| !a.classes.is_empty());
        let known: Vec<_> = known.map(|a| a.name).collect();
        bail!(
            Unsupported,
            "architecture {:?} is not written as a folder of Hugging Face; known are {}",
            arch.name,
            known.join(", ")
        );
    }
    Ok(())
}

/// The keys of an architecture.
struct Said<'a> {
    meta: &'a Metadata,
    arch: &'static str,
}

impl Said<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    fn value(&self, key: &str, kind: Kind) -> Result<Option<Value>> {
        let (meta, key) = (self.meta, self.key(key));
        Ok(match kind {
            Kind::Integer => meta.u32(&key)?.map(Value::from),
            Kind::Float => meta.f32(&key)?.map(decimal),
            Kind::Text => meta.str(&key)?.map(Value::from),
            Kind::Flag => meta.bool(&key)?.map(Value::from),
        })
    }

    /// What differs from layer to layer.
    fn layers(&self, root: &mut Map<String, Value>) -> Result<()> {
        let pattern = self
            .meta
            .bools(&self.key("attention.sliding_window_pattern"));
        if let Some(slides) = pattern? {
            let kind = |slides| if slides { SLIDING } else { FULL };
            let kinds: Vec<_> = slides.into_iter().map(kind).collect();
            root.insert("layer_types".into(), kinds.into());
            root.insert("use_sliding_window".into(), true.into());
        }
        if let Some(turned) = self.meta.bools(&self.key("rope.layers"))? {
            let turned: Vec<_> = turned.into_iter().map(u8::from).collect();
            root.insert("no_rope_layers".into(), turned.into());
        }
        Ok(())
    }

    /// How RoPE is scaled.
    fn scaling(&self) -> Result<Value> {
        let kind = self.meta.str(&self.key("rope.scaling.type"))?;
        let legacy = self.value("rope.scale_linear", Kind::Float)?;
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

/// The number whose f32 this is, in as few digits as there are.
fn decimal(x: f32) -> Value {
    let shortest = x.to_string().parse::<f64>();
    shortest.map_or(Value::Null, Value::from)
}

/// Puts a value at a path with dots between the names of objects.
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

/// Llama 3's rule with the numbers that make these divisors of it: the greatest one is its factor,
/// and all models share the bounds of its wavelengths.
fn by_divisors(rope: &Rotation, factors: &[f32]) -> Result<Value> {
    let mut rope = rope.clone();
    rope.scaling = RopeScaling::None;
    let wanted = rope.freqs(Some(factors), 0)?;
    let factor = factors.iter().fold(1.0f32, |m, f| m.max(*f));
    // Lengths that models are trained for first: 32 to 1 M.
    for original in (5..=20).map(|n| 1u32 << n) {
        rope.scaling = RopeScaling::Llama3 {
            factor,
            low: 1.0,
            high: 4.0,
            original: original as f32,
        };
        let found = rope.freqs(None, 0)?;
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs();
        if found.iter().zip(&wanted).all(near) {
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
        "rope_freqs.weight: no rule that config.json can name has these divisors"
    );
}
