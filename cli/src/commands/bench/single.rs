//! `tabla bench` with one sequence: prompt processing and text generation, in the columns of
//! llama-bench, compared with the memory bandwidth that was measured in the same run.
//!
//! Repetitions of the tests take turns, with a bandwidth measurement before and after each, so that
//! changes of the clock speed affect all tests. Each repetition has a new prompt and no prefix caching.
//! It is an error if fewer tokens were computed than reported.

use super::args::{BenchArgs, OutputFormat};
use crate::commands::common::devices::{self, cpu_options};
use crate::commands::common::open;
use crate::commands::common::probe::Probe;
use crate::commands::common::roofline::{Commands, Limits, Load};
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use serde_json::{Map, Value, json};
use std::time::{Instant, SystemTime};
use tabla::device::{DeviceKind, Profile};
use tabla::exec::cpu::{self, Peak};
use tabla::{Facts, GenerateOptions, Sampling, Session, Source};

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let mut tests = Test::all(args);
    if tests.is_empty() {
        let message = "no tests: -p and -n are 0".to_string();
        return Err(Failure::Usage(message));
    }
    let source = args.model.source(terminal::note)?;
    let positions = tests.iter().map(Test::positions).max().unwrap_or(1);
    let options = args.device.options(positions)?;
    let loaded = open::model(&source, &options)?;
    let profile = loaded.profile.clone();
    let mut session = Session::new(loaded.model);
    let mut probe = Probe::new(&profile, &options)?;
    let mut peak = None;
    let turns = u64::from(args.repetitions) + u64::from(!args.no_warmup);
    let bar = Progress::new("measuring", turns * tests.len() as u64);
    for turn in 0..turns {
        let recorded = turn > 0 || args.no_warmup;
        for (seed, test) in (turn * tests.len() as u64..).zip(&mut tests) {
            probe.round()?;
            test.fill(&mut session)?;
            if args.commands {
                session.time_commands()?;
            }
            let (seconds, submitting, computed) = test.measure(&session, PROMPT_SEED + seed)?;
            session.end_timing()?;
            test.check_computed(computed)?;
            if recorded {
                test.seconds.push(seconds);
                test.computed.push(computed);
                // With --commands the host waits for each command, so submission is not measured.
                test.submitting
                    .extend(submitting.filter(|_| !args.commands));
                test.commands
                    .add(&session, test.load(), options.precision)?;
            }
            bar.set_position(bar.position() + 1);
        }
        if args.commands && profile.kind == DeviceKind::Cpu {
            let measured = cpu::peak(&cpu_options(&options, &profile))?;
            peak = Some(max(peak.unwrap_or_default(), measured));
        }
    }
    probe.round()?;
    drop(bar);

    let machine = Machine {
        facts: session.facts(),
        model: model_name(session.facts()),
        source: &source,
        profile,
        probe,
        peak,
    };
    machine.print(&tests, args.format)
}

/// Returns the maximum of each rate.
fn max(a: Peak, b: Peak) -> Peak {
    Peak {
        int8: a.int8.max(b.int8),
        float: a.float.max(b.float),
        bf16: a.bf16.max(b.bf16),
    }
}

/// Returns architecture, parameters and storage type: `llama 3.26 M q8_0`.
pub(crate) fn model_name(facts: &Facts) -> String {
    let parameters = terminal::count(facts.parameters);
    format!("{} {parameters} {}", facts.architecture, facts.dtype)
}

/// A test: processing of a prompt or generation of tokens, at a context depth.
pub(crate) struct Test {
    /// Number of parallel sequences.
    pub(crate) sequences: u32,
    /// Number of tokens in the context before the test.
    pub(crate) depth: u32,
    prompt: u32,
    pub(crate) generate: u32,
    began: SystemTime,
    /// Duration of each repetition.
    pub(crate) seconds: Vec<f64>,
    /// Number of tokens that the model computed in each repetition.
    pub(crate) computed: Vec<u64>,
    /// Time that each repetition spent in submitting bursts to an asynchronous device, in seconds.
    submitting: Vec<f64>,
    /// Timings of the commands; empty without --commands.
    commands: Commands,
}

