//! `tabla bench --commands` and `tabla trace`: what every command moves and computes in the time that
//! it takes, held against what memory delivered in the same run, and the arithmetic of a CPU.

use crate::output::Failure;
use crate::output::terminal;
use serde_json::{Value, json};
use tabla::dtype::DType;
use tabla::exec::CommandTiming;
use tabla::exec::cpu::Peak;
use tabla::op::list::Op;
use tabla::op::operands::WEIGHT;
use tabla::op::table::{BufferId, DispatchCmd, Table};
use tabla::{Precision, Session};

/// What went through the session while it was timed: so many tokens behind so many positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) depth: u32,
    pub(crate) tokens: u32,
}

/// Bytes and operations per second that were measured, of all threads; 0 where they were not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) memory: f64,
    pub(crate) peak: Peak,
}

/// Which arithmetic bounds a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Int8,
    Bf16,
    Float,
}

impl Arithmetic {
    /// Products of quantized weights are of int8, and those of BF16 weights of bf16, unless every
    /// product is computed in f32.
    fn of(table: &Table, cmd: &DispatchCmd, precision: Precision) -> Self {
        let slots = cmd.slots().iter().map(|slot| table.slot(*slot));
        let mut weights = slots.filter(|info| matches!(info.place, BufferId::Weight(..)));
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

/// The commands of a table that do the same in every layer.
#[derive(Debug)]
struct Group {
    table: &'static str,
    kernel: String,
    /// The weight without its layer, or the operation.
    what: String,
    arithmetic: Arithmetic,
    commands: usize,
    runs: u64,
    seconds: f64,
    /// Of weights and of the cache.
    bytes: f64,
    operations: f64,
}

impl Group {
    fn name(&self) -> String {
        if self.what == self.kernel {
            self.what.clone()
        } else {
            format!("{} {}", self.kernel, self.what)
        }
    }
}

/// What the commands of a test did in all its repetitions.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    groups: Vec<Group>,
    tokens: f64,
}

impl Commands {
    /// Adds what a session timed while this load went through it.
    pub(crate) fn add(
        &mut self,
        session: &Session,
        load: Load,
        precision: Precision,
    ) -> tabla::Result<()> {
        self.tokens += f64::from(load.tokens);
        let known = self.groups.len();
        for (table, laps) in session.command_timings()? {
            for (cmd, lap) in table.cmds.iter().zip(&laps).filter(|(_, lap)| lap.runs > 0) {
                let at = self.group(table, cmd, precision);
                let group = &mut self.groups[at];
                let (bytes, operations) = work(table, cmd, lap, load);
                // Later loads go through the same commands.
                group.commands += usize::from(at >= known);
                group.runs += u64::from(lap.runs);
                group.seconds += lap.took.as_secs_f64();
                group.bytes += bytes;
                group.operations += operations;
            }
        }
        Ok(())
    }

