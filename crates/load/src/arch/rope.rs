//! RoPE frequencies and their scaling for long contexts.
//!
//! The scaling rules are those of `modeling_rope_utils` in `transformers`.

use crate::error::{Result, bail};
use crate::format::Metadata;

/// RoPE parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotation {
    /// Rotated elements of a head.
    pub dim: u32,
    /// Base of the frequencies.
    pub theta: f32,
    /// Scaling of the frequencies.
    pub scaling: RopeScaling,
}

/// Scaling of frequencies for long contexts.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// Divides all frequencies by a factor.
    Linear {
        /// Divisor.
        factor: f32,
    },
    /// Divides frequencies depending on their wavelength, as in Llama 3.1.
    Llama3 {
        /// Divisor of the long wavelengths.
        factor: f32,
        /// Wavelengths over `original / low` are divided by `factor`.
        low: f32,
        /// Wavelengths under `original / high` are not scaled.
        high: f32,
        /// Original context length.
        original: f32,
    },
    /// YaRN: divides low frequencies, with a ramp between fast and slow pairs.
    Yarn {
        /// Divisor of the slow pairs.
        factor: f32,
        /// Rotations within the original context above which a pair is not scaled.
        beta_fast: f32,
        /// Rotations within the original context below which a pair is fully scaled.
        beta_slow: f32,
        /// Original context length.
        original: f32,
        /// Whether the ends of the ramp are rounded to whole pairs; `None`: they are.
        truncate: Option<bool>,
        /// Attention factor: factor of cosine and sine.
        magnitude: f32,
    },
    /// Dynamic NTK: increases the base for contexts beyond the trained length.
    Dynamic {
        /// Growth of the base.
        factor: f32,
        /// Trained context length.
        trained: f32,
    },
    /// LongRoPE: divides each pair by a factor of one of two lists.
    Long {
        /// Factors for contexts up to `original`.
        short: Vec<f32>,
        /// Factors for longer contexts.
        long: Vec<f32>,
        /// Original context length.
        original: f32,
        /// Attention factor, a factor of cosine and sine: of the short and of the long factors.
        magnitudes: [f32; 2],
    },
    /// Divides each pair by a factor of a required tensor; the file names no rule.
    Listed,
    /// Rotates only the first pairs, with the frequencies of a whole head.
    Proportional {
        /// Number of rotated pairs.
        pairs: u32,
        /// Divisor.
        factor: f32,
    },
}

/// Default original context length of Llama 3.1's rule.
const LLAMA3_ORIGINAL: f32 = 8192.0;

impl Rotation {
    /// Returns the frequency of each rotated pair in radians per position, for `context` positions.
    /// `factors` are divisors from a tensor of the file.
    ///
    /// # Errors
    ///
    /// `Format` for factors of a wrong length or that are not positive.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the last step rounds to f32"
    )]
    pub fn freqs(&self, factors: Option<&[f32]>, context: u32) -> Result<Vec<f32>> {
        let pairs = self.dim as usize / 2;
        if let Some(factors) = factors {
            check_factors("rope_freqs.weight", factors, pairs)?;
        } else if self.scaling == RopeScaling::Listed {
            bail!(Format, "tensor rope_freqs.weight is missing");
        }
        let scale = FrequencyScale::of(self, context)?;
        let freq = |i: usize| {
            let plain = scale.theta.powf(-2.0 * i as f64 / f64::from(self.dim));
            // Factors replace Llama 3's rule and the proportional one; other rules apply in addition.
            let scaled = match (factors, &self.scaling) {
                (Some(f), RopeScaling::Llama3 { .. } | RopeScaling::Proportional { .. }) => {
                    plain / f64::from(f[i])
                }
                (Some(f), _) => scale.apply(i, plain / f64::from(f[i])),
                (None, _) => scale.apply(i, plain),
            };
            scaled as f32
        };
        Ok((0..pairs).map(freq).collect())
    }

    /// Returns the factor of cosine and sine.
    pub fn magnitude(&self) -> f32 {
        match self.scaling {
            RopeScaling::Yarn { magnitude, .. } => magnitude,
            RopeScaling::Long { magnitudes, .. } => magnitudes[0],
            _ => 1.0,
        }
    }

    /// Selects the LongRoPE magnitude for `context` positions.
    pub(crate) fn select_magnitude(&mut self, context: u32) {
        if let RopeScaling::Long {
            original,
            magnitudes,
            ..
        } = &mut self.scaling
            && is_long(context, *original)
        {
            tracing::info!(
                context,
                original = *original,
                "LongRoPE uses the long factors, because the context length is over the original one"
            );
            magnitudes[0] = magnitudes[1];
        }
    }
}

/// Returns whether LongRoPE uses its long factors for `context` positions.
fn is_long(context: u32, original: f32) -> bool {
    f64::from(context) > f64::from(original)
}

