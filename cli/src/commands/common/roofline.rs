//! Roofline table of `tabla bench --commands` and `tabla trace`: bytes and operations per second of
//! each command, compared with the measured memory bandwidth and, on a CPU, peak arithmetic.

use crate::output::Failure;
use crate::output::terminal;
use serde_json::{Value, json};
use tabla::Session;
use tabla::device::Precision;
use tabla::dtype::DType;
use tabla::exec::CommandTiming;
use tabla::exec::cpu::Peak;
use tabla::op::list::Op;
use tabla::op::operands::WEIGHT;
use tabla::op::table::{BufferId, DispatchCmd, Table};

/// Tokens that a session computed while it was timed, and the context depth at their start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) depth: u32,
    pub(crate) tokens: u32,
}

/// Measured bytes and operations per second of all threads; 0: not measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) memory: f64,
    pub(crate) peak: Peak,
}

/// Arithmetic type of a command, which selects its peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Int8,
    Bf16,
    Float,
}

impl Arithmetic {
    /// Returns int8 for quantized weights and bf16 for BF16 weights; f32 with exact precision.
    fn of(table: &Table, cmd: &DispatchCmd, precision: Precision) -> Self {
        let slots = cmd.slots().iter().map(|slot| table.slot(*slot));
        let mut weights = slots.filter(|info| matches!(info.buffer, BufferId::Weight(..)));
        let fast = precision == Precision::Fast;
        match (cmd.kernel.op, weights.next().map(|info| info.dtype)) {
            (Op::BitMat | Op::BitMatAdd, _) => Self::Int8,
            (Op::Embed | Op::EmbedAdd, _) => Self::Float,
            (_, Some(DType::Bf16)) if fast => Self::Bf16,
            (_, Some(dtype)) if fast && dtype.facts().block > 1 => Self::Int8,
            _ => Self::Float,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Bf16 => "bf16",
            Self::Float => "f32",
        }
    }

    fn peak(self, peak: Peak) -> f64 {
        match self {
            Self::Int8 => peak.int8,
            Self::Bf16 => peak.bf16,
            Self::Float => peak.float,
        }
    }
}

/// Equal commands of all layers of a table.
#[derive(Debug)]
struct Group {
    table: &'static str,
    kernel: String,
    /// Name of the weight without its layer, or of the operation.
    label: String,
    arithmetic: Arithmetic,
    commands: usize,
    runs: u64,
    seconds: f64,
    /// Bytes of weights and KV cache.
    bytes: f64,
    operations: f64,
}

impl Group {
    fn name(&self) -> String {
        if self.label == self.kernel {
            self.label.clone()
        } else {
            format!("{} {}", self.kernel, self.label)
        }
    }
}

/// Timings of the commands of a test, summed over all repetitions.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    groups: Vec<Group>,
    tokens: f64,
}

impl Commands {
    /// Adds the timings of a session that computed this load.
    pub(crate) fn add(
        &mut self,
        session: &Session,
        load: Load,
        precision: Precision,
    ) -> tabla::Result<()> {
        self.tokens += f64::from(load.tokens);
        let known = self.groups.len();
        for (table, timings) in session.command_timings()? {
            let timed = table.cmds.iter().zip(&timings);
            for (cmd, timing) in timed.filter(|(_, timing)| timing.runs > 0) {
                let at = self.group(table, cmd, precision);
                let group = &mut self.groups[at];
                let (bytes, operations) = work(table, cmd, timing, load);
                // Later loads run the same commands.
                group.commands += usize::from(at >= known);
                group.runs += u64::from(timing.runs);
                group.seconds += timing.took.as_secs_f64();
                group.bytes += bytes;
                group.operations += operations;
            }
        }
        Ok(())
    }

    fn group(&mut self, table: &Table, cmd: &DispatchCmd, precision: Precision) -> usize {
        let label = without_layer(label(table, cmd));
        let kernel = cmd.kernel.name();
        let is_equal = |g: &Group| (g.table, &g.kernel, &g.label) == (table.name, &kernel, &label);
        self.groups.iter().position(is_equal).unwrap_or_else(|| {
            self.groups.push(Group {
                table: table.name,
                kernel,
                label,
                arithmetic: Arithmetic::of(table, cmd, precision),
                commands: 0,
                runs: 0,
                seconds: 0.0,
                bytes: 0.0,
                operations: 0.0,
            });
            self.groups.len() - 1
        })
    }

    /// Whether there are no timings.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns one JSON object per group.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let object = |g: &Group| {
            json!({
                "table": g.table,
                "kernel": g.kernel,
                "what": g.label,
                "arithmetic": g.arithmetic.name(),
                "commands": g.commands,
                "runs": g.runs,
                "seconds": g.seconds,
                "bytes": g.bytes,
                "operations": g.operations,
            })
        };
        self.groups.iter().map(object).collect()
    }

    /// Prints a table, slowest group first. All values are per token.
    pub(crate) fn print(&self, test: &str, limits: Limits) -> Result<(), Failure> {
        let mut groups: Vec<&Group> = self.groups.iter().collect();
        groups.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let total: f64 = groups.iter().map(|group| group.seconds).sum();
        let mut rows = vec![HEADS.map(str::to_string).to_vec()];
        for g in groups {
            rows.push(vec![
                g.name(),
                g.commands.to_string(),
                format!("{:.1}", g.seconds / self.tokens * 1e6),
                percent(g.seconds, total),
                format!("{:.3}", g.bytes / self.tokens / 1e6),
                format!("{:.1}", g.bytes / g.seconds / 1e9),
                percent(g.bytes / g.seconds, limits.memory),
                format!("{:.4}", g.operations / self.tokens / 1e9),
                format!("{:.1}", g.operations / g.seconds / 1e9),
                percent(g.operations / g.seconds, g.arithmetic.peak(limits.peak)),
                g.arithmetic.name().to_string(),
            ]);
        }
        terminal::line(&format!(
            "\n{test}, {:.1} us per token:\n",
            total / self.tokens * 1e6
        ))?;
        print_rows(&rows)
    }
}

