//! Models of the Hugging Face Hub: what is wanted, and where it lies on this disk.
//!
//! The cache is the one that Python's `huggingface_hub` fills, so that nothing is fetched twice.
//! `hf-hub` knows its folders and does no more here: its download sends the token along to whatever
//! host a file is redirected to, takes any etag for a file name, and compares no hash.

mod cache;
mod choose;
mod download;
mod server;

use crate::output::Failure;
use cache::Cache;
use choose::Choice;
use download::Download;
use server::{Server, Trouble};
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub(crate) use cache::repo_of;

/// Bytes of an index of shards at most.
const INDEX_BYTES_MAX: u64 = 16 << 20;

/// What a user asks for: `ORG/REPO` or `ORG/REPO:FILE-OR-QUANT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// `ORG/REPO`, in the letters that the Hub allows.
    repo: String,
    /// A file's name, or a quantisation's.
    pick: Option<String>,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (repo, pick) = match text.split_once(':') {
            Some((repo, pick)) => (repo, Some(pick.to_string())),
            None => (text, None),
        };
        let well_formed = repo
            .split_once('/')
            .is_some_and(|(org, name)| is_name(org) && is_name(name));
        if !well_formed || pick.as_deref() == Some("") {
            return Err("it is not of the form ORG/REPO or ORG/REPO:QUANT".to_string());
        }
        let repo = repo.to_string();
        Ok(Self { repo, pick })
    }
}

/// Whether the Hub would give this name to a user or a model. No such name leads out of a folder.
fn is_name(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: char| matches!(c, '-' | '.');
    (1..=96).contains(&name.len())
        && name.chars().all(inside)
        && !name.starts_with(edge)
        && !name.ends_with(edge)
        && !name.contains("--")
        && !name.contains("..")
}

/// How far to look for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The server says what is newest, the cache keeps it.
    Server,
    /// The cache alone.
    Cache,
}

impl Reach {
    /// `HF_HUB_OFFLINE` keeps to the cache.
    pub(crate) fn from_env() -> Self {
        let value = std::env::var("HF_HUB_OFFLINE").unwrap_or_default();
        match value.to_ascii_uppercase().as_str() {
            "1" | "ON" | "YES" | "TRUE" => Self::Cache,
            _ => Self::Server,
        }
    }
}

/// The path of what is wanted, fetched if need be: a GGUF file (of several parts the first) or a
/// folder of safetensors. `say` hears what takes time.
pub(crate) fn locate(wanted: &Wanted, reach: Reach, say: fn(&str)) -> Result<PathBuf, Failure> {
    let cache = Cache::of(&wanted.repo)?;
    if reach == Reach::Cache {
        return cached(&cache, wanted);
    }
    let server = Server::from_env()?;
    let listing = match server.listing(&wanted.repo) {
        Ok(listing) => listing,
        Err(Trouble::Final(failure)) => return Err(failure),
        Err(Trouble::Passing(failure)) => {
            let path = cached(&cache, wanted).map_err(|_| failure)?;
            let (host, repo) = (server.host(), &wanted.repo);
            say(&format!(
                "{host} does not answer: taking {repo} as it is cached"
            ));
            return Ok(path);
        }
    };
    let choice = choose::choose(&listing.names, wanted.pick.as_deref())
        .map_err(|why| Failure::new(format!("{} {why}", wanted.repo)))?;
    let download = Download {
        server: &server,
        cache: &cache,
        commit: &listing.commit,
        say,
    };
    let bring = |name: &str| download.bring(name);
    let snapshot = cache.snapshot(&listing.commit);
    let path = gather(&choice, &listing.names, &snapshot, &bring)?;
    cache.set_commit(&listing.commit)?;
    Ok(path)
}

/// The same out of what was fetched before.
fn cached(cache: &Cache, wanted: &Wanted) -> Result<PathBuf, Failure> {
    let refuse = |why: &str| {
        let (repo, folder) = (&wanted.repo, cache.folder().display());
        Failure::new(format!("{repo} cannot be had offline: {folder} {why}"))
    };
    let commit = cache.commit().ok_or_else(|| refuse("does not hold it"))?;
    let names = cache.names(&commit)?;
    let choice = choose::choose(&names, wanted.pick.as_deref()).map_err(|why| refuse(&why))?;
    gather(&choice, &names, &cache.snapshot(&commit), &|_| Ok(()))
}

/// Brings the files of a choice, then the shards that they speak of. Returns the path to open.
fn gather(
    choice: &Choice,
    names: &[String],
    snapshot: &Path,
    bring: &dyn Fn(&str) -> Result<(), Failure>,
) -> Result<PathBuf, Failure> {
    for name in &choice.files {
        bring(name)?;
    }
    if let Some(index) = &choice.index {
        let path = snapshot.join(index);
        let fail = |cause| Failure::file("read", &path, cause);
        let bytes = std::fs::metadata(&path).map_err(fail)?.len();
        if bytes > INDEX_BYTES_MAX {
            let most = INDEX_BYTES_MAX >> 20;
            return Err(Failure::new(format!(
                "{index} has {bytes} bytes, over {most} MiB"
            )));
        }
        let text = std::fs::read_to_string(&path).map_err(fail)?;
        for shard in choose::shards(&text, names).map_err(Failure::new)? {
            bring(&shard)?;
        }
    }
    Ok(match &choice.opens {
        Some(name) => snapshot.join(name),
        None => snapshot.to_path_buf(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_has_a_form() {
        let wanted: Wanted = "org/Model-1.5_b:Q4_K_M".parse().expect("it is well formed");
        assert_eq!(wanted.repo, "org/Model-1.5_b");
        assert_eq!(wanted.pick.as_deref(), Some("Q4_K_M"));
        let whole: Wanted = "org/model".parse().expect("it is well formed");
        assert_eq!(whole.pick, None);
        let long = format!("org/{}", "x".repeat(97));
        let bad = [
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
        for text in bad {
            assert!(text.parse::<Wanted>().is_err(), "{text:?}");
        }
    }
}
