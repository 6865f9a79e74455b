//! Options of commands that generate text: sampling, and the behaviour when the context is full.

use super::sampling_options::SamplingOptionArgs;
use crate::output::terminal;
use clap::Args;
use clap::builder::TypedValueParser;
use serde_json::{Map, Value, json};
use std::fmt;
use tabla::op::sampler::SamplerKind;
use tabla::{GenerateOptions, Overflow, Sampling};

/// Value of `--n-predict`: until the context is full, also with `--context-shift`.
const UNTIL_FULL: i64 = -2;

/// Returns a parser of `--n-predict`. Negative numbers are no limit.
pub(crate) fn token_limit() -> impl TypedValueParser<Value = i64> {
    clap::value_parser!(i64).range(UNTIL_FULL..=i64::from(u32::MAX))
}

/// Behaviour when the context is full.
#[derive(Args, Debug)]
pub(crate) struct OverflowArgs {
    /// Continue when the context is full: discard the older half of the tokens after --keep. A BOS
    /// token is always kept
    #[arg(long)]
    context_shift: bool,
    /// Number of initial tokens that a context shift keeps, at most half of the context; -1: the prompt
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    keep: i64,
}

impl OverflowArgs {
    /// Returns the library's option, for a limit of generated tokens and a prompt of this many tokens.
    pub(crate) fn overflow(&self, limit: i64, prompt: usize) -> Overflow {
        if !self.context_shift && self.keep != 0 {
            terminal::note("note: --keep has no effect without --context-shift");
        }
        if !self.context_shift || limit == UNTIL_FULL {
            return Overflow::Stop;
        }
        let prompt = || u32::try_from(prompt).unwrap_or(u32::MAX);
        Overflow::Shift {
            n_keep: u32::try_from(self.keep).unwrap_or_else(|_| prompt()),
        }
    }
}

/// Sampling parameters.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    #[command(flatten)]
    options: SamplingOptionArgs,
    /// DRY: text that ends a repetition, instead of the defaults (newline, :, " and *); "none": no
    /// breakers. Can be repeated
    #[arg(long, value_name = "TEXT")]
    dry_sequence_breaker: Vec<String>,
    /// Mirostat version: 2 replaces the samplers that remove tokens; 0: off
    #[arg(long, value_name = "0|2", default_value_t = 0, value_parser = mirostat)]
    mirostat: u32,
    /// Samplers in the order of their application, separated by ;
    #[arg(long, value_name = "NAMES", default_value_t = SamplerOrder(SamplerKind::DEFAULT.to_vec()), value_parser = sampler_order)]
    samplers: SamplerOrder,
    /// Bias that is added to the logit of a token, for example 15043+1 or 15043-inf. Can be repeated
    #[arg(short, long, value_name = "ID+BIAS", value_parser = bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Random seed [default: random, also with -1]
    #[arg(short, long, value_name = "N", value_parser = seed)]
    seed: Option<Seed>,
    /// Stop string: text that ends the generation and is not printed. Can be repeated
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    stop: Vec<String>,
}

impl SamplingArgs {
    /// Returns the samplers to compile into the tables of the model.
    pub(crate) fn samplers(&self) -> Option<Vec<SamplerKind>> {
        Some(self.samplers.0.clone())
    }

    /// Returns the generation options, with a random seed by default.
    pub(crate) fn generate(&self) -> GenerateOptions {
        GenerateOptions::default()
            .sampling(self.sampling())
            .logit_bias(self.logit_bias.clone())
            .stop(self.stop.clone())
            .dry_sequence_breakers(match self.dry_sequence_breaker.as_slice() {
                [] => None,
                [none] if none == "none" => Some(Vec::new()),
                breakers => Some(breakers.to_vec()),
            })
    }

    /// Returns the fields of requests to the server for the options that differ from the defaults.
    pub(crate) fn request_fields(&self) -> Map<String, Value> {
        let mut fields = self.options.request_fields();
        let mut add = |name: &str, value: Value| drop(fields.insert(name.to_string(), value));
        if self.mirostat > 0 {
            add("mirostat", self.mirostat.into());
        }
        if let Some(seed) = self.seed.flatten() {
            add("seed", seed.into());
        }
        if !self.logit_bias.is_empty() {
            let biases = self.logit_bias.iter();
            let pair = |(token, bias): &(u32, f32)| match bias.is_finite() {
                true => json!([token, bias]),
                false => json!([token, false]),
            };
            add("logit_bias", biases.map(pair).collect());
        }
        let generate = self.generate();
        if let Some(breakers) = generate.dry_sequence_breakers {
            add("dry_sequence_breakers", breakers.into());
        }
        if !generate.stop.is_empty() {
            add("stop", generate.stop.into());
        }
        fields
    }

    fn sampling(&self) -> Sampling {
        let sampling = self.options.clone().plain_options();
        let sampling = sampling.seed(self.seed.flatten().unwrap_or_else(random_seed));
        match self.mirostat {
            0 => sampling.mirostat_tau(0.0),
            _ => sampling,
        }
    }
}

/// The samplers in the order of their application, given by one argument.
#[derive(Clone, Debug, PartialEq)]
struct SamplerOrder(Vec<SamplerKind>);

impl fmt::Display for SamplerOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|kind| kind.name()).collect();
        f.write_str(&names.join(";"))
    }
}

fn sampler_order(names: &str) -> Result<SamplerOrder, String> {
    SamplerKind::chain(names)
        .map(SamplerOrder)
        .map_err(|error| error.to_string())
}

