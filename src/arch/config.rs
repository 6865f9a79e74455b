//! The numbers of a model, from its metadata.

use super::block::{Block, Each, Lists, Slides};
use super::rope::{Keys, RopeScaling, Rotation};
use crate::error::{Result, bail};
use crate::format::Metadata;
use crate::op::builder::Activation;

/// The numbers of a model. Nothing is computed from them before [`Config::validate`].
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each of its own")]
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

/// Layers at most.
pub(super) const LAYERS_MAX: u32 = 4096;

impl Config {
    /// Reads the numbers of a GGUF file; what is absent is 0 until [`Config::validate`].
    ///
    /// # Errors
    ///
    /// `Format` for a value of the wrong type, `Unsupported` for a feature that is not built.
    pub fn read(meta: &Metadata) -> Result<Self> {
        let Some(arch) = meta.str("general.architecture")? else {
            bail!(Format, "general.architecture is missing");
        };
        let keys = Read { meta, arch };
        let heads = keys.each("attention.head_count")?;
        let kv_heads = keys.each("attention.head_count_kv")?;
        let ffn = keys.each("feed_forward_length")?;
        let dim = keys.number("embedding_length")?;
        let head_dim = keys.head_dim(dim, heads.max())?;
        let head_dim_swa = keys.size("attention.key_length_swa", head_dim)?;
        let context = keys.number("context_length")?;
        let activation = meta.str(&keys.name("hidden_activation"))?;
        Ok(Self {
            architecture: arch.to_string(),
            layers: keys.number("block_count")?,
            dim,
            heads: heads.max(),
            kv_heads: kv_heads.max(),
            head_dim,
            ffn: ffn.max(),
            vocab: keys.vocab()?,
            context,
            eps: keys.eps()?,
            ropes: keys.ropes(context, head_dim, head_dim_swa)?,
            half_split: false,
            blocks: Vec::new(),
            window: keys.number("attention.sliding_window")?,
            shared_kv: keys.number("attention.shared_kv_layers")?,
            activation: activation_named(activation, &keys.name("hidden_activation"))?,
            biased: false,
            embedding_scale: keys.float("embedding_scale", 1.0)?,
            residual_scale: keys.float("residual_scale", 1.0)?,
            logit_scale: keys.float("logit_scale", 1.0)?,
            attention_scale: keys.float("attention.scale", 0.0)?,
            attention_cap: keys.float("attn_logit_softcapping", 0.0)?,
            logit_cap: keys.float("final_logit_softcapping", 0.0)?,
            experts: keys.number("expert_count")?,
            experts_used: keys.number("expert_used_count")?,
            expert_ffn: keys.number("expert_feed_forward_length")?,
            expert_norm: meta
                .bool(&keys.name("expert_weights_norm"))?
                .unwrap_or(true),
            layer_embedding: keys.number("embedding_length_per_layer_input")?,
            lists: Lists {
                heads,
                kv_heads,
                ffn,
                head_dim_swa,
                slides: Slides::read(meta, &keys.name("attention.sliding_window_pattern"))?,
                turned: meta.bools(&keys.name("rope.layers"))?,
                activation_said: activation.is_some(),
            },
        })
    }

    /// Elements of all query heads, of the layer that has most.
    pub fn q_dim(&self) -> u32 {
        let dims = self.blocks.iter().map(Block::q_dim);
        dims.max().unwrap_or(0)
    }
}

/// The keys of one architecture.
struct Read<'a> {
    meta: &'a Metadata,
    arch: &'a str,
}

impl Read<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    /// A number; 0 where the key is absent.
    fn number(&self, key: &str) -> Result<u32> {
        self.size(key, 0)
    }

    /// A number that is not 0, or the default.
    fn size(&self, key: &str, default: u32) -> Result<u32> {
        let said = self.meta.u32(&self.name(key))?;
        Ok(said.filter(|n| *n > 0).unwrap_or(default))
    }

    fn float(&self, key: &str, default: f32) -> Result<f32> {
        Ok(self.meta.f32(&self.name(key))?.unwrap_or(default))
    }

    /// A number for all layers, or for each.
    fn each(&self, key: &str) -> Result<Each> {
        Each::read(self.meta, &self.name(key))
    }

    /// The tokens that the files count; the embedding's rows are held against it later.
    fn vocab(&self) -> Result<u32> {
        let tokens = self.meta.get("tokenizer.ggml.tokens");
        let tokens = tokens.and_then(|v| v.array()).map_or(0, |list| list.len());
        let said = self.meta.u32(&self.name("vocab_size"))?;
        Ok(said.unwrap_or_else(|| u32::try_from(tokens).unwrap_or(u32::MAX)))
    }

    /// Norms of either kind have one number.
    fn eps(&self) -> Result<f32> {
        let said = self
            .meta
            .f32(&self.name("attention.layer_norm_rms_epsilon"))?;
        said.map_or_else(|| self.float("attention.layer_norm_epsilon", 0.0), Ok)
    }

    /// Elements of a head: of keys and values alike, an even share of the stream where no key
    /// says it.
    fn head_dim(&self, dim: u32, heads: u32) -> Result<u32> {
        for kind in ["", "_swa"] {
            let names = ["key", "value"].map(|of| format!("attention.{of}_length{kind}"));
            let [keys, values] = [self.number(&names[0])?, self.number(&names[1])?];
            if keys != values && values != 0 {
                let [key, value] = names.map(|name| self.name(&name));
                bail!(
                    Unsupported,
                    "{key} is {keys} and {value} {values}, wanted the same"
                );
            }
        }
        let said = self.number("attention.key_length")?;
        if said == 0 && heads > 0 && !dim.is_multiple_of(heads) {
            let (width, count) = (
                self.name("embedding_length"),
                self.name("attention.head_count"),
            );
            bail!(Format, "{width} {dim} is no multiple of {count} {heads}");
        }
        Ok(match said {
            // Validation says what is missing.
            0 => dim.checked_div(heads).unwrap_or(0),
            n => n,
        })
    }

    /// The rotation of layers that see all positions, and that of layers with a window where
    /// theirs has another base.
    fn ropes(&self, context: u32, head_dim: u32, head_dim_swa: u32) -> Result<Vec<Rotation>> {
        let turned = self.size("rope.dimension_count", head_dim)?;
        let scaling = Keys {
            meta: self.meta,
            arch: self.arch,
            context,
            dim: turned,
        };
        let mut ropes = vec![Rotation {
            dim: turned,
            theta: self.float("rope.freq_base", 10_000.0)?,
            scaling: scaling.scaling()?,
        }];
        if let Some(theta) = self.meta.f32(&self.name("rope.freq_base_swa"))? {
            let same = head_dim_swa == head_dim;
            let default = if same { turned } else { head_dim_swa };
            ropes.push(Rotation {
                dim: self.size("rope.dimension_count_swa", default)?,
                theta,
                scaling: RopeScaling::None,
            });
        }
        Ok(ropes)
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
