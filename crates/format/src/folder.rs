//! Folders of safetensors files: selection of the files of the model.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::index::{INDEX, Index, file_name};
use super::map::Bytes;
use super::safetensors;
use super::set::Set;
use tabla_core::error::{Result, bail};

/// File name of a single-file model.
const SINGLE: &str = "model.safetensors";

/// The files of a model, and the index of their folder.
pub(super) struct Files {
    pub(super) paths: Vec<PathBuf>,
    pub(super) index: Option<Index>,
}

/// Returns true if a path is a folder that contains safetensors files.
pub(super) fn is_model(path: &Path) -> bool {
    path.join(INDEX).exists() || !safetensors_files(path).is_empty()
}

/// Finds the files of the model in a folder: the files of the index. If there is no index or one of its
/// files is missing: `model.safetensors`, or the only complete set of numbered files, or the only
/// safetensors file, or the files that together have all tensors of the index.
pub(super) fn find(folder: &Path) -> Result<Files> {
    let (index, files) = (Index::of(folder)?, safetensors_files(folder));
    let paths = match &index {
        Some(index) if index.missing_files().is_empty() => index.paths(),
        Some(index) => match whole(&files, Some(index))? {
            Some(paths) => paths,
            None => with_others(index, &files)?,
        },
        None => match whole(&files, None)? {
            Some(paths) => paths,
            None => return ambiguous(folder, &files),
        },
    };
    Ok(Files { paths, index })
}

/// Finds the files of the model that contains `path`: those of the index that lists it, or the set of its
/// number. `None` if the file is not part of a set.
pub(super) fn find_set(path: &Path) -> Result<Option<Files>> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let index = Index::of(folder)?;
    if index.as_ref().is_some_and(|index| index.lists(path)) {
        let files = find(folder)?;
        if !files.paths.iter().any(|p| p == path) {
            bail!(
                Format,
                "{}: {INDEX} lists this file, but others that it lists are missing; open the folder",
                path.display()
            );
        }
        return Ok(Some(files));
    }
    let Some(set) = Set::of(path).filter(|set| set.count > 1) else {
        return Ok(None);
    };
    set.check_complete()?;
    let paths = set.paths();
    Ok(Some(Files { paths, index }))
}

/// Returns the files of a whole model of which the index, if any, lists no file.
fn whole(files: &[PathBuf], index: Option<&Index>) -> Result<Option<Vec<PathBuf>>> {
    let is_listed = |path: &PathBuf| index.is_some_and(|index| index.lists(path));
    let single = files.iter().find(|p| file_name(p) == SINGLE);
    if let Some(single) = single.filter(|p| !is_listed(p)) {
        return Ok(Some(vec![single.clone()]));
    }
    let mut sets: Vec<Set> = Vec::new();
    for set in files.iter().filter_map(|p| Set::of(p)) {
        let is_whole = set.check_complete().is_ok() && !set.paths().iter().any(is_listed);
        if is_whole && !sets.contains(&set) {
            sets.push(set);
        }
    }
    match (&sets[..], files) {
        ([set], _) => Ok(Some(set.paths())),
        ([], [only]) if !is_listed(only) && Set::of(only).is_none() => Ok(Some(vec![only.clone()])),
        ([one, other, ..], _) => bail!(
            Format,
            "{}: ambiguous model: also the files of {}, and no {INDEX} for either",
            one.path(0).display(),
            other.path(0).display()
        ),
        _ => Ok(None),
    }
}

/// Returns the files of the index that exist, and the other files that have tensors of the missing ones.
fn with_others(index: &Index, files: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut missing = index.missing_tensors();
    let mut paths = Vec::new();
    let (listed, others): (Vec<_>, Vec<_>) = files.iter().partition(|p| index.lists(p));
    for path in listed.into_iter().chain(others) {
        let header = Bytes::open(path).and_then(|b| safetensors::parse(b.as_slice(), 0));
        // An invalid file is an error only if it is part of the model.
        let names = header.map(|h| h.tensors).unwrap_or_default();
        let names: HashSet<_> = names.iter().map(|t| t.name.as_str()).collect();
        let before = missing.len();
        missing.retain(|name, _| !names.contains(name));
        if missing.len() < before || index.lists(path) {
            paths.push(path.clone());
        }
    }
    let Some((tensor, file)) = missing.iter().min() else {
        return Ok(paths);
    };
    let count = index.missing_files().len();
    bail!(
        Io,
        "{}: no such file; {INDEX} lists tensor {tensor} in it, and {count} of its {} files are missing",
        index.folder.join(file).display(),
        index.paths().len()
    );
}

