//! The numbers of a model, from its metadata, and the range of each.

use super::Arch;
use super::block::{Block, Each, Lists, Slides};
use super::rope::{Keys, RopeScaling, Rotation};
use crate::error::{Result, bail};
use crate::format::Metadata;
use crate::op::builder::Activation;

/// The numbers of a model. Nothing is computed from them before [`Config::validate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `general.architecture`.
    pub architecture: String,
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub dim: u32,
    /// Query heads; of the layer that has most.
    pub heads: u32,
    /// Key and value heads; of the layer that has most.
    pub kv_heads: u32,
    /// Elements of a head; in layers with a window, [`Block::head_dim`] may be another.
    pub head_dim: u32,
    /// Width of the feed-forward layer; of the widest one.
    pub ffn: u32,
    /// Tokens of the vocabulary.
    pub vocab: u32,
    /// Positions that the model was trained for.
    pub context: u32,
    /// Added to the mean square, or the variance, in norms.
    pub eps: f32,
    /// The rotations of its layers: of those that see all positions, then of those with a window
    /// where theirs is another.
    pub ropes: Vec<Rotation>,
    /// Whether RoPE turns pairs `(i, i + dim / 2)`.
    pub half_split: bool,
    /// The layers, once validated.
    pub blocks: Vec<Block>,
    /// Positions that a layer with a window sees; 0 without windows.
    pub window: u32,
    /// The last layers, so many, have no keys and values of their own.
    pub shared_kv: u32,
    /// What the feed-forward layer applies to its gate.
    pub activation: Activation,
    /// Whether every projection has a bias; of other families a file may have some.
    pub biased: bool,
    /// What embeddings are multiplied by.
    pub embedding_scale: f32,
    /// What a layer's two results are multiplied by before they join the residual stream.
    pub residual_scale: f32,
    /// What logits are divided by.
    pub logit_scale: f32,
    /// What scores of attention are multiplied by; 0: `1 / sqrt(head_dim)`.
    pub attention_scale: f32,
    /// Scores of attention stay within this, by a tanh; 0: wherever they are.
    pub attention_cap: f32,
    /// Logits stay within this, by a tanh; 0: wherever they are.
    pub logit_cap: f32,
    /// Experts of a feed-forward layer; 0: it is one matrix.
    pub experts: u32,
    /// Experts that a token goes to.
    pub experts_used: u32,
    /// Width of an expert.
    pub expert_ffn: u32,
    /// Whether the weights of a token's experts are made to sum to 1.
    pub expert_norm: bool,
    /// Width of the embeddings that every layer has for itself; 0 without.
    pub layer_embedding: u32,
    /// What its files say of each layer.
    pub(super) lists: Lists,
}

/// A range that a number must keep.
struct Range {
    key: &'static str,
    value: fn(&Config) -> u32,
    min: u32,
    max: u32,
}

const fn range(key: &'static str, min: u32, max: u32, value: fn(&Config) -> u32) -> Range {
    Range {
        key,
        value,
        min,
        max,
    }
}

/// Layers at most.
pub(super) const LAYERS_MAX: u32 = 4096;

/// Elements of a head at most.
const HEAD_DIM_MAX: u32 = 4096;

/// Generous, yet small enough that no product of three of them leaves 64 bits.
const RANGES: &[Range] = &[
    range("block_count", 1, LAYERS_MAX, |c| c.layers),
    range("embedding_length", 1, 1 << 17, |c| c.dim),
    range("attention.head_count", 1, 4096, |c| c.heads),
    range("attention.head_count_kv", 1, 4096, |c| c.kv_heads),
    range("attention.key_length", 1, HEAD_DIM_MAX, |c| c.head_dim),
    range("attention.key_length_swa", 1, HEAD_DIM_MAX, |c| {
        c.lists.head_dim_swa
    }),
    range("feed_forward_length", 1, 1 << 20, |c| c.ffn),
    range("vocab_size", 1, 1 << 21, |c| c.vocab),
    range("context_length", 1, 1 << 27, |c| c.context),
    range("attention.sliding_window", 0, 1 << 27, |c| c.window),
    range("attention.shared_kv_layers", 0, LAYERS_MAX, |c| c.shared_kv),
    range("expert_count", 0, 4096, |c| c.experts),
    range("expert_feed_forward_length", 0, 1 << 20, |c| c.expert_ffn),
    range("embedding_length_per_layer_input", 0, 1 << 14, |c| {
        c.layer_embedding
    }),
];

