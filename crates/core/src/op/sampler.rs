//! Sampler kinds and sampler chains.

use super::list::Op;
use super::table::SamplingStage;
use crate::error::{Result, bail};

/// Maximum of `repeat_last_n`, in tokens.
pub const REPEAT_LAST_N_MAX: u32 = 1024;

macro_rules! samplers {
    ($($(#[doc = $doc:literal])+ $kind:ident = $name:literal, [$($sampled:ident)?], [$($full:ident),+];)+) => {
        /// Sampler that transforms or filters logits before a token is drawn. Disabled unless its
        /// parameters enable it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SamplerKind { $($(#[doc = $doc])+ $kind,)+ }

        impl SamplerKind {
            /// All samplers in the order of llama.cpp: the default chain.
            pub const DEFAULT: &[Self] = &[$(Self::$kind,)+];

            /// Returns the name, as in llama.cpp.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)+ }
            }

            /// Returns the operations of the sampler in a stage.
            pub fn ops(self, stage: SamplingStage) -> &'static [Op] {
                match (self, stage) {
                    (_, SamplingStage::Greedy) => &[],
                    $(
                        (Self::$kind, SamplingStage::Sampled) => &[$(Op::$sampled)?],
                        (Self::$kind, SamplingStage::Full) => &[$(Op::$full),+],
                    )+
                }
            }
        }
    };
}

// In the order of the default chain: name, operations of the stages `sampled` and `full`.
samplers! {
    /// Repetition, frequency and presence penalties.
    Penalties = "penalties", [Penalize], [Penalize];
    /// Penalty for tokens that continue a repetition (DRY).
    Dry = "dry", [], [Dry];
    /// Keeps logits within n standard deviations of the largest.
    TopNSigma = "top_n_sigma", [], [TopNSigma];
    /// Keeps the k most likely tokens.
    TopK = "top_k", [TopK], [TopK];
    /// Keeps the most typical tokens, up to a cumulative probability.
    Typical = "typ_p", [], [Typical];
    /// Keeps the most likely tokens, up to a cumulative probability.
    TopP = "top_p", [TopP], [TopP];
    /// Keeps tokens with a minimum probability relative to the most likely one.
    MinP = "min_p", [MinP], [MinP];
    /// Removes the most likely tokens with some probability (XTC).
    Xtc = "xtc", [], [Xtc];
    /// Divides logits by the temperature, which may depend on their entropy.
    Temperature = "temperature", [Temper], [Temper, DynamicTemper];
}

impl SamplerKind {
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
