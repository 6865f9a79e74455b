//! How the next token is picked from the logits.

use crate::error::{Result, bail};
use crate::exec::state::{SAMPLER_OFF, STOPS_MAX, Sampler};
use crate::op::table::Tail;

/// How the next token is picked. The fields stand in the order in which samplers go one after the
/// other unless a model was loaded with another order; `docs/sampling.md` defines each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits of recent tokens are divided by it where positive, multiplied where negative; 1: off
    /// (CTRL, arXiv 1909.05858).
    pub repeat_penalty: f32,
    /// It is taken off the logit of a recent token as often as the token stands there; 0: off.
    pub frequency_penalty: f32,
    /// It is taken off the logit of a recent token once; 0: off.
    pub presence_penalty: f32,
    /// How many tokens back these penalties reach, [`Sampling::REPEAT_LAST_MAX`] at most.
    pub repeat_last: u32,
    /// What a token that goes on with a repetition loses, times [`Sampling::dry_base`] for each token
    /// over [`Sampling::dry_allowed_length`]; 0: off (DRY, by p-e-w).
    pub dry_multiplier: f32,
    /// By how much the loss grows with each token.
    pub dry_base: f32,
    /// Tokens of a repetition that cost nothing yet.
    pub dry_allowed_length: u32,
    /// How many tokens back DRY looks; more than the context has are all.
    pub dry_last: u32,
    /// Only logits within so many standard deviations of the largest; 0: off (top-n-sigma,
    /// arXiv 2411.07641).
    pub top_n_sigma: f32,
    /// Only the `top_k` likeliest tokens; 0: off.
    pub top_k: u32,
    /// Only the tokens of the most typical surprise that hold `typical_p` of the probability; 1: off
    /// (locally typical sampling, arXiv 2202.00666).
    pub typical_p: f32,
    /// Only the likeliest tokens that hold `top_p` of the probability; 1: off (nucleus sampling,
    /// arXiv 1904.09751).
    pub top_p: f32,
    /// Only tokens at least `min_p` times as likely as the likeliest; 0: off (arXiv 2407.01082).
    pub min_p: f32,
    /// How likely it is that all but the last of the tokens over [`Sampling::xtc_threshold`] are taken
    /// away; 0: off (XTC, by p-e-w).
    pub xtc_probability: f32,
    /// The probability from which on a token counts as a top choice of XTC.
    pub xtc_threshold: f32,
    /// Logits are divided by it; 0 takes the likeliest token, and no sampler takes that away.
    pub temperature: f32,
    /// How far the temperature goes down and up with the entropy of the tokens that are left; 0: it
    /// stays (dynamic temperature, by kalomaze).
    pub dynatemp_range: f32,
    /// The power of the entropy that it goes by.
    pub dynatemp_exponent: f32,
    /// The surprise, in bits, that tokens are held to, in the place of every sampler that takes tokens
    /// away; 0: off (Mirostat 2, arXiv 2007.14966).
    pub mirostat_tau: f32,
    /// How fast Mirostat learns.
    pub mirostat_eta: f32,
    /// Key of the counter-based random numbers: the same seed draws the same tokens.
    pub seed: u64,
}

/// A smaller temperature counts as this one: logits that are divided by it stay finite, and it
/// leaves the largest alone all the same.
const TEMPERATURE_MIN: f32 = 1e-20;

impl Default for Sampling {
    /// The field's usual defaults, as llama.cpp has them.
    fn default() -> Self {
        Self {
            repeat_last: 64,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            temperature: 0.8,
            ..Self::GREEDY
        }
    }
}

impl Sampling {
    /// The longest reach of the repetition penalty, in tokens.
    pub const REPEAT_LAST_MAX: u32 = 1024;

    /// The likeliest token, always.
    pub const GREEDY: Self = Self {
        repeat_penalty: 1.0,
        frequency_penalty: 0.0,
        presence_penalty: 0.0,
        repeat_last: 0,
        dry_multiplier: 0.0,
        dry_base: 1.75,
        dry_allowed_length: 2,
        dry_last: u32::MAX,
        top_n_sigma: 0.0,
        top_k: 0,
        typical_p: 1.0,
        top_p: 1.0,
        min_p: 0.0,
        xtc_probability: 0.0,
        xtc_threshold: 0.1,
        temperature: 0.0,
        dynatemp_range: 0.0,
        dynatemp_exponent: 1.0,
        mirostat_tau: 0.0,
        mirostat_eta: 0.1,
        seed: 0,
    };

