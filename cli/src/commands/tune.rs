//! `tabla tune`: measures the kernel variants of a model on a GPU and stores the fastest ones, which
//! other commands use.

use crate::args::{ContextArg, DeviceArgs, FileArg, source_name};
use crate::commands::common::roofline;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;
use tabla::device::KernelVariant;
use tabla::op::table::KernelId;
use tabla::tools::{CommandGroup, Speedup, TuneReport};

#[derive(Args, Debug)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    file: FileArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &TuneArgs) -> Result<(), Failure> {
    let source = args.file.source()?;
    let options = args.device.options(args.context.tokens())?;
    let bar = Progress::new(&format!("measuring {}", source_name(&source)), 0);
    let measured = tabla::tools::tune(&source, &options, &mut |done, total| {
        bar.set_length(total.into());
        bar.set_position(done.into());
    })?;
    drop(bar);
    if !measured.cold {
        terminal::note(
            "the weights are small and may fit the GPU's cache: kernels may run faster than with \
             weights from memory",
        );
    }
    if !args.json {
        print(&measured)?;
    }
    // The results take minutes, so they are printed before the file is written, which can fail.
    let path = match &options.tuning_path {
        Some(folder) => Some(measured.tuning.write(folder)?),
        None => None,
    };
    if args.json {
        return terminal::line(&object(&measured, path.as_deref()).to_string());
    }
    terminal::note(&match &path {
        Some(path) => format!("saved to {}", terminal::one_line(&path.to_string_lossy())),
        None => "not saved: no cache folder, or --no-tuning or --shaders".to_string(),
    });
    Ok(())
}

/// Returns the name of the kernel variant; `plain` for the default kernel.
fn variant(kernel: KernelId) -> &'static str {
    kernel.variant.map_or("plain", KernelVariant::name)
}

fn print(measured: &TuneReport) -> Result<(), Failure> {
    let has_times = |name: &str| {
        let mut times = measured.groups.iter().flat_map(|group| &group.times);
        times.any(|(kernel, _)| variant(*kernel) == name)
    };
    let names = KernelVariant::ALL.iter().map(|variant| variant.name());
    let variants = std::iter::once("plain").chain(names);
    let variants: Vec<&str> = variants.filter(|name| has_times(name)).collect();
    let heads = ["command", "shape", "tokens", "n"].into_iter();
    let heads = heads
        .chain(variants.iter().copied())
        .chain(["taken", "gain"]);
    let mut rows: Vec<Vec<String>> = vec![heads.map(str::to_string).collect()];
    rows.extend(measured.groups.iter().map(|group| row(group, &variants)));
    if measured.groups.is_empty() {
        terminal::line("This GPU has one kernel for every command of the model")?;
    } else {
        terminal::line("Microseconds per replay, all commands of a shape:\n")?;
        roofline::print_rows(&rows)?;
    }
    let (part, chunk) = (measured.tuning.attention_part, measured.tuning.chunk_tokens);
    print_candidates(
        "positions per attention part",
        &measured.attention_parts,
        part,
    )?;
    print_candidates("tokens per prompt chunk", &measured.chunks, chunk)?;
    if measured.speedups.is_empty() {
        return terminal::line("\nno kernel is faster than the default");
    }
    for gain in &measured.speedups {
        let phase = if gain.multiple_tokens {
            "per prompt token"
        } else {
            "per generated token"
        };
        let [default, tuned] = [gain.default, gain.tuned].map(microseconds);
        let end = if gain.is_faster() {
            ""
        } else {
            ": the default is used"
        };
        terminal::line(&format!(
            "\n{phase}, all commands: default {default} us, tuned {tuned} us{end}"
        ))?;
    }
    Ok(())
}

/// Prints the time per token of each candidate and the selected one.
fn print_candidates<T: Display>(
    name: &str,
    times: &[(T, Duration)],
    selected: T,
) -> Result<(), Failure> {
    if times.is_empty() {
        return Ok(());
    }
    let time = |(candidate, time): &(T, Duration)| format!("{candidate}: {}", microseconds(*time));
    let times: Vec<String> = times.iter().map(time).collect();
    let times = times.join(", ");
    terminal::line(&format!(
        "\n{name}, microseconds per token: {times}; selected {selected}"
    ))
}

fn row(group: &CommandGroup, variants: &[&str]) -> Vec<String> {
    let plain = group.times.first().map(|(kernel, _)| kernel.name());
    let [rows, cols] = group.size.shape;
    let mut row = vec![
        plain.unwrap_or_default(),
        format!("{rows}x{cols}"),
        if group.size.multiple_tokens {
            "many"
        } else {
            "1"
        }
        .to_string(),
        group.commands.to_string(),
    ];
    let time = |name: &str| {
        let time = group
            .times
            .iter()
            .find(|(kernel, _)| variant(*kernel) == name);
        time.map_or("-".to_string(), |(_, time)| microseconds(*time))
    };
    row.extend(variants.iter().map(|name| time(name)));
    row.push(variant(group.selected).to_string());
    row.push(format!("{:.0} %", gain(group) * 100.0));
    row
}

/// Returns the time that the selected kernel saves, as a fraction of the default kernel's.
fn gain(group: &CommandGroup) -> f64 {
    let default = group.default_time().as_secs_f64();
    let selected = group
        .times
        .iter()
        .find(|(kernel, _)| *kernel == group.selected);
    let selected = selected.map_or(default, |(_, time)| time.as_secs_f64());
    if default > 0.0 {
        1.0 - selected / default
    } else {
        0.0
    }
}

fn microseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e6)
}

fn object(measured: &TuneReport, path: Option<&Path>) -> Value {
    let group = |group: &CommandGroup| {
        let time = |(kernel, time): &(KernelId, Duration)| json!({ "kernel": kernel.name(), "us": time.as_secs_f64() * 1e6 });
        json!({
            "shape": group.size.shape,
            "multiple_tokens": group.size.multiple_tokens,
            "commands": group.commands,
            "times": group.times.iter().map(time).collect::<Vec<_>>(),
            "taken": group.selected.name(),
        })
    };
    let number = |(number, time): &(u32, Duration)| json!({ "number": number, "us": time.as_secs_f64() * 1e6 });
    let gain = |gain: &Speedup| {
        json!({
            "multiple_tokens": gain.multiple_tokens,
            "usual_us": gain.default.as_secs_f64() * 1e6,
            "tuned_us": gain.tuned.as_secs_f64() * 1e6,
        })
    };
    json!({
        "tuning": path,
        "device": measured.tuning.device,
        "driver": measured.tuning.driver,
        "cold": measured.cold,
        "groups": measured.groups.iter().map(group).collect::<Vec<_>>(),
        "gains": measured.speedups.iter().map(gain).collect::<Vec<_>>(),
        "attention_parts": measured.attention_parts.iter().map(number).collect::<Vec<_>>(),
        "attention_part": measured.tuning.attention_part,
        "chunks": measured.chunks.iter().map(number).collect::<Vec<_>>(),
        "chunk_tokens": measured.tuning.chunk_tokens,
    })
}
