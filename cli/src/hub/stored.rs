//! Lists the models in the cache.

use super::cache::Cache;
use super::choose::{self, Selection};
use super::{HubModel, fetch_all};
use crate::output::Failure;
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Minimum similarity of a name that is suggested, as for the options of the program.
const SIMILARITY_MIN: f64 = 0.7;
/// Maximum number of suggested names.
const SUGGESTIONS_MAX: usize = 3;

/// A complete model in the cache.
#[derive(Clone, Debug)]
pub(crate) struct StoredModel {
    /// `ORG/REPO`, for GGUF files with the quantization or the file name: a name for `-hf`.
    pub(crate) name: String,
    /// Quantization in the name of the file.
    pub(crate) quantization: Option<String>,
    /// Size of the files.
    pub(crate) bytes: u64,
    /// Time of the newest file.
    pub(crate) modified: SystemTime,
    /// The file or folder to open.
    pub(crate) path: PathBuf,
}

/// Returns the complete models of the newest snapshots, sorted by name.
pub(crate) fn models() -> Result<Vec<StoredModel>, Failure> {
    let mut models = Vec::new();
    for cache in Cache::all()? {
        // Old names without an organization are no names for `-hf`.
        let is_name = cache.repo().parse::<HubModel>().is_ok();
        let Some(commit) = cache.commit().filter(|_| is_name) else {
            continue;
        };
        // A snapshot without a folder has no files.
        let names = cache.names(&commit).unwrap_or_default();
        let snapshot = cache.snapshot(&commit);
        let selections = choose::models(&names).into_iter();
        models.extend(selections.filter_map(|(label, selection)| {
            // A folder without one of its shards cannot be opened.
            let (files, path) = files(&selection, &names, &snapshot).ok()?;
            stored(cache.repo(), label, &files, path)
        }));
    }
    Ok(models)
}

/// Returns the files of a model and the path to open.
pub(super) fn files(
    selection: &Selection,
    names: &[String],
    snapshot: &Path,
) -> Result<(Vec<PathBuf>, PathBuf), Failure> {
    let files = RefCell::new(Vec::new());
    let add = |name: &str| {
        files.borrow_mut().push(snapshot.join(name));
        Ok(())
    };
    let open = fetch_all(selection, names, snapshot, &add)?;
    Ok((files.into_inner(), open))
}

/// Returns `None` if a file was removed in the meantime.
fn stored(
    repo: &str,
    label: Option<String>,
    files: &[PathBuf],
    path: PathBuf,
) -> Option<StoredModel> {
    let quantization = label.as_deref().and_then(choose::quantization);
    let mut model = StoredModel {
        name: match &label {
            Some(label) => format!("{repo}:{label}"),
            None => repo.to_string(),
        },
        quantization: quantization.map(str::to_uppercase),
        bytes: 0,
        modified: SystemTime::UNIX_EPOCH,
        path,
    };
    for file in files {
        let metadata = fs::metadata(file).ok()?;
        model.bytes += metadata.len();
        model.modified = model.modified.max(metadata.modified().ok()?);
    }
    Some(model)
}

/// Returns the path of a model in the cache, without network access.
pub(crate) fn path(name: &str) -> Result<PathBuf, Failure> {
    let model: HubModel = name.parse().map_err(|_| unknown(name))?;
    let cache = Cache::of(&model.repo)?;
    match cache.commit() {
        Some(_) => super::cached(&cache, &model),
        None => Err(unknown(name)),
    }
}

/// Returns the error of a name that is not in the cache, with similar names.
pub(super) fn unknown(name: &str) -> Failure {
    // The cache may be unreadable; this is then a less important error.
    let models = models().unwrap_or_default();
    let names = models.iter().map(|model| model.name.as_str());
    let similar = similar(name, names);
    let hint = match similar.is_empty() {
        true => "`tabla list` lists the models".to_string(),
        false => format!("similar models: {}", similar.join(", ")),
    };
    Failure::new(format!(
        "{name} is neither a file nor a downloaded model; {hint}"
    ))
}

/// Returns the names that are similar to an unknown one, which may lack the organization.
fn similar<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let lower = name.to_lowercase();
    let similarity = |other: &str| {
        let other = other.to_lowercase();
        let (_, without_org) = other.split_once('/').unwrap_or(("", &other));
        strsim::jaro_winkler(&lower, &other).max(strsim::jaro_winkler(&lower, without_org))
    };
    let mut found: Vec<(f64, &str)> = names.map(|other| (similarity(other), other)).collect();
    found.retain(|(similarity, _)| *similarity >= SIMILARITY_MIN);
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let names = found.into_iter().map(|(_, name)| name);
    names.take(SUGGESTIONS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_similar_names() {
        let names = [
            "Qwen/Qwen3-0.6B-GGUF:Q8_0",
            "ggml-org/gemma-3-1b-it-GGUF:Q4_K_M",
            "openai/whisper",
        ];
        for (name, expected) in [
            ("qwen/qwen3-0.6b-gguf:q8_0", &names[..1]),
            ("Qwen3-0.6B", &names[..1]),
            ("gemma-3-1b", &names[1..2]),
            ("xyz", &[]),
        ] {
            let found = similar(name, names.into_iter());
            assert_eq!(
                found.get(..expected.len()),
                Some(expected),
                "{name}: {found:?}"
            );
            assert_eq!(found.is_empty(), expected.is_empty(), "{name}: {found:?}");
        }
    }
}