    /// Holds every field to its range.
    ///
    /// # Errors
    ///
    /// `Argument`, naming the field, the value and the range.
    pub fn check(&self) -> Result<()> {
        let fields = [
            ("repeat_penalty", self.repeat_penalty, 0.01, 100.0),
            ("frequency_penalty", self.frequency_penalty, -100.0, 100.0),
            ("presence_penalty", self.presence_penalty, -100.0, 100.0),
            ("dry_multiplier", self.dry_multiplier, 0.0, 100.0),
            ("dry_base", self.dry_base, 1.0, 100.0),
            ("top_n_sigma", self.top_n_sigma, 0.0, 100.0),
            ("typical_p", self.typical_p, 0.0, 1.0),
            ("top_p", self.top_p, 0.0, 1.0),
            ("min_p", self.min_p, 0.0, 1.0),
            ("xtc_probability", self.xtc_probability, 0.0, 1.0),
            ("xtc_threshold", self.xtc_threshold, 0.0, 1.0),
            ("temperature", self.temperature, 0.0, 100.0),
            ("dynatemp_range", self.dynatemp_range, 0.0, 100.0),
            ("dynatemp_exponent", self.dynatemp_exponent, 0.0, 100.0),
            ("mirostat_tau", self.mirostat_tau, 0.0, 100.0),
            ("mirostat_eta", self.mirostat_eta, 0.0, 1.0),
        ];
        for (name, value, min, max) in fields {
            if !(min..=max).contains(&value) {
                bail!(Argument, "{name} {value} is outside {min}..={max}");
            }
        }
        if self.repeat_last > Self::REPEAT_LAST_MAX {
            let max = Self::REPEAT_LAST_MAX;
            bail!(Argument, "repeat_last {} is over {max}", self.repeat_last);
        }
        Ok(())
    }

    /// What has a say: nothing that takes the likeliest token away where that is wanted, and
    /// Mirostat alone takes tokens away where it does.
    fn effective(self) -> Self {
        let alone = self.temperature == 0.0;
        if !alone && self.mirostat_tau == 0.0 {
            return self;
        }
        let off = Self::GREEDY;
        Self {
            top_n_sigma: off.top_n_sigma,
            top_k: off.top_k,
            typical_p: off.typical_p,
            top_p: off.top_p,
            min_p: off.min_p,
            xtc_probability: off.xtc_probability,
            dynatemp_range: if alone { 0.0 } else { self.dynatemp_range },
            mirostat_tau: if alone { 0.0 } else { self.mirostat_tau },
            ..self
        }
    }

    /// The same for the device, with the tokens that end a sequence, as many as have room there.
    pub(super) fn sampler(&self, stops: &[u32]) -> Sampler {
        let s = self.effective();
        let [seed_lo, seed_hi] = bytemuck::cast(s.seed.to_le());
        let mut sampler = Sampler {
            seed_lo,
            seed_hi,
            temperature: match s.temperature {
                0.0 => 0.0,
                t => t.max(TEMPERATURE_MIN),
            },
            dynatemp_range: s.dynatemp_range,
            dynatemp_exponent: s.dynatemp_exponent,
            top_n_sigma: s.top_n_sigma,
            top_k: s.top_k,
            typical_p: s.typical_p,
            top_p: s.top_p,
            min_p: s.min_p,
            xtc_probability: s.xtc_probability,
            xtc_threshold: s.xtc_threshold,
            repeat_penalty: s.repeat_penalty,
            frequency_penalty: s.frequency_penalty,
            presence_penalty: s.presence_penalty,
            repeat_last: s.repeat_last,
            dry_multiplier: s.dry_multiplier,
            dry_base: s.dry_base,
            dry_allowed: s.dry_allowed_length,
            dry_last: s.dry_last,
            mirostat_tau: s.mirostat_tau,
            mirostat_eta: s.mirostat_eta,
            // Where Mirostat begins.
            mirostat_mu: 2.0 * s.mirostat_tau,
            ..SAMPLER_OFF
        };
        let count = stops.len().min(STOPS_MAX);
        sampler.stops[..count].copy_from_slice(&stops[..count]);
        sampler.stop_count = u32::try_from(count).expect("a small array");
        sampler
    }
}

