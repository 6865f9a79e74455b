//! Figures of kernels: rows of a table, saved as tab-separated text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Columns, in order: the name in files, and the heading in tables.
pub(crate) const COLUMNS: [(&str, &str); 25] = [
    ("vgprs", "VGPR"),
    ("sgprs", "SGPR"),
    ("spills", "spill"),
    ("scratch_bytes", "scratch"),
    ("workgroup_bytes", "LDS B"),
    ("waves", "waves"),
    ("instructions", "instr"),
    ("valu", "VALU"),
    ("salu", "SALU"),
    ("load", "load"),
    ("store", "store"),
    ("smem", "SMEM"),
    ("lds", "LDS"),
    ("matrix", "matrix"),
    ("branch", "branch"),
    ("barrier", "barr"),
    ("other", "other"),
    ("latency", "latency"),
    ("latency_per_wave", "lat/wave"),
    ("inverse_throughput", "inverse"),
    ("outputs", "outputs"),
    ("loop_valu", "loop VALU"),
    ("loop_cycles", "loop cycles"),
    ("loaded", "loaded"),
    ("roofline", "ratio"),
];

/// Heading of the last column: what limits a product.
const LIMIT: &str = "limit";

/// Figures of one kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    /// Name of the kernel.
    pub(crate) name: String,
    /// Operation; not saved.
    pub(crate) stem: String,
    /// Values of the columns; a statistic that the driver lacks is missing.
    pub(crate) values: BTreeMap<String, f64>,
    /// What limits the kernel, if it is a product.
    pub(crate) limit: String,
}

impl Row {
    /// Returns the value of a column.
    pub(crate) fn get(&self, column: &str) -> Option<f64> {
        self.values.get(column).copied()
    }

    /// Returns the value of a figure of [`COMPARED`].
    fn figure(&self, name: &str) -> Option<f64> {
        match name {
            "per_output" => self.per_output(),
            column => self.get(column),
        }
    }

    /// Inverse throughput of 64 lanes per result of theirs.
    pub(crate) fn per_output(&self) -> Option<f64> {
        Some(self.get("inverse_throughput")? / self.get("outputs")?)
    }
}

fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_string(),
        Some(value) if value.fract() == 0.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// Returns an aligned table.
pub(crate) fn table(rows: &[Row]) -> String {
    let headings = COLUMNS.iter().map(|(_, heading)| (*heading).to_string());
    let mut lines = vec![
        std::iter::once("kernel".to_string())
            .chain(headings)
            .collect::<Vec<_>>(),
    ];
    lines[0].push(LIMIT.to_string());
    for row in rows {
        let values = COLUMNS.iter().map(|(name, _)| number(row.get(name)));
        let mut line: Vec<_> = std::iter::once(row.name.clone()).chain(values).collect();
        line.push(row.limit.clone());
        lines.push(line);
    }
    aligned(&lines)
}

