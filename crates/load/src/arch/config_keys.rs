//! Reads the hyperparameters of a model from its metadata.

use super::config::{
    AttentionConfig, Config, DenseConfig, ExpertConfig, FeedForwardConfig, LayerEmbeddingConfig,
    OutputConfig, PerLayer, RopeConfig, ScaleConfig,
};
use super::expert_config::ExpertKeys;
use super::latent_config::Latent;
use super::layer_config::{LayerValues, MixerRule, RecurrentPattern, SlidingPattern};
use super::names::DENSE_MODULES;
use super::recurrent_config::RecurrentKeys;
use super::rope::{RopeScaling, Rotation, ScalingKeys};
use super::speech_encoder::{self, SpeechEncoder, is_speech};
use crate::error::{Result, bail};
use crate::format::Metadata;
use crate::op::functions::{Activation, STREAMS};
use crate::plan::builder::{GluClamp, PositionScale, Router};

/// Key of checkpoints that are not GGUF files: whether the value heads of recurrent layers are interleaved.
pub const INTERLEAVED_HEADS: &str = "ssm.interleaved_heads";

/// Key of checkpoints that are not GGUF files: the rows of the per-layer embeddings.
pub(crate) const LAYER_EMBEDDING_ROWS: &str = "vocab_size_per_layer_input";

/// Key of checkpoints that are not GGUF files: factors of the outputs of projections, by the names that follow.
pub const PROJECTION_SCALE: &str = "projection_scale";

/// Projections that may have such a factor.
const SCALED: [&str; 7] = [
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ssm_out",
    "ffn_gate",
    "ffn_down",
];

impl Config {
    /// Reads the hyperparameters from GGUF metadata. Absent values are 0 until [`Config::validate`].
    ///
    /// # Errors
    ///
    /// `Format` for a value of the wrong type, `Unsupported` for an unsupported value.
    pub fn read(meta: &Metadata) -> Result<Self> {
        let Some(arch) = meta.str("general.architecture")? else {
            bail!(Format, "general.architecture is missing");
        };
        let speech = is_speech(arch);
        let prefix = [arch, speech_encoder::DECODER][usize::from(speech)];
        let keys = KeyReader { meta, arch: prefix };
        let heads = keys.layer_values("attention.head_count")?;
        let kv_heads = keys.kv_heads()?;
        let ffn = keys.layer_values("feed_forward_length")?;
        let dim = keys.number("embedding_length")?;
        let latent = Latent::read(meta, prefix)?;
        let head_dim = keys.head_dim(dim, heads.max(), latent)?;
        let head_dim_swa = keys.number_or("attention.key_length_swa", head_dim)?;
        let context = keys.number("context_length")?;
        let predict_layers = keys.number("nextn_predict_layers")?;
        let experts = ExpertKeys::read(meta, prefix)?;
        Ok(Self {
            architecture: arch.to_string(),
            layers: keys.number("block_count")?.saturating_sub(predict_layers),
            predict_layers,
            drafting: None,
            dim,
            vocab: if speech {
                speech_encoder::vocab(meta)?
            } else {
                keys.vocab()?
            },
            context,
            eps: keys.eps()?,
            biased: false,
            rope: RopeConfig {
                rotations: keys.ropes(context, head_dim, head_dim_swa)?,
                half_split: false,
            },
            attention: AttentionConfig {
                heads: heads.max(),
                kv_heads: kv_heads.max(),
                head_dim,
                latent,
                window: keys.number("attention.sliding_window")?,
                shared_kv: keys.number("attention.shared_kv_layers")?,
                scale: keys.attention_scale(latent)?,
                query_scale: keys.query_scale(context)?,
                cap: keys.float("attn_logit_softcapping", 0.0)?,
            },
            ffn: FeedForwardConfig {
                width: ffn.max(),
                activation: keys.activation()?,
                ungated: false,
                sparsity: keys.sparsity()?,
            },
            experts: keys.experts(experts.max())?,
            scales: keys.scales()?,
            output: OutputConfig {
                logit_scale: keys.float("logit_scale", 1.0)?,
                logit_cap: keys.float("final_logit_softcapping", 0.0)?,
                classifier_mean: keys.classifier_mean()?,
            },
            dense: keys.dense()?,
            layer_embeddings: LayerEmbeddingConfig {
                width: keys.number("embedding_length_per_layer_input")?,
                rows: keys.number(LAYER_EMBEDDING_ROWS)?,
            },
            recurrent: None,
            speech: speech.then(|| SpeechEncoder::read(meta, dim)).transpose()?,
            layer_configs: Vec::new(),
            per_layer: keys.per_layer([heads, kv_heads, ffn], experts, head_dim_swa)?,
        })
    }
}

