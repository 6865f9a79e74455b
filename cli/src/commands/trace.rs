//! `tabla trace`: every command of a prompt and of the tokens behind it, as a trace for Perfetto or
//! Chrome, and as a roofline table.
//!
//! The file is of Chrome's Trace Event Format, as an object: complete events (`X`) with microseconds,
//! and names of process and tracks (`M`). What the host waited for is one track, what the device
//! did another, commands inside of their layers.

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
use tabla::exec::CommandTiming;
use tabla::exec::cpu::{self, Peak};
use tabla::op::table::Table;
use tabla::{DeviceKind, LoadOptions, Precision, Profile, Sampling, Session, Source, TableId};

/// The track of what the host waited for.
const HOST: u32 = 1;
/// The track of what the device did.
const DEVICE: u32 = 2;

#[derive(Args, Debug)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Tokens to pick behind the prompt
    #[arg(short, long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) n_predict: u32,
    /// Where to write
    #[arg(short, long, value_name = "FILE", default_value = "trace.json")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) context: ContextArg,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

pub(crate) fn run(args: &TraceArgs) -> Result<(), Failure> {
    let source = args.model.source(terminal::note)?;
    let options = args.device.options(args.context.positions())?;
    let default = matches!(source, Source::BuiltIn).then_some(prompt::STORY);
    let text = prompt::read(&args.prompt, default)?;
    let opened = open::model(&source, &options)?;
    opened.notes(&source);
    let tokenizer = opened.model.tokenizer();
    let tokens = tokenizer.encode(&text, args.prompt.encode())?;
    let positions = opened.model.facts().context;
    prefill::check_length(&tokens, positions.saturating_sub(args.n_predict))?;
    let profile = opened.profile;
    let mut session = Session::new(opened.model);
    terminal::catch_interrupt(session.canceller())?;

    // What is done only once, at the first token, is no part of the picture.
    session.prefill(&tokens, &mut |_, _| {})?;
    session.step(&Sampling::GREEDY)?;
    session.reset();
    // The warm-up ran the same tokens.
    session.disable_prefix_caching();
    let before = session.computed_tokens();
    let mut trace = Trace::new(&source_name(&source), &profile, options.precision);
    let mut at = 0;
    for part in tokens.chunks(chunk(&session)) {
        let count = part.len();
        let load = load(at, count)?;
        trace.piece(&mut session, &format!("prefill {count}"), load, |session| {
            session.prefill(part, &mut |_, _| {})
        })?;
        at += count;
    }
    let computed = session.computed_tokens() - before;
    let expected = tokens.len();
    if computed < expected as u64 {
        return Err(Failure::new(format!(
            "the prompt: computed {computed} tokens, expected at least {expected}"
        )));
    }
    let prefill = std::mem::take(&mut trace.commands);
    // The last token counts as one to run, so that as many run as are picked.
    session.truncate(tokens.len());
    for n in 0..args.n_predict {
        let load = load(tokens.len() - 1 + n as usize, 1)?;
        trace.piece(&mut session, &format!("token {n}"), load, |session| {
            session.step(&Sampling::GREEDY).map(drop)
        })?;
        if terminal::interrupted() {
            return Err(Failure::Interrupted);
        }
    }
    let events = trace.events.len();
    let object = json!({ "displayTimeUnit": "ns", "traceEvents": trace.events });
    let fail = |cause| Failure::file("write", &args.out, cause);
    std::fs::write(&args.out, object.to_string()).map_err(fail)?;
    let limits = limits(&options, &profile)?;
    prefill.print(&format!("prompt of {}", tokens.len()), limits)?;
    let title = format!("{} tokens behind it", args.n_predict);
    trace.commands.print(&title, limits)?;
    let shown = args.out.display();
    terminal::note(&format!("{shown}: {events} events, for ui.perfetto.dev"));
    Ok(())
}

/// Tokens of a pass of the prompt.
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

/// What memory can deliver, and on a CPU arithmetic.
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

/// What was seen so far.
struct Trace {
    begun: Instant,
    precision: Precision,
    events: Vec<Value>,
    commands: Commands,
}

impl Trace {
    fn new(model: &str, profile: &Profile, precision: Precision) -> Self {
        let name = |what: &str, track: u32, name: &str| json!({ "ph": "M", "name": what, "pid": 1, "tid": track, "args": { "name": name } });
        let events = vec![
            name("process_name", 0, &format!("tabla, {model}")),
            name("thread_name", HOST, "host"),
            name("thread_name", DEVICE, &profile.to_string()),
        ];
        Self {
            begun: Instant::now(),
            precision,
            events,
            commands: Commands::default(),
        }
    }

    /// Times what a session does in `work`, by which this load goes through it.
    fn piece(
        &mut self,
        session: &mut Session,
        name: &str,
        load: Load,
        work: impl FnOnce(&mut Session) -> tabla::Result<()>,
    ) -> Result<(), Failure> {
        session.time_commands()?;
        let begun = self.begun.elapsed();
        work(session)?;
        let took = self.begun.elapsed() - begun;
        session.end_timing()?;
        self.span((HOST, "host"), name, (begun, took), &json!({}));
        for (table, laps) in session.command_timings()? {
            self.layers(table, &laps, begun);
            self.table(table, &laps, (begun, load));
        }
        self.commands.add(session, load, self.precision)?;
        Ok(())
    }

    /// A span for each layer, from its first command to the end of its last.
    fn layers(&mut self, table: &Table, laps: &[CommandTiming], begun: Duration) {
        let mut spans: Vec<(usize, Duration, Duration)> = Vec::new();
        for (at, lap) in laps.iter().enumerate().filter(|(_, lap)| lap.runs > 0) {
            let Some(layer) = table.layer_of(at) else {
                break;
            };
            let end = lap.begun + lap.took;
            match spans.last_mut().filter(|(last, ..)| *last == layer) {
                Some((.., last)) => *last = end,
                None => spans.push((layer, lap.begun, end)),
            }
        }
        for (layer, start, end) in spans {
            let (name, args) = (format!("layer {layer}"), json!({ "table": table.name }));
            self.span(
                (DEVICE, "layer"),
                &name,
                (begun + start, end - start),
                &args,
            );
        }
    }

    /// A span for each command.
    fn table(&mut self, table: &Table, laps: &[CommandTiming], (begun, load): (Duration, Load)) {
        for (at, lap) in laps.iter().enumerate().filter(|(_, lap)| lap.runs > 0) {
            let cmd = &table.cmds[at];
            let (bytes, operations) = roofline::work(table, cmd, lap, load);
            let seconds = lap.took.as_secs_f64();
            let args = json!({
                "kernel": cmd.kernel.name(),
                "layer": table.layer_of(at),
                "table": table.name,
                "bytes": bytes,
                "operations": operations,
                "GB/s": (seconds > 0.0).then(|| bytes / seconds / 1e9),
            });
            let span = (begun + lap.begun, lap.took);
            let name = roofline::label(table, cmd);
            self.span((DEVICE, cmd.kernel.op.name()), name, span, &args);
        }
    }

    fn span(
        &mut self,
        (track, category): (u32, &str),
        name: &str,
        (begun, took): (Duration, Duration),
        args: &Value,
    ) {
        let microseconds = |time: Duration| time.as_nanos() as f64 / 1e3;
        self.events.push(json!({
            "ph": "X",
            "name": name,
            "cat": category,
            "pid": 1,
            "tid": track,
            "ts": microseconds(begun),
            "dur": microseconds(took),
            "args": args,
        }));
    }
}
