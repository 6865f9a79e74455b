//! `tabla trace`: the timing of each command of a prompt and of generated tokens, as a trace for
//! Perfetto or Chrome and as a roofline table.
//!
//! The file is a JSON object in Chrome's Trace Event Format: complete events (`X`) in microseconds, and
//! names of process and tracks (`M`). One track shows the time that the host waited, the other the
//! commands of the device, nested in layers.

use crate::args::{ContextArg, DeviceArgs, ModelArg, PromptArgs, prompt, source_name};
use crate::commands::common::probe::Probe;
use crate::commands::common::roofline::{self, Commands, Limits, Load};
use crate::commands::common::{devices, open, prefill};
use crate::output::Failure;
use crate::output::terminal;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tabla::device::{DeviceKind, Precision, Profile};
use tabla::exec::CommandTiming;
use tabla::exec::cpu::{self, Peak};
use tabla::load::LoadOptions;
use tabla::op::table::Table;
use tabla::{Sampling, Session, Source, TableId};

/// Track of the host.
const HOST: u32 = 1;
/// Track of the device.
const DEVICE: u32 = 2;

#[derive(Args, Debug)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Number of tokens to generate after the prompt
    #[arg(short, long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) n_predict: u32,
    /// Output file
    #[arg(short, long, value_name = "FILE", default_value = "trace.json")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) context: ContextArg,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

pub(crate) fn run(args: &TraceArgs) -> Result<(), Failure> {
    let source = args.model.source(terminal::note)?;
    let options = args.device.options(args.context.tokens())?;
    let default = matches!(source, Source::BuiltIn).then_some(prompt::STORY);
    let text = prompt::read(&args.prompt, default)?;
    let loaded = open::model(&source, &options)?;
    loaded.print_notes(&source);
    let tokenizer = loaded.model.tokenizer();
    let tokens = tokenizer.encode(&text, args.prompt.encode())?;
    let positions = loaded.model.facts().context;
    prefill::check_length(&tokens, positions.saturating_sub(args.n_predict))?;
    let profile = loaded.profile;
    let mut session = Session::new(loaded.model);
    terminal::catch_interrupt(session.canceller())?;

    // Warm-up: one-time work at the first token is not part of the trace.
    session.prefill(&tokens)?;
    session.step(&Sampling::GREEDY)?;
    session.reset();
    // The warm-up ran the same tokens.
    session.disable_prefix_caching();
    let before = session.computed_tokens();
    let mut trace = Trace::new(&source_name(&source), &profile, options.precision);
    let mut depth = 0;
    for part in tokens.chunks(chunk(&session)) {
        let count = part.len();
        let load = load(depth, count)?;
        trace.record(&mut session, &format!("prefill {count}"), load, |session| {
            session.prefill(part)
        })?;
        depth += count;
    }
    let computed = session.computed_tokens() - before;
    let expected = tokens.len();
    if computed < expected as u64 {
        return Err(Failure::new(format!(
            "prompt: computed {}, expected at least {expected}",
            terminal::counted(computed, "token")
        )));
    }
    let prefill = std::mem::take(&mut trace.commands);
    // Truncating makes the last token pending, so that one token is computed per generated token.
    session.truncate(tokens.len());
    for n in 0..args.n_predict {
        let load = load(tokens.len() - 1 + n as usize, 1)?;
        trace.record(&mut session, &format!("token {n}"), load, |session| {
            session.step(&Sampling::GREEDY).map(drop)
        })?;
        if terminal::interrupted() {
            return Err(Failure::Interrupted);
        }
    }
    let events = trace.events.len();
    let object = json!({ "displayTimeUnit": "ns", "traceEvents": trace.events });
    let fail = |cause| Failure::file("write", &args.output, cause);
    std::fs::write(&args.output, object.to_string()).map_err(fail)?;
    let limits = limits(&options, &profile)?;
    prefill.print(
        &format!("prompt of {}", terminal::counted(tokens.len(), "token")),
        limits,
    )?;
    let title = terminal::counted(args.n_predict, "generated token");
    trace.commands.print(&title, limits)?;
    let shown = args.output.display();
    terminal::note(&format!(
        "{shown}: {}; open it in ui.perfetto.dev",
        terminal::counted(events, "event")
    ));
    Ok(())
}

/// Number of tokens in a prefill chunk.
fn chunk(session: &Session) -> usize {
    let batch = session.model().table(TableId::Batch);
    batch.map_or(1, |table| table.tokens as usize)
}

