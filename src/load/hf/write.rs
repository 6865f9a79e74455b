//! config.json from the keys of a GGUF file: the reverse of [`Folder::metadata`](super::Folder).

use super::keys::{KEYS, Kind};
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
    let mut rope = numbers.ropes[0].clone();
    let mut root = Map::new();
    root.insert("architectures".into(), json!([class(found)?]));
    root.insert("model_type".into(), json!(found.model_types.first()));
    for (key, kind, paths) in KEYS {
        let key = format!("{}.{key}", found.name);
        let value = match kind {
            Kind::Integer => meta.u32(&key)?.map(Value::from),
            Kind::Float => meta.f32(&key)?.map(decimal),
            Kind::Text => meta.str(&key)?.map(Value::from),
            Kind::Flag => meta.bool(&key)?.map(Value::from),
        };
        if let (Some(value), Some(path)) = (value, paths.first()) {
            put(&mut root, path, value);
        }
    }
    for (key, name) in NUMBERS {
        let number = meta.u32(&format!("{}.{key}", found.name))?;
        root.insert((*name).to_string(), number.into());
    }
    let pattern = format!("{}.attention.sliding_window_pattern", found.name);
    if let Some(slides) = meta.bools(&pattern)? {
        let kind = |slides| {
            if slides {
                "sliding_attention"
            } else {
                "full_attention"
            }
        };
        let kinds: Vec<_> = slides.into_iter().map(kind).collect();
        root.insert("layer_types".into(), kinds.into());
        root.insert("use_sliding_window".into(), true.into());
    }
    if let Some(turned) = meta.bools(&format!("{}.rope.layers", found.name))? {
        let turned: Vec<_> = turned.into_iter().map(u8::from).collect();
        root.insert("no_rope_layers".into(), turned.into());
    }
    if let Some(factors) = &shape.rope_factors {
        rope.scaling = by_divisors(&rope, factors)?;
    }
    root.insert("rope_scaling".into(), scaling(&rope.scaling)?);
    root.insert("head_dim".into(), numbers.head_dim.into());
    root.insert("vocab_size".into(), shape.vocab.into());
    let tied = !(shape.has)("output.weight");
    root.insert("tie_word_embeddings".into(), tied.into());
    let biases = (shape.has)("blk.0.attn_q.bias");
    root.insert("attention_bias".into(), biases.into());
    root.insert("torch_dtype".into(), shape.dtype.into());
    root.entry("hidden_act").or_insert_with(|| "silu".into());
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

/// What `transformers` calls models of a family.
///
/// # Errors
///
/// `Unsupported` for a family whose models are not written for it.
pub(in crate::load) fn class(arch: &Arch) -> Result<&'static str> {
    if let Some(class) = arch.class {
        return Ok(class);
    }
    let known: Vec<_> = ARCHS
        .iter()
        .filter(|a| a.class.is_some())
        .map(|a| a.name)
        .collect();
    bail!(
        Unsupported,
        "architecture {:?} is not written as a folder of Hugging Face; known are {}",
        arch.name,
        known.join(", ")
    );
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

fn scaling(scaling: &RopeScaling) -> Result<Value> {
    Ok(match *scaling {
        RopeScaling::None => Value::Null,
        RopeScaling::Linear { factor } => {
            json!({ "rope_type": "linear", "factor": decimal(factor) })
        }
        RopeScaling::Llama3 {
            factor,
            low,
            high,
            original,
        } => json!({
            "rope_type": "llama3",
            "factor": decimal(factor),
            "low_freq_factor": decimal(low),
            "high_freq_factor": decimal(high),
            "original_max_position_embeddings": original.to_string().parse::<u64>().ok(),
        }),
        ref other => bail!(Unsupported, "RoPE scaled by {other:?} is not written yet"),
    })
}

/// Llama 3's rule with the numbers that make these divisors of it: the greatest one is its factor,
/// and all models share the bounds of its wavelengths.
fn by_divisors(rope: &Rotation, factors: &[f32]) -> Result<RopeScaling> {
    let mut rope = rope.clone();
    rope.scaling = RopeScaling::None;
    let wanted = rope.freqs(Some(factors), 0)?;
    let factor = factors.iter().fold(1.0f32, |m, f| m.max(*f));
    // Lengths that models are trained for first: 32 to 1 M.
    for length in 5..=20u8 {
        rope.scaling = RopeScaling::Llama3 {
            factor,
            low: 1.0,
            high: 4.0,
            original: f32::from(length).exp2(),
        };
        let found = rope.freqs(None, 0)?;
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs();
        if found.iter().zip(&wanted).all(near) {
            return Ok(rope.scaling);
        }
    }
    bail!(
        Unsupported,
        "rope_freqs.weight: no rule that config.json can name has these divisors"
    );
}