/// Checks the number and sign of factors.
fn check_factors(name: &str, factors: &[f32], pairs: usize) -> Result<()> {
    if factors.len() != pairs {
        bail!(
            Format,
            "{name}: expected {pairs} factors, got {}",
            factors.len()
        );
    }
    if let Some(bad) = factors.iter().find(|f| f.is_nan() || **f <= 0.0) {
        bail!(Format, "{name}: expected positive factors, got {bad}");
    }
    Ok(())
}

/// Scaling for a context length.
struct FrequencyScale<'a> {
    rotation: &'a Rotation,
    /// Scaled base.
    theta: f64,
    /// First and last pair of YaRN's ramp.
    bounds: [f64; 2],
    /// Selected LongRoPE factors.
    list: &'a [f32],
}

impl<'a> FrequencyScale<'a> {
    fn of(rotation: &'a Rotation, positions: u32) -> Result<Self> {
        let mut scale = Self {
            rotation,
            theta: f64::from(rotation.theta),
            bounds: [0.0; 2],
            list: &[],
        };
        let (dim, context) = (f64::from(rotation.dim), f64::from(positions));
        match &rotation.scaling {
            RopeScaling::Dynamic { factor, trained } => {
                let [factor, trained] = [*factor, *trained].map(f64::from);
                let ratio = context.max(trained) / trained;
                let growth = factor * ratio - (factor - 1.0);
                scale.theta *= growth.powf(dim / (dim - 2.0).max(1.0));
            }
            RopeScaling::Yarn {
                beta_fast,
                beta_slow,
                original,
                truncate,
                ..
            } => {
                let pair = |rotations: f32| {
                    let turns = f64::from(rotations) * std::f64::consts::TAU;
                    let span = f64::from(*original) / turns;
                    dim * span.ln() / (2.0 * scale.theta.ln())
                };
                let [mut low, mut high] = [pair(*beta_fast), pair(*beta_slow)];
                if truncate.unwrap_or(true) {
                    (low, high) = (low.floor(), high.ceil());
                }
                scale.bounds = [low.max(0.0), high.min(dim - 1.0)];
            }
            RopeScaling::Long {
                short,
                long,
                original,
                ..
            } => {
                let pairs = rotation.dim as usize / 2;
                check_factors("short_factor (rope_factors_short.weight)", short, pairs)?;
                check_factors("long_factor (rope_factors_long.weight)", long, pairs)?;
                let is_long = is_long(positions, *original);
                scale.list = if is_long { long } else { short };
            }
            _ => {}
        }
        Ok(scale)
    }

    fn apply(&self, i: usize, freq: f64) -> f64 {
        match &self.rotation.scaling {
            RopeScaling::None | RopeScaling::Listed | RopeScaling::Dynamic { .. } => freq,
            RopeScaling::Linear { factor } => freq / f64::from(*factor),
            RopeScaling::Llama3 {
                factor,
                low,
                high,
                original,
            } => {
                let [factor, low, high, original] =
                    [*factor, *low, *high, *original].map(f64::from);
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
            RopeScaling::Yarn { factor, .. } => {
                let [low, high] = self.bounds;
                // Avoids a division by zero for equal bounds.
                let width = if high == low { 0.001 } else { high - low };
                let slow = ((i as f64 - low) / width).clamp(0.0, 1.0);
                slow * freq / f64::from(*factor) + (1.0 - slow) * freq
            }
            RopeScaling::Long { .. } => freq / f64::from(self.list[i]),
            RopeScaling::Proportional { pairs, factor } => {
                if i < *pairs as usize {
                    freq / f64::from(*factor)
                } else {
                    0.0
                }
            }
        }
    }
}

/// Reads the scaling from the metadata.
pub(super) struct ScalingKeys<'a> {
    pub(super) meta: &'a Metadata,
    pub(super) arch: &'a str,
    /// Trained context length.
    pub(super) context: u32,
    /// Rotated elements of a head.
    pub(super) dim: u32,
}

