//! The numbers of a model, from its metadata, and the range of each.

use crate::error::{Result, bail};
use crate::format::Metadata;

/// The numbers of a model. Nothing is computed from them before [`Config::validate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `general.architecture`.
    pub architecture: String,
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub dim: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Width of the feed-forward layer.
    pub ffn: u32,
    /// Tokens of the vocabulary.
    pub vocab: u32,
    /// Positions that the model was trained for.
    pub context: u32,
    /// Added to the mean square in norms.
    pub eps: f32,
    /// Elements of a head that are rotated.
    pub rope_dim: u32,
    /// Base of the RoPE frequencies.
    pub rope_theta: f32,
    /// How the RoPE frequencies are scaled.
    pub rope_scaling: RopeScaling,
    /// Whether RoPE turns pairs `(i, i + rope_dim / 2)`.
    pub half_split: bool,
}

/// How RoPE frequencies are scaled for long contexts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// As they are.
    None,
    /// All divided by a factor.
    Linear {
        /// The factor.
        factor: f32,
    },
    /// Divided by wavelength, as Llama 3.1 does.
    Llama3 {
        /// Divisor of the long wavelengths.
        factor: f32,
        /// Wavelengths over `original / low` are divided by `factor`.
        low: f32,
        /// Wavelengths under `original / high` stay.
        high: f32,
        /// Positions of the first training.
        original: f32,
    },
}

/// A range that a number must keep.
struct Range {
    key: &'static str,
    value: fn(&Config) -> u32,
    max: u32,
}

/// Generous, yet small enough that no product of three of them leaves 64 bits.
const RANGES: &[Range] = &[
    Range {
        key: "block_count",
        value: |c| c.layers,
        max: 4096,
    },
    Range {
        key: "embedding_length",
        value: |c| c.dim,
        max: 1 << 17,
    },
    Range {
        key: "attention.head_count",
        value: |c| c.heads,
        max: 4096,
    },
    Range {
        key: "attention.head_count_kv",
        value: |c| c.kv_heads,
        max: 4096,
    },
    Range {
        key: "attention.key_length",
        value: |c| c.head_dim,
        max: 4096,
    },
    Range {
        key: "feed_forward_length",
        value: |c| c.ffn,
        max: 1 << 20,
    },
    Range {
        key: "vocab_size",
        value: |c| c.vocab,
        max: 1 << 21,
    },
    Range {
        key: "context_length",
        value: |c| c.context,
        max: 1 << 27,
    },
    Range {
        key: "rope.dimension_count",
        value: |c| c.rope_dim,
        max: 4096,
    },
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
        let float = |name: &str| meta.f32(&key(name));
        let tokens = meta.get("tokenizer.ggml.tokens").and_then(|v| v.array());
        let tokens = tokens.map_or(0, |list| list.len());
        let experts = number("expert_count")?;
        if experts > 0 {
            bail!(
                Unsupported,
                "{} is {experts}: mixtures of experts",
                key("expert_count")
            );
        }
        let activation = meta.str(&key("hidden_activation"))?;
        if let Some(other) = activation.filter(|name| !["silu", "swish"].contains(name)) {
            bail!(Unsupported, "{}: {other:?}", key("hidden_activation"));
        }
        let context = number("context_length")?;
        let (keys, values) = (
            number("attention.key_length")?,
            number("attention.value_length")?,
        );
        if keys != values && values != 0 {
            bail!(
                Unsupported,
                "keys of {keys} and values of {values} elements"
            );
        }
        Ok(Self {
            layers: number("block_count")?,
            dim: number("embedding_length")?,
            heads: number("attention.head_count")?,
            kv_heads: number("attention.head_count_kv")?,
            head_dim: keys,
            ffn: number("feed_forward_length")?,
            vocab: match meta.u32(&key("vocab_size"))? {
                Some(n) => n,
                None => u32::try_from(tokens).unwrap_or(u32::MAX),
            },
            // Recipes attend to all positions: past a window that would be another model.
            context: match number("attention.sliding_window")? {
                0 => context,
                window => context.min(window),
            },
            eps: float("attention.layer_norm_rms_epsilon")?.unwrap_or(0.0),
            rope_dim: number("rope.dimension_count")?,
            rope_theta: float("rope.freq_base")?.unwrap_or(10_000.0),
            rope_scaling: rope_scaling(meta, architecture)?,
            half_split: false,
            architecture: architecture.to_string(),
        })
    }

    /// Holds every number to its range and the numbers to each other, and fills in what follows
    /// from others: KV heads, head size, rotated part.
    ///
    /// # Errors
    ///
    /// `Format`, naming the key, the value and the limit.
    pub fn validate(mut self) -> Result<Self> {
        let arch = self.architecture.clone();
        for (key, heads) in [
            ("embedding_length", self.dim),
            ("attention.head_count", self.heads),
        ] {
            if heads == 0 {
                bail!(Format, "{arch}.{key} is missing or 0");
            }
        }
        if self.kv_heads == 0 {
            self.kv_heads = self.heads;
        }
        if self.head_dim == 0 {
            if !self.dim.is_multiple_of(self.heads) {
                bail!(
                    Format,
                    "{arch}.embedding_length {} is no multiple of {arch}.attention.head_count {}",
                    self.dim,
                    self.heads
                );
            }
            self.head_dim = self.dim / self.heads;
        }
        if self.rope_dim == 0 {
            self.rope_dim = self.head_dim;
        }
        for Range { key, value, max } in RANGES {
            match value(&self) {
                0 => bail!(Format, "{arch}.{key} is missing or 0"),
                n if n > *max => bail!(Format, "{arch}.{key}: {n} is over the limit of {max}"),
                _ => {}
            }
        }
        self.check_against_each_other(&arch)?;
        Ok(self)
    }

    fn check_against_each_other(&self, arch: &str) -> Result<()> {
        let Self {
            heads,
            kv_heads,
            head_dim,
            rope_dim,
            eps,
            rope_theta,
            ..
        } = *self;
        if !heads.is_multiple_of(kv_heads) {
            bail!(
                Format,
                "{arch}: {heads} heads do not share {kv_heads} key-value heads evenly"
            );
        }
        if rope_dim > head_dim || !rope_dim.is_multiple_of(2) || !head_dim.is_multiple_of(2) {
            bail!(
                Format,
                "{arch}: RoPE over {rope_dim} of the {head_dim} elements of a head"
            );
        }
        if !(eps > 0.0 && eps < 1.0) {
            bail!(
                Format,
                "{arch}.attention.layer_norm_rms_epsilon: {eps} is outside 0..1"
            );
        }
        if !(rope_theta >= 1.0 && rope_theta.is_finite()) {
            bail!(Format, "{arch}.rope.freq_base: {rope_theta} is not a base");
        }
        let positive = |x: f32| x.is_finite() && x > 0.0;
        let sound = match self.rope_scaling {
            RopeScaling::None => true,
            RopeScaling::Linear { factor } => positive(factor),
            RopeScaling::Llama3 {
                factor,
                low,
                high,
                original,
            } => positive(factor) && positive(low) && positive(original) && high > low,
        };
        if !sound {
            bail!(
                Format,
                "{arch}.rope.scaling: {:?} is out of range",
                self.rope_scaling
            );
        }
        Ok(())
    }

    /// Elements of all query heads.
    pub fn q_dim(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Elements of all key heads.
    pub fn kv_dim(&self) -> u32 {
        self.kv_heads * self.head_dim
    }

    /// Radians per position of each rotated pair, scaled; `factors` are divisors from the file.
    ///
    /// Llama 3's rule is that of `transformers`' `_compute_llama3_parameters`.
    ///
    /// # Errors
    ///
    /// `Format` for factors of another length or that are no positive numbers.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the last step rounds to f32"
    )]
    pub fn rope_freqs(&self, factors: Option<&[f32]>) -> Result<Vec<f32>> {
        let pairs = self.rope_dim as usize / 2;
        if let Some(factors) = factors {
            if factors.len() != pairs {
                bail!(
                    Format,
                    "rope_freqs.weight has {} factors, not {pairs}",
                    factors.len()
                );
            }
            if let Some(bad) = factors.iter().find(|f| f.is_nan() || **f <= 0.0) {
                bail!(Format, "rope_freqs.weight: {bad} is no divisor");
            }
        }
        let freq = |i: usize| {
            let exponent = 2.0 * i as f64 / f64::from(self.rope_dim);
            let plain = f64::from(self.rope_theta).powf(-exponent);
            // Factors are Llama 3's rule already worked out; a linear scaling stands beside them.
            let scaled = match (factors, self.rope_scaling) {
                (Some(factors), RopeScaling::Llama3 { .. }) => plain / f64::from(factors[i]),
                (Some(factors), scaling) => scaling.apply(plain / f64::from(factors[i])),
                (None, scaling) => scaling.apply(plain),
            };
            scaled as f32
        };
        Ok((0..pairs).map(freq).collect())
    }
}

