//! `.npy` files, version 1.0: rows of f32 behind a header that says how many there are.

use crate::failure::Failure;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Magic, version 1.0, and two bytes for the length of the header's text.
const PREAMBLE_BYTES: usize = 10;
/// The numbers begin at a multiple of it.
const ALIGNMENT: usize = 64;

/// Writes `[rows, cols]`, row after row.
pub(crate) fn write(path: &Path, shape: [usize; 2], numbers: &[f32]) -> Result<(), Failure> {
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
