//! Rotary positions: how far each pair of a head turns per position, and how files stretch that.
//!
//! The rules of scaling are those of `transformers`' `modeling_rope_utils`.

use crate::error::{Result, bail};
use crate::format::Metadata;

/// A rotation that layers share.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotation {
    /// Elements of a head that are turned.
    pub dim: u32,
    /// Base of the frequencies.
    pub theta: f32,
    /// How the frequencies are scaled.
    pub scaling: RopeScaling,
}

/// How frequencies are scaled for long contexts.
#[derive(Clone, Debug, PartialEq)]
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
    /// Divided where a pair turns seldom within the first training's positions.
    Yarn {
        /// Divisor of the slow pairs.
        factor: f32,
        /// Pairs of more turns stay.
        beta_fast: f32,
        /// Pairs of fewer turns are divided.
        beta_slow: f32,
        /// Positions of the first training.
        original: f32,
        /// Whether the bounds between fast and slow are whole pairs.
        truncate: bool,
        /// What cosine and sine are multiplied by.
        magnitude: f32,
    },
    /// A larger base where the context is longer than what was trained.
    Dynamic {
        /// How fast the base grows.
        factor: f32,
        /// Positions of the training.
        trained: f32,
    },
    /// A divisor for each pair: one list up to the first training's positions, one beyond.
    Long {
        /// Divisors up to `original` positions.
        short: Vec<f32>,
        /// Divisors beyond.
        long: Vec<f32>,
        /// Positions of the first training.
        original: f32,
        /// What cosine and sine are multiplied by.
        magnitude: f32,
    },
    /// A divisor for each pair, which a tensor has to hold: the file names no rule.
    Listed,
    /// Only the first pairs turn; the frequencies are those of a whole head.
    Proportional {
        /// Pairs that turn.
        pairs: u32,
        /// Divisor.
        factor: f32,
    },
}

/// Positions of the first training where a file of Llama 3.1's rule says nothing.
const LLAMA3_ORIGINAL: f32 = 8192.0;

impl Rotation {
    /// Radians per position of each turned pair, for a cache of `context` positions; `factors`
    /// are divisors from a tensor of the file.
    ///
    /// # Errors
    ///
    /// `Format` for factors of another length or that are no positive numbers.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the last step rounds to f32"
    )]
    pub fn freqs(&self, factors: Option<&[f32]>, context: u32) -> Result<Vec<f32>> {
        let pairs = self.dim as usize / 2;
        if let Some(factors) = factors {
            divisors("rope_freqs.weight", factors, pairs)?;
        } else if self.scaling == RopeScaling::Listed {
            bail!(Format, "tensor rope_freqs.weight is missing");
        }
        let scale = Scale::of(self, context)?;
        let freq = |i: usize| {
            let plain = scale.theta.powf(-2.0 * i as f64 / f64::from(self.dim));
            // Factors are Llama 3's rule, or the proportional one, already worked out; a linear
            // scaling stands beside them.
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

    /// What cosine and sine are multiplied by.
    pub fn magnitude(&self) -> f32 {
        match self.scaling {
            RopeScaling::Yarn { magnitude, .. } | RopeScaling::Long { magnitude, .. } => magnitude,
            _ => 1.0,
        }
    }
}

/// Holds divisors of a file to their number and to being divisors.
fn divisors(name: &str, factors: &[f32], pairs: usize) -> Result<()> {
    if factors.len() != pairs {
        bail!(
            Format,
            "{name} has {} factors, wanted {pairs}",
            factors.len()
        );
    }
    if let Some(bad) = factors.iter().find(|f| f.is_nan() || **f <= 0.0) {
        bail!(Format, "{name}: {bad} is no divisor");
    }
    Ok(())
}

/// A scaling for one context.
struct Scale<'a> {
    rotation: &'a Rotation,
    /// The base.
    theta: f64,
    /// YaRN's first slow pair and last fast one.
    bounds: [f64; 2],
    /// The list of divisors that counts.
    list: &'a [f32],
}