impl ScalingKeys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.rope.scaling.{name}", self.arch)
    }

    fn float(&self, name: &str) -> Result<Option<f32>> {
        self.meta.f32(&self.key(name))
    }

    fn float_or(&self, name: &str, default: f32) -> Result<f32> {
        Ok(self.float(name)?.unwrap_or(default))
    }

    fn original(&self, default: f32) -> Result<f32> {
        let original = self.meta.u32(&self.key("original_context_length"))?;
        Ok(original.map_or(default, |n| n as f32))
    }

    /// Reads the attention factor by either of its names, with a default.
    fn magnitude(&self, default: f32) -> Result<f32> {
        let factor = match self.float("attn_factor")? {
            None => self.float("yarn_attn_factor")?,
            factor => factor,
        };
        Ok(factor.unwrap_or(default))
    }

    /// Reads the scaling. The catalog adds factors that are stored in tensors.
    pub(super) fn scaling(&self) -> Result<RopeScaling> {
        let legacy = self.meta.f32(&format!("{}.rope.scale_linear", self.arch))?;
        let scaling = match self.meta.str(&self.key("type"))? {
            None => match legacy {
                Some(factor) => RopeScaling::Linear { factor },
                // GGUF files with LongRoPE factors do not name the rule.
                None if self.float("attn_factor")?.is_some() => self.long()?,
                None => RopeScaling::None,
            },
            Some("none") => RopeScaling::None,
            Some("linear") => RopeScaling::Linear {
                factor: self.float_or("factor", 1.0)?,
            },
            Some("llama3") => RopeScaling::Llama3 {
                factor: self.float_or("factor", 8.0)?,
                low: self.float_or("low_freq_factor", 1.0)?,
                high: self.float_or("high_freq_factor", 4.0)?,
                original: self.original(LLAMA3_ORIGINAL)?,
            },
            Some("yarn") => self.yarn()?,
            Some("dynamic") => RopeScaling::Dynamic {
                factor: self.float_or("factor", 1.0)?,
                trained: self.context as f32,
            },
            Some("longrope") => self.long()?,
            Some("proportional") => {
                let fraction = self.float_or("partial", 1.0)?;
                #[expect(clippy::cast_possible_truncation, reason = "as `int` does in Python")]
                #[expect(clippy::cast_sign_loss, reason = "negative numbers become 0")]
                let pairs = (f64::from(fraction) * f64::from(self.dim) / 2.0) as u32;
                RopeScaling::Proportional {
                    pairs,
                    factor: self.float_or("factor", 1.0)?,
                }
            }
            Some(other) => bail!(
                Unsupported,
                "{}: unsupported type {other:?}; supported are none, linear, llama3, yarn, dynamic, \
                 longrope, proportional",
                self.key("type")
            ),
        };
        Ok(scaling)
    }

    fn yarn(&self) -> Result<RopeScaling> {
        let factor = self.float_or("factor", 1.0)?;
        let slope = |m: f32| {
            if factor <= 1.0 {
                1.0
            } else {
                0.1 * m * factor.ln() + 1.0
            }
        };
        let (mut part, mut all) = (self.float("mscale")?, self.float("mscale_all_dim")?);
        // GGUF files store only `mscale_all_dim`, by another name; `mscale` is 1.
        if all.is_none() && part.is_none() {
            all = self.float("yarn_log_multiplier")?;
            part = all.map(|_| 1.0);
            // With latent attention both are the same, and scores have the factor instead.
            if self
                .meta
                .get(&format!("{}.attention.kv_lora_rank", self.arch))
                .is_some()
            {
                part = all;
            }
        }
        let rule = match (part.filter(|m| *m != 0.0), all.filter(|m| *m != 0.0)) {
            (Some(part), Some(all)) => slope(part) / slope(all),
            _ => slope(1.0),
        };
        Ok(RopeScaling::Yarn {
            factor,
            beta_fast: self.float_or("yarn_beta_fast", 32.0)?,
            beta_slow: self.float_or("yarn_beta_slow", 1.0)?,
            original: self.original(self.context as f32)?,
            truncate: self.meta.bool(&self.key("truncate"))?,
            magnitude: self.magnitude(rule)?,
        })
    }

    /// Reads LongRoPE, whose factors are in the metadata or in tensors.
    fn long(&self) -> Result<RopeScaling> {
        let list = |name| Ok(self.meta.f32s(&self.key(name))?.unwrap_or_default());
        let original = self.original(self.context as f32)?;
        let factor = self.float_or("factor", self.context as f32 / original)?;
        let rule = if factor <= 1.0 {
            1.0
        } else {
            (1.0 + factor.ln() / original.ln()).sqrt()
        };
        let magnitude = self.magnitude(rule)?;
        Ok(RopeScaling::Long {
            short: list("short_factor")?,
            long: list("long_factor")?,
            original,
            magnitudes: [
                self.float_or("short_mscale", magnitude)?,
                self.float_or("long_mscale", magnitude)?,
            ],
        })
    }
}

impl RopeScaling {
    /// Rejects invalid parameters.
    pub(super) fn check(&self, arch: &str) -> Result<()> {
        let positive = |x: &f32| x.is_finite() && *x > 0.0;
        let valid = match self {
            Self::None | Self::Listed => true,
            Self::Linear { factor } => positive(factor),
            Self::Llama3 {
                factor,
                low,
                high,
                original,
            } => [factor, low, original].into_iter().all(positive) && high > low,
            Self::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original,
                magnitude,
                ..
            } => {
                let all = [factor, beta_fast, beta_slow, original, magnitude];
                all.into_iter().all(positive)
            }
            Self::Dynamic { factor, trained } => {
                [factor, trained].into_iter().all(positive) && *factor >= 1.0
            }
            Self::Long {
                original,
                magnitudes: [short, long],
                ..
            } => [original, short, long].into_iter().all(positive),
            Self::Proportional { factor, .. } => positive(factor),
        };
        if !valid {
            bail!(Format, "{arch}.rope.scaling: {self:?} is out of range");
        }
        Ok(())
    }
}
