//! Safetensors folders: selection of the model's files and validation of the index.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::map::text_file;
use super::part::Part;
use super::safetensors::{Entries, HEADER_BYTES_MAX, json_error};
use tabla_core::error::{Context, Result, bail};

/// Maximum number of files of a model; the largest models have a few hundred.
const SHARDS_MAX: usize = 4096;

/// File name of the index.
const INDEX: &str = "model.safetensors.index.json";
/// File name of a single-file model.
const SINGLE: &str = "model.safetensors";
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
        let name = path.file_name().and_then(|n| n.to_str());
        name.is_some_and(|name| self.files.iter().any(|f| f == name))
    }

    /// Returns the paths of the files; fails if one is missing.
    pub(super) fn paths(&self) -> Result<Vec<PathBuf>> {
        let paths: Vec<_> = self.files.iter().map(|f| self.folder.join(f)).collect();
        let mut missing = paths.iter().filter(|p| !p.exists());
        if let Some(first) = missing.next() {
            bail!(
                Io,
                "{}: no such file; {} of the {} files listed in {INDEX} are missing",
                first.display(),
                missing.count().saturating_add(1),
                paths.len()
            );
        }
        Ok(paths)
    }

    /// Checks that the files contain exactly the tensors that the index lists for them.
    pub(super) fn check(&self, parts: &[Part]) -> Result<()> {
        let mut remaining: HashMap<&str, usize> = HashMap::new();
        for (name, file) in &self.tensors {
            if remaining.insert(name, *file).is_some() {
                bail!(Format, "{INDEX}: tensor {name} is listed twice");
            }
        }
        for part in parts {
            for t in &part.header.tensors {
                let path = part.shard.path.display();
                match remaining.remove(t.name.as_str()) {
                    Some(file) if file == t.shard => {}
                    Some(file) => bail!(
                        Format,
                        "{path}: unexpected tensor {}: {INDEX} lists it in {}",
                        t.name,
                        self.file(file)
                    ),
                    None => bail!(
                        Format,
                        "{path}: unexpected tensor {}: not listed in {INDEX}, or also in another file",
                        t.name
                    ),
                }
            }
        }
        let missing = self
            .tensors
            .iter()
            .find(|(name, _)| remaining.contains_key(name.as_str()));
        if let Some((name, file)) = missing {
            bail!(
                Format,
                "{}: tensor {name} is missing, but {INDEX} lists it in this file",
                self.folder.join(self.file(*file)).display()
            );
        }
        Ok(())
    }

    fn file(&self, number: usize) -> &str {
        self.files.get(number).map_or("", String::as_str)
    }
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

/// The files of a model, and the index that lists them.
pub(super) struct Files {
    pub(super) paths: Vec<PathBuf>,
    pub(super) index: Option<Index>,
}

impl Files {
    fn of(index: Index) -> Result<Self> {
        Ok(Self {
            paths: index.paths()?,
            index: Some(index),
        })
    }
}

/// Returns true if a path is a folder that contains safetensors files.
pub(super) fn is_model(path: &Path) -> bool {
    path.join(INDEX).exists() || !safetensors_files(path).is_empty()
}

/// Finds the files of the model in a folder: the files of the index, or `model.safetensors`, or
/// the only safetensors file.
pub(super) fn find(folder: &Path) -> Result<Files> {
    if let Some(index) = Index::of(folder)? {
        return Files::of(index);
    }
    let mut paths = safetensors_files(folder);
    let single = folder.join(SINGLE);
    if paths.contains(&single) {
        paths = vec![single];
    }
    if paths.len() > 1 {
        bail!(
            Format,
            "{}: ambiguous model: {} safetensors files, but no {SINGLE} and no {INDEX}",
            folder.display(),
            paths.len()
        );
    }
    Ok(Files { paths, index: None })
}

/// Finds the files of the model that contains `path`, if an index in the same folder lists it.
pub(super) fn find_set(path: &Path) -> Result<Option<Files>> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let index = Index::of(folder)?.filter(|index| index.lists(path));
    index.map(Files::of).transpose()
}

