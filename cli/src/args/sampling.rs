//! The arguments of every command that generates: how tokens are picked, and what happens when the
//! context is full.

use clap::Args;
use std::fmt;
use tabla::op::sampling::{Number, parameters};
use tabla::{GenerateOptions, Overflow, SamplerKind, Sampling};

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
    #[arg(long, value_name = "T", default_value_t = Sampling::default().temperature, value_parser = in_range("temp"))]
    temp: f32,
    /// Only the K likeliest tokens; 0: all
    #[arg(long, value_name = "K", default_value_t = Sampling::default().top_k)]
    top_k: u32,
    /// Only the likeliest tokens that hold P of the probability; 1: all
    #[arg(long, value_name = "P", default_value_t = Sampling::default().top_p, value_parser = in_range("top-p"))]
    top_p: f32,
    /// Only tokens at least P times as likely as the likeliest; 0: all
    #[arg(long, value_name = "P", default_value_t = Sampling::default().min_p, value_parser = in_range("min-p"))]
    min_p: f32,
    /// Divides the logits of recent tokens; 1: off
    #[arg(long, value_name = "X", default_value_t = Sampling::default().repeat_penalty, value_parser = in_range("repeat-penalty"))]
    repeat_penalty: f32,
    /// Taken off the logit of a recent token for each time that it stands there; 0: off
    #[arg(long, value_name = "X", default_value_t = Sampling::default().frequency_penalty, allow_negative_numbers = true, value_parser = in_range("frequency-penalty"))]
    frequency_penalty: f32,
    /// Taken off the logit of a recent token; 0: off
    #[arg(long, value_name = "X", default_value_t = Sampling::default().presence_penalty, allow_negative_numbers = true, value_parser = in_range("presence-penalty"))]
    presence_penalty: f32,
    /// How many tokens back these penalties reach
    #[arg(long, value_name = "N", default_value_t = Sampling::default().repeat_last, value_parser = clap::value_parser!(u32).range(..=i64::from(Sampling::REPEAT_LAST_MAX)))]
    repeat_last_n: u32,
    /// DRY: what a token loses that goes on with a repetition; 0: off
    #[arg(long, value_name = "X", default_value_t = Sampling::default().dry_multiplier, value_parser = in_range("dry-multiplier"))]
    dry_multiplier: f32,
    /// DRY: the loss grows so many times with each token of the repetition
    #[arg(long, value_name = "X", default_value_t = Sampling::default().dry_base, value_parser = in_range("dry-base"))]
    dry_base: f32,
    /// DRY: tokens that may be repeated for nothing
    #[arg(long, value_name = "N", default_value_t = Sampling::default().dry_allowed_length)]
    dry_allowed_length: u32,
    /// DRY: how many tokens back it looks; -1: the whole context
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    dry_penalty_last_n: i64,
    /// DRY: a text that no repetition holds, instead of line ends and : \" *; "none": nothing. May
    /// come several times
    #[arg(long, value_name = "TEXT")]
    dry_sequence_breaker: Vec<String>,
    /// Only logits within N standard deviations of the largest; 0 or less: all
    #[arg(long, value_name = "N", default_value_t = -1.0, allow_negative_numbers = true, value_parser = deviations)]
    top_n_sigma: f32,
    /// Only the most typical tokens that hold P of the probability; 1: all
    #[arg(long, visible_alias = "typical-p", value_name = "P", default_value_t = Sampling::default().typical_p, value_parser = in_range("typical"))]
    typical: f32,
    /// XTC: how likely it is that the likeliest tokens are taken away; 0: off
    #[arg(long, value_name = "P", default_value_t = Sampling::default().xtc_probability, value_parser = in_range("xtc-probability"))]
    xtc_probability: f32,
    /// XTC: from which probability on; all but the last of such tokens go
    #[arg(long, value_name = "P", default_value_t = Sampling::default().xtc_threshold, value_parser = in_range("xtc-threshold"))]
    xtc_threshold: f32,
    /// How far the temperature goes down and up with the entropy of the tokens; 0: it stays
    #[arg(long, value_name = "T", default_value_t = Sampling::default().dynatemp_range, value_parser = in_range("dynatemp-range"))]
    dynatemp_range: f32,
    /// The power of the entropy that the temperature goes by
    #[arg(long, value_name = "X", default_value_t = Sampling::default().dynatemp_exponent, value_parser = in_range("dynatemp-exp"))]
    dynatemp_exp: f32,
    /// Mirostat: 2 in the place of the samplers that take tokens away; 0: off
    #[arg(long, value_name = "0|2", default_value_t = 0, value_parser = mirostat)]
    mirostat: u32,
    /// Mirostat: how fast it learns
    #[arg(long, value_name = "X", default_value_t = Sampling::default().mirostat_eta, value_parser = in_range("mirostat-lr"))]
    mirostat_lr: f32,
    /// Mirostat: the surprise, in bits, that tokens are held to
    #[arg(long, value_name = "X", default_value_t = 5.0, value_parser = in_range("mirostat-ent"))]
    mirostat_ent: f32,
    /// The samplers in their order, with ; between them; one that is left out is off
    #[arg(long, value_name = "NAMES", default_value_t = Chain(SamplerKind::DEFAULT.to_vec()), value_parser = chain)]
    samplers: Chain,
    /// Adds to the logit of a token by its id, as in 15043+1 or 15043-inf. May come several times
    #[arg(short, long, value_name = "ID+BIAS", value_parser = bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers; the same one draws the same tokens [default: a fresh one]
    #[arg(short, long, value_name = "N")]
    seed: Option<u64>,
}

