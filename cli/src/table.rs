//! `tabla table`: the dispatch tables of a file, as a listing or as JSON.

use crate::args::{TableArgs, Which};
use crate::failure::Failure;
use crate::terminal;
use serde_json::{Value, json};
use tabla::op::table::{DispatchCmd, Place, Table};
use tabla::{Options, Source};

pub(crate) fn run(args: &TableArgs) -> Result<(), Failure> {
    let source = args.file.source()?;
    let options = Options {
        embeddings: args.which == Some(Which::Embed),
        ..args.device.options(args.context.positions())?
    };
    if args.compare {
        return compare(&source, &options, args);
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
        Place::Weight(n) => format!("weight {n}"),
        Place::Constant(n) => format!("constant {n}"),
        Place::Keys(n) => format!("keys {n}"),
        Place::Values(n) => format!("values {n}"),
        Place::Scratch(n) => format!("scratch {n}"),
        Place::State => "state".to_string(),
        Place::History => "history".to_string(),
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
