//! `.npy` files, version 1.0: a header with the shape, then float32 numbers.

use super::failure::Failure;
use super::terminal;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Magic (6 bytes), version 1.0 (2 bytes) and length of the header text (2 bytes).
const PREAMBLE_BYTES: usize = 10;
/// Alignment of the numbers in the file, in bytes.
const ALIGNMENT: usize = 64;

/// An array that is written in parts, in row-major order, so that it may be larger than memory.
pub(crate) struct NpyFile {
    path: PathBuf,
    shape: Vec<usize>,
    /// Number of numbers that are missing.
    missing: usize,
    file: BufWriter<File>,
}

impl NpyFile {
    /// Creates a file for an array of this shape.
    pub(crate) fn create(path: &Path, shape: &[usize]) -> Result<Self, Failure> {
        let numbers = shape.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim));
        let Some(missing) = numbers else {
            let shown = path.display();
            return Err(Failure::new(format!(
                "{shown}: shape {shape:?} is too large"
            )));
        };
        let file = File::create(path).map_err(|cause| Failure::file("create", path, cause))?;
        let mut file = BufWriter::new(file);
        file.write_all(&header(shape))
            .map_err(|cause| Failure::file("write", path, cause))?;
        Ok(Self {
            path: path.to_path_buf(),
            shape: shape.to_vec(),
            missing,
            file,
        })
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Appends numbers.
    pub(crate) fn write(&mut self, numbers: &[f32]) -> Result<(), Failure> {
        let Some(missing) = self.missing.checked_sub(numbers.len()) else {
            return Err(self.mismatch(numbers.len() - self.missing, "too many"));
        };
        self.missing = missing;
        for number in numbers {
            self.file
                .write_all(&number.to_le_bytes())
                .map_err(|cause| Failure::file("write", &self.path, cause))?;
        }
        Ok(())
    }

    /// Checks that the array is complete and flushes the file.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        if self.missing > 0 {
            return Err(self.mismatch(self.missing, "missing"));
        }
        let flushed = self.file.flush();
        flushed.map_err(|cause| Failure::file("write", &self.path, cause))
    }

    fn mismatch(&self, numbers: usize, what: &str) -> Failure {
        let (path, shape) = (self.path.display(), &self.shape);
        Failure::new(format!("{path}: shape {shape:?}: {numbers} numbers {what}"))
    }
}

/// Writes a matrix in row-major order and prints its shape.
pub(crate) fn write_and_report(
    path: &Path,
    shape: [usize; 2],
    numbers: &[f32],
) -> Result<(), Failure> {
    let mut file = NpyFile::create(path, &shape)?;
    file.write(numbers)?;
    file.finish()?;
    let shown = terminal::one_line(&path.display().to_string());
    terminal::note(&format!("{shown}: {shape:?}"));
    Ok(())
}

/// Allocates a matrix of zeros. Fails if there is not enough memory.
pub(crate) fn zeros(name: &str, [rows, cols]: [usize; 2]) -> Result<Vec<f32>, Failure> {
    let mut numbers = Vec::new();
    let len = rows.saturating_mul(cols);
    numbers.try_reserve_exact(len).map_err(|_| {
        let bytes = terminal::bytes((len as u64).saturating_mul(4));
        Failure::new(format!("cannot allocate {bytes} for {rows} rows of {name}"))
    })?;
    numbers.resize(len, 0.0);
    Ok(numbers)
}

/// Returns preamble, header dictionary and padding to the alignment.
fn header(shape: &[usize]) -> Vec<u8> {
    let dims = shape.iter().map(|dim| format!("{dim}, "));
    let dims: String = dims.collect();
    let dims = if shape.len() > 1 {
        dims.trim_end_matches(", ")
    } else {
        dims.trim_end()
    };
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({dims}), }}");
    let bytes = PREAMBLE_BYTES + text.len() + 1;
    text.extend(std::iter::repeat_n(
        ' ',
        bytes.next_multiple_of(ALIGNMENT) - bytes,
    ));
    text.push('\n');
    let length = u16::try_from(text.len()).expect("header text is shorter than 64 KiB");
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend(length.to_le_bytes());
    header.extend(text.as_bytes());
    header
}

/// Reads an array of float32 in C order. Returns its shape and its numbers.
pub(crate) fn read(path: &Path) -> Result<(Vec<usize>, Vec<f32>), Failure> {
    let fail = |cause| Failure::file("read", path, cause);
    let mut file = File::open(path).map_err(fail)?;
    let bytes = file.metadata().map_err(fail)?.len();
    let mut preamble = [0; PREAMBLE_BYTES];
    file.read_exact(&mut preamble).map_err(fail)?;
    let mut text = vec![0; usize::from(u16::from_le_bytes([preamble[8], preamble[9]]))];
    file.read_exact(&mut text).map_err(fail)?;
    let text = String::from_utf8_lossy(&text);
    let shape = if preamble.starts_with(b"\x93NUMPY\x01") {
        shape(&text)
    } else {
        None
    };
    let Some(shape) = shape else {
        let shown = path.display();
        return Err(Failure::new(format!(
            "{shown}: expected an .npy file of version 1 with float32 in C order"
        )));
    };
    let numbers = shape.iter().try_fold(4usize, |n, dim| n.checked_mul(*dim));
    let data = bytes.saturating_sub((PREAMBLE_BYTES + text.len()) as u64);
    if numbers.map(|n| n as u64) != Some(data) {
        let shown = path.display();
        return Err(Failure::new(format!(
            "{shown}: shape {shape:?} does not match {data} bytes of float32"
        )));
    }
    // The length was compared with the file size: no allocation exceeds it.
    let mut numbers = Vec::new();
    file.take(data).read_to_end(&mut numbers).map_err(fail)?;
    let (numbers, _) = numbers.as_chunks();
    Ok((
        shape,
        numbers.iter().map(|b| f32::from_le_bytes(*b)).collect(),
    ))
}

/// Parses the shape of a header; `None` for other element types or Fortran order.
fn shape(text: &str) -> Option<Vec<usize>> {
    if !text.contains("'<f4'") || !text.contains("'fortran_order': False") {
        return None;
    }
    let (_, rest) = text.split_once("'shape': (")?;
    let (dims, _) = rest.split_once(')')?;
    let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    dims.map(|dim| dim.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_shapes() {
        let header = |shape: &str| {
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}")
        };
        assert_eq!(shape(&header("2, 3, 4")), Some(vec![2, 3, 4]));
        assert_eq!(shape(&header("7,")), Some(vec![7]));
        assert_eq!(shape(&header("")), Some(vec![]));
        assert_eq!(shape(&header("-1,")), None);
        assert_eq!(shape(&header("2").replace("<f4", "<f8")), None);
        assert_eq!(shape(&header("2").replace("False", "True")), None);
        assert_eq!(shape("'<f4' 'fortran_order': False"), None);
    }

    #[test]
    fn headers_are_aligned() {
        for rows in [0, 1, 99, 100_000, usize::MAX] {
            let header = header(&[rows, 151_936]);
            assert_eq!(header.len() % ALIGNMENT, 0, "{rows}");
            let length = u16::from_le_bytes([header[8], header[9]]);
            assert_eq!(usize::from(length) + PREAMBLE_BYTES, header.len());
            assert_eq!(header.last(), Some(&b'\n'));
        }
        for dims in [&[][..], &[3], &[2, 3], &[2, 3, 4]] {
            let header = header(dims);
            let text = String::from_utf8_lossy(&header);
            assert_eq!(shape(&text).as_deref(), Some(dims), "{text}");
        }
    }
}
