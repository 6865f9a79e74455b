//! `tabla run`: generates text from a prompt, streamed or as one JSON object.

use crate::args::prompt::{self, STORY};
use crate::args::{
    ContextArg, DeviceArgs, HookArgs, ModelArg, OverflowArgs, PromptArgs, SamplingArgs,
    SpeculationArgs, StructureArgs, source_name, token_limit,
};
use crate::commands::common::open::{self, LoadedModel};
use crate::commands::common::prefill::{check_length, prefill};
use crate::output::Failure;
use crate::output::answer::{AnswerWriter, Form};
use crate::output::terminal::{self, DIM, PLAIN};
use clap::Args;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tabla::load::LoadOptions;
use tabla::{Finish, GenerateOptions, Model, Sampling, Session, Source, Stats};

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Maximum number of tokens to generate; -1: until the model stops or the context is full; 0: compute
    /// the prompt only. -2 is -1 without --context-shift
    #[arg(
        short,
        long,
        visible_alias = "max-tokens",
        value_name = "N",
        default_value_t = 256
    )]
    #[arg(value_parser = token_limit())]
    pub(crate) n_predict: i64,
    #[command(flatten)]
    pub(crate) context: ContextArg,
    #[command(flatten)]
    pub(crate) overflow: OverflowArgs,
    /// Continue after stop tokens
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Print one JSON object at the end instead of streaming text
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not print the prompt to standard error
    #[arg(long)]
    pub(crate) no_display_prompt: bool,
    /// Print the kernels, the tuning and the duration of each load stage
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    structure: StructureArgs,
    #[command(flatten)]
    speculation: SpeculationArgs,
    #[command(flatten)]
    hooks: HookArgs,
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let source = args.model.source(terminal::note)?;
    let built_in = matches!(source, Source::BuiltIn);
    let options = args
        .device
        .options(args.context.tokens())?
        .samplers(args.sampling.samplers());
    let options = args.speculation.add_to(options)?;
    let prompt = prompt::read(&args.prompt, built_in.then_some(STORY))?;
    let loaded = open::model(&source, &options)?;
    loaded.print_notes(&source);
    let LoadedModel {
        model,
        profile,
        took: load,
    } = loaded;
    let tokens = model.tokenizer().encode(&prompt, args.prompt.encode())?;
    check_length(&tokens, model.facts().context)?;

    let generate = args.generate(&model, &options, tokens.len())?;
    let mut session = Session::new(model);
    args.hooks.apply(&mut session)?;
    terminal::catch_interrupt(session.canceller())?;
    let start = Instant::now();
    prefill(&mut session, &tokens)?;
    let prefilled = start.elapsed();
    if args.shows_prompt(&source) {
        print_prompt(&prompt);
    }
    let form = if args.json { Form::Json } else { Form::Text };
    let mut answer = AnswerWriter::new(form);
    let stats = session.generate_with(&generate, |piece| answer.push(piece));
    let stats = answer.finish(stats)?;
    // Stop tokens yield no piece, and incomplete UTF-8 at the end yields an extra one.
    let last = session.tokens().last().copied().unwrap_or_default();
    answer.tokens.resize(stats.tokens as usize, last);

    let report = Report {
        source: &source,
        session: &session,
        device: profile.to_string(),
        variants: profile
            .variants
            .iter()
            .map(|variant| variant.name())
            .collect(),
        sampling: generate.sampling,
        load,
        prompt: &tokens,
        answer: &answer,
        prefill: prefilled,
        stats,
    };
    if args.json {
        terminal::line(&report.json().to_string())?;
    } else if !terminal::is_quiet() {
        if answer.is_mid_line() {
            terminal::eprint("\n");
        }
        report.print(args);
    }
    match report.stats.finish {
        Some(Finish::Cancelled) => Err(Failure::Interrupted),
        _ => Ok(()),
    }
}

impl RunArgs {
    /// Returns the generation options for a prompt of this many tokens.
    fn generate(
        &self,
        model: &Model,
        options: &LoadOptions,
        prompt: usize,
    ) -> Result<GenerateOptions, Failure> {
        Ok(self
            .sampling
            .generate()
            .max_tokens(u32::try_from(self.n_predict).unwrap_or(u32::MAX))
            .ignore_eos(self.ignore_eos)
            .overflow(self.overflow.overflow(self.n_predict, prompt))
            .grammar(self.structure.grammar(model)?)
            .speculate(open::speculate(&self.speculation, options)?))
    }

    /// Whether the prompt is printed before the generated text. The prompt of the built-in model is
    /// also printed to a log.
    fn shows_prompt(&self, source: &Source) -> bool {
        let visible = matches!(source, Source::BuiltIn) || terminal::stderr_is_terminal();
        visible && !self.no_display_prompt && !terminal::is_quiet() && !self.json
    }
}

