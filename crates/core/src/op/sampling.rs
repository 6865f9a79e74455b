//! The list of sampling parameters.
//!
//! Each row has the name, the type, the value that disables the parameter, the default, the range,
//! the role, the sampling stage that applies it, the command-line option and the field of `Sampler`
//! in the shaders. A parameter that only refines another one has no off value: the column repeats
//! the default.
//!
//! `Sampling`, its validation, `SAMPLER_OFF`, and the conversion between C ABI options and
//! `Sampling` are generated from the list. `shaders/lib/sampler.wgsl`, `TablaGenerateOptions` and
//! the options of the command line, Python and Swift are written by hand; the compiler and tests
//! compare them with the list. The seed is a `u64` without a range and is not in the list.

use super::table::SamplingStage;
use std::fmt;

/// Passes all rows of the list to the macro `$each`, in the order in which the samplers run.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_sampling_parameter {
    ($each:ident) => {
        $each! {
            /// Divisor of positive logits of recent tokens, factor of negative ones; 1: off (CTRL,
            /// arXiv 1909.05858).
            repetition_penalty: f32 { off: 1.0, default: 1.0, range: [0.01, 100.0], role: Logits, stage: Sampled, option: "repeat-penalty", sampler: repetition_penalty }
            /// Amount subtracted from the logit of a recent token for each of its occurrences; 0: off.
            frequency_penalty: f32 { off: 0.0, default: 0.0, range: [-100.0, 100.0], role: Logits, stage: Sampled, option: "frequency-penalty", sampler: frequency_penalty }
            /// Amount subtracted once from the logit of a recent token; 0: off.
            presence_penalty: f32 { off: 0.0, default: 0.0, range: [-100.0, 100.0], role: Logits, stage: Sampled, option: "presence-penalty", sampler: presence_penalty }
            /// Number of recent tokens that these penalties apply to, at most
            /// [`Sampling::REPEAT_LAST_N_MAX`].
            repeat_last_n: u32 { off: 0, default: 64, range: [0, $crate::op::sampling::REPEAT_LAST_N_MAX], role: Detail, stage: Greedy, option: "repeat-last-n", sampler: repeat_last_n }
            /// Amount subtracted from the logit of a token that continues a repetition, times
            /// [`Sampling::dry_base`] for each token over [`Sampling::dry_allowed_length`]; 0: off
            /// (DRY, by p-e-w).
            dry_multiplier: f32 { off: 0.0, default: 0.0, range: [0.0, 100.0], role: Logits, stage: Full, option: "dry-multiplier", sampler: dry_multiplier }
            /// Growth of the DRY penalty with each repeated token.
            dry_base: f32 { off: 1.75, default: 1.75, range: [1.0, 100.0], role: Detail, stage: Greedy, option: "dry-base", sampler: dry_base }
            /// Length of the longest repetition that DRY does not penalize, in tokens.
            dry_allowed_length: u32 { off: 2, default: 2, range: [0, u32::MAX], role: Detail, stage: Greedy, option: "dry-allowed-length", sampler: dry_allowed }
            /// Number of recent tokens that DRY searches for repetitions; a number over the context
            /// length is the whole context.
            dry_penalty_last_n: u32 { off: u32::MAX, default: u32::MAX, range: [0, u32::MAX], role: Detail, stage: Greedy, option: "dry-penalty-last-n", sampler: dry_penalty_last_n }
            /// Distance from the largest logit at which tokens are removed, in standard deviations;
            /// 0: off (top-n-sigma, arXiv 2411.07641).
            top_n_sigma: f32 { off: 0.0, default: 0.0, range: [0.0, 100.0], role: Filter, stage: Full, option: "top-n-sigma", sampler: top_n_sigma }
            /// Number of most likely tokens to keep; 0: off.
            top_k: u32 { off: 0, default: 40, range: [0, u32::MAX], role: Filter, stage: Sampled, option: "top-k", sampler: top_k }
            /// Cumulative probability of the tokens to keep, in order of typicality; 1: off
            /// (locally typical sampling, arXiv 2202.00666).
            typical_p: f32 { off: 1.0, default: 1.0, range: [0.0, 1.0], role: Filter, stage: Full, option: "typical", sampler: typical_p }
            /// Cumulative probability of the most likely tokens to keep; 1: off (nucleus sampling,
            /// arXiv 1904.09751).
            top_p: f32 { off: 1.0, default: 0.95, range: [0.0, 1.0], role: Filter, stage: Sampled, option: "top-p", sampler: top_p }
            /// Minimum probability of a token, relative to that of the most likely one; 0: off
            /// (arXiv 2407.01082).
            min_p: f32 { off: 0.0, default: 0.05, range: [0.0, 1.0], role: Filter, stage: Sampled, option: "min-p", sampler: min_p }
            /// Probability of removing all tokens over [`Sampling::xtc_threshold`] except the least
            /// likely of them; 0: off (XTC, by p-e-w).
            xtc_probability: f32 { off: 0.0, default: 0.0, range: [0.0, 1.0], role: Filter, stage: Full, option: "xtc-probability", sampler: xtc_probability }
            /// Minimum probability of the tokens that XTC removes.
            xtc_threshold: f32 { off: 0.1, default: 0.1, range: [0.0, 1.0], role: Detail, stage: Greedy, option: "xtc-threshold", sampler: xtc_threshold }
            /// Divisor of the logits; 0 selects the most likely token, which no sampler removes.
            temperature: f32 { off: 0.0, default: 0.8, range: [0.0, 100.0], role: Logits, stage: Sampled, option: "temp", sampler: temperature }
            /// Maximum deviation of the temperature below and above its value, depending on the
            /// entropy of the remaining tokens; 0: off (dynamic temperature, by kalomaze).
            dynatemp_range: f32 { off: 0.0, default: 0.0, range: [0.0, 100.0], role: Logits, stage: Full, option: "dynatemp-range", sampler: dynatemp_range }
            /// Exponent of the entropy in the dynamic temperature.
            dynatemp_exponent: f32 { off: 1.0, default: 1.0, range: [0.0, 100.0], role: Detail, stage: Greedy, option: "dynatemp-exp", sampler: dynatemp_exponent }
            /// Target surprise of a token in bits; replaces all samplers that remove tokens; 0: off
            /// (Mirostat 2, arXiv 2007.14966).
            mirostat_tau: f32 { off: 0.0, default: 0.0, range: [0.0, 100.0], role: Logits, stage: Full, option: "mirostat-ent", sampler: mirostat_tau }
            /// Learning rate of Mirostat.
            mirostat_eta: f32 { off: 0.1, default: 0.1, range: [0.0, 1.0], role: Detail, stage: Greedy, option: "mirostat-lr", sampler: mirostat_eta }
        }
    };
}