impl SamplingArgs {
    /// The samplers that the tables of a model are to have.
    pub(crate) fn samplers(&self) -> Option<Vec<SamplerKind>> {
        Some(self.samplers.0.clone())
    }

    /// The library's options, with a fresh seed where none was asked for.
    pub(crate) fn generate(&self) -> GenerateOptions {
        GenerateOptions {
            sampling: self.sampling(),
            logit_bias: self.logit_bias.clone(),
            dry_breakers: match self.dry_sequence_breaker.as_slice() {
                [] => None,
                [none] if none == "none" => Some(Vec::new()),
                breakers => Some(breakers.to_vec()),
            },
            ..GenerateOptions::default()
        }
    }

    fn sampling(&self) -> Sampling {
        Sampling {
            repeat_penalty: self.repeat_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            repeat_last: self.repeat_last_n,
            dry_multiplier: self.dry_multiplier,
            dry_base: self.dry_base,
            dry_allowed_length: self.dry_allowed_length,
            // -1 is as far back as there is.
            dry_last: u32::try_from(self.dry_penalty_last_n).unwrap_or(u32::MAX),
            top_n_sigma: self.top_n_sigma.max(0.0),
            top_k: self.top_k,
            typical_p: self.typical,
            top_p: self.top_p,
            min_p: self.min_p,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            temperature: self.temp,
            dynatemp_range: self.dynatemp_range,
            dynatemp_exponent: self.dynatemp_exp,
            mirostat_tau: if self.mirostat == 0 {
                0.0
            } else {
                self.mirostat_ent
            },
            mirostat_eta: self.mirostat_lr,
            seed: self.seed.unwrap_or_else(fresh_seed),
        }
    }
}

/// A list of samplers, which is one argument.
#[derive(Clone, Debug, PartialEq)]
struct Chain(Vec<SamplerKind>);

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|kind| kind.name()).collect();
        f.write_str(&names.join(";"))
    }
}

fn chain(names: &str) -> Result<Chain, String> {
    SamplerKind::chain(names)
        .map(Chain)
        .map_err(|error| error.to_string())
}

/// `15043+1`: a token and what is added to its logit.
fn bias(text: &str) -> Result<(u32, f32), String> {
    let wrong = || "not a token, a sign and a number, as in 15043+1".to_string();
    let sign = text.find(['+', '-']).ok_or_else(wrong)?;
    let (token, bias) = text.split_at(sign);
    let token = token.parse().map_err(|_| wrong())?;
    let bias: f32 = bias.parse().map_err(|_| wrong())?;
    if bias.is_nan() || bias == f32::INFINITY {
        return Err(format!("{bias} is no bias"));
    }
    Ok((token, bias))
}

