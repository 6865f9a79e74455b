//! `.npy` files, version 1.0: rows of f32 behind a header that says how many there are.

use crate::failure::Failure;
use crate::terminal;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Magic, version 1.0, and two bytes for the length of the header's text.
const PREAMBLE_BYTES: usize = 10;
/// The numbers begin at a multiple of it.
const ALIGNMENT: usize = 64;

/// Writes `[rows, cols]`, row after row.
fn write(path: &Path, shape: [usize; 2], numbers: &[f32]) -> Result<(), Failure> {
    let file = File::create(path).map_err(|cause| Failure::file("create", path, cause))?;
    let mut file = BufWriter::new(file);
    let mut all = || {
        file.write_all(&header(shape))?;
        for number in numbers {
            file.write_all(&number.to_le_bytes())?;
        }
        file.flush()
    };
    all().map_err(|cause| Failure::file("write", path, cause))
}

/// The same, and says what is there.
pub(crate) fn write_and_say(
    path: &Path,
    shape: [usize; 2],
    numbers: &[f32],
) -> Result<(), Failure> {
    write(path, shape, numbers)?;
    let shown = terminal::one_line(&path.display().to_string());
    terminal::note(&format!("{shown}: {shape:?}"));
    Ok(())
}

/// Room for rows, which may be more than there is memory for.
pub(crate) fn zeros(what: &str, [rows, cols]: [usize; 2]) -> Result<Vec<f32>, Failure> {
    let mut numbers = Vec::new();
    let len = rows.saturating_mul(cols);
    numbers.try_reserve_exact(len).map_err(|_| {
        let bytes = terminal::bytes((len as u64).saturating_mul(4));
        Failure::new(format!(
            "{rows} rows of {what} take {bytes}, which could not be had"
        ))
    })?;
    numbers.resize(len, 0.0);
    Ok(numbers)
}

/// Preamble, the dictionary of the format's document, blanks up to the alignment.
fn header([rows, cols]: [usize; 2]) -> Vec<u8> {
    let mut text =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    let bytes = PREAMBLE_BYTES + text.len() + 1;
    text.extend(std::iter::repeat_n(
        ' ',
        bytes.next_multiple_of(ALIGNMENT) - bytes,
    ));
    text.push('\n');
    let length = u16::try_from(text.len()).expect("two numbers fit a short line");
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend(length.to_le_bytes());
    header.extend(text.as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_aligned_whatever_the_shape() {
        for rows in [0, 1, 99, 100_000, usize::MAX] {
            let header = header([rows, 151_936]);
            assert_eq!(header.len() % ALIGNMENT, 0, "{rows}");
            let length = u16::from_le_bytes([header[8], header[9]]);
            assert_eq!(usize::from(length) + PREAMBLE_BYTES, header.len());
            assert_eq!(header.last(), Some(&b'\n'));
        }
    }
}