pub use for_each_sampling_parameter;

/// Maximum of `repeat_last_n`, in tokens.
pub const REPEAT_LAST_N_MAX: u32 = 1024;

/// Role of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Changes logits.
    Logits,
    /// Removes tokens; disabled by temperature 0 and Mirostat.
    Filter,
    /// Refines another parameter.
    Detail,
}

/// Value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Number {
    /// A real number.
    F32(f32),
    /// A count.
    U32(u32),
}

impl From<f32> for Number {
    fn from(value: f32) -> Self {
        Self::F32(value)
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32(value) => value.fmt(f),
            Self::U32(value) => value.fmt(f),
        }
    }
}

/// Row of the list.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name in Rust, C and Python.
    pub name: &'static str,
    /// Value that disables the parameter.
    pub off: Number,
    /// Default value.
    pub default: Number,
    /// Minimum value.
    pub min: Number,
    /// Maximum value.
    pub max: Number,
    /// Role of the parameter.
    pub role: Role,
    /// First sampling stage that applies it.
    pub stage: SamplingStage,
    /// Long command-line option.
    pub option: &'static str,
    /// Field of `Sampler` in the shaders.
    pub sampler: &'static str,
}

macro_rules! parameters {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ident {
        off: $off:expr, default: $default:expr, range: [$min:expr, $max:expr],
        role: $role:ident, stage: $stage:ident, option: $option:literal, sampler: $sampler:ident
    })+) => {
        /// Returns all parameters in the order of the list.
        pub fn parameters() -> impl Iterator<Item = Parameter> {
            let list = [$(Parameter {
                name: stringify!($name),
                off: <$type>::into($off),
                default: <$type>::into($default),
                min: <$type>::into($min),
                max: <$type>::into($max),
                role: Role::$role,
                stage: SamplingStage::$stage,
                option: $option,
                sampler: stringify!($sampler),
            },)+];
            list.into_iter()
        }
    };
}
for_each_sampling_parameter!(parameters);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_and_default_values_are_in_range() {
        for p in parameters() {
            for value in [p.off, p.default] {
                assert!(p.min <= value && value <= p.max, "{}: {value}", p.name);
            }
        }
    }

    #[test]
    fn only_refining_parameters_have_the_greedy_stage() {
        for p in parameters() {
            let refines = p.role == Role::Detail;
            assert_eq!(refines, p.stage == SamplingStage::Greedy, "{}", p.name);
        }
    }
}
