//! `tabla table`: the dispatch tables of a file, as a listing or as JSON.

use crate::args::{ContextArg, DeviceArgs, FileArg};
use crate::output::Failure;
use crate::output::{npy, terminal};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tabla::op::table::Table;
use tabla::{LayerDifference, LoadOptions, Precision, Source};

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct TableArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Which table [default: the step table of one row; of an encoder embed]
    #[arg(long, value_enum)]
    pub(crate) which: Option<Which>,
    /// Writes one JSON array of commands
    #[arg(long)]
    pub(crate) json: bool,
    /// Replays the tables command by command on CPU and GPU and names the first that differs
    #[arg(long, conflicts_with = "which")]
    pub(crate) compare: bool,
    #[arg(
        help = "Compares the residual stream behind every layer with that of another program, an .npy file [layers, tokens, dim], and names the first layer that differs"
    )]
    #[arg(long, value_name = "FILE", requires = "tokens", conflicts_with_all = ["which", "compare"])]
    pub(crate) reference: Option<PathBuf>,
    /// Token ids of the reference; of an encoder once for each text
    #[arg(long, value_name = "IDS", value_parser = ids, requires = "reference")]
    pub(crate) tokens: Vec<Ids>,
    #[command(flatten)]
    pub(crate) context: ContextArg,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// The tokens of a text.
#[derive(Clone, Debug)]
pub(crate) struct Ids(pub(crate) Vec<u32>);

fn ids(text: &str) -> Result<Ids, String> {
    let id = |id: &str| {
        id.trim()
            .parse()
            .map_err(|_| format!("{id:?} is no token id"))
    };
    text.split(',').map(id).collect::<Result<_, _>>().map(Ids)
}

/// Which of a model's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// A token in for each row, the next one out
    Step,
    /// A chunk of tokens in, the logits of the last one out
    Batch,
    /// A chunk of tokens in, the last layer's normed rows out
    EmbedOptions,
    /// Every table
    All,
}

impl Which {
    /// Whether a table of this name is meant.
    pub(crate) fn takes(self, name: &str) -> bool {
        let own = self.to_possible_value();
        self == Self::All || own.is_some_and(|value| value.get_name() == name)
    }
}

pub(crate) fn run(args: &TableArgs) -> Result<(), Failure> {
    let source = args.file.source()?;
    let options = LoadOptions {
        embeddings: args.which == Some(Which::EmbedOptions),
        ..args.device.options(args.context.positions())?
    };
    if args.compare {
        return compare(&source, &options, args);
    }
    if let Some(reference) = &args.reference {
        return locate(&source, options, args, reference);
    }
    let tables = tabla::compile(&source, &options)?;
    let wanted: Vec<_> = match args.which {
        Some(which) => tables.iter().filter(|t| which.takes(t.name)).collect(),
        None => tables.iter().take(1).collect(),
    };
    if wanted.is_empty() {
        let names: Vec<_> = tables.iter().map(|table| table.name).collect();
        let known = names.join(", ");
        return Err(Failure::new(format!(
            "the tables of this model are: {known}"
        )));
    }
    if args.json {
        let cmds: Vec<Value> = wanted.into_iter().flat_map(Table::commands_json).collect();
        return terminal::line(&Value::from(cmds).to_string());
    }
    for table in wanted {
        terminal::write(&table.to_string())?;
    }
    Ok(())
}

/// Replays the tables on two devices; a difference is a failure, for scripts.
fn compare(source: &Source, options: &LoadOptions, args: &TableArgs) -> Result<(), Failure> {
    let found = tabla::compare(source, options)?;
    if args.json {
        let first = found.first.as_ref().map(|first| {
            json!({
                "command": first.command,
                "slot": first.slot,
                "element": first.element,
                "cpu": first.cpu,
                "gpu": first.gpu,
            })
        });
        let object = json!({
            "devices": found.devices,
            "commands": found.commands,
            "worst": found.worst,
            "worst_at": found.worst_at,
            "first": first,
        });
        terminal::line(&object.to_string())?;
    } else {
        let [cpu, gpu] = &found.devices;
        let lines = [
            format!("CPU       {cpu}"),
            format!("GPU       {gpu}"),
            format!("commands  {} replayed on both", found.commands),
            format!("worst     {:.3e} relative, {}", found.worst, found.worst_at),
        ];
        for line in lines {
            terminal::line(&terminal::one_line(&line))?;
        }
    }
    match found.first {
        None => Ok(()),
        Some(first) => Err(Failure::new(format!(
            "{} differs: {}[{}] is {} on the CPU and {} on the GPU",
            first.command, first.slot, first.element, first.cpu, first.gpu
        ))),
    }
}

/// Compares every layer with a reference; a difference is a failure, for scripts.
fn locate(
    source: &Source,
    options: LoadOptions,
    args: &TableArgs,
    reference: &Path,
) -> Result<(), Failure> {
    let (shape, numbers) = npy::read(reference)?;
    let texts: Vec<Vec<u32>> = args.tokens.iter().map(|text| text.0.clone()).collect();
    let options = LoadOptions {
        precision: Precision::Exact,
        ..options
    };
    let found = tabla::hidden_states(source, &options, &texts)?;
    let tokens = texts.iter().map(Vec::len).sum();
    let wanted = [found.layers.len(), tokens, found.dim];
    if shape != wanted {
        let shown = reference.display();
        return Err(Failure::new(format!(
            "{shown} has the shape {shape:?}, not {wanted:?}: layers, tokens, width"
        )));
    }
    let layers = found.against(&numbers)?;
    if args.json {
        let object = |layer: &LayerDifference| json!({ "worst": layer.worst, "largest": layer.largest, "agrees": layer.agrees() });
        let layers: Vec<Value> = layers.iter().map(object).collect();
        terminal::line(&Value::from(layers).to_string())?;
    } else {
        for (at, layer) in layers.iter().enumerate() {
            let LayerDifference { worst, largest, .. } = layer;
            terminal::line(&format!("layer {at:>3}  {worst:.3e} off, of {largest:.3}"))?;
        }
    }
    let Some(first) = layers.iter().position(|layer| !layer.agrees()) else {
        return Ok(());
    };
    let table = &found.table;
    let commands = (0..table.cmds.len()).filter(|at| table.layer_of(*at) == Some(first));
    if !args.json {
        for at in commands {
            terminal::line(&table.line(at))?;
        }
    }
    let LayerDifference { worst, element, .. } = layers[first];
    let at = first * tokens * found.dim + element;
    Err(Failure::new(format!(
        "layer {first} differs by {worst:.3e}: row {} number {} is {}, and {} in the reference",
        element / found.dim,
        element % found.dim,
        found.layers[first][element],
        numbers[at]
    )))
}