impl Test {
    pub(crate) fn new(sequences: u32, depth: u32, [prompt, generate]: [u32; 2]) -> Self {
        Self {
            sequences,
            depth,
            prompt,
            generate,
            began: SystemTime::now(),
            seconds: Vec::new(),
            computed: Vec::new(),
            submitting: Vec::new(),
            commands: Commands::default(),
        }
    }

    fn all(args: &BenchArgs) -> Vec<Self> {
        let test = |depth, prompt, generate| Self::new(1, depth, [prompt, generate]);
        let tests = args.n_depth.iter().flat_map(|&depth| {
            let prompts = args.n_prompt.iter().filter(|n| **n > 0);
            let lengths = args.n_gen.iter().filter(|n| **n > 0);
            let prompts = prompts.map(move |n| test(depth, *n, 0));
            prompts.chain(lengths.map(move |n| test(depth, 0, *n)))
        });
        tests.collect()
    }

    /// Returns the name of llama-bench, with the number of sequences: `pp512`, `tg128 @ d4096`,
    /// `tg128 x8`.
    fn name(&self) -> String {
        let name = match (self.generate, self.sequences) {
            (0, _) => format!("pp{}", self.prompt),
            (n, 1) => format!("tg{n}"),
            (n, sequences) => format!("tg{n} x{sequences}"),
        };
        match self.depth {
            0 => name,
            depth => format!("{name} @ d{depth}"),
        }
    }

    /// Returns the required context size. Generation starts after a given token and a sampled one.
    pub(crate) fn positions(&self) -> u32 {
        let before = match self.generate {
            0 => self.depth,
            _ => self.depth.max(1) + 1,
        };
        before + self.prompt + self.generate
    }

    fn load(&self) -> Load {
        Load {
            depth: self.depth,
            tokens: self.prompt + self.generate,
        }
    }

    /// Fills the context before the test. A common prefix with an earlier test is kept.
    fn fill(&self, session: &mut Session) -> Result<(), Failure> {
        let vocab = session.facts().vocab;
        let context = match (self.depth, self.generate) {
            (0, 0) => Vec::new(),
            (0, _) => vec![session.tokenizer().bos().unwrap_or(0)],
            (depth, _) => tokens(depth, vocab, DEPTH_SEED),
        };
        let pairs = session.tokens().iter().zip(&context);
        let common = pairs.take_while(|(a, b)| a == b).count();
        session.truncate(common);
        if context.is_empty() {
            return Ok(());
        }
        session.prefill(&context[common..])?;
        if self.generate > 0 {
            // The sampled token is pending, so that one token is computed per generated token.
            session.step(&Sampling::GREEDY)?;
        }
        Ok(())
    }

    /// Runs the test once, in a fork of the session that [`Test::fill`] prepared. Returns the seconds,
    /// the seconds of submitting bursts, and the number of computed tokens.
    fn measure(&self, filled: &Session, seed: u64) -> Result<(f64, Option<f64>, u64), Failure> {
        let mut session = filled.fork()?;
        session.disable_prefix_caching();
        if self.generate == 0 {
            let vocab = session.facts().vocab;
            let tokens = tokens(self.prompt, vocab, seed);
            let start = Instant::now();
            // Includes the logits of the last token: prefill waits for the device.
            session.prefill(&tokens)?;
            let seconds = start.elapsed().as_secs_f64();
            return Ok((seconds, None, session.computed_tokens()));
        }
        let generate = GenerateOptions::default()
            .sampling(Sampling::GREEDY)
            .max_tokens(self.generate)
            .ignore_eos(true);
        let stats = session.generate_with(&generate, |_| std::ops::ControlFlow::Continue(()))?;
        if stats.tokens != self.generate {
            let (generated, expected) = (stats.tokens, self.generate);
            return Err(Failure::new(format!(
                "generated {}, expected {expected}",
                terminal::counted(generated, "token")
            )));
        }
        let submitting = stats.submitting.map(|took| took.as_secs_f64());
        let seconds = stats.took.as_secs_f64();
        Ok((seconds, submitting, session.computed_tokens()))
    }

