//! `tabla table`: the dispatch tables of a file, as a listing or as JSON.

use crate::args::{TableArgs, Which};
use crate::failure::Failure;
use crate::{npy, terminal};
use serde_json::{Value, json};
use std::path::Path;
use tabla::op::table::{DispatchCmd, Place, Table, Tail};
use tabla::{LayerDifference, Options, Precision, Source};

pub(crate) fn run(args: &TableArgs) -> Result<(), Failure> {
    let source = args.file.source()?;
    let options = Options {
        embeddings: args.which == Some(Which::Embed),
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
        let cmds: Vec<Value> = wanted.into_iter().flat_map(commands).collect();
        return terminal::line(&Value::from(cmds).to_string());
    }
    for table in wanted {
        terminal::write(&table.to_string())?;
    }
    Ok(())
}

/// Every command of a table as an object.
fn commands(table: &Table) -> impl Iterator<Item = Value> {
    let object = |(at, cmd)| command(table, at, cmd);
    table.cmds.iter().enumerate().map(object)
}

fn command(table: &Table, at: usize, cmd: &DispatchCmd) -> Value {
    let operands = cmd.op.operands().iter().zip(cmd.slots());
    let slots: Vec<Value> = operands
        .map(|(operand, slot)| {
            let info = table.slot(*slot);
            json!({
                "operand": operand.name,
                "access": format!("{:?}", operand.access).to_lowercase(),
                "name": info.name,
                "dtype": info.dtype.name(),
                "shape": [info.rows, info.cols],
                "place": place(info.place),
                "bytes": info.bytes(),
            })
        })
        .collect();
    let cost = table.cost(cmd);
    let params = table.params(cmd).iter();
    let params: String = params.map(|byte| format!("{byte:02x}")).collect();
    json!({
        "table": table.name,
        "index": at,
        "tail": table.tail_of(at).map(Tail::name),
        "op": cmd.op.name(),
        "kernel": cmd.kernel.name(),
        "label": table.labels.get(cmd.label as usize),
        "slots": slots,
        "params": params,
        "grid": cmd.grid,
        "bytes": cost.bytes,
        "flops": cost.flops,
    })
}

/// `scratch 2`: where the bytes of a slot live.
fn place(place: Place) -> String {
    match place {
        Place::Weight(n, 0) => format!("weight {n}"),
        Place::Weight(n, first) => format!("weight {n} from row {first}"),
        Place::Constant(n) => format!("constant {n}"),
        Place::Keys(n) => format!("keys {n}"),
        Place::Values(n) => format!("values {n}"),
        Place::Scratch(n) => format!("scratch {n}"),
        Place::Pages => "pages".to_string(),
        Place::State => "state".to_string(),
        Place::History => "history".to_string(),
        Place::Samplers => "samplers".to_string(),
        Place::Biases => "biases".to_string(),
        Place::Masks => "masks".to_string(),
        Place::Breakers => "breakers".to_string(),
        Place::LogProbs => "log_probs".to_string(),
        Place::Logits => "logits".to_string(),
        Place::Scores => "scores".to_string(),
        Place::Hidden => "hidden".to_string(),
    }
}

/// Replays the tables on two devices; a difference is a failure, for scripts.
fn compare(source: &Source, options: &Options, args: &TableArgs) -> Result<(), Failure> {
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
    options: Options,
    args: &TableArgs,
    reference: &Path,
) -> Result<(), Failure> {
    let (shape, numbers) = npy::read(reference)?;
    let texts: Vec<Vec<u32>> = args.tokens.iter().map(|text| text.0.clone()).collect();
    let options = Options {
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