impl RopeScaling {
    /// What files call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Linear { .. } => "linear",
            Self::Llama3 { .. } => "llama3",
        }
    }

    fn apply(self, freq: f64) -> f64 {
        match self {
            Self::None => freq,
            Self::Linear { factor } => freq / f64::from(factor),
            Self::Llama3 {
                factor,
                low,
                high,
                original,
            } => {
                let [factor, low, high, original] = [factor, low, high, original].map(f64::from);
                let wavelength = std::f64::consts::TAU / freq;
                if wavelength < original / high {
                    freq
                } else if wavelength > original / low {
                    freq / factor
                } else {
                    let smooth = (original / wavelength - low) / (high - low);
                    (1.0 - smooth) * freq / factor + smooth * freq
                }
            }
        }
    }
}

fn rope_scaling(meta: &Metadata, arch: &str) -> Result<RopeScaling> {
    let key = |name: &str| format!("{arch}.rope.scaling.{name}");
    let float = |name: &str, default: f32| Ok(meta.f32(&key(name))?.unwrap_or(default));
    let legacy = meta.f32(&format!("{arch}.rope.scale_linear"))?;
    match meta.str(&key("type"))? {
        None => Ok(legacy.map_or(RopeScaling::None, |factor| RopeScaling::Linear { factor })),
        Some("none") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear {
            factor: float("factor", 1.0)?,
        }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: float("factor", 8.0)?,
            low: float("low_freq_factor", 1.0)?,
            high: float("high_freq_factor", 4.0)?,
            original: match meta.u32(&key("original_context_length"))? {
                Some(n) => n as f32,
                None => 8192.0,
            },
        }),
        Some(other) => bail!(
            Unsupported,
            "{}: {other:?} is not supported; known are none, linear, llama3",
            key("type")
        ),
    }
}