impl Config {
    /// Reads the numbers of a GGUF file; what is absent is 0 until [`Config::validate`].
    ///
    /// # Errors
    ///
    /// `Format` for a value of the wrong type, `Unsupported` for a feature that is not built.
    pub fn read(meta: &Metadata) -> Result<Self> {
        let Some(architecture) = meta.str("general.architecture")? else {
            bail!(Format, "general.architecture is missing");
        };
        let key = |name: &str| format!("{architecture}.{name}");
        let number = |name: &str| Ok(meta.u32(&key(name))?.unwrap_or(0));
        let float = |name: &str, default: f32| Ok(meta.f32(&key(name))?.unwrap_or(default));
        let each = |name: &str| Each::read(meta, &key(name));
        let tokens = meta.get("tokenizer.ggml.tokens").and_then(|v| v.array());
        let tokens = tokens.map_or(0, |list| list.len());
        for names in [
            ["attention.key_length", "attention.value_length"],
            ["attention.key_length_swa", "attention.value_length_swa"],
        ] {
            let [keys, values] = [number(names[0])?, number(names[1])?];
            if keys != values && values != 0 {
                bail!(
                    Unsupported,
                    "{}: {keys}, and {}: {values}; wanted the same",
                    key(names[0]),
                    key(names[1])
                );
            }
        }
        let context = number("context_length")?;
        let head_dim = number("attention.key_length")?;
        let (heads, kv_heads) = (
            each("attention.head_count")?,
            each("attention.head_count_kv")?,
        );
        let ffn = each("feed_forward_length")?;
        let dim = number("embedding_length")?;
        // A head's size where no key has it; validation says if it is none.
        let head_dim = match head_dim {
            0 if heads.max() > 0 && !dim.is_multiple_of(heads.max()) => bail!(
                Format,
                "{architecture}.embedding_length {dim} is no multiple of \
                 {architecture}.attention.head_count {}",
                heads.max()
            ),
            0 => dim.checked_div(heads.max()).unwrap_or(0),
            n => n,
        };
        let rope_dim =
            |name: &str, default| Ok(meta.u32(&key(name))?.filter(|n| *n > 0).unwrap_or(default));
        let turned = rope_dim("rope.dimension_count", head_dim)?;
        let scaling = Keys {
            meta,
            arch: architecture,
            context,
            dim: turned,
        };
        let mut ropes = vec![Rotation {
            dim: turned,
            theta: float("rope.freq_base", 10_000.0)?,
            scaling: scaling.scaling()?,
        }];
        let head_dim_swa = match number("attention.key_length_swa")? {
            0 => head_dim,
            n => n,
        };
        if let Some(theta) = meta.f32(&key("rope.freq_base_swa"))? {
            let default = if head_dim_swa == head_dim {
                turned
            } else {
                head_dim_swa
            };
            ropes.push(Rotation {
                dim: rope_dim("rope.dimension_count_swa", default)?,
                theta,
                scaling: RopeScaling::None,
            });
        }
        let eps = meta.f32(&key("attention.layer_norm_rms_epsilon"))?;
        let activation = meta.str(&key("hidden_activation"))?;
        Ok(Self {
            layers: number("block_count")?,
            dim,
            heads: heads.max(),
            kv_heads: kv_heads.max(),
            head_dim,
            ffn: ffn.max(),
            vocab: match meta.u32(&key("vocab_size"))? {
                Some(n) => n,
                None => u32::try_from(tokens).unwrap_or(u32::MAX),
            },
            context,
            eps: match eps {
                Some(eps) => eps,
                None => float("attention.layer_norm_epsilon", 0.0)?,
            },
            ropes,
            half_split: false,
            blocks: Vec::new(),
            window: number("attention.sliding_window")?,
            shared_kv: number("attention.shared_kv_layers")?,
            activation: activation_named(activation, &key("hidden_activation"))?,
            biased: false,
            embedding_scale: float("embedding_scale", 1.0)?,
            residual_scale: float("residual_scale", 1.0)?,
            logit_scale: float("logit_scale", 1.0)?,
            attention_scale: float("attention.scale", 0.0)?,
            attention_cap: float("attn_logit_softcapping", 0.0)?,
            logit_cap: float("final_logit_softcapping", 0.0)?,
            experts: number("expert_count")?,
            experts_used: number("expert_used_count")?,
            expert_ffn: number("expert_feed_forward_length")?,
            expert_norm: meta.bool(&key("expert_weights_norm"))?.unwrap_or(true),
            layer_embedding: number("embedding_length_per_layer_input")?,
            lists: Lists {
                heads,
                kv_heads,
                ffn,
                head_dim_swa,
                slides: Slides::read(meta, &key("attention.sliding_window_pattern"))?,
                turned: meta.bools(&key("rope.layers"))?,
                activation_said: activation.is_some(),
            },
            architecture: architecture.to_string(),
        })
    }