/// Aligns columns: the first and the last to the left, the others to the right.
pub(crate) fn aligned(lines: &[Vec<String>]) -> String {
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at| {
        lines
            .iter()
            .filter_map(|line| line.get(at))
            .map(String::len)
            .max()
    };
    let widths: Vec<usize> = (0..count).map(|at| width(at).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(at, (cell, width))| match at == 0 || at + 1 == count {
                true => format!("{cell:width$}"),
                false => format!("{cell:>width$}"),
            });
        let cells: Vec<_> = cells.collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Returns the text of a file with all rows.
pub(crate) fn saved(rows: &[Row]) -> String {
    let mut text = String::from("kernel");
    COLUMNS
        .iter()
        .for_each(|(name, _)| text.extend(["\t", name]));
    text.extend(["\t", LIMIT, "\n"]);
    for row in rows {
        text.push_str(&row.name);
        for (name, _) in COLUMNS {
            match row.get(name) {
                Some(value) => write!(text, "\t{value}").expect("writing to a String cannot fail"),
                None => text.push_str("\t-"),
            }
        }
        text.extend(["\t", &row.limit, "\n"]);
    }
    text
}

/// Parses the text of [`saved`]. Columns may be missing.
///
/// # Errors
///
/// The line that is not a row.
pub(crate) fn parsed(text: &str) -> Result<Vec<Row>, String> {
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap_or_default().split('\t').collect();
    if names.first() != Some(&"kernel") {
        return Err("line 1: expected the names of the columns".to_string());
    }
    let row = |(at, line): (usize, &str)| {
        let mut row = Row::default();
        for (name, value) in names.iter().zip(line.split('\t')) {
            match *name {
                "kernel" => row.name = value.to_string(),
                LIMIT => row.limit = value.to_string(),
                _ if value == "-" => {}
                _ => {
                    let value = value.parse();
                    let value = value.map_err(|e| format!("line {}: {name}: {e}", at + 2))?;
                    row.values.insert((*name).to_string(), value);
                }
            }
        }
        Ok(row)
    };
    lines.enumerate().map(row).collect()
}

/// Figures that two versions are compared by.
const COMPARED: [&str; 5] = [
    "vgprs",
    "waves",
    "instructions",
    "inverse_throughput",
    "per_output",
];

/// Returns a table of the figures of two versions, and the geometric means of their ratios: of every
/// operation with several kernels, and of all.
pub(crate) fn compared(before: &[Row], after: &[Row]) -> String {
    let mut head = vec!["kernel".to_string()];
    COMPARED.iter().for_each(|name| {
        head.extend([(*name).to_string(), String::new(), "ratio".to_string()]);
    });
    head.push(LIMIT.to_string());
    let mut lines = vec![head];
    let mut all = Means::default();
    let mut of_operations: BTreeMap<&str, Means> = BTreeMap::new();
    for row in after {
        let Some(old) = before.iter().find(|old| old.name == row.name) else {
            lines.push(vec![row.name.clone(), "new".to_string()]);
            continue;
        };
        let mut line = vec![row.name.clone()];
        let pairs = COMPARED.map(|name| [old, row].map(|row| row.figure(name)));
        for [a, b] in pairs {
            line.extend([number(a), number(b), ratio(ratio_of([a, b]))]);
        }
        all.add(pairs);
        of_operations.entry(&row.stem).or_default().add(pairs);
        line.push(format!("{} -> {}", old.limit, row.limit));
        lines.push(line);
    }
    let several = of_operations.iter().filter(|(_, means)| means.count > 1);
    lines.extend(several.map(|(stem, means)| means.line(format!("mean of {stem}"))));
    lines.push(all.line("geometric mean".to_string()));
    let is_gone = |old: &&Row| !after.iter().any(|row| row.name == old.name);
    let gone = before.iter().filter(is_gone).count();
    let mut text = aligned(&lines);
    if gone > 0 {
        text += &format!("only in the saved file: {gone} kernels\n");
    }
    text
}

fn ratio_of([before, after]: [Option<f64>; 2]) -> Option<f64> {
    let (before, after) = before.zip(after)?;
    (before > 0.0).then_some(after / before)
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_string(), |ratio| format!("{ratio:.3}"))
}

/// Geometric means of the ratios of [`COMPARED`].
#[derive(Default)]
struct Means {
    count: usize,
    of: [Mean; COMPARED.len()],
}

impl Means {
    fn add(&mut self, pairs: [[Option<f64>; 2]; COMPARED.len()]) {
        self.count += 1;
        for (mean, pair) in self.of.iter_mut().zip(pairs) {
            mean.add(ratio_of(pair), 1.0);
        }
    }

    fn line(&self, name: String) -> Vec<String> {
        let means = self.of.iter().flat_map(|mean| {
            let none = String::new();
            [none.clone(), none, ratio(mean.value())]
        });
        std::iter::once(name)
            .chain(means)
            .chain([String::new()])
            .collect()
    }
}

/// Weighted geometric mean.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    logarithms: f64,
    weights: f64,
}

impl Mean {
    /// Adds a positive value; others do not count.
    pub(crate) fn add(&mut self, value: Option<f64>, weight: f64) {
        if let Some(value) = value.filter(|value| *value > 0.0) {
            self.logarithms += weight * value.ln();
            self.weights += weight;
        }
    }

    /// Returns the mean of the values; `None` without any.
    pub(crate) fn value(self) -> Option<f64> {
        (self.weights > 0.0).then(|| (self.logarithms / self.weights).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, inverse: f64) -> Row {
        let values = [("inverse_throughput", inverse), ("outputs", 4.0)];
        Row {
            name: name.to_string(),
            stem: String::new(),
            values: values.map(|(name, value)| (name.to_string(), value)).into(),
            limit: "memory 0.50".to_string(),
        }
    }

    #[test]
    fn saved_rows_are_read_again() {
        let rows = [row("a", 1.5), row("b", 2.0)];
        assert_eq!(parsed(&saved(&rows)).as_deref(), Ok(&rows[..]));
        assert!(parsed("a\tb\n").is_err());
    }

    #[test]
    fn comparison_has_the_geometric_mean_of_the_ratios() {
        // Ratios 1/2 and 1/8: the mean is 1/4.
        let text = compared(
            &[row("a", 2.0), row("b", 8.0)],
            &[row("a", 1.0), row("b", 1.0)],
        );
        let last = text.lines().last().expect("a line");
        assert!(
            last.starts_with("geometric mean") && last.contains("0.250"),
            "{text}"
        );
    }
}