/// The shortest tail of tables that picks this way.
pub(super) fn tail(s: &Sampler) -> Tail {
    let full = s.log_probs != 0
        || s.masked != 0
        || s.bias_count > 0
        || s.stop_from > 0
        || s.dry_multiplier > 0.0
        || s.top_n_sigma > 0.0
        || s.typical_p < 1.0
        || s.xtc_probability > 0.0
        || s.dynatemp_range > 0.0
        || s.mirostat_tau > 0.0;
    let penalties = [s.repeat_penalty, s.frequency_penalty, s.presence_penalty];
    if full {
        Tail::Full
    } else if s.temperature == 0.0 && penalties == [1.0, 0.0, 0.0] {
        Tail::Greedy
    } else {
        Tail::Sampled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Sampling = Sampling {
        temperature: 1.0,
        ..Sampling::GREEDY
    };

    #[test]
    fn the_shortest_tail_that_picks_this_way() {
        let of = |change: fn(&mut Sampling)| {
            [Sampling::GREEDY, PLAIN].map(|mut sampling| {
                change(&mut sampling);
                tail(&sampling.sampler(&[]))
            })
        };
        use Tail::{Full, Greedy, Sampled};
        assert_eq!(tail(&Sampling::default().sampler(&[])), Sampled);
        assert_eq!(of(|_| {}), [Greedy, Sampled]);
        assert_eq!(of(|s| s.frequency_penalty = 0.1), [Sampled, Sampled]);
        assert_eq!(of(|s| s.presence_penalty = 0.1), [Sampled, Sampled]);
        assert_eq!(of(|s| s.top_k = 3), [Greedy, Sampled]);
        assert_eq!(of(|s| s.top_n_sigma = 1.0), [Greedy, Full]);
        assert_eq!(of(|s| s.typical_p = 0.5), [Greedy, Full]);
        assert_eq!(of(|s| s.xtc_probability = 0.5), [Greedy, Full]);
        assert_eq!(of(|s| s.dynatemp_range = 0.5), [Greedy, Full]);
        assert_eq!(of(|s| s.mirostat_tau = 5.0), [Greedy, Full]);
        assert_eq!(of(|s| s.dry_multiplier = 0.8), [Full, Full]);
        let of = |change: fn(&mut Sampler)| {
            let mut sampler = SAMPLER_OFF;
            change(&mut sampler);
            tail(&sampler)
        };
        assert_eq!(of(|_| {}), Greedy);
        assert_eq!(of(|s| s.log_probs = 1), Full);
        assert_eq!(of(|s| s.bias_count = 1), Full);
        assert_eq!(of(|s| s.stop_from = 9), Full);
    }

    #[test]
    fn mirostat_takes_the_place_of_the_others_and_nothing_that_of_the_likeliest() {
        let all = Sampling {
            top_n_sigma: 1.0,
            top_k: 5,
            typical_p: 0.5,
            top_p: 0.5,
            min_p: 0.5,
            xtc_probability: 0.5,
            dynatemp_range: 0.5,
            mirostat_tau: 5.0,
            ..PLAIN
        };
        let sampler = all.sampler(&[]);
        let off = Sampler {
            mirostat_tau: 5.0,
            mirostat_mu: 10.0,
            dynatemp_range: 0.5,
            ..PLAIN.sampler(&[])
        };
        assert_eq!(sampler, off);
        let cold = Sampling {
            temperature: 0.0,
            ..all
        };
        assert_eq!(cold.sampler(&[]), Sampling::GREEDY.sampler(&[]));
    }

    #[test]
    fn a_field_outside_its_range_is_named() {
        let bad = Sampling {
            xtc_threshold: -0.5,
            ..PLAIN
        };
        let error = bad.check().expect_err("out of range");
        assert_eq!(error.message(), "xtc_threshold -0.5 is outside 0..=1");
        let bad = Sampling {
            dry_base: f32::NAN,
            ..PLAIN
        };
        let error = bad.check().expect_err("out of range");
        assert_eq!(error.message(), "dry_base NaN is outside 1..=100");
    }
}
