//! `tabla tune`: times the kernels that could run a model on a GPU, and keeps the choice where every
//! command finds it.

use crate::args::{ContextArg, DeviceArgs, FileArg, source_name};
use crate::commands::common::roofline;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;
use tabla::device::{Fusion, KernelVariant};
use tabla::op::table::KernelId;
use tabla::{CommandGroup, Speedup, TuneReport};

#[derive(Args, Debug)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    file: FileArg,
    /// Writes one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &TuneArgs) -> Result<(), Failure> {
    let source = args.file.source()?;
    let options = args.device.options(args.context.positions())?;
    let bar = Progress::new(&format!("measuring {}", source_name(&source)), 0);
    let found = tabla::tune(&source, &options, &mut |done, of| {
        bar.of(of.into());
        bar.at(done.into());
    })?;
    drop(bar);
    if !found.cold {
        terminal::note(
            "the weights are few: a cache of the GPU may hold some, and times may be shorter than of \
             those that come from memory",
        );
    }
    if !args.json {
        say(&found)?;
    }
    // It took minutes: what was found is told before the folder can refuse it.
    let kept = match &options.tuning_folder {
        Some(folder) => Some(found.tuning.write(folder)?),
        None => None,
    };
    if args.json {
        return terminal::line(&object(&found, kept.as_deref()).to_string());
    }
    terminal::note(&match &kept {
        Some(path) => format!("kept in {}", terminal::one_line(&path.to_string_lossy())),
        None => "kept nowhere".to_string(),
    });
    Ok(())
}

/// `plain`, or the form's name.
fn form(kernel: KernelId) -> &'static str {
    kernel.form.map_or("plain", KernelVariant::name)
}

fn say(found: &TuneReport) -> Result<(), Failure> {
    let measured = |name: &str| {
        let mut times = found.groups.iter().flat_map(|group| &group.times);
        times.any(|(kernel, _)| form(*kernel) == name)
    };
    let forms = std::iter::once("plain").chain(KernelVariant::ALL.iter().map(|form| form.name()));
    let forms: Vec<&str> = forms.filter(|name| measured(name)).collect();
    let heads = ["command", "shape", "tokens", "n"].into_iter();
    let heads = heads.chain(forms.iter().copied()).chain(["taken", "gain"]);
    let mut rows: Vec<Vec<String>> = vec![heads.map(str::to_string).collect()];
    rows.extend(found.groups.iter().map(|group| row(group, &forms)));
    terminal::line("Microseconds of all commands of a shape in one replay:\n")?;
    roofline::print_rows(&rows)?;
    let fusions: Vec<_> = found
        .fusions
        .iter()
        .map(|(f, time)| (f.name(), *time))
        .collect();
    let taken = found.tuning.fusion.name();
    candidates("norms and activations", &fusions, taken)?;
    let (part, chunk) = (found.tuning.attention_part, found.tuning.chunk_tokens);
    candidates("attention in parts of", &found.attention_parts, part)?;
    candidates("prompts in chunks of", &found.chunks, chunk)?;
    if found.speedups.is_empty() {
        return terminal::line("\nnothing is better than what is usual");
    }
    for gain in &found.speedups {
        let what = if gain.many {
            "a token of a prompt"
        } else {
            "a token"
        };
        let [usual, tuned] = [gain.default, gain.tuned].map(microseconds);
        let end = if gain.is_faster() {
            ""
        } else {
            ": it stays as is usual"
        };
        terminal::line(&format!(
            "\n{what}, all commands: {usual} us as is usual, {tuned} us tuned{end}"
        ))?;
    }
    Ok(())
}

/// What a token takes with each candidate, where there are several.
fn candidates<T: Display>(what: &str, times: &[(T, Duration)], taken: T) -> Result<(), Failure> {
    if times.is_empty() {
        return Ok(());
    }
    let time = |(candidate, time): &(T, Duration)| format!("{candidate}: {}", microseconds(*time));
    let times: Vec<String> = times.iter().map(time).collect();
    let times = times.join(", ");
    terminal::line(&format!(
        "\n{what}, microseconds a token: {times}; taken {taken}"
    ))
}

fn row(group: &CommandGroup, forms: &[&str]) -> Vec<String> {
    let plain = group.times.first().map(|(kernel, _)| kernel.name());
    let [rows, cols] = group.size.shape;
    let mut row = vec![
        plain.unwrap_or_default(),
        format!("{rows}x{cols}"),
        if group.size.many { "many" } else { "1" }.to_string(),
        group.commands.to_string(),
    ];
    let time = |name: &str| {
        let found = group.times.iter().find(|(kernel, _)| form(*kernel) == name);
        found.map_or("-".to_string(), |(_, time)| microseconds(*time))
    };
    row.extend(forms.iter().map(|name| time(name)));
    row.push(form(group.selected).to_string());
    row.push(format!("{:.0} %", gain(group) * 100.0));
    row
}

/// What the kernel that is taken saves, as a part of what the usual one takes.
fn gain(group: &CommandGroup) -> f64 {
    let usual = group.default_time().as_secs_f64();
    let taken = group
        .times
        .iter()
        .find(|(kernel, _)| *kernel == group.selected);
    let taken = taken.map_or(usual, |(_, time)| time.as_secs_f64());
    if usual > 0.0 {
        1.0 - taken / usual
    } else {
        0.0
    }
}

fn microseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e6)
}

fn object(found: &TuneReport, kept: Option<&Path>) -> Value {
    let group = |group: &CommandGroup| {
        let time = |(kernel, time): &(KernelId, Duration)| json!({ "kernel": kernel.name(), "us": time.as_secs_f64() * 1e6 });
        json!({
            "shape": group.size.shape,
            "many": group.size.many,
            "commands": group.commands,
            "times": group.times.iter().map(time).collect::<Vec<_>>(),
            "taken": group.selected.name(),
        })
    };
    let number = |(number, time): &(u32, Duration)| json!({ "number": number, "us": time.as_secs_f64() * 1e6 });
    let fusion = |(fusion, time): &(Fusion, Duration)| json!({ "fusion": fusion.name(), "us": time.as_secs_f64() * 1e6 });
    let gain = |gain: &Speedup| {
        json!({
            "many": gain.many,
            "usual_us": gain.default.as_secs_f64() * 1e6,
            "tuned_us": gain.tuned.as_secs_f64() * 1e6,
        })
    };
    json!({
        "tuning": kept,
        "device": found.tuning.device,
        "driver": found.tuning.driver,
        "cold": found.cold,
        "groups": found.groups.iter().map(group).collect::<Vec<_>>(),
        "gains": found.speedups.iter().map(gain).collect::<Vec<_>>(),
        "fusions": found.fusions.iter().map(fusion).collect::<Vec<_>>(),
        "fusion": found.tuning.fusion.name(),
        "attention_parts": found.attention_parts.iter().map(number).collect::<Vec<_>>(),
        "attention_part": found.tuning.attention_part,
        "chunks": found.chunks.iter().map(number).collect::<Vec<_>>(),
        "chunk_tokens": found.tuning.chunk_tokens,
    })
}
