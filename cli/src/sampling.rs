//! The arguments of every command that generates: how tokens are picked, and what happens when the
//! context is full.

use clap::Args;
use tabla::{Overflow, Sampling};

/// What happens when the context is full.
#[derive(Args, Debug)]
pub(crate) struct OverflowArgs {
    /// Goes on when the context is full: the older half of the text is forgotten
    #[arg(long)]
    context_shift: bool,
    /// Tokens at the front that a context shift keeps; half of the context at most
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        requires = "context_shift"
    )]
    keep: u32,
}

impl OverflowArgs {
    /// The library's option.
    pub(crate) fn overflow(&self) -> Overflow {
        if self.context_shift {
            Overflow::Shift { keep: self.keep }
        } else {
            Overflow::Stop
        }
    }
}

/// How the next token is picked.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Temperature; 0 always takes the likeliest token
    #[arg(long, value_name = "T", default_value_t = Sampling::default().temperature, value_parser = between::<0, 100>)]
    temp: f32,
    /// Only the K likeliest tokens; 0: all
    #[arg(long, value_name = "K", default_value_t = Sampling::default().top_k)]
    top_k: u32,
    /// Only the likeliest tokens that hold P of the probability; 1: all
    #[arg(long, value_name = "P", default_value_t = Sampling::default().top_p, value_parser = between::<0, 1>)]
    top_p: f32,
    /// Only tokens at least P times as likely as the likeliest; 0: all
    #[arg(long, value_name = "P", default_value_t = Sampling::default().min_p, value_parser = between::<0, 1>)]
    min_p: f32,
    /// Divides the logits of recent tokens; 1: off
    #[arg(long, value_name = "X", default_value_t = Sampling::default().repeat_penalty, value_parser = penalty)]
    repeat_penalty: f32,
    /// How many tokens back the penalty reaches
    #[arg(long, value_name = "N", default_value_t = Sampling::default().repeat_last, value_parser = clap::value_parser!(u32).range(..=i64::from(Sampling::REPEAT_LAST_MAX)))]
    repeat_last_n: u32,
    /// Seed of the random numbers; the same one draws the same tokens [default: a fresh one]
    #[arg(short, long, value_name = "N")]
    seed: Option<u64>,
}

impl SamplingArgs {
    /// The library's options, with a fresh seed where none was asked for.
    pub(crate) fn sampling(&self) -> Sampling {
        Sampling {
            repeat_penalty: self.repeat_penalty,
            repeat_last: self.repeat_last_n,
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed.unwrap_or_else(fresh_seed),
        }
    }
}

/// A seed from the operating system, short enough to be typed again.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::SystemTime::now()) & u64::from(u32::MAX)
}

/// A number between whole ones.
fn between<const MIN: u8, const MAX: u8>(text: &str) -> Result<f32, String> {
    in_range(text, f32::from(MIN), f32::from(MAX))
}

/// A factor of the repetition penalty, in the library's range.
fn penalty(text: &str) -> Result<f32, String> {
    in_range(text, 0.01, 100.0)
}

fn in_range(text: &str, min: f32, max: f32) -> Result<f32, String> {
    let number: f32 = text.parse().map_err(|_| "not a number".to_string())?;
    // NaN is in no range.
    if (min..=max).contains(&number) {
        Ok(number)
    } else {
        Err(format!("{number} is not in {min}..={max}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_held_to_their_range() {
        assert_eq!(between::<0, 1>("0.95"), Ok(0.95));
        assert!(between::<0, 1>("1.5").is_err());
        assert!(between::<0, 100>("NaN").is_err());
        assert!(between::<0, 100>("-0.1").is_err());
        assert!(penalty("0").is_err());
    }
}
