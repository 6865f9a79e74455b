//! The index of a safetensors folder: the file that lists the file of each tensor.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::map::text_file;
use super::part::Part;
use super::safetensors::{Entries, HEADER_BYTES_MAX, json_error};
use tabla_core::error::{Context, Result, bail};

/// Maximum number of files of a model; the largest models have a few hundred.
const SHARDS_MAX: usize = 4096;

/// File name of the index.
pub(super) const INDEX: &str = "model.safetensors.index.json";
const EXTENSION: &str = ".safetensors";

/// Maps each tensor of a model to its file.
pub(super) struct Index {
    pub(super) folder: PathBuf,
    /// File names, in order of first occurrence in the index.
    files: Vec<String>,
    /// Tensor names, with the index of their file in `files`.
    tensors: Vec<(String, usize)>,
}

/// The JSON of an index; its `metadata` is ignored.
#[derive(Deserialize)]
struct IndexFile {
    weight_map: Entries<String>,
}

impl Index {
    /// Reads the index of a folder; `None` if there is no index.
    pub(super) fn of(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(INDEX);
        let Some(text) = text_file(&path, HEADER_BYTES_MAX)? else {
            return Ok(None);
        };
        Self::parse(&text, folder).map(Some).context(path.display())
    }

    fn parse(text: &str, folder: &Path) -> Result<Self> {
        let parsed: IndexFile =
            serde_json::from_str(text).map_err(|e| json_error("the index", &e))?;
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut index = Self {
            folder: folder.to_path_buf(),
            files: Vec::new(),
            tensors: Vec::new(),
        };
        for (name, file) in parsed.weight_map.0 {
            let next = numbers.len();
            let number = *numbers.entry(file.clone()).or_insert(next);
            if number == next {
                check_file_name(&name, &file)?;
                index.files.push(file);
            }
            index.tensors.push((name, number));
        }
        if index.files.is_empty() || index.files.len() > SHARDS_MAX {
            bail!(
                Format,
                "the index lists {} files, expected 1 to {SHARDS_MAX}",
                index.files.len()
            );
        }
        Ok(index)
    }

    /// Returns true if the index lists this file.
    pub(super) fn lists(&self, path: &Path) -> bool {
        self.files.iter().any(|f| f == file_name(path))
    }

    /// Returns the paths of the files.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().map(|f| self.folder.join(f)).collect()
    }

    /// Returns the names of the files that do not exist.
    pub(super) fn missing_files(&self) -> Vec<&str> {
        let files = self.files.iter().map(String::as_str);
        files.filter(|f| !self.folder.join(f).exists()).collect()
    }

    /// Returns the tensors that the index lists in files that do not exist, and the names of these files.
    pub(super) fn missing_tensors(&self) -> HashMap<&str, &str> {
        let missing: HashSet<_> = self.missing_files().into_iter().collect();
        let listed = self.listed();
        listed.filter(|(_, file)| missing.contains(file)).collect()
    }

    /// Compares the opened files with the index: tensors count where they are, not where the index lists
    /// them. Returns the tensors that no file has, and the names of their files, which do not exist.
    ///
    /// # Errors
    /// `Format` if a file lacks a tensor that the index lists in it, or if a bias is in no file: models
    /// without it are valid, and their results differ.
    pub(super) fn check(&self, parts: &[Part]) -> Result<HashMap<String, String>> {
        let mut remaining: HashMap<&str, &str> = HashMap::new();
        for (name, file) in self.listed() {
            if remaining.insert(name, file).is_some() {
                bail!(Format, "{INDEX}: tensor {name} is listed twice");
            }
        }
        let (mut moved, mut modules) = (Vec::new(), HashSet::new());
        for part in parts {
            let file = file_name(&part.shard.path);
            for t in &part.header.tensors {
                modules.extend(t.name.rsplit_once('.').map(|(module, _)| module));
                if remaining.remove(t.name.as_str()) != Some(file) {
                    moved.push((t.name.as_str(), file));
                }
            }
        }
        let opened: HashSet<_> = parts.iter().map(|p| file_name(&p.shard.path)).collect();
        for (name, file) in self.listed().filter(|(t, _)| remaining.contains_key(t)) {
            let module = name.strip_suffix(".bias");
            if opened.contains(file) || module.is_some_and(|module| modules.contains(module)) {
                bail!(
                    Format,
                    "{}: tensor {name} is missing, but {INDEX} lists it in this file",
                    self.folder.join(file).display()
                );
            }
        }
        self.warn(parts, &moved);
        let owned = |(name, file): (&str, &str)| (name.to_owned(), file.to_owned());
        Ok(remaining.into_iter().map(owned).collect())
    }

    /// Warns if the index does not describe the opened files. `moved` has the tensors that it lists in
    /// another file or not at all, and their files.
    fn warn(&self, parts: &[Part], moved: &[(&str, &str)]) {
        let index = self.folder.join(INDEX);
        let index = index.display();
        let first = parts.first().map_or("", |p| file_name(&p.shard.path));
        match (self.missing_files().first(), moved.first()) {
            (Some(file), _) => tracing::warn!(
                "{index} is outdated: it lists {file}, which does not exist; using the tensors of {first}{}",
                match parts.len().saturating_sub(1) {
                    0 => String::new(),
                    more => format!(" and {more} more files"),
                }
            ),
            (None, Some((tensor, file))) => tracing::warn!(
                "{index} is outdated: it does not list tensor {tensor} in {file} ({} such tensors); using the \
                 tensors of the files",
                moved.len()
            ),
            (None, None) => {}
        }
    }

    /// Returns the tensors and the names of their files.
    fn listed(&self) -> impl Iterator<Item = (&str, &str)> {
        let tensors = self.tensors.iter();
        tensors.map(|(name, file)| (name.as_str(), self.file(*file)))
    }

    fn file(&self, number: usize) -> &str {
        self.files.get(number).map_or("", String::as_str)
    }
}

/// Returns the name of a file.
pub(super) fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// Checks that a file name of the index has no path: the index is untrusted.
fn check_file_name(tensor: &str, file: &str) -> Result<()> {
    let plain = file.ends_with(EXTENSION)
        && !file.starts_with('.')
        && !file.contains(['/', '\\', ':', '\0']);
    if !plain {
        bail!(
            Format,
            "tensor {tensor}: invalid file name {file:?}, expected a {EXTENSION} file in the same folder"
        );
    }
    Ok(())
}
