//! Sampler kinds and sampler chains.

use super::list::Op;
use super::table::SamplingStage;
use crate::error::{Result, bail};

/// Maximum of `repeat_last_n`, in tokens.
pub const REPEAT_LAST_N_MAX: u32 = 1024;

/// Sampler that transforms or filters logits before a token is drawn. Disabled unless its
/// parameters enable it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerKind {
    /// Repetition, frequency and presence penalties.
    Penalties,
    /// Penalty for tokens that continue a repetition (DRY).
    Dry,
    /// Keeps logits within n standard deviations of the largest.
    TopNSigma,
    /// Keeps the k most likely tokens.
    TopK,
    /// Keeps the most typical tokens, up to a cumulative probability.
    Typical,
    /// Keeps the most likely tokens, up to a cumulative probability.
    TopP,
    /// Keeps tokens with a minimum probability relative to the most likely one.
    MinP,
    /// Removes the most likely tokens with some probability (XTC).
    Xtc,
    /// Divides logits by the temperature, which may depend on their entropy.
    Temperature,
}

impl SamplerKind {
    /// All samplers in the order of llama.cpp: the default chain.
    pub const DEFAULT: &[Self] = &[
        Self::Penalties,
        Self::Dry,
        Self::TopNSigma,
        Self::TopK,
        Self::Typical,
        Self::TopP,
        Self::MinP,
        Self::Xtc,
        Self::Temperature,
    ];

    /// Returns the name, as in llama.cpp.
    pub fn name(self) -> &'static str {
        match self {
            Self::Penalties => "penalties",
            Self::Dry => "dry",
            Self::TopNSigma => "top_n_sigma",
            Self::TopK => "top_k",
            Self::Typical => "typ_p",
            Self::TopP => "top_p",
            Self::MinP => "min_p",
            Self::Xtc => "xtc",
            Self::Temperature => "temperature",
        }
    }

    /// Parses a sampler chain: names separated by `;`.
    ///
    /// # Errors
    ///
    /// `Argument` for an unknown or duplicate name.
    pub fn chain(names: &str) -> Result<Vec<Self>> {
        let mut chain = Vec::new();
        for name in names.split(';').filter(|name| !name.is_empty()) {
            let Some(kind) = Self::DEFAULT.iter().find(|kind| kind.name() == name) else {
                let known: Vec<_> = Self::DEFAULT.iter().map(|kind| kind.name()).collect();
                let known = known.join(", ");
                bail!(
                    Argument,
                    "unknown sampler {name:?}; expected one of {known}"
                );
            };
            chain.push(*kind);
        }
        Self::check(&chain)?;
        Ok(chain)
    }

    /// Checks that a chain has no duplicates.
    ///
    /// # Errors
    ///
    /// `Argument` for a duplicate sampler.
    pub fn check(chain: &[Self]) -> Result<()> {
        for (i, kind) in chain.iter().enumerate() {
            if chain[..i].contains(kind) {
                bail!(Argument, "duplicate sampler {}", kind.name());
            }
        }
        Ok(())
    }

    /// Returns the operations of the sampler in a stage.
    pub fn ops(self, stage: SamplingStage) -> &'static [Op] {
        match (self, stage) {
            (_, SamplingStage::Greedy) => &[],
            (Self::Penalties, _) => &[Op::Penalize],
            (Self::TopK, _) => &[Op::TopK],
            (Self::TopP, _) => &[Op::TopP],
            (Self::MinP, _) => &[Op::MinP],
            (Self::Temperature, SamplingStage::Sampled) => &[Op::Temper],
            (Self::Temperature, SamplingStage::Full) => &[Op::Temper, Op::DynamicTemper],
            (_, SamplingStage::Sampled) => &[],
            (Self::Dry, SamplingStage::Full) => &[Op::Dry],
            (Self::TopNSigma, SamplingStage::Full) => &[Op::TopNSigma],
            (Self::Typical, SamplingStage::Full) => &[Op::Typical],
            (Self::Xtc, SamplingStage::Full) => &[Op::Xtc],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn parses_chains() {
        let names: Vec<_> = SamplerKind::DEFAULT.iter().map(|k| k.name()).collect();
        let all = SamplerKind::chain(&names.join(";")).expect("the names are valid");
        assert_eq!(all, SamplerKind::DEFAULT);
        let two = SamplerKind::chain("min_p;temperature").expect("the names are valid");
        assert_eq!(two, [SamplerKind::MinP, SamplerKind::Temperature]);
        assert_eq!(SamplerKind::chain("").expect("an empty chain is valid"), []);
        for (names, words) in [
            (
                "top_k;topk",
                "unknown sampler \"topk\"; expected one of penalties, dry",
            ),
            ("top_k;min_p;top_k", "duplicate sampler top_k"),
        ] {
            let error = SamplerKind::chain(names).expect_err(names);
            assert_eq!(error.kind(), ErrorKind::Argument);
            assert!(error.message().contains(words), "{error}");
        }
    }
}