/// Returns the error for a folder without an index whose files are not one model.
fn ambiguous(folder: &Path, files: &[PathBuf]) -> Result<Files> {
    let sets: Vec<_> = files.iter().map(|p| Set::of(p)).collect();
    if let [Some(set), rest @ ..] = &sets[..]
        && rest.iter().all(|other| other.as_ref() == Some(set))
    {
        set.check_complete()?;
    }
    bail!(
        Format,
        "{}: ambiguous model: {} safetensors files, but no {SINGLE} and no {INDEX}",
        folder.display(),
        files.len()
    );
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
    fn folder(files: &[(&str, Vec<u8>)]) -> Folder {
        let folder = Folder::new();
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
        let folder = folder(&[
            (INDEX, map),
            (A, a.clone()),
            (B, b),
            ("other.safetensors", a),
        ]);
        assert_eq!(detect(folder.path()).unwrap(), Kind::Safetensors);
        for path in [
            folder.path().to_path_buf(),
            folder.path().join(A),
            folder.path().join(B),
        ] {
            let opened = open(&path).unwrap();
            assert_eq!(
                opened.paths().collect::<Vec<_>>(),
                [folder.path().join(A), folder.path().join(B)]
            );
            assert_eq!(opened.tensor("z").map(|t| t.shard), Some(1));
        }
        let alone = open(&folder.path().join("other.safetensors")).unwrap();
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
        let one = folder(&[("weights.safetensors", a.clone())]);
        assert_eq!(names(open(one.path()).unwrap()), ["x"]);
        let named = folder(&[("adapter.safetensors", a.clone()), (SINGLE, b.clone())]);
        assert_eq!(names(open(named.path()).unwrap()), ["y"]);
        let two = folder(&[("a.safetensors", a), ("b.safetensors", b)]);
        let e = open(two.path()).unwrap_err();
        assert!(e.message().contains("2 safetensors files"), "{e}");
        let torch = folder(&[("pytorch_model.bin", b"PK".to_vec())]);
        let e = open(torch.path()).unwrap_err();
        assert!(
            e.message()
                .contains("PyTorch checkpoints are not supported"),
            "{e}"
        );
        let none = folder(&[("readme.txt", b"a model".to_vec())]);
        for e in [
            open(none.path()).unwrap_err(),
            detect(none.path()).unwrap_err(),
        ] {
            assert!(e.message().contains("a directory without a model"), "{e}");
        }
    }

    /// Returns the names of tensors and of files that are opened from a folder.
    fn opened(path: &Path) -> (Vec<String>, Vec<String>) {
        let opened = open(path).unwrap();
        let files = opened.paths().map(|p| file_name(p).to_owned()).collect();
        let mut tensors: Vec<_> = opened.tensors.into_iter().map(|t| t.name).collect();
        tensors.sort();
        (tensors, files)
    }

    #[test]
    fn opens_the_files_of_a_folder_with_an_outdated_index() {
        let listed = index(&[("x", A), ("y", A), ("z", B)]);
        let [one, two] = [
            "m-00001-of-00002.safetensors",
            "m-00002-of-00002.safetensors",
        ];
        let check = |name: &str, files: &[(&str, &[&str])], expected: &[&str]| {
            let mut all = vec![(INDEX, listed.clone())];
            all.extend(files.iter().map(|(file, names)| (*file, floats(names))));
            let folder = folder(&all);
            let (tensors, files) = opened(folder.path());
            assert_eq!(tensors, ["x", "y", "z"], "{name}");
            assert_eq!(files, expected, "{name}");
            for file in expected.iter().filter(|file| **file != "rest.safetensors") {
                let of_file = opened(&folder.path().join(file));
                assert_eq!(of_file, (tensors.clone(), files.clone()), "{name} {file}");
            }
        };
        let whole: &[&str] = &["x", "y", "z"];
        // The stale shard has a tensor of the other files.
        check("single", &[(A, &["x", "y"]), (SINGLE, whole)], &[SINGLE]);
        check(
            "renamed",
            &[("weights.safetensors", whole)],
            &["weights.safetensors"],
        );
        check("set", &[(one, &["y"]), (two, &["z", "x"])], &[one, two]);
        let stale: &[(&str, &[&str])] = &[(A, &["x"]), (one, &["y"]), (two, &["z", "x"])];
        check("stale", stale, &[one, two]);
        // An index whose files exist selects them, and tensors count where they are.
        let extra: &[(&str, &[&str])] = &[(A, &["x", "y"]), (B, &["z"]), (SINGLE, whole)];
        check("complete", extra, &[A, B]);
        check("moved", &[(A, &["z"]), (B, &["y", "x"])], &[A, B]);
        // Other files complete the shards that exist.
        let rest: &[(&str, &[&str])] = &[
            (A, &["x", "y"]),
            ("rest.safetensors", &["z"]),
            ("vae.safetensors", &["v"]),
        ];
        check("rest", rest, &[A, "rest.safetensors"]);
    }

    #[test]
    fn opens_numbered_files_without_an_index() {
        let [one, two] = [A, B].map(|file| (file, floats(&[file])));
        let set = folder(&[one.clone(), two.clone()]);
        for path in [
            set.path().to_path_buf(),
            set.path().join(A),
            set.path().join(B),
        ] {
            assert_eq!(opened(&path).1, [A, B]);
        }
        let incomplete = folder(std::slice::from_ref(&two));
        for path in [incomplete.path().to_path_buf(), incomplete.path().join(B)] {
            let e = open(&path).unwrap_err();
            let part = format!("{A}: no such file; 1 of the 2 parts");
            assert!(e.message().contains(&part), "{e}");
        }
        let other = [
            "n-00001-of-00001.safetensors",
            "m-00001-of-00001.safetensors",
        ];
        let [first, second] = other.map(|file| (file, floats(&[file])));
        let two_sets = folder(&[first, second]);
        let e = open(two_sets.path()).unwrap_err();
        assert!(e.message().contains("ambiguous model"), "{e}");
    }

    #[test]
    fn rejects_an_outdated_index_whose_tensors_are_missing() {
        let check = |tensors: &[&str], files: &[(&str, &[&str])], part: &str| {
            let entries: Vec<_> = tensors.iter().map(|name| (*name, B)).collect();
            let mut all = vec![(INDEX, index(&entries))];
            all.extend(files.iter().map(|(file, names)| (*file, floats(names))));
            let folder = folder(&all);
            let e = open(folder.path()).expect_err(part);
            assert!(e.message().contains(part), "{part:?} is not in: {e}");
        };
        let twice: &[(&str, &[&str])] = &[
            ("a.safetensors", &["x", "y"]),
            ("b.safetensors", &["y", "z"]),
        ];
        check(&["x", "y", "z"], twice, "tensor y is listed twice");
        let lacks: &[(&str, &[&str])] = &[("a.safetensors", &["x"]), ("b.safetensors", &["y"])];
        check(&["x", "y", "z"], lacks, "lists tensor z in it");
        // A model without a bias is valid, so its absence would go unnoticed.
        let bias: &[(&str, &[&str])] = &[(SINGLE, &["x.weight"])];
        check(&["x.weight", "x.bias"], bias, "tensor x.bias is missing");
        let folder = folder(&[
            (INDEX, index(&[("x", B), ("y", B)])),
            (SINGLE, floats(&["x"])),
        ]);
        let opened = open(folder.path()).unwrap();
        assert_eq!(opened.missing_file("y"), Some(B));
        assert_eq!(opened.missing_file("x"), None);
    }

    #[test]
    fn rejects_files_that_lack_tensors_of_the_index() {
        let check = |entries: &[(&str, &str)], kind: ErrorKind, part: &str| {
            let (a, b) = (floats(&["x", "y"]), floats(&["z"]));
            let folder = folder(&[(INDEX, index(entries)), (A, a), (B, b)]);
            let e = open(folder.path()).expect_err(part);
            assert!(e.message().contains(part), "{part:?} is not in: {e}");
            assert_eq!(e.kind(), kind, "{e}");
            let path = folder.path().display().to_string();
            assert!(e.message().starts_with(&path), "{e}");
        };
        let format = ErrorKind::Format;
        let gone = [("x", A), ("y", A), ("z", B), ("w", B)];
        check(&gone, format, "tensor w is missing");
        let twice = [("x", A), ("y", A), ("z", B), ("x", A)];
        check(&twice, format, "tensor x is listed twice");
        check(&[], format, "lists 0 files");
        let shard = [("x", A), ("w", "model-00003-of-00003.safetensors")];
        check(
            &shard,
            ErrorKind::Io,
            "model-00003-of-00003.safetensors: no such file; model.safetensors.index.json lists \
             tensor w in it, and 1 of its 2 files are missing",
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
            check(&[("x", outside)], format, "invalid file name");
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
            let folder = folder(&[(INDEX, text.into()), (A, floats(&["x"]))]);
            let e = open(folder.path()).unwrap_err();
            assert!(
                e.message()
                    .contains("index.json: the index is invalid JSON"),
                "{e}"
            );
        }
    }
}
