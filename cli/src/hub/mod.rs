//! Downloads models from the Hugging Face Hub.
//!
//! The cache is shared with Python's `huggingface_hub`, so that no file is downloaded twice. The
//! crate `hf-hub` is not used: its download sends the token to the host of a redirect, uses any etag as a
//! file name, and does not verify hashes.

mod cache;
mod choose;
mod download;
mod remove;
mod server;
mod stored;

use crate::output::Failure;
use cache::Cache;
use choose::Selection;
use download::Download;
use server::{RequestError, Server};
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub(crate) use cache::{repo_of, root};
pub(crate) use choose::quantization;
pub(crate) use remove::{Removal, remove_incomplete};
pub(crate) use stored::{StoredModel, models, path};

/// Maximum size of a shard index in bytes.
const INDEX_BYTES_MAX: u64 = 16 << 20;

/// Extensions of model files.
const MODEL_EXTENSIONS: [&str; 3] = ["gguf", "safetensors", "bin"];

/// A model name: `ORG/REPO` or `ORG/REPO:FILE-OR-QUANT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubModel {
    /// `ORG/REPO`, with valid characters only.
    repo: String,
    /// File name or quantization.
    file_or_quant: Option<String>,
}

impl HubModel {
    /// Returns the name as it was given.
    pub(crate) fn name(&self) -> String {
        match &self.file_or_quant {
            Some(name) => format!("{}:{name}", self.repo),
            None => self.repo.clone(),
        }
    }
}

impl HubModel {
    /// Returns the model if an argument is its name: a path that exists, or the name of a model file
    /// without a repository, is not.
    pub(crate) fn of_argument(argument: &Path) -> Option<Self> {
        let model: Self = argument.to_str()?.parse().ok()?;
        let is_file = model.file_or_quant.is_none() && is_model_file(argument);
        (!is_file && !argument.exists()).then_some(model)
    }
}

/// Whether the path has the extension of a model file.
pub(crate) fn is_model_file(path: &Path) -> bool {
    let extension = path.extension();
    MODEL_EXTENSIONS
        .iter()
        .any(|other| extension.is_some_and(|extension| extension == *other))
}

impl FromStr for HubModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (repo, file_or_quant) = match text.split_once(':') {
            Some((repo, name)) => (repo, Some(name.to_string())),
            None => (text, None),
        };
        let well_formed = repo
            .split_once('/')
            .is_some_and(|(org, name)| is_name(org) && is_name(name));
        if !well_formed || file_or_quant.as_deref() == Some("") {
            return Err("expected ORG/REPO or ORG/REPO:QUANT".to_string());
        }
        let repo = repo.to_string();
        Ok(Self {
            repo,
            file_or_quant,
        })
    }
}

/// Whether this is a valid name of a user or model on the Hub. Valid names cannot escape a folder.
fn is_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_separator = |c: char| matches!(c, '-' | '.');
    (1..=96).contains(&name.len())
        && name.chars().all(is_inner)
        && !name.starts_with(is_separator)
        && !name.ends_with(is_separator)
        && !name.contains("--")
        && !name.contains("..")
}

/// Source of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The server, with the cache.
    Server,
    /// The cache only.
    Cache,
}

impl Access {
    /// Returns `Cache` for `--offline`, or if `HF_HUB_OFFLINE` is set.
    #[expect(clippy::fn_params_excessive_bools, reason = "the value of --offline")]
    pub(crate) fn new(offline: bool) -> Self {
        if offline {
            return Self::Cache;
        }
        let value = std::env::var("HF_HUB_OFFLINE").unwrap_or_default();
        match value.to_ascii_uppercase().as_str() {
            "1" | "ON" | "YES" | "TRUE" => Self::Cache,
            _ => Self::Server,
        }
    }
}

