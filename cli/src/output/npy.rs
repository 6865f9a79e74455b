//! `.npy` files of float32 that are written in parts.

use super::failure::Failure;
use super::terminal;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tabla::format::npy::header;

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