/// Reads GGUF keys with the prefix of an architecture.
struct KeyReader<'a> {
    meta: &'a Metadata,
    arch: &'a str,
}

impl KeyReader<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    /// Reads an integer; 0 if absent.
    fn number(&self, key: &str) -> Result<u32> {
        self.number_or(key, 0)
    }

    /// Reads an integer; `default` if absent or 0.
    fn number_or(&self, key: &str, default: u32) -> Result<u32> {
        let value = self.meta.u32(&self.name(key))?;
        Ok(value.filter(|n| *n > 0).unwrap_or(default))
    }

    fn float(&self, key: &str, default: f32) -> Result<f32> {
        Ok(self.meta.f32(&self.name(key))?.unwrap_or(default))
    }

    /// Reads the activation of the feed-forward layer; a placeholder if absent.
    fn activation(&self) -> Result<Activation> {
        let key = self.name("hidden_activation");
        activation_named(self.meta.str(&key)?, &key)
    }

    /// Reads the factors, of projections those that differ from 1.
    fn scales(&self) -> Result<ScaleConfig> {
        let mut projections = Vec::new();
        for name in SCALED {
            let scale = self.float(&format!("{PROJECTION_SCALE}.{name}"), 1.0)?;
            if scale != 1.0 {
                projections.push((name, scale));
            }
        }
        Ok(ScaleConfig {
            embedding: self.float("embedding_scale", 1.0)?,
            residual: self.float("residual_scale", 1.0)?,
            projections,
        })
    }

    /// Reads the hyperparameters of at most `count` experts per layer.
    fn experts(&self, count: u32) -> Result<ExpertConfig> {
        Ok(ExpertConfig {
            count,
            width: self.number("expert_feed_forward_length")?,
            latent: self.number("moe_latent_size")?,
            router: Router::softmax(self.number("expert_used_count")?),
            glu_clamp: self.glu_clamp()?,
            shared_width: self.number("expert_shared_feed_forward_length")?,
            shared_gate: false,
        })
    }

    /// Reads the number of key and value heads: 1 for latent attention, for which early files have that of the queries.
    fn kv_heads(&self) -> Result<LayerValues> {
        let heads = self.layer_values("attention.head_count_kv")?;
        if self.number("attention.kv_lora_rank")? == 0 {
            return Ok(heads);
        }
        let queries = self.number("attention.head_count")?;
        if ![
            LayerValues::All(0),
            LayerValues::All(1),
            LayerValues::All(queries),
        ]
        .contains(&heads)
        {
            bail!(
                Format,
                "{}: expected 1 or attention.head_count {queries} for latent attention",
                self.name("attention.head_count_kv")
            );
        }
        Ok(LayerValues::All(1))
    }

    /// Reads a number for all layers or a list.
    fn layer_values(&self, key: &str) -> Result<LayerValues> {
        LayerValues::read(self.meta, &self.name(key))
    }

    /// Reads the values from which those of the layers are computed, with heads, key and value heads and widths.
    fn per_layer(
        &self,
        [heads, kv_heads, ffn]: [LayerValues; 3],
        experts: ExpertKeys,
        head_dim_swa: u32,
    ) -> Result<PerLayer> {
        let meta = self.meta;
        Ok(PerLayer {
            heads,
            kv_heads,
            ffn,
            experts,
            head_dim_swa,
            sliding: SlidingPattern::read(meta, &self.name("attention.sliding_window_pattern"))?,
            rope_layers: meta.bools(&self.name("rope.layers"))?,
            mixers: MixerRule::Listed,
            recurrent: self.recurrent_layers()?,
            recurrent_keys: RecurrentKeys::read(meta, self.arch)?,
            rope_finetuned: meta.bool(&self.name("rope.scaling.finetuned"))?,
            interleaved_heads: meta.bool(&self.name(INTERLEAVED_HEADS))?,
            has_activation: meta.get(&self.name("hidden_activation")).is_some(),
        })
    }

    /// Reads which layers are recurrent: a list, or all except every n-th.
    fn recurrent_layers(&self) -> Result<RecurrentPattern> {
        if let Some(list) = self.meta.bools(&self.name("attention.recurrent_layers"))? {
            return Ok(RecurrentPattern::List(list));
        }
        Ok(match self.number("full_attention_interval")? {
            0 => RecurrentPattern::None,
            n => RecurrentPattern::Periodic(n),
        })
    }

    /// Reads the vocabulary size. It is compared with the embedding later.
    fn vocab(&self) -> Result<u32> {
        let tokens = self.meta.get("tokenizer.ggml.tokens");
        let tokens = tokens.and_then(|v| v.array()).map_or(0, |list| list.len());
        let size = self.meta.u32(&self.name("vocab_size"))?;
        Ok(size.unwrap_or_else(|| u32::try_from(tokens).unwrap_or(u32::MAX)))
    }

    /// Reads the hyperparameters of the Dense modules.
    fn dense(&self) -> Result<DenseConfig> {
        let mut features = [None; DENSE_MODULES.len()];
        for ((_, name), features) in DENSE_MODULES.iter().zip(&mut features) {
            *features = self.meta.u32(&self.name(&format!("{name}_feat_out")))?;
        }
        let after_pooling = self.meta.bool(&self.name("dense_after_pooling"))?;
        Ok(DenseConfig {
            features,
            after_pooling: after_pooling == Some(true),
        })
    }

    /// Reads the pooling of a classification head: 1 for mean, 2 for the first row. Default: mean.
    fn classifier_mean(&self) -> Result<bool> {
        let key = self.name("classifier.pooling_type");
        match self.meta.u32(&key)? {
            None | Some(1) => Ok(true),
            Some(2) => Ok(false),
            Some(other) => bail!(
                Unsupported,
                "{key}: expected 1 (mean) or 2 (first token), got {other}"
            ),
        }
    }

    /// Reads the epsilon of RMS norms or layer norms.
    fn eps(&self) -> Result<f32> {
        let rms = self
            .meta
            .f32(&self.name("attention.layer_norm_rms_epsilon"))?;
        rms.map_or_else(|| self.float("attention.layer_norm_epsilon", 0.0), Ok)
    }

    /// Reads the factor of scores; 0 if absent.
    fn attention_scale(&self, latent: Option<Latent>) -> Result<f32> {
        match latent {
            Some(latent) => latent.scale(self.meta, self.arch),
            None => self.float("attention.scale", 0.0),
        }
    }

    /// Reads the head dimension, which must be the same for keys and values. Default: `dim / heads`. That of latent
    /// attention is the width of a row of its cache.
    fn head_dim(&self, dim: u32, heads: u32, latent: Option<Latent>) -> Result<u32> {
        if let Some(latent) = latent {
            return Ok(latent.width());
        }
        for kind in ["", "_swa"] {
            let names = ["key", "value"].map(|of| format!("attention.{of}_length{kind}"));
            let [keys, values] = [self.number(&names[0])?, self.number(&names[1])?];
            if keys != values && values != 0 {
                let [key, value] = names.map(|name| self.name(&name));
                bail!(
                    Unsupported,
                    "{key} is {keys} and {value} is {values}, expected equal values"
                );
            }
        }
        let head_dim = self.number("attention.key_length")?;
        if head_dim == 0 && heads > 0 && !dim.is_multiple_of(heads) {
            let (width, count) = (
                self.name("embedding_length"),
                self.name("attention.head_count"),
            );
            bail!(
                Format,
                "{width}: expected a multiple of {count} {heads}, got {dim}"
            );
        }
        Ok(match head_dim {
            // Validation reports missing keys.
            0 => dim.checked_div(heads).unwrap_or(0),
            n => n,
        })
    }

    /// Reads the cutoffs of gates, and rejects other residual streams than one or four.
    fn sparsity(&self) -> Result<Vec<f32>> {
        for (key, expected) in [("altup.num_inputs", STREAMS), ("altup.active_idx", 0)] {
            let key = self.name(key);
            let value = self.meta.u32(&key)?.unwrap_or(expected);
            if value != expected {
                bail!(Unsupported, "{key}: expected {expected}, got {value}");
            }
        }
        let key = self.name("activation_sparsity_scale");
        Ok(self.meta.f32s(&key)?.unwrap_or_default())
    }

    /// Reads the factor of queries that grows with the position, for a trained context length.
    fn query_scale(&self, context: u32) -> Result<Option<PositionScale>> {
        let beta = self.float("attention.temperature_scale", 0.0)?;
        let length = self.number_or("rope.scaling.original_context_length", context)?;
        Ok((beta != 0.0).then_some(PositionScale { beta, length }))
    }

    fn glu_clamp(&self) -> Result<Option<GluClamp>> {
        let [alpha, limit] = [
            self.float("swiglu_alpha", 0.0)?,
            self.float("swiglu_limit", 0.0)?,
        ];
        for (name, value) in [("swiglu_alpha", alpha), ("swiglu_limit", limit)] {
            if value < 0.0 {
                let key = self.name(name);
                bail!(Format, "{key}: expected a positive number, got {value}");
            }
        }
        Ok((limit > 0.0).then_some(GluClamp { alpha, limit }))
    }

    /// Reads the RoPE of full-attention layers, and of sliding-window layers if they have their own
    /// base.
    fn ropes(&self, context: u32, head_dim: u32, head_dim_swa: u32) -> Result<Vec<Rotation>> {
        let rotary_dim = self.number_or("rope.dimension_count", head_dim)?;
        let scaling = ScalingKeys {
            meta: self.meta,
            arch: self.arch,
            context,
            dim: rotary_dim,
        };
        let mut ropes = vec![Rotation {
            dim: rotary_dim,
            theta: self.float("rope.freq_base", 10_000.0)?,
            scaling: scaling.scaling()?,
        }];
        if let Some(theta) = self.meta.f32(&self.name("rope.freq_base_swa"))? {
            let same = head_dim_swa == head_dim;
            let default = if same { rotary_dim } else { head_dim_swa };
            ropes.push(Rotation {
                dim: self.number_or("rope.dimension_count_swa", default)?,
                theta,
                scaling: RopeScaling::None,
            });
        }
        Ok(ropes)
    }
}

/// Names of activations in `transformers` and llama.cpp.
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

/// Returns the activation with this name; a placeholder if there is none.
fn activation_named(name: Option<&str>, key: &str) -> Result<Activation> {
    let Some(name) = name else {
        return Ok(Activation::Silu);
    };
    let entry = ACTIVATIONS.iter().find(|(known, _)| *known == name);
    let Some((_, activation)) = entry else {
        let supported: Vec<_> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
        bail!(
            Unsupported,
            "{key}: unsupported activation {name:?}; supported are {}",
            supported.join(", ")
        );
    };
    Ok(*activation)
}