    /// Checks that a repetition computed all tokens of the reported speed.
    pub(crate) fn check_computed(&self, computed: u64) -> Result<(), Failure> {
        let reported = u64::from(self.prompt + self.generate) * u64::from(self.sequences);
        if computed < reported {
            let name = self.name();
            return Err(Failure::new(format!(
                "{name}: computed {}, expected at least {reported}: \
                 the rest came from the prefix cache",
                terminal::counted(computed, "token")
            )));
        }
        Ok(())
    }

    /// Microseconds per token of submitting bursts to the device.
    fn submit_us(&self) -> Option<f64> {
        let (average, _) = statistics(&self.submitting);
        let us = average * 1e6 / f64::from(self.generate);
        (!self.submitting.is_empty()).then_some(us)
    }

    fn rates(&self) -> Vec<f64> {
        let tokens = f64::from(self.prompt + self.generate) * f64::from(self.sequences);
        self.seconds
            .iter()
            .map(|seconds| tokens / seconds)
            .collect()
    }
}

/// Seed of the tokens in the context before each test, equal in all repetitions.
const DEPTH_SEED: u64 = 0;
/// Seed of the first measured prompt; each repetition increments it.
const PROMPT_SEED: u64 = 1;

/// Returns pseudo-random tokens.
pub(crate) fn tokens(count: u32, vocab: u32, seed: u64) -> Vec<u32> {
    // SplitMix64 (Steele, Lea and Flood 2014). The seed selects a range of 2^32 states.
    let token = |n: u32| {
        let mut z = (seed << 32 | u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((z ^ z >> 31) % u64::from(vocab)).expect("below vocab")
    };
    (0..count).map(token).collect()
}

/// Returns mean and standard deviation of a sample.
fn statistics(sample: &[f64]) -> (f64, f64) {
    let n = sample.len() as f64;
    let average = sample.iter().sum::<f64>() / n;
    if sample.len() < 2 {
        return (average, 0.0);
    }
    let squares = sample.iter().map(|x| (x - average).powi(2));
    (average, (squares.sum::<f64>() / (n - 1.0)).sqrt())
}

/// The model, the device and its limits.
pub(crate) struct Machine<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) model: String,
    pub(crate) source: &'a Source,
    pub(crate) profile: Profile,
    pub(crate) probe: Probe,
    pub(crate) peak: Option<Peak>,
}

