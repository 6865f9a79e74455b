//! THE list of sampling parameters.
//!
//! A row gives the name, the type, the value that switches the parameter off, the default, the
//! range, the role, the tail that applies it, the option of the command line and the field of the
//! shaders' `Sampler`. A parameter that only refines another one has no off value of its own: the
//! column repeats the default.
//!
//! From the list come `Sampling` and its checks, `SAMPLER_OFF`, and what the C ABI copies between
//! its options and `Sampling`. `shaders/lib/sampler.wgsl`, `TablaGenerateOptions`, the options of
//! the command line and those of Python and Swift are written by hand; the compiler and tests
//! compare them with the list. The seed is a `u64`, has no range and stands beside the list.

use super::table::SamplingStage;
use std::fmt;

/// Passes every row of the list to the macro `$each`, in the order in which the samplers run.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_sampling_parameter {
    ($each:ident) => {
        $each! {
            /// Divisor of positive logits of recent tokens, factor of negative ones; 1: off (CTRL,
            /// arXiv 1909.05858).
            repeat_penalty: f32 { off: 1.0, default: 1.0, range: [0.01, 100.0], role: Logits, tail: Sampled, option: "repeat-penalty", sampler: repeat_penalty }
            /// Amount subtracted from the logit of a recent token for each of its occurrences; 0: off.
            frequency_penalty: f32 { off: 0.0, default: 0.0, range: [-100.0, 100.0], role: Logits, tail: Sampled, option: "frequency-penalty", sampler: frequency_penalty }
            /// Amount subtracted once from the logit of a recent token; 0: off.
            presence_penalty: f32 { off: 0.0, default: 0.0, range: [-100.0, 100.0], role: Logits, tail: Sampled, option: "presence-penalty", sampler: presence_penalty }
            /// Number of recent tokens that these penalties apply to, at most
            /// [`Sampling::REPEAT_LAST_MAX`].
            repeat_last: u32 { off: 0, default: 64, range: [0, $crate::op::sampling::REPEAT_LAST_MAX], role: Detail, tail: Greedy, option: "repeat-last-n", sampler: repeat_last }
            /// Amount subtracted from the logit of a token that continues a repetition, times
            /// [`Sampling::dry_base`] for each token over [`Sampling::dry_allowed_length`]; 0: off
            /// (DRY, by p-e-w).
            dry_multiplier: f32 { off: 0.0, default: 0.0, range: [0.0, 100.0], role: Logits, tail: Full, option: "dry-multiplier", sampler: dry_multiplier }
            /// Growth of the DRY penalty with each repeated token.
            dry_base: f32 { off: 1.75, default: 1.75, range: [1.0, 100.0], role: Detail, tail: Greedy, option: "dry-base", sampler: dry_base }
            /// Length of the longest repetition that DRY does not penalize, in tokens.
            dry_allowed_length: u32 { off: 2, default: 2, range: [0, u32::MAX], role: Detail, tail: Greedy, option: "dry-allowed-length", sampler: dry_allowed }
            /// Number of recent tokens that DRY searches for repetitions; a number over the context
            /// length is the whole context.
            dry_last: u32 { off: u32::MAX, default: u32::MAX, range: [0, u32::MAX], role: Detail, tail: Greedy, option: "dry-penalty-last-n", sampler: dry_last }
            /// Distance from the largest logit at which tokens are removed, in standard deviations;
            /// 0: off (top-n-sigma, arXiv 2411.07641).
            top_n_sigma: f32 { off: 0.0, default: 0.0, range: [0.0, 100.0], role: Filter, tail: Full, option: "top-n-sigma", sampler: top_n_sigma }
            /// Number of likeliest tokens that are kept; 0: off.
            top_k: u32 { off: 0, default: 40, range: [0, u32::MAX], role: Filter, tail: Sampled, option: "top-k", sampler: top_k }
            /// Probability that the tokens of the most typical surprise hold, which are kept; 1: off
            /// (locally typical sampling, arXiv 2202.00666).
            typical_p: f32 { off: 1.0, default: 1.0, range: [0.0, 1.0], role: Filter, tail: Full, option: "typical", sampler: typical_p }
            /// Probability that the likeliest tokens hold, which are kept; 1: off (nucleus sampling,
            /// arXiv 1904.09751).
            top_p: f32 { off: 1.0, default: 0.95, range: [0.0, 1.0], role: Filter, tail: Sampled, option: "top-p", sampler: top_p }
            /// Minimum probability of a token, relative to that of the likeliest; 0: off (arXiv
            /// 2407.01082).
            min_p: f32 { off: 0.0, default: 0.05, range: [0.0, 1.0], role: Filter, tail: Sampled, option: "min-p", sampler: min_p }
            /// Probability of removing all tokens over [`Sampling::xtc_threshold`] but the least
            /// likely of them; 0: off (XTC, by p-e-w).
            xtc_probability: f32 { off: 0.0, default: 0.0, range: [0.0, 1.0], role: Filter, tail: Full, option: "xtc-probability", sampler: xtc_probability }
            /// Minimum probability of the tokens that XTC removes.
            xtc_threshold: f32 { off: 0.1, default: 0.1, range: [0.0, 1.0], role: Detail, tail: Greedy, option: "xtc-threshold", sampler: xtc_threshold }
            /// Divisor of the logits; 0 takes the likeliest token, and no sampler removes it.
            temperature: f32 { off: 0.0, default: 0.8, range: [0.0, 100.0], role: Logits, tail: Sampled, option: "temp", sampler: temperature }
            /// Distance that the temperature goes below and above its value with the entropy of the
            /// tokens that are left; 0: off (dynamic temperature, by kalomaze).
            dynatemp_range: f32 { off: 0.0, default: 0.0, range: [0.0, 100.0], role: Logits, tail: Full, option: "dynatemp-range", sampler: dynatemp_range }
            /// Exponent of the entropy in the dynamic temperature.
            dynatemp_exponent: f32 { off: 1.0, default: 1.0, range: [0.0, 100.0], role: Detail, tail: Greedy, option: "dynatemp-exp", sampler: dynatemp_exponent }
            /// Target surprise of a token in bits, which replaces every sampler that removes tokens;
            /// 0: off (Mirostat 2, arXiv 2007.14966).
            mirostat_tau: f32 { off: 0.0, default: 0.0, range: [0.0, 100.0], role: Logits, tail: Full, option: "mirostat-ent", sampler: mirostat_tau }
            /// Learning rate of Mirostat.
            mirostat_eta: f32 { off: 0.1, default: 0.1, range: [0.0, 1.0], role: Detail, tail: Greedy, option: "mirostat-lr", sampler: mirostat_eta }
        }
    };
}