fn mirostat(text: &str) -> Result<u32, String> {
    match text {
        "0" => Ok(0),
        "2" => Ok(2),
        _ => Err("known are 0 and 2".to_string()),
    }
}

/// A seed from the operating system, short enough to be typed again.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::SystemTime::now()) & u64::from(u32::MAX)
}

/// Parses the number of a sampling parameter and checks its range.
fn in_range(option: &str) -> impl Fn(&str) -> Result<f32, String> + Clone + use<> {
    let row = parameters().find(|row| row.option == option);
    let (min, max) = match row.map(|row| (row.min, row.max)) {
        Some((Number::F32(min), Number::F32(max))) => (min, max),
        _ => unreachable!("no sampling parameter has the option --{option} and a real number"),
    };
    move |text| number(text, min, max)
}

/// Standard deviations; -1 is off, as in llama.cpp.
fn deviations(text: &str) -> Result<f32, String> {
    number(text, -1.0, 100.0)
}

fn number(text: &str, min: f32, max: f32) -> Result<f32, String> {
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
    use clap::{CommandFactory, Parser};

    #[test]
    fn numbers_are_held_to_their_range() {
        assert_eq!(in_range("top-p")("0.95"), Ok(0.95));
        assert!(in_range("top-p")("1.5").is_err());
        assert!(in_range("temp")("NaN").is_err());
        assert!(in_range("temp")("-0.1").is_err());
        assert!(in_range("repeat-penalty")("0").is_err());
    }

    /// LoadOptions whose default is written in another way than that of the library.
    const OTHER_DEFAULTS: [(&str, &str); 3] = [
        // Off, as in llama.cpp.
        ("top-n-sigma", "-1"),
        // The whole context.
        ("dry-penalty-last-n", "-1"),
        // `--mirostat 2` switches it on.
        ("mirostat-ent", "5"),
    ];

    #[test]
    fn every_sampling_parameter_has_its_option_default_and_range() {
        #[derive(Debug, clap::Parser)]
        struct Program {
            #[command(flatten)]
            sampling: SamplingArgs,
        }
        let command = Program::command();
        for row in parameters() {
            let (name, option) = (row.name, row.option);
            let mut args = command.get_arguments();
            let arg = args.find(|arg| arg.get_long() == Some(option));
            let arg = arg.unwrap_or_else(|| panic!("{name}: the command line has no --{option}"));
            let other = OTHER_DEFAULTS.iter().find(|(of, _)| *of == option);
            let wanted = other.map_or_else(|| row.default.to_string(), |(_, d)| d.to_string());
            let found = arg.get_default_values();
            assert_eq!(
                found,
                [wanted.as_str()],
                "{name}: the default of --{option}"
            );
            let parses = |value: Number| {
                let argument = format!("--{option}={value}");
                let program = Program::try_parse_from(["tabla", &argument]);
                program.map(|program| program.sampling.sampling()).is_ok()
            };
            for value in [row.min, row.default, row.max] {
                assert!(parses(value), "{name}: --{option}={value} is refused");
            }
            let over = match row.max {
                Number::F32(max) => Some(Number::F32(max * 1.01)),
                Number::U32(max) => max.checked_add(1).map(Number::U32),
            };
            if let Some(over) = over {
                assert!(!parses(over), "{name}: --{option}={over} is accepted");
            }
        }
    }

    #[test]
    fn biases_are_a_token_and_a_number_with_a_sign() {
        assert_eq!(bias("15043+1"), Ok((15043, 1.0)));
        assert_eq!(bias("7-0.5"), Ok((7, -0.5)));
        assert_eq!(bias("7-inf"), Ok((7, f32::NEG_INFINITY)));
        for bad in ["7", "+1", "7+inf", "7+nan", "x-1", "-1+2"] {
            assert!(bias(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn samplers_are_named_as_in_llama_cpp() {
        let two = vec![SamplerKind::TopK, SamplerKind::Typical];
        assert_eq!(chain("top_k;typ_p"), Ok(Chain(two.clone())));
        assert_eq!(Chain(two).to_string(), "top_k;typ_p");
        assert!(chain("top_k,typ_p").is_err());
        assert!(mirostat("1").is_err());
    }
}