impl Machine<'_> {
    pub(crate) fn print(&self, tests: &[Test], format: OutputFormat) -> Result<(), Failure> {
        open::note_tuning(self.facts);
        match format {
            OutputFormat::Md => self.print_markdown(tests),
            OutputFormat::Json => {
                let objects = tests.iter().map(|test| Value::from(self.object(test)));
                let text = serde_json::to_string_pretty(&objects.collect::<Vec<_>>());
                terminal::line(&text.map_err(Failure::new)?)
            }
            OutputFormat::Jsonl => tests
                .iter()
                .try_for_each(|test| terminal::line(&Value::from(self.object(test)).to_string())),
            OutputFormat::Csv => self.print_csv(tests),
        }
    }

    /// Bytes of weights read per second in generation. One pass serves all sequences.
    fn read_rate(&self, test: &Test) -> Option<f64> {
        let (average, _) = statistics(&test.rates());
        let passes = average / f64::from(test.sequences);
        (test.generate > 0).then_some(passes * self.facts.token_bytes as f64)
    }

    /// Read rate in percent of the measured memory bandwidth. Over 100 if weights come from a cache.
    fn share(&self, test: &Test) -> Option<f64> {
        Some(self.read_rate(test)? / self.probe.best()? * 100.0)
    }

    fn print_markdown(&self, tests: &[Test]) -> Result<(), Failure> {
        let number = |x: Option<f64>, unit| x.map_or("-".to_string(), |x| format!("{x:.1}{unit}"));
        terminal::line(&row([
            "model", "size", "params", "backend", "threads", "test", "t/s", "GB/s", "memory",
            "submit",
        ]))?;
        let rules = COLUMNS.map(|width| {
            let left = "-".repeat(width.unsigned_abs().saturating_sub(1));
            if width < 0 {
                format!("{left}-")
            } else {
                format!("{left}:")
            }
        });
        terminal::line(&row(rules.each_ref().map(String::as_str)))?;
        for test in tests {
            let (average, deviation) = statistics(&test.rates());
            let cells = [
                terminal::one_line(&self.model),
                terminal::bytes(self.facts.file_bytes),
                terminal::count(self.facts.parameters),
                devices::backend(&self.profile),
                self.profile.threads.to_string(),
                test.name(),
                format!("{average:.2} ± {deviation:.2}"),
                number(self.read_rate(test).map(|rate| rate / 1e9), ""),
                number(self.share(test), " %"),
                number(test.submit_us(), " µs"),
            ];
            terminal::line(&row(cells.each_ref().map(String::as_str)))?;
        }
        let reader = match self.profile.kind {
            DeviceKind::Cpu => terminal::counted(self.profile.threads, "thread"),
            DeviceKind::Gpu => "the GPU".to_string(),
        };
        if let Some(best) = self.probe.best() {
            let best = best / 1e9;
            terminal::note(&format!(
                "memory: {best:.1} GB/s, measured with {reader} in the same run"
            ));
        }
        if self.facts.token_bytes < self.profile.cache_bytes {
            let cache = terminal::bytes(self.profile.cache_bytes);
            terminal::note(&format!("the weights fit into a cache of {cache}"));
        }
        let limits = Limits {
            memory: self.probe.best().unwrap_or(0.0),
            peak: self.peak.unwrap_or_default(),
        };
        for test in tests.iter().filter(|test| !test.commands.is_empty()) {
            test.commands.print(&test.name(), limits)?;
        }
        let Some(peak) = self.peak else {
            return Ok(());
        };
        terminal::note(&format!(
            "arithmetic: int8 {:.0} GOP/s, bf16 {:.0}, f32 {:.0} GFLOP/s, measured with {}, {}",
            peak.int8 / 1e9,
            peak.bf16 / 1e9,
            peak.float / 1e9,
            terminal::counted(self.profile.threads, "thread"),
            self.profile.backend
        ));
        Ok(())
    }

    fn print_csv(&self, tests: &[Test]) -> Result<(), Failure> {
        for (at, test) in tests.iter().enumerate() {
            let mut object = self.object(test);
            object.retain(|_, value| !value.is_array());
            if at == 0 {
                let names: Vec<&str> = object.keys().map(String::as_str).collect();
                terminal::line(&names.join(","))?;
            }
            let cells: Vec<String> = object.values().map(cell).collect();
            terminal::line(&cells.join(","))?;
        }
        Ok(())
    }

    /// Returns the fields of llama-bench for equal quantities, and fields of Tabla.
    fn object(&self, test: &Test) -> Map<String, Value> {
        let rates = test.rates();
        let nanoseconds: Vec<f64> = test.seconds.iter().map(|s| (s * 1e9).round()).collect();
        let ((average_ns, deviation_ns), (average, deviation)) =
            (statistics(&nanoseconds), statistics(&rates));
        let gpu = self.profile.kind == DeviceKind::Gpu;
        let device_name = |used| {
            if used { self.profile.name.as_str() } else { "" }
        };
        let path = match self.source {
            Source::Path(path) => path.to_string_lossy(),
            Source::Bytes(_) => "in memory".into(),
            Source::BuiltIn => "built-in".into(),
        };
        let object = json!({
            "build_version": env!("CARGO_PKG_VERSION"),
            "cpu_info": device_name(!gpu),
            "gpu_info": device_name(gpu),
            "backends": devices::backend(&self.profile),
            "device_backend": self.profile.backend,
            "tuning": open::tuning(self.facts),
            "model_filename": path,
            "model_type": self.model,
            "model_size": self.facts.file_bytes,
            "model_n_params": self.facts.parameters,
            "n_batch": self.profile.chunk_tokens,
            "n_threads": self.profile.threads,
            "n_prompt": test.prompt,
            "n_gen": test.generate,
            "n_depth": test.depth,
            "n_parallel": test.sequences,
            "test": test.name(),
            "test_time": utc(test.began),
            "avg_ns": average_ns,
            "stddev_ns": deviation_ns,
            "avg_ts": average,
            "stddev_ts": deviation,
            "samples_ns": nanoseconds,
            "samples_ts": rates,
            "computed_tokens": test.computed,
            "token_bytes": self.facts.token_bytes,
            "read_bytes_per_second": self.read_rate(test),
            "memory_bytes_per_second": self.probe.best(),
            "memory_share_percent": self.share(test),
            "submit_us_per_token": test.submit_us(),
        });
        let mut fields = match object {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        fields.insert("memory_samples".to_string(), self.probe.rates().into());
        if let Some(peak) = self.peak {
            fields.insert("peak_int8_per_second".to_string(), peak.int8.into());
            fields.insert("peak_bf16_per_second".to_string(), peak.bf16.into());
            fields.insert("peak_f32_per_second".to_string(), peak.float.into());
        }
        if !test.commands.is_empty() {
            fields.insert("commands".to_string(), test.commands.objects().into());
        }
        fields
    }
}