pub use for_each_sampling_parameter;

/// Maximum of `repeat_last`, in tokens.
pub const REPEAT_LAST_MAX: u32 = 1024;

/// What a parameter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Changes logits.
    Logits,
    /// Removes tokens. Temperature 0 and Mirostat switch it off.
    Filter,
    /// Refines another parameter.
    Detail,
}

/// The value of a parameter.
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

/// A row of the list.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name in Rust, C and Python.
    pub name: &'static str,
    /// The value that switches it off.
    pub off: Number,
    /// The value where none is given.
    pub default: Number,
    /// The smallest value.
    pub min: Number,
    /// The largest value.
    pub max: Number,
    /// What it does.
    pub role: Role,
    /// The smallest tail that applies it.
    pub tail: SamplingStage,
    /// The long option of the command line.
    pub option: &'static str,
    /// The field of the shaders' `Sampler`.
    pub sampler: &'static str,
}

macro_rules! parameters {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ident {
        off: $off:expr, default: $default:expr, range: [$min:expr, $max:expr],
        role: $role:ident, tail: $tail:ident, option: $option:literal, sampler: $sampler:ident
    })+) => {
        /// Every parameter, in the order of the list.
        pub fn parameters() -> impl Iterator<Item = Parameter> {
            let list = [$(Parameter {
                name: stringify!($name),
                off: <$type>::into($off),
                default: <$type>::into($default),
                min: <$type>::into($min),
                max: <$type>::into($max),
                role: Role::$role,
                tail: SamplingStage::$tail,
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
    fn values_are_in_their_range() {
        for p in parameters() {
            for value in [p.off, p.default] {
                assert!(p.min <= value && value <= p.max, "{}: {value}", p.name);
            }
        }
    }

    #[test]
    fn a_parameter_that_refines_another_one_has_no_tail_of_its_own() {
        for p in parameters() {
            let refines = p.role == Role::Detail;
            assert_eq!(refines, p.tail == SamplingStage::Greedy, "{}", p.name);
        }
    }
}