const HEADS: [&str; 11] = [
    "command", "n", "us", "time", "MB", "GB/s", "memory", "GFLOP", "GFLOP/s", "peak", "of",
];

/// Prints a Markdown table. The first row has the column names; all rows have equal length.
pub(crate) fn print_rows(rows: &[Vec<String>]) -> Result<(), Failure> {
    let columns = rows.first().map_or(0, Vec::len);
    // The separator row needs at least two characters per column.
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.chain([2]).max()
    };
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    for (at, row) in rows.iter().enumerate() {
        terminal::line(&line(row, &widths))?;
        if at == 0 {
            terminal::line(&rule(&widths))?;
        }
    }
    Ok(())
}

/// Formats a row; the first cell is left-aligned, the others right-aligned.
fn line(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::from("|");
    for (column, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        line.push_str(&match column {
            0 => format!(" {cell:<width$} |"),
            _ => format!(" {cell:>width$} |"),
        });
    }
    line
}

/// Formats the separator row.
fn rule(widths: &[usize]) -> String {
    let mut line = String::from("|");
    for (column, &width) in widths.iter().enumerate() {
        let end = if column == 0 { "-" } else { ":" };
        line.push_str(&format!(" {}{end} |", "-".repeat(width - 1)));
    }
    line
}

fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 {
        format!("{:.0} %", part / whole * 100.0)
    } else {
        "-".to_string()
    }
}

/// Returns the label of a command: the weight that it reads, or its operation.
pub(crate) fn label<'a>(table: &'a Table, cmd: &DispatchCmd) -> &'a str {
    let label = table.labels.get(cmd.label as usize);
    label.map_or(cmd.kernel.op.name(), String::as_str)
}

/// Removes the layer number: `blk.7.ffn_up` becomes `blk.ffn_up`.
fn without_layer(label: &str) -> String {
    let number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = label.split('.').filter(|part| !number(part)).collect();
    parts.join(".")
}

/// Returns the bytes of weights and KV cache that a command moved in all runs, each counted once per
/// run, and its operations. Assumes that all runs of a load have the same number of tokens.
pub(crate) fn work(
    table: &Table,
    cmd: &DispatchCmd,
    timing: &CommandTiming,
    load: Load,
) -> (f64, f64) {
    let (runs, tokens) = (f64::from(timing.runs), f64::from(load.tokens));
    let active = (tokens / runs).min(f64::from(table.tokens));
    let depth = f64::from(load.depth);
    // Averages: the position at which a run ends, and the number of positions that a token attends to.
    let (end, attended) = (
        depth + tokens * (runs + 1.0) / (2.0 * runs),
        depth + (tokens + 1.0) / 2.0,
    );
    let slots = || cmd.slots().iter().map(|slot| table.slot(*slot));
    let cached = || slots().filter(|s| matches!(s.buffer, BufferId::Keys(_) | BufferId::Values(_)));
    let cost = table.cost(cmd);
    let row_bytes = |bytes: u64, rows: u32| bytes as f64 / f64::from(rows.max(1));
    let bytes: f64 = match cmd.kernel.op {
        Op::Attention | Op::AttendPart => cached()
            .map(|s| row_bytes(s.bytes(), s.rows) * end.min(f64::from(table.window(cmd))))
            .sum(),
        Op::RopeKv => cached()
            .map(|s| row_bytes(s.bytes(), s.rows) * active)
            .sum(),
        Op::Embed | Op::EmbedAdd => {
            let w = table.slot(cmd.slots[WEIGHT]);
            row_bytes(w.bytes(), w.rows) * active
        }
        _ => {
            let others =
                slots().filter(|s| !matches!(s.buffer, BufferId::Weight(..) | BufferId::State));
            cost.bytes as f64 - others.map(|s| s.bytes() as f64).sum::<f64>()
        }
    };
    // Commands with a row per token skip unused rows.
    let rows = slots().any(|s| matches!(s.buffer, BufferId::Scratch(_)) && s.rows == table.tokens);
    let mut share = if rows {
        active / f64::from(table.tokens)
    } else {
        1.0
    };
    if matches!(cmd.kernel.op, Op::Attention | Op::AttendPart) {
        let positions = f64::from(table.window(cmd));
        share *= attended.min(positions) / positions;
    }
    (bytes * runs, cost.flops as f64 * share * runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_layer_numbers() {
        assert_eq!(without_layer("blk.12.ffn_up.weight"), "blk.ffn_up.weight");
        assert_eq!(without_layer("argmax"), "argmax");
    }

    #[test]
    fn aligns_columns() {
        let cells = ["ab".to_string(), "1".to_string()];
        assert_eq!(line(&cells, &[3, 2]), "| ab  |  1 |");
        assert_eq!(rule(&[3, 2]), "| --- | -: |");
    }
}
