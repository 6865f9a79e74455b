//! `tabla list`: the models in the cache of downloads.

use crate::hub::{self, StoredModel};
use crate::output::{Failure, cache_folders, terminal};
use clap::Args;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, SystemTime};
use tabla::Source;
use tabla::load::LoadOptions;
use tabla::tools::{CachedModel, compiled_target};

/// Units of an age in seconds, in descending order.
const UNITS: [(&str, u64); 4] = [
    ("day", 86400),
    ("hour", 3600),
    ("minute", 60),
    ("second", 1),
];

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct ListArgs {
    /// List the models that --cache has compiled, those that were used last first
    #[arg(long)]
    compiled: bool,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ListArgs) -> Result<(), Failure> {
    if args.compiled {
        return list_compiled(args);
    }
    let stored = hub::models()?;
    let total = stored.len();
    let mut models: Vec<StoredModel> = stored
        .into_iter()
        .filter(|model| is_supported(&model.path))
        .collect();
    models.sort_by_key(|model| std::cmp::Reverse(model.modified));
    if args.json {
        let models: Vec<Value> = models.iter().map(json).collect();
        return terminal::line(&json!(models).to_string());
    }
    print(&models)?;
    match total - models.len() {
        0 => {}
        1 => terminal::note("1 other model is not supported"),
        others => terminal::note(&format!("{others} other models are not supported")),
    }
    Ok(())
}

/// Lists the compiled models.
fn list_compiled(args: &ListArgs) -> Result<(), Failure> {
    let Some(folder) = cache_folders::compiled() else {
        return Err(Failure::new("there is no cache folder: set XDG_CACHE_HOME"));
    };
    let models = tabla::tools::cached_models(&folder)?;
    if args.json {
        let models: Vec<Value> = models.iter().map(compiled_json).collect();
        return terminal::line(&json!(models).to_string());
    }
    if models.is_empty() {
        let folder = terminal::one_line(&folder.to_string_lossy());
        terminal::note(&format!(
            "no models in {folder}; --cache compiles one when it is loaded"
        ));
        return Ok(());
    }
    let mut rows = vec![["NAME", "FOR", "SIZE", "USED"].map(str::to_string)];
    rows.extend(models.iter().map(|model| {
        let (name, layouts) = described(model);
        let bytes = terminal::bytes(model.bytes);
        [
            name,
            layouts,
            bytes,
            age(model.used.elapsed().unwrap_or_default()),
        ]
    }));
    print_rows(&rows)
}

/// Returns the name of the source of a compiled model and its devices.
fn described(model: &CachedModel) -> (String, String) {
    match &model.header {
        Some(header) => {
            let layouts = header.layouts.iter().map(|l| compiled_target(*l));
            (
                terminal::one_line(&header.source),
                layouts.collect::<Vec<_>>().join(", "),
            )
        }
        None => {
            let name = model.path.file_name().unwrap_or_default();
            (
                terminal::one_line(&name.to_string_lossy()),
                "another version".to_string(),
            )
        }
    }
}

fn compiled_json(model: &CachedModel) -> Value {
    let (name, layouts) = described(model);
    let used = model.used.duration_since(SystemTime::UNIX_EPOCH);
    json!({
        "name": name,
        "for": layouts,
        "bytes": model.bytes,
        "used": used.unwrap_or_default().as_secs(),
        "path": model.path.to_string_lossy(),
    })
}

/// Whether the program can run the model.
fn is_supported(path: &Path) -> bool {
    let source = Source::Path(path.to_path_buf());
    tabla::tools::estimate(&source, &LoadOptions::default()).is_ok()
}

fn print(models: &[StoredModel]) -> Result<(), Failure> {
    if models.is_empty() {
        let folder = hub::root()?;
        let folder = folder.to_string_lossy();
        terminal::note(&format!(
            "no models in {}; `tabla pull ORG/REPO:QUANT` downloads one",
            terminal::one_line(&folder)
        ));
        return Ok(());
    }
    let mut rows = vec![["NAME", "QUANT", "SIZE", "MODIFIED"].map(str::to_string)];
    rows.extend(models.iter().map(|model| {
        [
            terminal::one_line(&model.name),
            model
                .quantization
                .clone()
                .unwrap_or_else(|| "-".to_string()),
            terminal::bytes(model.bytes),
            // A time in the future is now.
            age(model.modified.elapsed().unwrap_or_default()),
        ]
    }));
    print_rows(&rows)
}

/// Prints the rows of a table.
fn print_rows(rows: &[[String; 4]]) -> Result<(), Failure> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let [name, second, size] = [width(0), width(1), width(2)];
    for [a, b, c, d] in rows {
        terminal::line(&format!("{a:<name$}  {b:<second$}  {c:>size$}  {d}"))?;
    }
    Ok(())
}

/// Formats an age in its largest unit: `3 days ago`.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let unit = UNITS.iter().find(|(_, length)| seconds >= *length);
    let Some((unit, length)) = unit else {
        return "now".to_string();
    };
    match seconds / length {
        1 => format!("1 {unit} ago"),
        count => format!("{count} {unit}s ago"),
    }
}

fn json(model: &StoredModel) -> Value {
    let since_epoch = model.modified.duration_since(SystemTime::UNIX_EPOCH);
    json!({
        "name": model.name,
        "quantization": model.quantization,
        "bytes": model.bytes,
        "modified": since_epoch.unwrap_or_default().as_secs(),
        "path": model.path.to_string_lossy(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_ages() {
        for (seconds, expected) in [
            (0, "now"),
            (1, "1 second ago"),
            (119, "1 minute ago"),
            (7200, "2 hours ago"),
            (86399, "23 hours ago"),
            (864_000, "10 days ago"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), expected);
        }
    }
}