    fn group(&mut self, table: &Table, cmd: &DispatchCmd, precision: Precision) -> usize {
        let what = without_layer(label(table, cmd));
        let kernel = cmd.kernel.name();
        let same = |g: &Group| (g.table, &g.kernel, &g.what) == (table.name, &kernel, &what);
        self.groups.iter().position(same).unwrap_or_else(|| {
            self.groups.push(Group {
                table: table.name,
                kernel,
                what,
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

    /// Whether nothing was timed.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// One object for each group.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let object = |g: &Group| {
            json!({
                "table": g.table,
                "kernel": g.kernel,
                "what": g.what,
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

    /// Writes a table, what takes longest first. Every figure is of a token.
    pub(crate) fn print(&self, test: &str, limits: Limits) -> Result<(), Failure> {
        let mut groups: Vec<&Group> = self.groups.iter().collect();
        groups.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let all: f64 = groups.iter().map(|group| group.seconds).sum();
        let mut rows = vec![HEADS.map(str::to_string).to_vec()];
        for g in groups {
            rows.push(vec![
                g.name(),
                g.commands.to_string(),
                format!("{:.1}", g.seconds / self.tokens * 1e6),
                percent(g.seconds, all),
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
            "\n{test}, {:.1} us a token:\n",
            all / self.tokens * 1e6
        ))?;
        print_rows(&rows)
    }
}

const HEADS: [&str; 11] = [
    "command", "n", "us", "time", "MB", "GB/s", "memory", "GFLOP", "GFLOP/s", "peak", "of",
];

/// Writes a table of equally many cells in each row, the first of which has the heads.
pub(crate) fn print_rows(rows: &[Vec<String>]) -> Result<(), Failure> {
    let columns = rows.first().map_or(0, Vec::len);
    // The rule below the heads has two characters at least.
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

/// A row; the first cell stands to the left.
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

/// The row below the heads.
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

/// What a command is for: the weight that it reads, or its operation.
pub(crate) fn label<'a>(table: &'a Table, cmd: &DispatchCmd) -> &'a str {
    let label = table.labels.get(cmd.label as usize);
    label.map_or(cmd.kernel.op.name(), String::as_str)
}

/// `blk.ffn_up` of `blk.7.ffn_up`.
fn without_layer(label: &str) -> String {
    let number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = label.split('.').filter(|part| !number(part)).collect();
    parts.join(".")
}

/// Bytes of weights and of the cache that a command moved in all its runs, each once a run, and
/// operations. Runs of a load are taken to be equally wide.
pub(crate) fn work(
    table: &Table,
    cmd: &DispatchCmd,
    lap: &CommandTiming,
    load: Load,
) -> (f64, f64) {
    let (runs, tokens) = (f64::from(lap.runs), f64::from(load.tokens));
    let live = (tokens / runs).min(f64::from(table.tokens));
    let depth = f64::from(load.depth);
    // A run ends at the position of its last token; a token sees those up to its own.
    let (reached, seen) = (
        depth + tokens * (runs + 1.0) / (2.0 * runs),
        depth + (tokens + 1.0) / 2.0,
    );
    let slots = || cmd.slots().iter().map(|slot| table.slot(*slot));
    let cached = || slots().filter(|s| matches!(s.place, BufferId::Keys(_) | BufferId::Values(_)));
    let cost = table.cost(cmd);
    let row_bytes = |bytes: u64, rows: u32| bytes as f64 / f64::from(rows.max(1));
    let bytes: f64 = match cmd.kernel.op {
        Op::Attention | Op::AttendPart => cached()
            .map(|s| row_bytes(s.bytes(), s.rows) * reached.min(f64::from(table.window(cmd))))
            .sum(),
        Op::RopeKv => cached().map(|s| row_bytes(s.bytes(), s.rows) * live).sum(),
        Op::Embed | Op::EmbedAdd => {
            let w = table.slot(cmd.slots[WEIGHT]);
            row_bytes(w.bytes(), w.rows) * live
        }
        _ => {
            let others =
                slots().filter(|s| !matches!(s.place, BufferId::Weight(..) | BufferId::State));
            cost.bytes as f64 - others.map(|s| s.bytes() as f64).sum::<f64>()
        }
    };
    // What has a row for each token does nothing for those that are not there.
    let rows = slots().any(|s| matches!(s.place, BufferId::Scratch(_)) && s.rows == table.tokens);
    let mut share = if rows {
        live / f64::from(table.tokens)
    } else {
        1.0
    };
    if matches!(cmd.kernel.op, Op::Attention | Op::AttendPart) {
        let positions = f64::from(table.window(cmd));
        share *= seen.min(positions) / positions;
    }
    (bytes * runs, cost.flops as f64 * share * runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_a_weight_are_one_group() {
        assert_eq!(without_layer("blk.12.ffn_up.weight"), "blk.ffn_up.weight");
        assert_eq!(without_layer("argmax"), "argmax");
    }

    #[test]
    fn a_table_has_columns_of_one_width() {
        let cells = ["ab".to_string(), "1".to_string()];
        assert_eq!(line(&cells, &[3, 2]), "| ab  |  1 |");
        assert_eq!(rule(&[3, 2]), "| --- | -: |");
    }
}
