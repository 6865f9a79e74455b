//! Models in several numbered files: file names, and validation of the parts of GGUF models.

use std::path::{Path, PathBuf};

use super::part::Part;
use tabla_core::error::{Result, bail};

/// Maximum number of files of a set; llama.cpp uses a 16-bit count, real sets have a few dozen.
const SHARDS_MAX: u32 = 4096;

/// Extensions of numbered files.
const EXTENSIONS: [&str; 2] = [".gguf", ".safetensors"];

/// A set of files named `prefix-00001-of-00003.gguf`.
#[derive(PartialEq)]
pub(super) struct Set {
    prefix: PathBuf,
    extension: &'static str,
    /// Number of parts according to the file name.
    pub(super) count: u32,
}

impl Set {
    /// Parses the set from the path of one of its parts.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let mut endings = EXTENSIONS.iter();
        let (stem, extension) = endings.find_map(|end| Some((name.strip_suffix(end)?, *end)))?;
        let (stem, count) = stem.rsplit_once("-of-")?;
        let (prefix, no) = stem.rsplit_once('-')?;
        let number = |digits: &str| {
            let plain = digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse::<u32>().ok().filter(|_| plain)
        };
        let (no, count) = (number(no)?, number(count)?);
        let valid = (1..=count).contains(&no) && count <= SHARDS_MAX;
        valid.then(|| Self {
            prefix: path.with_file_name(prefix),
            extension,
            count,
        })
    }

    /// Returns the paths of all parts.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        (0..self.count).map(|no| self.path(no)).collect()
    }

    /// Returns the path of part `no`, counted from 0.
    pub(super) fn path(&self, no: u32) -> PathBuf {
        let mut name = self.prefix.file_name().unwrap_or_default().to_owned();
        name.push(format!(
            "-{:05}-of-{:05}{}",
            no.saturating_add(1),
            self.count,
            self.extension
        ));
        self.prefix.with_file_name(name)
    }

    /// Checks that all parts exist; the error has the first missing path and the number missing.
    pub(super) fn check_complete(&self) -> Result<()> {
        let paths = self.paths();
        let missing: Vec<_> = paths.iter().filter(|p| !p.exists()).collect();
        match missing.first() {
            None => Ok(()),
            Some(path) => bail!(
                Io,
                "{}: no such file; {} of the {} parts of this model are missing",
                path.display(),
                missing.len(),
                self.count
            ),
        }
    }
}

/// Checks the last part of `parts` against its number in the set.
pub(super) fn check_part(parts: &[Part], no: u32, count: u32) -> Result<()> {
    let Some(part) = parts.last() else {
        return Ok(());
    };
    let metadata = &part.header.metadata;
    // Parts are numbered from 0 in the metadata and from 1 in file names.
    let actual = (metadata.u32("split.no")?, metadata.u32("split.count")?);
    if actual != (Some(no), Some(count)) {
        let shown = |n: Option<u32>| n.map_or("none".to_owned(), |n| n.to_string());
        let (actual_no, actual_count) = (shown(actual.0), shown(actual.1));
        bail!(
            Format,
            "part number differs from the file name: expected split.no {no} and split.count \
             {count}, got {actual_no} and {actual_count}"
        );
    }
    let first = parts
        .first()
        .and_then(|p| p.header.metadata.get("split.tensors.count"));
    if let Some(total) = first.and_then(|v| v.integer::<usize>())
        && no.checked_add(1) == Some(count)
    {
        let actual = parts
            .iter()
            .fold(0usize, |n, p| n.saturating_add(p.header.tensors.len()));
        if actual != total {
            bail!(
                Format,
                "expected {total} tensors (split.tensors.count), got {actual}"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Folder, assert_rejected, bytes};
    use super::super::{open, write::Writer};
    use tabla_core::dtype::DType;
    use tabla_core::error::ErrorKind;

    /// Returns part `no` of `count` with one tensor; `total` is `split.tensors.count`.
    fn part(no: u8, count: u16, total: i32) -> Vec<u8> {
        let mut w = Writer::new();
        w.set("split.no", no)
            .set("split.count", count)
            .set("split.tensors.count", total);
        w.tensor(&format!("t{no}"), DType::F32, &[1], vec![no; 4]);
        w.finish().unwrap()
    }

    #[test]
    fn opens_the_set_from_any_part() {
        let folder = Folder::new();
        let paths: Vec<_> = (0..3)
            .map(|no| folder.write(&format!("m-{:05}-of-00003.gguf", no + 1), &part(no, 3, 3)))
            .collect();
        for path in &paths {
            let file = open(path).unwrap();
            assert_eq!(file.paths().collect::<Vec<_>>(), paths);
            for no in 0..3 {
                let t = file.tensor(&format!("t{no}")).unwrap();
                assert_eq!(
                    (t.shard, file.bytes(t)),
                    (usize::from(no), [no; 4].as_slice())
                );
            }
        }
        std::fs::remove_file(&paths[1]).unwrap();
        let e = open(&paths[0]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Io);
        let expected =
            "m-00002-of-00003.gguf: no such file; 1 of the 3 parts of this model are missing";
        assert!(e.message().ends_with(expected), "{e}");
    }

    #[test]
    fn rejects_parts_of_different_sets() {
        let check = |parts: [(&str, Vec<u8>); 2], expected: &str| {
            let folder = Folder::new();
            let paths = parts.map(|(name, bytes)| folder.write(name, &bytes));
            let e = open(&paths[0]).unwrap_err();
            assert!(e.message().contains(expected), "{e}");
        };
        let (a, b) = ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf");
        check([(a, part(1, 2, 2)), (b, part(0, 2, 2))], "got 1 and 2");
        check(
            [(a, part(0, 2, 2)), (b, part(1, 3, 2))],
            "expected split.no 1 and split.count 2, got 1 and 3",
        );
        check(
            [(a, part(0, 2, 5)), (b, part(1, 2, 5))],
            "expected 5 tensors (split.tensors.count), got 2",
        );
        check(
            [("m.gguf", part(0, 2, 2)), (b, part(1, 2, 2))],
            "expected a file name",
        );
        check([(a, part(0, 2, 2)), (b, bytes())], "got none and none");
        assert_rejected(part(0, 2, 2), ErrorKind::Format, "open the model by path");
    }
}
