//! Kernels of a model's tables, and the geometric means of their figures.

use crate::kernels::Kernel;
use crate::row::{Mean, Row, aligned};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A table of commands: how often it runs each kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workload {
    name: String,
    /// Folders of variants that the table does not use.
    #[serde(default)]
    without: Vec<String>,
    /// Number of commands per kernel. A kernel without a variant is the preferred one of the device.
    kernels: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    workloads: Vec<Workload>,
}

/// Parses the file of workloads.
///
/// # Errors
///
/// The message of the parser.
pub(crate) fn parse(text: &str) -> Result<Vec<Workload>, String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
    Ok(file.workloads)
}

impl Workload {
    /// Returns the kernel of a name: that of the name itself, or the last of `preference`.
    pub(crate) fn preferred<'a>(
        &self,
        name: &str,
        kernels: &'a [Kernel],
        preference: &[String],
    ) -> Option<&'a Kernel> {
        let has_name = |k: &&Kernel| k.name.split('.').next() == Some(name);
        let is_used = |k: &&Kernel| {
            let mut folders = k.variant.iter().flat_map(|v| v.split('+'));
            !folders.any(|folder| self.without.iter().any(|w| w == folder))
        };
        let rank = |k: &&Kernel| {
            preference
                .iter()
                .position(|v| Some(v) == k.variant.as_ref())
        };
        let exact = kernels
            .iter()
            .find(|k| k.name == name && name.contains('.'));
        let of_name = kernels.iter().filter(has_name).filter(is_used);
        exact.or_else(|| of_name.max_by_key(rank))
    }

    /// Returns the names of its kernels.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.kernels.keys().map(String::as_str)
    }

    /// Returns a table of its kernels and their means, each command counted once.
    pub(crate) fn report<'a>(&self, find: &dyn Fn(&str) -> Option<&'a Row>) -> String {
        let mut lines = vec![
            ["kernel", "commands", "instr", "inverse", "per output"]
                .map(str::to_string)
                .to_vec(),
        ];
        let [mut inverse, mut per_output] = [Mean::default(); 2];
        for (name, count) in &self.kernels {
            let Some(row) = find(name) else {
                continue;
            };
            let value = row.get("inverse_throughput");
            inverse.add(value, *count);
            per_output.add(row.per_output(), *count);
            let text = |value: Option<f64>| value.map_or("-".to_string(), |v| format!("{v:.0}"));
            lines.push(vec![
                row.name.clone(),
                count.to_string(),
                text(row.get("instructions")),
                text(value),
                row.per_output()
                    .map_or("-".to_string(), |v| format!("{v:.2}")),
            ]);
        }
        let mean = |mean: Mean| {
            mean.value()
                .map_or("-".to_string(), |mean| format!("{mean:.1}"))
        };
        lines.push(vec![
            "geometric mean".to_string(),
            String::new(),
            String::new(),
            mean(inverse),
            mean(per_output),
        ]);
        format!("{}\n{}", self.name, aligned(&lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str) -> Kernel {
        let (stem, variant) = match name.split_once('.') {
            Some((stem, variant)) => (stem, Some(variant.to_string())),
            None => (name, None),
        };
        Kernel {
            name: name.to_string(),
            stem: stem.to_string(),
            dtype: None,
            variant,
            wgsl: String::new(),
            buffers: 1,
            units: 1,
            tokens: 1,
            lanes: 64,
        }
    }

    #[test]
    fn the_last_variant_of_the_device_is_preferred() {
        let kernels = ["norm", "norm.b", "norm.a", "add"].map(kernel);
        let preference = ["a", "b"].map(str::to_string);
        let mut workload = Workload {
            name: String::new(),
            without: Vec::new(),
            kernels: BTreeMap::new(),
        };
        let kernel = workload.preferred("norm", &kernels, &preference);
        assert_eq!(kernel.map(|k| k.name.as_str()), Some("norm.b"));
        workload.without.push("b".to_string());
        let name = |name| {
            let kernel = workload.preferred(name, &kernels, &preference);
            kernel.map(|k| k.name.as_str())
        };
        assert_eq!(name("norm"), Some("norm.a"));
        assert_eq!(name("norm.b"), Some("norm.b"));
        assert_eq!(name("add"), Some("add"));
        assert_eq!(name("mul"), None);
    }
}