impl<'a> Scale<'a> {
    fn of(rotation: &'a Rotation, context: u32) -> Result<Self> {
        let mut scale = Self {
            rotation,
            theta: f64::from(rotation.theta),
            bounds: [0.0; 2],
            list: &[],
        };
        let (dim, context) = (f64::from(rotation.dim), f64::from(context));
        match &rotation.scaling {
            RopeScaling::Dynamic { factor, trained } => {
                let [factor, trained] = [*factor, *trained].map(f64::from);
                let longer = context.max(trained) / trained;
                let growth = factor * longer - (factor - 1.0);
                scale.theta *= growth.powf(dim / (dim - 2.0).max(1.0));
            }
            RopeScaling::Yarn {
                beta_fast,
                beta_slow,
                original,
                truncate,
                ..
            } => {
                let pair = |turns: f32| {
                    let span = f64::from(*original) / (f64::from(turns) * std::f64::consts::TAU);
                    dim * span.ln() / (2.0 * scale.theta.ln())
                };
                let [mut low, mut high] = [pair(*beta_fast), pair(*beta_slow)];
                if *truncate {
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
                divisors("short_factor (rope_factors_short.weight)", short, pairs)?;
                divisors("long_factor (rope_factors_long.weight)", long, pairs)?;
                let beyond = context > f64::from(*original);
                scale.list = if beyond { long } else { short };
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
                // Equal bounds are a step and not a division by zero.
                let width = if high == low { 0.001 } else { high - low };
                let slow = ((i as f64 - low) / width).clamp(0.0, 1.0);
                slow * freq / f64::from(*factor) + (1.0 - slow) * freq
            }
            RopeScaling::Long { .. } => freq / f64::from(self.list[i]),
            RopeScaling::Proportional { pairs, factor } => {
                let turns = i < *pairs as usize;
                if turns {
                    freq / f64::from(*factor)
                } else {
                    0.0
                }
            }
        }
    }
}

/// What a model's metadata says of scaling.
pub(super) struct Keys<'a> {
    pub(super) meta: &'a Metadata,
    pub(super) arch: &'a str,
    /// Positions that the model was trained for.
    pub(super) context: u32,
    /// Elements of a head that are turned.
    pub(super) dim: u32,
}

impl Keys<'_> {
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

    /// `attn_factor`, by either of its names, or what the scaling's rule makes of it.
    fn magnitude(&self, rule: f32) -> Result<f32> {
        let said = match self.float("attn_factor")? {
            None => self.float("yarn_attn_factor")?,
            found => found,
        };
        Ok(said.unwrap_or(rule))
    }

    /// Reads the scaling; lists of factors may stand in tensors, which the catalog adds.
    pub(super) fn scaling(&self) -> Result<RopeScaling> {
        let legacy = self.meta.f32(&format!("{}.rope.scale_linear", self.arch))?;
        let scaling = match self.meta.str(&self.key("type"))? {
            None => match legacy {
                Some(factor) => RopeScaling::Linear { factor },
                // GGUF files with a list of divisors do not name the rule.
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
                let share = self.float_or("partial", 1.0)?;
                #[expect(clippy::cast_possible_truncation, reason = "as `int` does in Python")]
                #[expect(clippy::cast_sign_loss, reason = "negative numbers become 0")]
                let pairs = (f64::from(share) * f64::from(self.dim) / 2.0) as u32;
                RopeScaling::Proportional {
                    pairs,
                    factor: self.float_or("factor", 1.0)?,
                }
            }
            Some(other) => bail!(
                Unsupported,
                "{}: {other:?} is not known; known are none, linear, llama3, yarn, dynamic, \
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
        let (part, all) = (self.float("mscale")?, self.float("mscale_all_dim")?);
        let rule = match (part.filter(|m| *m != 0.0), all.filter(|m| *m != 0.0)) {
            (Some(part), Some(all)) => slope(part) / slope(all),
            _ => slope(1.0),
        };
        Ok(RopeScaling::Yarn {
            factor,
            beta_fast: self.float_or("yarn_beta_fast", 32.0)?,
            beta_slow: self.float_or("yarn_beta_slow", 1.0)?,
            original: self.original(self.context as f32)?,
            truncate: self.meta.bool(&self.key("truncate"))?.unwrap_or(true),
            magnitude: self.magnitude(rule)?,
        })
    }

    /// The factors stand in the metadata, or in tensors that the catalog adds.
    fn long(&self) -> Result<RopeScaling> {
        let list = |name| Ok(self.meta.f32s(&self.key(name))?.unwrap_or_default());
        let original = self.original(self.context as f32)?;
        let factor = self.float_or("factor", self.context as f32 / original)?;
        let rule = if factor <= 1.0 {
            1.0
        } else {
            (1.0 + factor.ln() / original.ln()).sqrt()
        };
        Ok(RopeScaling::Long {
            short: list("short_factor")?,
            long: list("long_factor")?,
            original,
            magnitude: self.magnitude(rule)?,
        })
    }
}

impl RopeScaling {
    /// Refuses numbers that are no scaling.
    pub(super) fn check(&self, arch: &str) -> Result<()> {
        let positive = |x: &f32| x.is_finite() && *x > 0.0;
        let sound = match self {
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
                magnitude,
                ..
            } => [original, magnitude].into_iter().all(positive),
            Self::Proportional { factor, .. } => positive(factor),
        };
        if !sound {
            bail!(Format, "{arch}.rope.scaling: {self:?} is out of range");
        }
        Ok(())
    }
}
