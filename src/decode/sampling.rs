//! How the next token is picked from the logits.

use crate::error::{Result, bail};
use crate::exec::state::{SAMPLER_OFF, STOPS_MAX, Sampler};
use crate::op::table::Tail;

/// How the next token is picked, in the order of the fields: penalty, filters, temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits of recent tokens are divided by it where positive, multiplied where negative; 1: off.
    pub repeat_penalty: f32,
    /// How many tokens back the penalty reaches, [`Sampling::REPEAT_LAST_MAX`] at most.
    pub repeat_last: u32,
    /// Logits are divided by it; 0 takes the likeliest token.
    pub temperature: f32,
    /// Only the `top_k` likeliest tokens; 0: off.
    pub top_k: u32,
    /// Only the likeliest tokens that hold `top_p` of the probability; 1: off.
    pub top_p: f32,
    /// Only tokens at least `min_p` times as likely as the likeliest; 0: off.
    pub min_p: f32,
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
            repeat_penalty: 1.0,
            repeat_last: 64,
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            seed: 0,
        }
    }
}

impl Sampling {
    /// The longest reach of the repetition penalty, in tokens.
    pub const REPEAT_LAST_MAX: u32 = 1024;

    /// The likeliest token, always.
    pub const GREEDY: Self = Self {
        repeat_penalty: 1.0,
        repeat_last: 0,
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: 0,
    };

    /// Holds every field to its range.
    ///
    /// # Errors
    ///
    /// `Argument`, naming the field, the value and the range.
    pub fn check(&self) -> Result<()> {
        let fields = [
            ("temperature", self.temperature, 0.0, 100.0),
            ("top_p", self.top_p, 0.0, 1.0),
            ("min_p", self.min_p, 0.0, 1.0),
            ("repeat_penalty", self.repeat_penalty, 0.01, 100.0),
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

    /// The tail of tables that picks this way.
    pub(super) fn tail(&self) -> Tail {
        if self.temperature == 0.0 && self.repeat_penalty == 1.0 {
            Tail::Greedy
        } else {
            Tail::Sampled
        }
    }

    /// The same for the device, with the tokens that end a sequence, as many as have room there.
    pub(super) fn sampler(&self, stops: &[u32]) -> Sampler {
        let [seed_lo, seed_hi] = bytemuck::cast(self.seed.to_le());
        let mut sampler = Sampler {
            seed_lo,
            seed_hi,
            temperature: match self.temperature {
                0.0 => 0.0,
                t => t.max(TEMPERATURE_MIN),
            },
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last: self.repeat_last,
            ..SAMPLER_OFF
        };
        let count = stops.len().min(STOPS_MAX);
        sampler.stops[..count].copy_from_slice(&stops[..count]);
        sampler.stop_count = u32::try_from(count).expect("a small array");
        sampler
    }
}