fn load(depth: usize, tokens: usize) -> Result<Load, Failure> {
    let number = |n: usize| u32::try_from(n).map_err(Failure::new);
    Ok(Load {
        depth: number(depth)?,
        tokens: number(tokens)?,
    })
}

/// Measures memory bandwidth and, on a CPU, peak arithmetic.
fn limits(options: &LoadOptions, profile: &Profile) -> Result<Limits, Failure> {
    let mut probe = Probe::new(profile, options)?;
    for _ in 0..3 {
        probe.round()?;
    }
    let peak = match profile.kind {
        DeviceKind::Cpu => cpu::peak(&devices::cpu_options(options, profile))?,
        DeviceKind::Gpu => Peak::default(),
    };
    let memory = probe.best().unwrap_or(0.0);
    Ok(Limits { memory, peak })
}

/// The recorded events.
struct Trace {
    start: Instant,
    precision: Precision,
    events: Vec<Value>,
    commands: Commands,
}

impl Trace {
    fn new(model: &str, profile: &Profile, precision: Precision) -> Self {
        let name = |kind: &str, track: u32, name: &str| json!({ "ph": "M", "name": kind, "pid": 1, "tid": track, "args": { "name": name } });
        let events = vec![
            name("process_name", 0, &format!("tabla, {model}")),
            name("thread_name", HOST, "host"),
            name("thread_name", DEVICE, &profile.to_string()),
        ];
        Self {
            start: Instant::now(),
            precision,
            events,
            commands: Commands::default(),
        }
    }

    /// Records the commands that a session runs in `work`.
    fn record(
        &mut self,
        session: &mut Session,
        name: &str,
        load: Load,
        work: impl FnOnce(&mut Session) -> tabla::Result<()>,
    ) -> Result<(), Failure> {
        // Before the start of timing, so that commands never overlap those of the previous record, however late this
        // thread runs.
        let timed = self.start.elapsed();
        session.time_commands()?;
        let start = self.start.elapsed();
        work(session)?;
        let took = self.start.elapsed() - start;
        session.end_timing()?;
        self.span(HOST, "host", name, start, took, &json!({}));
        for (table, timings) in session.command_timings()? {
            self.layers(table, &timings, timed);
            self.table(table, &timings, timed, load);
        }
        self.commands.add(session, load, self.precision)?;
        Ok(())
    }

    /// Adds a span per layer, from the start of its first command to the end of its last.
    fn layers(&mut self, table: &Table, timings: &[CommandTiming], start: Duration) {
        let mut spans: Vec<(usize, Duration, Duration)> = Vec::new();
        for (at, timing) in timings.iter().enumerate().filter(|(_, t)| t.runs > 0) {
            let Some(layer) = table.layer_of(at) else {
                break;
            };
            let end = timing.begun + timing.took;
            match spans.last_mut().filter(|(last, ..)| *last == layer) {
                Some((.., last)) => *last = end,
                None => spans.push((layer, timing.begun, end)),
            }
        }
        for (layer, first, end) in spans {
            let (name, args) = (format!("layer {layer}"), json!({ "table": table.name }));
            self.span(DEVICE, "layer", &name, start + first, end - first, &args);
        }
    }

    /// Adds a span per command.
    fn table(&mut self, table: &Table, timings: &[CommandTiming], start: Duration, load: Load) {
        for (at, timing) in timings.iter().enumerate().filter(|(_, t)| t.runs > 0) {
            let cmd = &table.cmds[at];
            let (bytes, operations) = roofline::work(table, cmd, timing, load);
            let seconds = timing.took.as_secs_f64();
            let args = json!({
                "kernel": cmd.kernel.name(),
                "layer": table.layer_of(at),
                "table": table.name,
                "bytes": bytes,
                "operations": operations,
                "GB/s": (seconds > 0.0).then(|| bytes / seconds / 1e9),
            });
            let (category, name) = (cmd.kernel.op.name(), roofline::label(table, cmd));
            let begun = start + timing.begun;
            self.span(DEVICE, category, name, begun, timing.took, &args);
        }
    }

    fn span(
        &mut self,
        track: u32,
        category: &str,
        name: &str,
        start: Duration,
        took: Duration,
        args: &Value,
    ) {
        let microseconds = |time: Duration| time.as_nanos() as f64 / 1e3;
        self.events.push(json!({
            "ph": "X",
            "name": name,
            "cat": category,
            "pid": 1,
            "tid": track,
            "ts": microseconds(start),
            "dur": microseconds(took),
            "args": args,
        }));
    }
}