/// Returns the local path of a model, downloaded if needed: a GGUF file (the first part of a split file)
/// or a folder with safetensors. `report` receives progress messages.
pub(crate) fn locate(
    model: &HubModel,
    access: Access,
    report: fn(&str),
) -> Result<PathBuf, Failure> {
    let cache = Cache::of(&model.repo)?;
    if access == Access::Cache {
        return cached(&cache, model);
    }
    let server = Server::from_env()?;
    let listing = match server.listing(&model.repo) {
        Ok(listing) => listing,
        Err(RequestError::Permanent(failure)) => return Err(failure),
        Err(RequestError::Transient(failure)) => {
            let path = cached(&cache, model).map_err(|_| failure)?;
            let (host, repo) = (server.host(), &model.repo);
            report(&format!("cannot reach {host}: using the cached {repo}"));
            return Ok(path);
        }
    };
    let selection = choose::choose(&listing.names, model.file_or_quant.as_deref())
        .map_err(|reason| Failure::new(format!("{} {reason}", model.repo)))?;
    let download = Download {
        server: &server,
        cache: &cache,
        commit: &listing.commit,
        report,
    };
    let fetch = |name: &str| download.fetch(name);
    let snapshot = cache.snapshot(&listing.commit);
    let path = fetch_all(&selection, &listing.names, &snapshot, &fetch)?;
    cache.set_commit(&listing.commit)?;
    Ok(path)
}

/// Returns the path of a model in the cache.
fn cached(cache: &Cache, model: &HubModel) -> Result<PathBuf, Failure> {
    let fail = |reason: &str| {
        let (repo, folder) = (&model.repo, cache.folder().display());
        Failure::new(format!(
            "{repo} is not available offline: {folder} {reason}"
        ))
    };
    let commit = cache
        .commit()
        .ok_or_else(|| fail("has no snapshot of it"))?;
    let names = cache.names(&commit)?;
    let file_or_quant = model.file_or_quant.as_deref();
    let selection = choose::choose(&names, file_or_quant).map_err(|reason| fail(&reason))?;
    fetch_all(&selection, &names, &cache.snapshot(&commit), &|_| Ok(()))
}

/// Fetches the selected files and the shards of their index. Returns the path to open.
fn fetch_all(
    selection: &Selection,
    names: &[String],
    snapshot: &Path,
    fetch: &dyn Fn(&str) -> Result<(), Failure>,
) -> Result<PathBuf, Failure> {
    for name in &selection.files {
        fetch(name)?;
    }
    if let Some(index) = &selection.index {
        let path = snapshot.join(index);
        let fail = |cause| Failure::file("read", &path, cause);
        let bytes = std::fs::metadata(&path).map_err(fail)?.len();
        if bytes > INDEX_BYTES_MAX {
            let max = INDEX_BYTES_MAX >> 20;
            return Err(Failure::new(format!(
                "{index} has {bytes} bytes, the limit is {max} MiB"
            )));
        }
        let text = std::fs::read_to_string(&path).map_err(fail)?;
        for shard in choose::shards(&text, names).map_err(Failure::new)? {
            fetch(&shard)?;
        }
    }
    Ok(match &selection.open {
        Some(name) => snapshot.join(name),
        None => snapshot.to_path_buf(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_paths_and_model_files_are_not_names() {
        let name = |text: &str| HubModel::of_argument(Path::new(text)).map(|model| model.name());
        for text in ["org/model", "org/Model-1.5:Q4_K_M", "org/model:m.gguf"] {
            assert_eq!(name(text).as_deref(), Some(text));
        }
        // The tests run in the folder of the crate.
        for text in [
            "src/hub",
            "models/m.gguf",
            "./org/model",
            "model",
            "/org/model",
        ] {
            assert_eq!(name(text), None, "{text}");
        }
    }

    #[test]
    fn parses_model_names() {
        let model: HubModel = "org/Model-1.5_b:Q4_K_M".parse().expect("valid name");
        assert_eq!(model.repo, "org/Model-1.5_b");
        assert_eq!(model.file_or_quant.as_deref(), Some("Q4_K_M"));
        let model: HubModel = "org/model".parse().expect("valid name");
        assert_eq!(model.file_or_quant, None);
        let long = format!("org/{}", "x".repeat(97));
        let invalid = [
            "",
            "model",
            "org/",
            "/model",
            "a/b/c",
            "org/model:",
            "../model",
            "org/..",
            "org/a--b",
            "org/.git",
            "org/a b",
            "org/a\0",
            "https://host/org",
            &long,
        ];
        for text in invalid {
            assert!(text.parse::<HubModel>().is_err(), "{text:?}");
        }
    }
}