/// Parses a token id and its logit bias: `15043+1`.
fn bias(text: &str) -> Result<(u32, f32), String> {
    let error = || "expected ID+BIAS or ID-BIAS, for example 15043+1".to_string();
    let sign = text.find(['+', '-']).ok_or_else(error)?;
    let (token, bias) = text.split_at(sign);
    let token = token.parse().map_err(|_| error())?;
    let bias: f32 = bias.parse().map_err(|_| error())?;
    if bias.is_nan() || bias == f32::INFINITY {
        return Err(format!(
            "invalid bias {bias}: expected a finite number or -inf"
        ));
    }
    Ok((token, bias))
}

/// A seed; `None`: random.
type Seed = Option<u64>;

/// Parses a seed; -1 is a random one.
fn seed(text: &str) -> Result<Seed, String> {
    match text {
        "-1" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .map_err(|_| "expected a number from 0 to 2^64 - 1, or -1".to_string()),
    }
}

fn mirostat(text: &str) -> Result<u32, String> {
    match text {
        "0" => Ok(0),
        "2" => Ok(2),
        _ => Err("expected 0 or 2".to_string()),
    }
}

/// Returns a random seed of 32 bits, which is short enough to retype.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::SystemTime::now()) & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, clap::Parser)]
    struct Program {
        #[command(flatten)]
        sampling: SamplingArgs,
    }

    fn parsed(argument: &str) -> Result<Sampling, clap::Error> {
        let program = Program::try_parse_from(["tabla", "--seed=0", argument])?;
        Ok(program.sampling.sampling())
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        assert_eq!(parsed("--top-k=40").expect("valid"), Sampling::default());
    }

    #[test]
    fn negative_numbers_select_a_value_and_mirostat_needs_its_switch() {
        let of = |argument| parsed(argument).expect("valid");
        let default = Sampling::default();
        assert_eq!(of("--top-n-sigma=-1"), default.top_n_sigma(0.0));
        assert_eq!(of("--top-n-sigma=1.5"), default.top_n_sigma(1.5));
        assert_eq!(of("--top-k=-1"), default.top_k(0));
        assert_eq!(of("--dry-allowed-length=-1"), default.dry_allowed_length(0));
        assert_eq!(of("--repeat-last-n=-1"), default.repeat_last_n(1024));
        assert_eq!(
            of("--dry-penalty-last-n=-1"),
            default.dry_penalty_last_n(u32::MAX)
        );
        assert_eq!(of("--dry-penalty-last-n=7"), default.dry_penalty_last_n(7));
        assert_eq!(of("--typical-p=0.5"), default.typical_p(0.5));
        assert_eq!(of("--mirostat-ent=3"), default);
        assert_eq!(of("--mirostat=2"), default.mirostat_tau(5.0));
    }

    #[test]
    fn accepts_the_ends_of_ranges() {
        let of = |argument| parsed(argument).expect("valid");
        let default = Sampling::default();
        assert_eq!(of("--temp=100"), default.temperature(100.0));
        assert_eq!(of("--temp=0"), default.temperature(0.0));
        assert_eq!(
            of("--presence-penalty=-100"),
            default.presence_penalty(-100.0)
        );
        assert_eq!(
            of("--repeat-penalty=0.01"),
            default.repetition_penalty(0.01)
        );
        assert_eq!(of("--repeat-last-n=1024"), default.repeat_last_n(1024));
        assert_eq!(of("--top-k=4294967295"), default.top_k(u32::MAX));
    }

    #[test]
    fn rejects_numbers_out_of_range() {
        for argument in [
            "--top-p=1.5",
            "--temp=NaN",
            "--temp=-0.1",
            "--repeat-penalty=0",
            "--repeat-last-n=1025",
            "--repeat-last-n=-2",
            "--top-n-sigma=-1.5",
            "--dry-penalty-last-n=4294967296",
            "--top-k=4294967296",
            "--presence-penalty=-100.5",
        ] {
            assert!(parsed(argument).is_err(), "{argument}");
        }
    }

    #[test]
    fn special_values_of_the_context() {
        let overflow = |context_shift, keep, limit| {
            let args = OverflowArgs {
                context_shift,
                keep,
            };
            args.overflow(limit, 9)
        };
        assert_eq!(overflow(false, 0, -1), Overflow::Stop);
        assert_eq!(overflow(true, 5, -1), Overflow::Shift { n_keep: 5 });
        assert_eq!(overflow(true, -1, -1), Overflow::Shift { n_keep: 9 });
        assert_eq!(overflow(true, 5, -2), Overflow::Stop);
    }

    #[test]
    fn seed_minus_one_is_random() {
        assert_eq!(seed("7"), Ok(Some(7)));
        assert_eq!(seed("-1"), Ok(None));
        assert!(seed("-2").is_err() && seed("x").is_err());
    }

    #[test]
    fn parses_logit_biases() {
        assert_eq!(bias("15043+1"), Ok((15043, 1.0)));
        assert_eq!(bias("7-0.5"), Ok((7, -0.5)));
        assert_eq!(bias("7-inf"), Ok((7, f32::NEG_INFINITY)));
        for invalid in ["7", "+1", "7+inf", "7+nan", "x-1", "-1+2"] {
            assert!(bias(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn parses_samplers_by_the_names_of_llama_cpp() {
        let two = vec![SamplerKind::TopK, SamplerKind::Typical];
        assert_eq!(sampler_order("top_k;typ_p"), Ok(SamplerOrder(two.clone())));
        assert_eq!(SamplerOrder(two).to_string(), "top_k;typ_p");
        assert!(sampler_order("top_k,typ_p").is_err());
        assert!(mirostat("1").is_err());
    }
}