    /// Fills in what this family leaves unsaid, holds every number to its range and the numbers
    /// to each other, and works out the layers.
    ///
    /// # Errors
    ///
    /// `Format`, naming the key, the value and the limit.
    pub fn validate(mut self, arch: &Arch) -> Result<Self> {
        if !self.lists.activation_said {
            self.activation = arch.activation;
        }
        (arch.defaults)(&mut self);
        let name = self.architecture.clone();
        for (key, value) in [
            ("embedding_length", self.dim),
            ("attention.head_count", self.heads),
        ] {
            if value == 0 {
                bail!(Format, "{name}.{key} is missing or 0");
            }
        }
        if self.lists.kv_heads == Each::All(0) {
            self.kv_heads = self.heads;
            self.lists.kv_heads = self.lists.heads.clone();
        }
        if self.experts > 0 && self.ffn == 0 {
            self.ffn = self.expert_ffn;
            self.lists.ffn = Each::All(self.expert_ffn);
        }
        for Range {
            key,
            value,
            min,
            max,
        } in RANGES
        {
            match value(&self) {
                0 if *min > 0 => bail!(Format, "{name}.{key} is missing or 0"),
                n if n > *max => bail!(Format, "{name}.{key}: {n} is over the limit of {max}"),
                _ => {}
            }
        }
        self.check_numbers(&name)?;
        self.blocks = Block::all(&self)?;
        Ok(self)
    }

    fn check_numbers(&self, arch: &str) -> Result<()> {
        let eps = self.eps;
        if !(eps > 0.0 && eps < 1.0) {
            bail!(
                Format,
                "{arch}.attention.layer_norm_rms_epsilon, or layer_norm_epsilon: {eps} is outside 0..1"
            );
        }
        for (rope, layers) in self.ropes.iter().zip(["", "_swa"]) {
            if rope.dim > HEAD_DIM_MAX {
                bail!(
                    Format,
                    "{arch}.rope.dimension_count{layers}: {} is over the limit of {HEAD_DIM_MAX}",
                    rope.dim
                );
            }
            if !(rope.theta >= 1.0 && rope.theta.is_finite()) {
                bail!(
                    Format,
                    "{arch}.rope.freq_base{layers}: {} is not a base",
                    rope.theta
                );
            }
            rope.scaling.check(arch)?;
        }
        for (key, value) in [
            ("embedding_scale", self.embedding_scale),
            ("residual_scale", self.residual_scale),
            ("logit_scale", self.logit_scale),
            ("attention.scale", self.attention_scale),
            ("attn_logit_softcapping", self.attention_cap),
            ("final_logit_softcapping", self.logit_cap),
        ] {
            let may_be_off = key.starts_with("att") || key.starts_with("final");
            if !value.is_finite() || value < 0.0 || value == 0.0 && !may_be_off {
                bail!(Format, "{arch}.{key}: {value} is no positive number");
            }
        }
        if self.experts > 0 && !(1..=self.experts).contains(&self.experts_used) {
            bail!(
                Format,
                "{arch}.expert_used_count: {} of {} experts",
                self.experts_used,
                self.experts
            );
        }
        Ok(())
    }

    /// Elements of all query heads, of the layer that has most.
    pub fn q_dim(&self) -> u32 {
        let dims = self.blocks.iter().map(Block::q_dim);
        dims.max().unwrap_or(0)
    }
}

/// Names of activations, as `transformers` and llama.cpp have them.
const ACTIVATIONS: &[(&str, Activation)] = &[
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("swiglu", Activation::Silu),
    ("gelu", Activation::Gelu),
    ("geglu", Activation::Gelu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("relu2", Activation::Relu2),
    ("relu_squared", Activation::Relu2),
    ("relu", Activation::Relu),
];

/// The activation of this name; any where there is none.
fn activation_named(name: Option<&str>, key: &str) -> Result<Activation> {
    let Some(name) = name else {
        return Ok(Activation::Silu);
    };
    let found = ACTIVATIONS.iter().find(|(known, _)| *known == name);
    let Some((_, activation)) = found else {
        let known: Vec<_> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
        bail!(
            Unsupported,
            "{key}: {name:?} is not known; known are {}",
            known.join(", ")
        );
    };
    Ok(*activation)
}
