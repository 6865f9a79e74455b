//! Budgets of kernels: `shaders/budgets.toml`.

use crate::kernels::matches;
use crate::row::Row;
use serde::Deserialize;

/// Budgets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Budgets {
    /// Storage types of the kernels that a test compiles.
    pub(crate) tested_types: Vec<String>,
    rules: Vec<Rule>,
}

/// Limits of the kernels of a pattern. Of several rules with a limit, the last counts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    kernels: Vec<String>,
    spills: Option<f64>,
    scratch_bytes: Option<f64>,
    waves_min: Option<f64>,
    instructions: Option<f64>,
    /// Time of the instructions of a product, as a multiple of that of the memory.
    roofline: Option<f64>,
}

/// Side of a limit on which values must be.
#[derive(Clone, Copy, Debug)]
enum Side {
    Most,
    Least,
}

/// A limit: its column, and its value in a rule.
struct Limit {
    column: &'static str,
    of: fn(&Rule) -> Option<f64>,
    side: Side,
}

const fn most(column: &'static str, of: fn(&Rule) -> Option<f64>) -> Limit {
    let side = Side::Most;
    Limit { column, of, side }
}

const LIMITS: [Limit; 5] = [
    most("spills", |rule| rule.spills),
    most("scratch_bytes", |rule| rule.scratch_bytes),
    most("instructions", |rule| rule.instructions),
    most("roofline", |rule| rule.roofline),
    Limit {
        column: "waves",
        of: |rule| rule.waves_min,
        side: Side::Least,
    },
];

/// Rounds to two digits after the point.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

impl Budgets {
    /// Parses the file.
    ///
    /// # Errors
    ///
    /// The message of the parser.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    /// Returns the rules that apply to a kernel.
    fn rules_of(&self, row: &Row) -> Vec<&Rule> {
        let names = [row.stem.as_str(), row.name.as_str()];
        let applies = |rule: &&Rule| rule.kernels.iter().any(|pattern| matches(pattern, names));
        self.rules.iter().filter(applies).collect()
    }

    /// Returns the value of a limit for a kernel.
    fn value_of(&self, limit: &Limit, row: &Row) -> Option<f64> {
        let rules = self.rules_of(row);
        rules.into_iter().rev().find_map(limit.of)
    }

    /// Returns what exceeds its budget, and by how much.
    pub(crate) fn exceeded(&self, rows: &[Row]) -> Vec<String> {
        let mut findings = Vec::new();
        for row in rows {
            for limit in &LIMITS {
                let Some((value, allowed)) = row.get(limit.column).zip(self.value_of(limit, row))
                else {
                    continue;
                };
                let (name, column) = (&row.name, limit.column);
                let difference = round((value - allowed).abs());
                let value = round(value);
                match limit.side {
                    Side::Most if value > allowed => findings.push(format!(
                        "{name}: {column}: {value}, at most {allowed}: {difference} over"
                    )),
                    Side::Least if value < allowed => findings.push(format!(
                        "{name}: {column}: {value}, at least {allowed}: {difference} under"
                    )),
                    _ => {}
                }
            }
        }
        findings
    }

    /// Returns a line for each limit of a rule with the kernel that comes closest to it.
    pub(crate) fn closest(&self, rows: &[Row]) -> String {
        let mut text = String::new();
        for rule in &self.rules {
            for limit in LIMITS.iter().filter(|limit| (limit.of)(rule) > Some(0.0)) {
                // Another rule may come later.
                let counts = |row: &&Row| {
                    let rules = self.rules_of(row);
                    let last = rules.into_iter().rfind(|rule| (limit.of)(rule).is_some());
                    last.is_some_and(|last| std::ptr::eq(last, rule))
                };
                let rows = rows.iter().filter(counts);
                let values = rows.filter_map(|row| Some((row.get(limit.column)?, &row.name)));
                let by_value = |a: &(f64, &String), b: &(f64, &String)| a.0.total_cmp(&b.0);
                let (found, word) = match limit.side {
                    Side::Most => (values.max_by(by_value), "at most"),
                    Side::Least => (values.min_by(by_value), "at least"),
                };
                if let (Some((value, name)), Some(allowed)) = (found, (limit.of)(rule)) {
                    let (patterns, column) = (rule.kernels.join(" "), limit.column);
                    let value = round(value);
                    text += &format!("{patterns}: {column}: {value}, {word} {allowed} ({name})\n");
                }
            }
        }
        text
    }

    /// Returns the patterns that match no kernel.
    pub(crate) fn unused(&self, kernels: &[[&str; 2]]) -> Vec<String> {
        let patterns = self.rules.iter().flat_map(|rule| &rule.kernels);
        let unused = patterns.filter(|p| !kernels.iter().any(|kernel| matches(p, *kernel)));
        unused
            .map(|p| format!("budgets: {p} matches no kernel"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        tested_types = ["q4_0"]
        [[rules]]
        kernels = ["*"]
        spills = 0
        instructions = 100
        [[rules]]
        kernels = ["gemv"]
        waves_min = 16
        instructions = 200
    "#;

    fn row(name: &str, values: &[(&str, f64)]) -> Row {
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_string(), *value));
        Row {
            name: name.to_string(),
            stem: name.to_string(),
            values: values.collect(),
            limit: String::new(),
        }
    }

    #[test]
    fn the_last_rule_with_a_limit_counts() {
        let budgets = Budgets::parse(TEXT).expect("valid TOML");
        let fits = [
            row(
                "gemv",
                &[("instructions", 200.0), ("waves", 16.0), ("spills", 0.0)],
            ),
            row("add", &[("instructions", 100.0), ("waves", 1.0)]),
        ];
        assert!(budgets.exceeded(&fits).is_empty());
        let over = [
            row("gemv", &[("instructions", 203.0), ("waves", 12.0)]),
            row("add", &[("spills", 2.0)]),
        ];
        assert_eq!(
            budgets.exceeded(&over),
            [
                "gemv: instructions: 203, at most 200: 3 over",
                "gemv: waves: 12, at least 16: 4 under",
                "add: spills: 2, at most 0: 2 over",
            ]
        );
        let closest = budgets.closest(&fits);
        let expected = "\
            *: instructions: 100, at most 100 (add)\n\
            gemv: instructions: 200, at most 200 (gemv)\n\
            gemv: waves: 16, at least 16 (gemv)\n";
        assert_eq!(closest, expected);
        assert_eq!(budgets.unused(&[["add", "add"]]).len(), 1);
    }
}
