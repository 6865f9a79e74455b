//! The samplers that a table may have, and their order.

use super::list::Op;
use super::table::SamplingStage;
use crate::error::{Result, bail};

/// What a table does to logits before a token is drawn from them. Each is off until a sequence asks
/// for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerKind {
    /// Repetition, frequency and presence penalties.
    Penalties,
    /// A penalty for what would go on with a repetition (DRY).
    Dry,
    /// Only logits within some standard deviations of the largest.
    TopNSigma,
    /// Only the likeliest tokens, so many of them.
    TopK,
    /// Only the most typical tokens, up to a share of the probability.
    Typical,
    /// Only the likeliest tokens, up to a share of the probability.
    TopP,
    /// Only tokens some part as likely as the likeliest.
    MinP,
    /// Sometimes not the likeliest tokens (XTC).
    Xtc,
    /// Logits are divided by the temperature, which may depend on their entropy.
    Temperature,
}

impl SamplerKind {
    /// Every sampler, in the order of llama.cpp, which tables have unless they are told another one.
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

    /// Its name, as llama.cpp has it.
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

    /// The samplers of these names, with `;` between them.
    ///
    /// # Errors
    ///
    /// `Argument` for a name that is none, or that stands there twice.
    pub fn chain(names: &str) -> Result<Vec<Self>> {
        let mut chain = Vec::new();
        for name in names.split(';').filter(|name| !name.is_empty()) {
            let Some(kind) = Self::DEFAULT.iter().find(|kind| kind.name() == name) else {
                let known: Vec<_> = Self::DEFAULT.iter().map(|kind| kind.name()).collect();
                let known = known.join(", ");
                bail!(Argument, "{name:?} is no sampler; known are {known}");
            };
            chain.push(*kind);
        }
        Self::check(&chain)?;
        Ok(chain)
    }

    /// Holds a chain to having each sampler once.
    ///
    /// # Errors
    ///
    /// `Argument`, naming the one that comes again.
    pub fn check(chain: &[Self]) -> Result<()> {
        for (i, kind) in chain.iter().enumerate() {
            if chain[..i].contains(kind) {
                bail!(Argument, "sampler {} comes twice", kind.name());
            }
        }
        Ok(())
    }

    /// What it becomes in a tail.
    pub(super) fn ops(self, tail: SamplingStage) -> &'static [Op] {
        match (self, tail) {
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
    fn chains_are_what_their_names_say() {
        let names: Vec<_> = SamplerKind::DEFAULT.iter().map(|k| k.name()).collect();
        let all = SamplerKind::chain(&names.join(";")).expect("its own names");
        assert_eq!(all, SamplerKind::DEFAULT);
        let two = SamplerKind::chain("min_p;temperature").expect("two");
        assert_eq!(two, [SamplerKind::MinP, SamplerKind::Temperature]);
        assert_eq!(SamplerKind::chain("").expect("none"), []);
        for (names, words) in [
            (
                "top_k;topk",
                "\"topk\" is no sampler; known are penalties, dry",
            ),
            ("top_k;min_p;top_k", "sampler top_k comes twice"),
        ] {
            let error = SamplerKind::chain(names).expect_err(names);
            assert_eq!(error.kind(), ErrorKind::Argument);
            assert!(error.message().contains(words), "{error}");
        }
    }
}