/// Prints the prompt, dim, to standard error: standard output is for generated text.
fn print_prompt(prompt: &str) {
    let prompt = terminal::printable(prompt);
    // The generated text continues the line unless it goes elsewhere.
    let end = if terminal::stderr_is_terminal() && !terminal::stdout_is_terminal() {
        "\n"
    } else {
        ""
    };
    terminal::eprint(&format!("{DIM}{prompt}{PLAIN}{end}"));
}

/// The results of a run.
struct Report<'a> {
    source: &'a Source,
    session: &'a Session,
    device: String,
    /// Names of the kernel variants in use, without the plain one.
    variants: Vec<&'static str>,
    sampling: Sampling,
    load: Duration,
    prompt: &'a [u32],
    answer: &'a AnswerWriter,
    prefill: Duration,
    stats: Stats,
}

impl Report<'_> {
    fn print(&self, args: &RunArgs) {
        let facts = self.session.facts();
        let model = format!(
            "{}, {}, {} parameters",
            terminal::one_line(&source_name(self.source)),
            facts.architecture,
            terminal::count(facts.parameters)
        );
        let [load, prefill, generate] =
            [self.load, self.prefill, self.stats.took].map(milliseconds);
        let tokens = self.stats.tokens;
        let generated = terminal::counted(tokens, "token");
        let prompt_rate = rate(self.prompt.len(), self.prefill);
        let rate = rate(tokens as usize, self.stats.took);
        let finish = match self.stats.finish {
            Some(Finish::Stop) => "end of text",
            Some(Finish::Length) => "limit -n",
            Some(Finish::Context) => "context full",
            _ => "interrupted",
        };
        let seed = if self.sampling.temperature == 0.0 {
            "unused at temperature 0".to_string()
        } else {
            format!("{0} (repeat with -s {0})", self.sampling.seed)
        };
        let prompt_tokens = terminal::counted(self.prompt.len(), "token");
        let mut lines = vec![
            String::new(),
            format!("load      {load:9.1} ms  {model}"),
            format!("prompt    {prefill:9.1} ms  {prompt_tokens}, {prompt_rate:.1} tok/s"),
            format!("generated {generate:9.1} ms  {generated}, {rate:.1} tok/s, {finish}"),
            format!("device    {}", terminal::one_line(&self.device)),
            format!("seed      {seed}"),
        ];
        if args.verbose {
            if !self.variants.is_empty() {
                lines.push(format!("kernels   {}", self.variants.join(", ")));
            }
            lines.extend(open::tuning(facts).map(|path| {
                let path = path.to_string_lossy();
                format!("tuning    {}", terminal::one_line(&path))
            }));
            lines.extend(facts.upload.map(|upload| {
                let rate = upload.bytes as f64 / upload.took.as_secs_f64() / 1e9;
                let bytes = terminal::bytes(upload.bytes);
                let took = milliseconds(upload.took);
                format!("upload    {took:9.1} ms  {bytes}, {rate:.1} GB/s")
            }));
            let stages = facts.stages.iter();
            lines.extend(
                stages.map(|(name, took)| {
                    format!("  stage {name:<14} {:9.3} ms", milliseconds(*took))
                }),
            );
        }
        for line in lines {
            terminal::note(&format!("{DIM}{line}{PLAIN}"));
        }
    }

    fn json(&self) -> Value {
        let facts = self.session.facts();
        let finish = match self.stats.finish {
            Some(Finish::Stop) => "stop",
            Some(Finish::Length) => "length",
            Some(Finish::Context) => "context",
            _ => "cancelled",
        };
        let upload = facts
            .upload
            .map(|upload| json!({ "bytes": upload.bytes, "ms": milliseconds(upload.took) }));
        let stages = facts.stages.iter();
        let stages: serde_json::Map<String, Value> = stages
            .map(|(name, took)| ((*name).to_string(), json!(milliseconds(*took))))
            .collect();
        json!({
            "model": source_name(self.source),
            "device": self.device,
            "tuning": open::tuning(facts),
            "text": self.answer.text,
            "prompt_tokens": self.prompt,
            "tokens": self.answer.tokens,
            "finish": finish,
            "seed": self.sampling.seed,
            "timings": {
                "load_ms": milliseconds(self.load),
                "stages_ms": stages,
                "upload": upload,
                "prompt_ms": milliseconds(self.prefill),
                "prompt_n": self.prompt.len(),
                "prompt_per_second": rate(self.prompt.len(), self.prefill),
                "predicted_ms": milliseconds(self.stats.took),
                "predicted_n": self.stats.tokens,
                "predicted_per_second": rate(self.stats.tokens as usize, self.stats.took),
            },
        })
    }
}

fn milliseconds(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

/// Tokens per second; 0 if the duration is 0.
fn rate(tokens: usize, took: Duration) -> f64 {
    let seconds = took.as_secs_f64();
    if seconds > 0.0 {
        tokens as f64 / seconds
    } else {
        0.0
    }
}
