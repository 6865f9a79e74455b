//! Options of commands that generate text: sampling, and the behaviour when the context is full.

use clap::Args;
use std::fmt;
use tabla::op::sampler::SamplerKind;
use tabla::op::sampling::{Number, parameters};
use tabla::{GenerateOptions, Overflow, Sampling};

/// Behaviour when the context is full.
#[derive(Args, Debug)]
pub(crate) struct OverflowArgs {
    /// Continue when the context is full: discard the older half of the tokens after --keep. A BOS
    /// token is always kept
    #[arg(long)]
    context_shift: bool,
    /// Number of initial tokens that a context shift keeps; at most half of the context
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        requires = "context_shift"
    )]
    keep: u32,
}

impl OverflowArgs {
    /// Returns the library's option.
    pub(crate) fn overflow(&self) -> Overflow {
        if self.context_shift {
            Overflow::Shift { n_keep: self.keep }
        } else {
            Overflow::Stop
        }
    }
}

/// Sampling parameters.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Temperature; 0: greedy, always the most likely token
    #[arg(long, value_name = "T", default_value_t = Sampling::default().temperature, value_parser = in_range("temp"))]
    temp: f32,
    /// Top-k: keep the K most likely tokens; 0: off
    #[arg(long, value_name = "K", default_value_t = Sampling::default().top_k)]
    top_k: u32,
    /// Top-p: keep the most likely tokens with a cumulative probability of P; 1: off
    #[arg(long, value_name = "P", default_value_t = Sampling::default().top_p, value_parser = in_range("top-p"))]
    top_p: f32,
    /// Min-p: keep tokens with at least P times the probability of the most likely token; 0: off
    #[arg(long, value_name = "P", default_value_t = Sampling::default().min_p, value_parser = in_range("min-p"))]
    min_p: f32,
    /// Repetition penalty: positive logits of recent tokens are divided by X, negative ones multiplied; 1:
    /// off
    #[arg(long, value_name = "X", default_value_t = Sampling::default().repetition_penalty, value_parser = in_range("repeat-penalty"))]
    repeat_penalty: f32,
    /// Frequency penalty: X is subtracted from the logit of a token for each recent occurrence; 0: off
    #[arg(long, value_name = "X", default_value_t = Sampling::default().frequency_penalty, allow_negative_numbers = true, value_parser = in_range("frequency-penalty"))]
    frequency_penalty: f32,
    /// Presence penalty: X is subtracted from the logit of each recent token; 0: off
    #[arg(long, value_name = "X", default_value_t = Sampling::default().presence_penalty, allow_negative_numbers = true, value_parser = in_range("presence-penalty"))]
    presence_penalty: f32,
    /// Number of last tokens to penalize
    #[arg(long, value_name = "N", default_value_t = Sampling::default().repeat_last_n, value_parser = clap::value_parser!(u32).range(..=i64::from(Sampling::REPEAT_LAST_N_MAX)))]
    repeat_last_n: u32,
    /// DRY: penalty of a token that extends a repetition; 0: off
    #[arg(long, value_name = "X", default_value_t = Sampling::default().dry_multiplier, value_parser = in_range("dry-multiplier"))]
    dry_multiplier: f32,
    /// DRY: factor by which the penalty grows with each token of the repetition
    #[arg(long, value_name = "X", default_value_t = Sampling::default().dry_base, value_parser = in_range("dry-base"))]
    dry_base: f32,
    /// DRY: length of a repetition without a penalty, in tokens
    #[arg(long, value_name = "N", default_value_t = Sampling::default().dry_allowed_length)]
    dry_allowed_length: u32,
    /// DRY: number of last tokens to scan for repetitions; -1: the context size
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    dry_penalty_last_n: i64,
    /// DRY: text that ends a repetition, instead of the defaults (newline, :, " and *); "none": no
    /// breakers. Can be repeated
    #[arg(long, value_name = "TEXT")]
    dry_sequence_breaker: Vec<String>,
    /// Top-n-sigma: keep logits within N standard deviations of the largest; 0 or less: off
    #[arg(long, value_name = "N", default_value_t = -1.0, allow_negative_numbers = true, value_parser = deviations)]
    top_n_sigma: f32,
    /// Locally typical sampling: keep the most typical tokens with a cumulative probability of P; 1: off
    #[arg(long, visible_alias = "typical-p", value_name = "P", default_value_t = Sampling::default().typical_p, value_parser = in_range("typical"))]
    typical: f32,
    /// XTC: probability of removing the most likely tokens; 0: off
    #[arg(long, value_name = "P", default_value_t = Sampling::default().xtc_probability, value_parser = in_range("xtc-probability"))]
    xtc_probability: f32,
    /// XTC: minimum probability of the tokens to remove; the least likely of them is kept
    #[arg(long, value_name = "P", default_value_t = Sampling::default().xtc_threshold, value_parser = in_range("xtc-threshold"))]
    xtc_threshold: f32,
    /// Dynamic temperature: range below and above the temperature, chosen by entropy; 0: off
    #[arg(long, value_name = "T", default_value_t = Sampling::default().dynatemp_range, value_parser = in_range("dynatemp-range"))]
    dynatemp_range: f32,
    /// Dynamic temperature: exponent of the entropy
    #[arg(long, value_name = "X", default_value_t = Sampling::default().dynatemp_exponent, value_parser = in_range("dynatemp-exp"))]
    dynatemp_exp: f32,
    /// Mirostat version: 2 replaces the samplers that remove tokens; 0: off
    #[arg(long, value_name = "0|2", default_value_t = 0, value_parser = mirostat)]
    mirostat: u32,
    /// Mirostat: learning rate (eta)
    #[arg(long, value_name = "X", default_value_t = Sampling::default().mirostat_eta, value_parser = in_range("mirostat-lr"))]
    mirostat_lr: f32,
    /// Mirostat: target entropy in bits (tau)
    #[arg(long, value_name = "X", default_value_t = 5.0, value_parser = in_range("mirostat-ent"))]
    mirostat_ent: f32,
    /// Samplers in the order of their application, separated by ;
    #[arg(long, value_name = "NAMES", default_value_t = SamplerOrder(SamplerKind::DEFAULT.to_vec()), value_parser = sampler_order)]
    samplers: SamplerOrder,
    /// Bias that is added to the logit of a token, for example 15043+1 or 15043-inf. Can be repeated
    #[arg(short, long, value_name = "ID+BIAS", value_parser = bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Random seed [default: random]
    #[arg(short, long, value_name = "N")]
    seed: Option<u64>,
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
            .dry_sequence_breakers(match self.dry_sequence_breaker.as_slice() {
                [] => None,
                [none] if none == "none" => Some(Vec::new()),
                breakers => Some(breakers.to_vec()),
            })
    }

    fn sampling(&self) -> Sampling {
        Sampling::default()
            .repetition_penalty(self.repeat_penalty)
            .frequency_penalty(self.frequency_penalty)
            .presence_penalty(self.presence_penalty)
            .repeat_last_n(self.repeat_last_n)
            .dry_multiplier(self.dry_multiplier)
            .dry_base(self.dry_base)
            .dry_allowed_length(self.dry_allowed_length)
            // -1: the context size.
            .dry_penalty_last_n(u32::try_from(self.dry_penalty_last_n).unwrap_or(u32::MAX))
            .top_n_sigma(self.top_n_sigma.max(0.0))
            .top_k(self.top_k)
            .typical_p(self.typical)
            .top_p(self.top_p)
            .min_p(self.min_p)
            .xtc_probability(self.xtc_probability)
            .xtc_threshold(self.xtc_threshold)
            .temperature(self.temp)
            .dynatemp_range(self.dynatemp_range)
            .dynatemp_exponent(self.dynatemp_exp)
            .mirostat_tau(if self.mirostat == 0 {
                0.0
            } else {
                self.mirostat_ent
            })
            .mirostat_eta(self.mirostat_lr)
            .seed(self.seed.unwrap_or_else(random_seed))
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

/// Returns a parser of a sampling parameter that checks its range.
fn in_range(option: &str) -> impl Fn(&str) -> Result<f32, String> + Clone + use<> {
    let row = parameters().find(|row| row.option == option);
    let (min, max) = match row.map(|row| (row.min, row.max)) {
        Some((Number::F32(min), Number::F32(max))) => (min, max),
        _ => unreachable!("no sampling parameter has the option --{option} and a real number"),
    };
    move |text| number(text, min, max)
}

/// Parses a number of standard deviations; -1: off, as in llama.cpp.
fn deviations(text: &str) -> Result<f32, String> {
    number(text, -1.0, 100.0)
}

fn number(text: &str, min: f32, max: f32) -> Result<f32, String> {
    let number: f32 = text.parse().map_err(|_| "expected a number".to_string())?;
    // NaN is in no range.
    if (min..=max).contains(&number) {
        Ok(number)
    } else {
        Err(format!("{number} is not in the range {min} to {max}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[test]
    fn rejects_numbers_out_of_range() {
        assert_eq!(in_range("top-p")("0.95"), Ok(0.95));
        assert!(in_range("top-p")("1.5").is_err());
        assert!(in_range("temp")("NaN").is_err());
        assert!(in_range("temp")("-0.1").is_err());
        assert!(in_range("repeat-penalty")("0").is_err());
    }

    /// Options whose default differs from the library's, which has the same effect.
    const OTHER_DEFAULTS: [(&str, &str); 3] = [
        // Off, as in llama.cpp.
        ("top-n-sigma", "-1"),
        // The whole context.
        ("dry-penalty-last-n", "-1"),
        // `--mirostat 2` switches it on.
        ("mirostat-ent", "5"),
    ];

    #[test]
    fn every_sampling_parameter_has_an_option_with_its_default_and_range() {
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
            let expected = other.map_or_else(|| row.default.to_string(), |(_, d)| d.to_string());
            let default = arg.get_default_values();
            assert_eq!(
                default,
                [expected.as_str()],
                "{name}: the default of --{option}"
            );
            let parses = |value: Number| {
                let argument = format!("--{option}={value}");
                let program = Program::try_parse_from(["tabla", &argument]);
                program.map(|program| program.sampling.sampling()).is_ok()
            };
            for value in [row.min, row.default, row.max] {
                assert!(parses(value), "{name}: --{option}={value} is rejected");
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