/// Returns the safetensors files of a folder, sorted by name; empty if the folder is unreadable.
fn safetensors_files(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "safetensors"))
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::super::safetensors::tests::floats;
    use super::super::tests::Folder;
    use super::super::{Directory, Kind, detect, open};
    use super::*;
    use tabla_core::error::ErrorKind;

    /// Creates a folder with these files.
    fn folder(name: &str, files: &[(&str, Vec<u8>)]) -> Folder {
        let folder = Folder::new(name);
        for (name, bytes) in files {
            folder.write(name, bytes);
        }
        folder
    }

    fn index(entries: &[(&str, &str)]) -> Vec<u8> {
        let lines: Vec<_> = entries
            .iter()
            .map(|(k, v)| format!("{k:?}:{v:?}"))
            .collect();
        let map = lines.join(",");
        format!(r#"{{"metadata":{{"total_size":1}},"weight_map":{{{map}}}}}"#).into_bytes()
    }

    const A: &str = "model-00001-of-00002.safetensors";
    const B: &str = "model-00002-of-00002.safetensors";

    #[test]
    fn opens_a_model_from_its_folder_or_any_file() {
        let map = index(&[("y", A), ("x", A), ("z", B)]);
        let (a, b) = (floats(&["x", "y"]), floats(&["z"]));
        let folder = folder(
            "shards",
            &[
                (INDEX, map),
                (A, a.clone()),
                (B, b),
                ("other.safetensors", a),
            ],
        );
        assert_eq!(detect(&folder.0).unwrap(), Kind::Safetensors);
        for path in [folder.0.clone(), folder.0.join(A), folder.0.join(B)] {
            let opened = open(&path).unwrap();
            assert_eq!(
                opened.paths().collect::<Vec<_>>(),
                [folder.0.join(A), folder.0.join(B)]
            );
            assert_eq!(opened.tensor("z").map(|t| t.shard), Some(1));
        }
        let alone = open(&folder.0.join("other.safetensors")).unwrap();
        assert_eq!(alone.paths().count(), 1);
    }

    #[test]
    fn opens_a_folder_without_an_index_if_unambiguous() {
        let (a, b) = (floats(&["x"]), floats(&["y"]));
        let names = |opened: Directory| {
            opened
                .tensors
                .into_iter()
                .map(|t| t.name)
                .collect::<Vec<_>>()
        };
        let one = folder("one", &[("weights.safetensors", a.clone())]);
        assert_eq!(names(open(&one.0).unwrap()), ["x"]);
        let named = folder(
            "named",
            &[("adapter.safetensors", a.clone()), (SINGLE, b.clone())],
        );
        assert_eq!(names(open(&named.0).unwrap()), ["y"]);
        let two = folder("two", &[("a.safetensors", a), ("b.safetensors", b)]);
        let e = open(&two.0).unwrap_err();
        assert!(e.message().contains("2 safetensors files"), "{e}");
        let torch = folder("torch", &[("pytorch_model.bin", b"PK".to_vec())]);
        let e = open(&torch.0).unwrap_err();
        assert!(
            e.message()
                .contains("PyTorch checkpoints are not supported"),
            "{e}"
        );
        let none = folder("none", &[("readme.txt", b"a model".to_vec())]);
        for e in [open(&none.0).unwrap_err(), detect(&none.0).unwrap_err()] {
            assert!(e.message().contains("a directory without a model"), "{e}");
        }
    }

    #[test]
    fn rejects_files_that_differ_from_the_index() {
        let check = |name: &str, entries: &[(&str, &str)], kind: ErrorKind, part: &str| {
            let (a, b) = (floats(&["x", "y"]), floats(&["z"]));
            let folder = folder(name, &[(INDEX, index(entries)), (A, a), (B, b)]);
            let e = open(&folder.0).expect_err(part);
            assert!(e.message().contains(part), "{part:?} is not in: {e}");
            assert_eq!(e.kind(), kind, "{e}");
            let path = folder.0.display().to_string();
            assert!(e.message().starts_with(&path), "{e}");
        };
        let format = ErrorKind::Format;
        let whole = [("x", A), ("y", A), ("z", B)];
        check("extra", &whole[1..], format, "unexpected tensor x");
        let gone = [("x", A), ("y", A), ("z", B), ("w", B)];
        check("gone", &gone, format, "tensor w is missing");
        let moved = [("x", B), ("y", A), ("z", B)];
        check("moved", &moved, format, "unexpected tensor x");
        let twice = [("x", A), ("y", A), ("z", B), ("x", A)];
        check("twice", &twice, format, "tensor x is listed twice");
        check("empty", &[], format, "lists 0 files");
        let shard = [("x", A), ("y", "model-00003-of-00003.safetensors")];
        check(
            "shard",
            &shard,
            ErrorKind::Io,
            "model-00003-of-00003.safetensors: no such file; 1 of the 2",
        );
        for outside in [
            "../m.safetensors",
            "/m.safetensors",
            "a/m.safetensors",
            "..\\m.safetensors",
            "c:m.safetensors",
            "config.json",
            "",
            ".safetensors",
        ] {
            check("outside", &[("x", outside)], format, "invalid file name");
        }
    }

    #[test]
    fn rejects_a_malformed_index() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"weight_map":3}"#,
            r#"{"weight_map":{"x":3}}"#,
        ] {
            let folder = folder("index", &[(INDEX, text.into()), (A, floats(&["x"]))]);
            let e = open(&folder.0).unwrap_err();
            assert!(
                e.message()
                    .contains("index.json: the index is invalid JSON"),
                "{e}"
            );
        }
    }
}
