//! `tabla table`: the dispatch tables of a model, as a listing or as JSON, and comparisons of their
//! results.

use crate::args::{ContextArg, DeviceArgs, FileArg};
use crate::output::Failure;
use crate::output::terminal;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tabla::Source;
use tabla::device::Precision;
use tabla::format::npy::Array;
use tabla::load::LoadOptions;
use tabla::op::table::Table;
use tabla::tools::LayerDifference;

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct TableArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Table to print [default: the step table of one sequence, or the only table of an encoder]
    #[arg(long, value_enum)]
    pub(crate) which: Option<Which>,
    /// Print one JSON array of commands
    #[arg(long)]
    pub(crate) json: bool,
    /// Run the tables on CPU and GPU and report the first command whose result differs
    #[arg(long, conflicts_with = "which")]
    pub(crate) compare: bool,
    /// Compare the hidden states after each layer with an .npy file [layers, tokens, dim] of another
    /// program, and report the first layer that differs
    #[arg(long, value_name = "FILE", requires = "tokens", conflicts_with_all = ["which", "compare"])]
    pub(crate) reference: Option<PathBuf>,
    /// Comma-separated token ids of the reference. Can be repeated for an encoder: one text each
    #[arg(long, value_name = "IDS", value_parser = ids, requires = "reference")]
    pub(crate) tokens: Vec<Ids>,
    #[command(flatten)]
    pub(crate) context: ContextArg,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// The token ids of a text.
#[derive(Clone, Debug)]
pub(crate) struct Ids(pub(crate) Vec<u32>);

fn ids(text: &str) -> Result<Ids, String> {
    let id = |id: &str| {
        id.trim()
            .parse()
            .map_err(|_| format!("invalid token id {id:?}"))
    };
    text.split(',').map(id).collect::<Result<_, _>>().map(Ids)
}

/// Tables of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// One token of each sequence to the next token
    Step,
    /// A chunk of tokens to the logits of the last token
    Batch,
    /// A chunk of tokens to the normalized hidden states of the last layer
    Embed,
    /// Whole texts to the logits of a classification head
    Classify,
    /// All tables
    All,
}

impl Which {
    /// Whether it includes the table of this name.
    pub(crate) fn includes(self, name: &str) -> bool {
        let value = self.to_possible_value();
        self == Self::All || value.is_some_and(|value| value.get_name() == name)
    }
}

pub(crate) fn run(args: &TableArgs) -> Result<(), Failure> {
    let source = args.file.source()?;
    let options = args
        .device
        .options(args.context.tokens())?
        .embeddings(args.which == Some(Which::Embed));
    if args.compare {
        return compare(&source, &options, args);
    }
    if let Some(reference) = &args.reference {
        return compare_layers(&source, options, args, reference);
    }
    let tables = tabla::tools::compile(&source, &options)?;
    let selected: Vec<_> = match args.which {
        Some(which) => tables.iter().filter(|t| which.includes(t.name)).collect(),
        None => tables.iter().take(1).collect(),
    };
    if selected.is_empty() {
        let names: Vec<_> = tables.iter().map(|table| table.name).collect();
        let names = names.join(", ");
        return Err(Failure::new(format!(
            "the model has no such table: expected one of {names}"
        )));
    }
    if args.json {
        let cmds: Vec<Value> = selected
            .into_iter()
            .flat_map(Table::commands_json)
            .collect();
        return terminal::line(&Value::from(cmds).to_string());
    }
    for table in selected {
        terminal::write(&table.to_string())?;
    }
    Ok(())
}

/// Runs the tables on CPU and GPU. A difference is an error, for scripts.
fn compare(source: &Source, options: &LoadOptions, args: &TableArgs) -> Result<(), Failure> {
    let comparison = tabla::tools::compare(source, options)?;
    if args.json {
        let first = comparison.first.as_ref().map(|first| {
            json!({
                "command": first.command,
                "slot": first.slot,
                "element": first.element,
                "cpu": first.cpu,
                "gpu": first.gpu,
            })
        });
        let object = json!({
            "devices": comparison.devices,
            "commands": comparison.commands,
            "worst": comparison.worst,
            "worst_at": comparison.worst_at,
            "first": first,
        });
        terminal::line(&object.to_string())?;
    } else {
        let [cpu, gpu] = &comparison.devices;
        let lines = [
            format!("CPU       {cpu}"),
            format!("GPU       {gpu}"),
            format!("commands  {} compared", comparison.commands),
            format!(
                "largest   {:.3e} relative difference, {}",
                comparison.worst, comparison.worst_at
            ),
        ];
        for line in lines {
            terminal::line(&terminal::one_line(&line))?;
        }
    }
    match comparison.first {
        None => Ok(()),
        Some(first) => Err(Failure::new(format!(
            "{} differs: {}[{}] is {} on the CPU and {} on the GPU",
            first.command, first.slot, first.element, first.cpu, first.gpu
        ))),
    }
}

/// Compares the hidden states of each layer with a reference. A difference is an error, for scripts.
fn compare_layers(
    source: &Source,
    options: LoadOptions,
    args: &TableArgs,
    reference: &Path,
) -> Result<(), Failure> {
    let shown = reference.display();
    let array = Array::read(reference).map_err(|e| Failure::new(format!("{shown}: {e}")))?;
    let Array {
        shape,
        values: numbers,
    } = array;
    let texts: Vec<Vec<u32>> = args.tokens.iter().map(|text| text.0.clone()).collect();
    let options = options.precision(Precision::Exact);
    let states = tabla::tools::hidden_states(source, &options, &texts)?;
    let tokens = texts.iter().map(Vec::len).sum();
    let expected = [states.layers.len(), tokens, states.dim];
    if shape != expected {
        return Err(Failure::new(format!(
            "{shown}: expected the shape {expected:?} (layers, tokens, dim), got {shape:?}"
        )));
    }
    let layers = states.against(&numbers)?;
    if args.json {
        let object = |layer: &LayerDifference| json!({ "worst": layer.worst, "largest": layer.largest, "agrees": layer.agrees() });
        let layers: Vec<Value> = layers.iter().map(object).collect();
        terminal::line(&Value::from(layers).to_string())?;
    } else {
        for (at, layer) in layers.iter().enumerate() {
            let LayerDifference { worst, largest, .. } = layer;
            terminal::line(&format!(
                "layer {at:>3}  difference {worst:.3e}, largest value {largest:.3}"
            ))?;
        }
    }
    let Some(first) = layers.iter().position(|layer| !layer.agrees()) else {
        return Ok(());
    };
    let table = &states.table;
    let commands = (0..table.cmds.len()).filter(|at| table.layer_of(*at) == Some(first));
    if !args.json {
        for at in commands {
            terminal::line(&table.line(at))?;
        }
    }
    let LayerDifference { worst, element, .. } = layers[first];
    let at = first * tokens * states.dim + element;
    Err(Failure::new(format!(
        "layer {first} differs by {worst:.3e}: token {}, element {} is {}, reference {}",
        element / states.dim,
        element % states.dim,
        states.layers[first][element],
        numbers[at]
    )))
}
