//! Importance matrices: the mean squared input of each weight column, as measured by llama.cpp's
//! `llama-imatrix` on a calibration text.
//!
//! Newer files are GGUF with a tensor `NAME.in_sum2` of sums of squares and a tensor `NAME.counts`
//! for each matrix; legacy files are lists of names and means (`common/imatrix-loader.cpp`).

use std::collections::HashMap;
use std::path::Path;

use super::directory::Directory;
use super::map::Bytes;
use super::open::open;
use super::reader::{Reader, to_u64};
use super::tensor::{TensorInfo, TensorType};
use tabla_core::dtype::DType;
use tabla_core::error::{Context, Result, bail};

/// Maximum number of entries in a legacy file; the largest models have a few thousand matrices.
const ENTRIES_MAX: u64 = 65_536;
/// Size of the smallest entry of a legacy file in bytes: three numbers, a one-byte name, a value.
const ENTRY_BYTES_MIN: u64 = 4 + 1 + 4 + 4 + 4;
const NAME_BYTES_MAX: u64 = 1024;

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// The mean squared input of each column, by matrix name.
#[derive(Debug)]
pub struct Importance {
    entries: HashMap<String, Vec<f32>>,
}

impl Importance {
    /// Reads a GGUF or legacy importance matrix file.
    ///
    /// # Errors
    /// As [`open`], and `Format` for a value that is negative, infinite or NaN.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = Bytes::open(path).context(path.display())?;
        let entries = if bytes.as_slice().starts_with(b"GGUF") {
            let file = open(path)?;
            from_tensors(&file).and_then(|entries| file.check_faults().map(|()| entries))
        } else {
            from_list(bytes.as_slice()).and_then(|entries| bytes.check_faults().map(|()| entries))
        };
        let entries = entries.context(path.display())?;
        for (name, values) in &entries {
            let bad = values.iter().find(|v| !v.is_finite() || **v < 0.0);
            if let Some(bad) = bad {
                let path = path.display();
                bail!(
                    Format,
                    "{path}: {name}: invalid importance {bad}, expected a finite value of at least 0"
                );
            }
        }
        Ok(Self { entries })
    }

    /// Returns the number of matrices.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no matrices.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the importance of each column of a tensor, concatenated over experts; `None` if the
    /// file has no entry for it. `dims` is the shape of the tensor, fastest dimension first.
    ///
    /// # Errors
    /// `Format` if the number of columns differs from `dims`.
    pub fn columns(&self, tensor: &str, dims: &[u64]) -> Result<Option<&[f32]>> {
        let Some(values) = self.entries.get(tensor) else {
            return Ok(None);
        };
        let experts = dims
            .iter()
            .skip(2)
            .fold(1, |n: u64, d| n.saturating_mul(*d));
        let expected = dims.first().map_or(0, |cols| cols.saturating_mul(experts));
        if to_u64(values.len()) != expected {
            bail!(
                Format,
                "{tensor}: expected importance of {expected} columns, got {}",
                values.len()
            );
        }
        Ok(Some(values))
    }
}

fn from_tensors(file: &Directory) -> Result<HashMap<String, Vec<f32>>> {
    let mut entries = HashMap::new();
    for sums in &file.tensors {
        let Some(name) = sums.name.strip_suffix(SUMS) else {
            continue;
        };
        let Some(counts) = file.tensor(&format!("{name}{COUNTS}")) else {
            bail!(Format, "missing tensor {name}{COUNTS}");
        };
        let counts = floats(file, counts)?;
        let mut values = floats(file, sums)?;
        let cols = values.len().checked_div(counts.len()).unwrap_or(0);
        if cols == 0 || !values.len().is_multiple_of(counts.len()) {
            let (sums, counts) = (values.len(), counts.len());
            bail!(
                Format,
                "{name}: {sums} sums are not a multiple of {counts} counts"
            );
        }
        for (values, count) in values.chunks_exact_mut(cols).zip(counts) {
            // An expert without tokens gets uniform importance.
            let mean = |v: f32| if count > 0.0 { v / count } else { 1.0 };
            values.iter_mut().for_each(|v| *v = mean(*v));
        }
        entries.insert(name.to_owned(), values);
    }
    if entries.is_empty() {
        bail!(Format, "not an importance matrix: no tensor named *{SUMS}");
    }
    Ok(entries)
}