/// Column widths of llama-bench; negative: left-aligned.
const COLUMNS: [isize; 10] = [-30, 10, 10, -10, 7, 15, 20, 8, 8, 8];

/// Formats a row of the table.
fn row(cells: [&str; 10]) -> String {
    let mut row = String::from("|");
    for (cell, width) in cells.into_iter().zip(COLUMNS) {
        let space = width.unsigned_abs();
        let cell = if width < 0 {
            format!(" {cell:<space$} |")
        } else {
            format!(" {cell:>space$} |")
        };
        row.push_str(&cell);
    }
    row
}

/// Formats a CSV cell: strings are quoted, with quotes doubled.
fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Formats a time in UTC: `2026-11-21T10:40:00Z`.
fn utc(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    let (days, clock) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's `civil_from_days`: eras of 400 years that start in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn computes_the_sample_standard_deviation() {
        assert_eq!(statistics(&[3.0]), (3.0, 0.0));
        assert_eq!(statistics(&[1.0, 3.0]), (2.0, 2.0_f64.sqrt()));
    }

    #[test]
    fn prompts_of_repetitions_differ() {
        let prompts: Vec<_> = (0..100).map(|seed| tokens(64, 1280, seed)).collect();
        assert_eq!(prompts[3], tokens(64, 1280, 3));
        assert!(prompts.iter().flatten().all(|token| *token < 1280));
        let equal = |a: &[u32], b: &[u32]| a.iter().zip(b).filter(|(a, b)| a == b).count();
        for (at, prompt) in prompts.iter().enumerate() {
            let others = &prompts[at + 1..];
            assert!(others.iter().all(|other| equal(prompt, other) < 8));
        }
    }

    #[test]
    fn rejects_too_few_computed_tokens() {
        let prompt = Test::new(1, 0, [512, 0]);
        prompt.check_computed(512).expect("enough computed tokens");
        let error = format!("{:?}", prompt.check_computed(1));
        let expected = "pp512: computed 1 token, expected at least 512";
        assert!(error.contains(expected), "{error}");
        let parallel = Test::new(3, 0, [0, 4]);
        parallel.check_computed(12).expect("enough computed tokens");
        assert!(parallel.check_computed(11).is_err());
    }

    #[test]
    fn formats_dates_of_leap_years() {
        let check = |seconds, expected| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(utc(time), expected);
        };
        check(0, "1970-01-01T00:00:00Z");
        check(951_782_399, "2000-02-28T23:59:59Z");
        check(951_782_400, "2000-02-29T00:00:00Z");
        check(4_107_542_400, "2100-03-01T00:00:00Z");
    }

    #[test]
    fn quotes_csv_cells() {
        assert_eq!(cell(&json!("a \"b\", c")), "\"a \"\"b\"\", c\"");
        assert_eq!(cell(&json!(1.5)), "1.5");
        assert_eq!(cell(&Value::Null), "");
    }
}
