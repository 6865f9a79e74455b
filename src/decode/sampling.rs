//! How the next token is picked from the logits.

use super::Session;
use super::session::SEQUENCE;
use crate::error::{Result, bail};
use crate::exec::state::{Bias, SAMPLER_OFF, STOPS_MAX, Sampler};
use crate::model::{Model, TableId};
use crate::op::table::{BIASES_MAX, Place, Tail};
use crate::text::Tokenizer;

/// How the next token is picked. The fields stand in the order in which samplers go one after the
/// other unless a model was loaded with another order; `docs/sampling.md` defines each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// How many of the sequence's biases count, from the first one on
    /// ([`Session::set_biases`]); 0: none.
    pub biases: u32,
    /// The first position at which a stop token may be picked.
    pub stop_from: u32,
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
    /// Whether the probabilities of the token and of the likeliest ones are told.
    pub log_probs: bool,
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

    /// Biases of a sequence at most.
    pub const BIASES_MAX: u32 = BIASES_MAX;

    /// What repetitions end at for DRY unless somebody says otherwise, as llama.cpp has it.
    pub const DRY_BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

    /// The likeliest token, always.
    pub const GREEDY: Self = Self {
        biases: 0,
        stop_from: 0,
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
        log_probs: false,
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
        if self.biases > Self::BIASES_MAX {
            let max = Self::BIASES_MAX;
            bail!(Argument, "biases {} is over {max}", self.biases);
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

    /// The tail of tables that picks this way.
    pub(super) fn tail(&self) -> Tail {
        let s = self.effective();
        let full = s.log_probs
            || s.biases > 0
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
            log_probs: u32::from(s.log_probs),
            bias_count: s.biases,
            stop_from: s.stop_from,
            ..SAMPLER_OFF
        };
        let count = stops.len().min(STOPS_MAX);
        sampler.stops[..count].copy_from_slice(&stops[..count]);
        sampler.stop_count = u32::try_from(count).expect("a small array");
        sampler
    }
}

impl Session {
    /// Gives the sequence biases, which are added to the logits of their tokens in front of every
    /// sampler; -inf bans a token. Those of one token add up. Returns how many there are then, for
    /// [`Sampling::biases`].
    ///
    /// # Errors
    ///
    /// `Argument` for a token outside the vocabulary, a bias that is NaN or +inf, or more tokens
    /// than [`Sampling::BIASES_MAX`].
    pub fn set_biases(&mut self, biases: &[(u32, f32)]) -> Result<u32> {
        write_biases(&mut self.model, SEQUENCE, biases)
    }

    /// Tells DRY which tokens no repetition holds: those whose text has one of these in it. A new
    /// session has none; [`Sampling::DRY_BREAKERS`] are the usual ones.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a model that picks no tokens.
    pub fn set_dry_breakers(&mut self, breakers: &[impl AsRef<str>]) -> Result<()> {
        let bits = breaker_bits(&self.model.tokenizer, self.model.facts.vocab, breakers);
        write_breakers(&mut self.model, SEQUENCE, &bits)
    }
}

/// The biases of tokens, each with one.
fn merged(vocab: u32, biases: &[(u32, f32)]) -> Result<Vec<Bias>> {
    let mut merged: Vec<Bias> = Vec::new();
    for &(token, bias) in biases {
        if token >= vocab {
            bail!(
                Argument,
                "token {token} is outside the vocabulary of {vocab}"
            );
        }
        if bias.is_nan() || bias == f32::INFINITY {
            bail!(Argument, "the bias of token {token} is {bias}");
        }
        let known = merged.iter().position(|known| known.token == token);
        match known {
            Some(at) => merged[at].bias += bias,
            None if merged.len() == BIASES_MAX as usize => {
                bail!(Argument, "more than {BIASES_MAX} tokens have a bias");
            }
            None => merged.push(Bias { token, bias }),
        }
    }
    Ok(merged)
}

fn write_biases(model: &mut Model, sequence: u32, biases: &[(u32, f32)]) -> Result<u32> {
    model.at(TableId::Step)?;
    let merged = merged(model.facts.vocab, biases)?;
    let offset = sequence as usize * BIASES_MAX as usize * size_of::<Bias>();
    let bytes = bytemuck::cast_slice(&merged);
    model.executor.write(Place::Biases, offset, bytes)?;
    Ok(u32::try_from(merged.len()).expect("no more than have room"))
}

/// A bit for each token whose text has one of `breakers` in it.
fn breaker_bits(tokenizer: &Tokenizer, vocab: u32, breakers: &[impl AsRef<str>]) -> Vec<u32> {
    let within = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|w| w == part);
    let breaks = |token: u32| {
        let text = tokenizer.token_bytes(token);
        let parts = breakers.iter().map(|part| part.as_ref().as_bytes());
        let mut parts = parts.filter(|part| !part.is_empty());
        parts.any(|part| within(text, part))
    };
    let mut bits = vec![0; vocab.div_ceil(u32::BITS) as usize];
    for token in (0..vocab).filter(|token| breaks(*token)) {
        bits[(token / u32::BITS) as usize] |= 1 << (token % u32::BITS);
    }
    bits
}

fn write_breakers(model: &mut Model, sequence: u32, bits: &[u32]) -> Result<()> {
    let step = model.at(TableId::Step)?;
    let mut slots = model.tables[step].slots.iter();
    // Tables that were loaded without DRY have no place for them.
    if slots.any(|slot| slot.place == Place::Breakers) {
        let bytes = bytemuck::cast_slice(bits);
        let offset = sequence as usize * bytes.len();
        model.executor.write(Place::Breakers, offset, bytes)?;
    }
    Ok(())
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
                sampling.tail()
            })
        };
        use Tail::{Full, Greedy, Sampled};
        assert_eq!(Sampling::default().tail(), Sampled);
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
        assert_eq!(of(|s| s.log_probs = true), [Full, Full]);
        assert_eq!(of(|s| s.biases = 1), [Full, Full]);
        assert_eq!(of(|s| s.stop_from = 9), [Full, Full]);
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

    #[test]
    fn biases_of_one_token_add_up() {
        let bias = |token, bias| Bias { token, bias };
        let found = merged(9, &[(3, 1.5), (8, f32::NEG_INFINITY), (3, -1.0)]);
        assert_eq!(
            found.expect("three"),
            [bias(3, 0.5), bias(8, f32::NEG_INFINITY)]
        );
        let many: Vec<(u32, f32)> = (0..=BIASES_MAX).map(|token| (token, 1.0)).collect();
        for (bad, words) in [
            (&[(9, 1.0)][..], "token 9 is outside the vocabulary of 9"),
            (&[(2, f32::NAN)], "the bias of token 2 is NaN"),
            (&[(2, f32::INFINITY)], "the bias of token 2 is inf"),
        ] {
            assert_eq!(merged(9, bad).expect_err(words).message(), words);
        }
        let error = merged(1000, &many).expect_err("one too many");
        assert_eq!(error.message(), "more than 512 tokens have a bias");
    }
}