fn floats(file: &Directory, tensor: &TensorInfo) -> Result<Vec<f32>> {
    if tensor.dtype != TensorType::Known(DType::F32) {
        bail!(
            Format,
            "tensor {}: expected type f32, got {}",
            tensor.name,
            tensor.dtype
        );
    }
    let (numbers, _) = file.bytes(tensor).as_chunks();
    Ok(numbers.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

fn from_list(bytes: &[u8]) -> Result<HashMap<String, Vec<f32>>> {
    let mut r = Reader::new(bytes);
    let count = r.u32("the number of matrices")?;
    let fits = u64::from(count).checked_mul(ENTRY_BYTES_MIN);
    if count == 0 || u64::from(count) > ENTRIES_MAX || fits > Some(to_u64(bytes.len())) {
        bail!(
            Format,
            "not an importance matrix: neither GGUF nor a list of matrices"
        );
    }
    let mut entries = HashMap::new();
    for _ in 0..count {
        let length = r.u32("the length of a name")?;
        if u64::from(length) > NAME_BYTES_MAX {
            bail!(
                Format,
                "a name of {length} bytes is over the limit of {NAME_BYTES_MAX}"
            );
        }
        let name = r.take_u64(u64::from(length), "a name")?;
        let Ok(name) = str::from_utf8(name) else {
            bail!(Format, "name \"{}\" is not UTF-8", name.escape_ascii());
        };
        let calls = r.u32("a number of calls")?;
        let values = r.u32("a number of columns")?;
        let length = u64::from(values).saturating_mul(4);
        let values = r.take_u64(length, "the columns of a matrix")?;
        // The values are sums over the calls, or means if the number of calls is 0.
        let divisor = if calls == 0 { 1.0 } else { calls as f32 };
        let values = values.as_chunks().0.iter();
        let values = values.map(|b| f32::from_le_bytes(*b) / divisor).collect();
        entries.insert(name.to_owned(), values);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::super::write::Writer;
    use super::*;
    use tabla_core::error::ErrorKind;
    use tempfile::TempDir;

    fn le(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    fn open_bytes(name: &str, bytes: &[u8]) -> Result<Importance> {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Importance::open(&path)
    }

    fn gguf(sums: &[f32], counts: &[f32]) -> Vec<u8> {
        let experts = counts.len() as u64;
        let cols = sums.len() as u64 / experts;
        Writer::new()
            .tensor("a.in_sum2", DType::F32, &[cols, experts], le(sums))
            .tensor("a.counts", DType::F32, &[1, experts], le(counts))
            .finish()
            .unwrap()
    }

    fn list(name: &str, calls: u32, values: &[f32]) -> Vec<u8> {
        let length = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
        let mut bytes = length(1).to_vec();
        bytes.extend(length(name.len()));
        bytes.extend(name.as_bytes());
        bytes.extend(calls.to_le_bytes());
        bytes.extend(length(values.len()));
        bytes.extend(le(values));
        bytes
    }

    #[test]
    fn reads_means_from_gguf_and_legacy_files() {
        let new = open_bytes("new", &gguf(&[2.0, 4.0, 5.0, 7.0], &[2.0, 0.0])).unwrap();
        let columns = new.columns("a", &[2, 3, 2]).unwrap();
        assert_eq!(columns, Some(&[1.0, 2.0, 1.0, 1.0][..]), "an idle expert");
        let old = open_bytes("old", &list("a", 4, &[2.0, 4.0])).unwrap();
        assert_eq!(old.columns("a", &[2, 3]).unwrap(), Some(&[0.5, 1.0][..]));
        assert_eq!(old.columns("b", &[2, 3]).unwrap(), None);
        assert_eq!(old.len(), 1);
    }

    #[test]
    fn rejects_invalid_files() {
        let whole = list("a", 1, &[1.0, 2.0]);
        let no_counts = Writer::new()
            .tensor("a.in_sum2", DType::F32, &[1], le(&[1.0]))
            .finish();
        for (bytes, part) in [
            (whole[..whole.len() - 1].to_vec(), "truncated"),
            (
                b"a text that is long enough".to_vec(),
                "not an importance matrix",
            ),
            (vec![], "truncated"),
            (list("a", 1, &[f32::NAN]), "a: invalid importance NaN"),
            (list("a", 1, &[-1.0]), "a: invalid importance -1"),
            (no_counts.unwrap(), "missing tensor a.counts"),
            (Writer::new().finish().unwrap(), "not an importance matrix"),
        ] {
            let e = open_bytes("bad", &bytes).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Format, "{e}");
            assert!(e.message().contains(part), "{part}: {e}");
        }
        let narrow = open_bytes("narrow", &list("a", 1, &[1.0])).unwrap();
        let e = narrow.columns("a", &[2, 3]).unwrap_err();
        assert_eq!(e.message(), "a: expected importance of 2 columns, got 1");
    }
}
