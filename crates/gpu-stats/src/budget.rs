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

    /// Returns what exceeds its budget, and by how much.
    pub(crate) fn exceeded(&self, rows: &[Row]) -> Vec<String> {
        let mut findings = Vec::new();
        for row in rows {
            let name = &row.name;
            let rules = self.rules_of(row);
            let limit = |of: fn(&Rule) -> Option<f64>| rules.iter().rev().find_map(|r| of(r));
            for (column, most) in [
                ("spills", limit(|r| r.spills)),
                ("scratch_bytes", limit(|r| r.scratch_bytes)),
                ("instructions", limit(|r| r.instructions)),
            ] {
                if let (Some(most), Some(value)) = (most, row.get(column))
                    && value > most
                {
                    let over = value - most;
                    findings.push(format!(
                        "{name}: {column}: {value}, at most {most}: {over} over"
                    ));
                }
            }
            if let (Some(least), Some(waves)) = (limit(|r| r.waves_min), row.get("waves"))
                && waves < least
            {
                let under = least - waves;
                findings.push(format!(
                    "{name}: waves: {waves}, at least {least}: {under} under"
                ));
            }
        }
        findings
    }

    /// Returns a line for each rule with the kernels that come closest to its limits.
    pub(crate) fn closest(&self, rows: &[Row]) -> String {
        let mut text = String::new();
        for rule in &self.rules {
            let counts = |of: fn(&Rule) -> Option<f64>, row: &Row| {
                let rules = self.rules_of(row);
                let last = rules.into_iter().rfind(|rule| of(rule).is_some());
                last.is_some_and(|last| std::ptr::eq(last, rule))
            };
            let values = |column: &'static str, of: fn(&Rule) -> Option<f64>| {
                let rows = rows.iter().filter(move |row| counts(of, row));
                rows.filter_map(move |row| Some((row.get(column)?, row.name.as_str())))
            };
            let by_value = |a: &(f64, &str), b: &(f64, &str)| a.0.total_cmp(&b.0);
            let patterns = rule.kernels.join(" ");
            if let (Some(limit), Some((value, name))) = (
                rule.instructions,
                values("instructions", |r| r.instructions).max_by(by_value),
            ) {
                text += &format!("{patterns}: instructions: {value} of {limit} ({name})\n");
            }
            if let (Some(limit), Some((value, name))) = (
                rule.waves_min,
                values("waves", |r| r.waves_min).min_by(by_value),
            ) {
                text += &format!("{patterns}: waves: {value}, at least {limit} ({name})\n");
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
            *: instructions: 100 of 100 (add)\n\
            gemv: instructions: 200 of 200 (gemv)\n\
            gemv: waves: 16, at least 16 (gemv)\n";
        assert_eq!(closest, expected);
        assert_eq!(budgets.unused(&[["add", "add"]]).len(), 1);
    }
}
