//! `.npy` files: arrays of NumPy, format 1 and 2.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use tabla_core::error::{Error, ErrorKind, Result, bail, excerpt};
use tabla_core::scales::f16;

/// First bytes of a file.
const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Magic and version.
const VERSION_END: usize = MAGIC.len() + 2;
/// Alignment of the numbers in the file, in bytes.
const ALIGNMENT: usize = 64;
/// Maximum size of a file in bytes.
const BYTES_MAX: u64 = 4 << 30;

/// An array of floats in C order.
#[derive(Debug, PartialEq)]
pub struct Array {
    /// Lengths of the dimensions.
    pub shape: Vec<usize>,
    /// Elements in C order: the last index varies fastest.
    pub values: Vec<f32>,
}

impl Array {
    /// Reads an array of float16, float32 or float64.
    ///
    /// # Errors
    ///
    /// `Io` if the file cannot be read, `Format` for an invalid file, `Unsupported` for another type
    /// or order, `TooLarge` for a file over 4 GiB. The message does not name the file.
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |e: std::io::Error| Error::new(ErrorKind::Io, &e).caused_by(e);
        let mut file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut bytes = Vec::new();
        let mut start = file.by_ref().take(MAGIC.len() as u64);
        start.read_to_end(&mut bytes).map_err(failed)?;
        if is_npy(&bytes) {
            if size > BYTES_MAX {
                bail!(TooLarge, "{size} bytes, expected at most {BYTES_MAX}");
            }
            let rest = file.take(BYTES_MAX).read_to_end(&mut bytes);
            rest.map_err(failed)?;
        }
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let Some((text, data)) = split(bytes) else {
            bail!(Format, "expected an .npy file of version 1 or 2");
        };
        if !text.contains("'fortran_order': False") {
            bail!(
                Unsupported,
                "expected an array in C order, got {:?}",
                excerpt(&text)
            );
        }
        let shape = text.split_once("'shape': (").and_then(|(_, rest)| {
            let (dims, _) = rest.split_once(')')?;
            let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty());
            dims.map(|dim| dim.parse().ok())
                .collect::<Option<Vec<usize>>>()
        });
        let Some(shape) = shape else {
            bail!(Format, "the header has no shape: {:?}", excerpt(&text));
        };
        #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
        let values: Vec<f32> = match element(&text) {
            "<f2" => chunks(data, f16),
            "<f4" => chunks(data, f32::from_le_bytes),
            "<f8" => chunks(data, |b| f64::from_le_bytes(b) as f32),
            other => bail!(
                Unsupported,
                "elements of type {other:?}, expected <f4, <f8 or <f2"
            ),
        };
        let count = shape.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim));
        if count != Some(values.len()) {
            bail!(
                Format,
                "shape {shape:?} does not match {} elements",
                values.len()
            );
        }
        Ok(Self { shape, values })
    }

    /// Returns the bytes of a file of float32.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut file = header(&self.shape);
        file.extend(self.values.iter().flat_map(|x| x.to_le_bytes()));
        file
    }
}

/// Returns the bytes of a file of float32 before its elements.
///
/// # Panics
///
/// If the shape has thousands of dimensions.
pub fn header(shape: &[usize]) -> Vec<u8> {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    let dims = dims.join(", ");
    let mut text =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({dims}{comma}), }}");
    // The length takes 2 bytes, the end of the line 1.
    let others = VERSION_END.saturating_add(3);
    while !text.len().saturating_add(others).is_multiple_of(ALIGNMENT) {
        text.push(' ');
    }
    text.push('\n');
    let length = u16::try_from(text.len()).expect("header text is shorter than 64 KiB");
    let mut file = MAGIC.to_vec();
    file.extend([1, 0]);
    file.extend(length.to_le_bytes());
    file.extend(text.as_bytes());
    file
}

/// Returns whether these are the first bytes of an `.npy` file.
pub fn is_npy(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Splits a file into the text of its header and its data.
fn split(bytes: &[u8]) -> Option<(String, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (length, rest) = match version[0] {
        1 => {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from(u16::from_le_bytes(*length)), rest)
        }
        2 => {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*length), rest)
        }
        _ => return None,
    };
    let (text, data) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((String::from_utf8_lossy(text).into_owned(), data))
}

/// Returns the element type of a header, such as `<f4`.
fn element(text: &str) -> &str {
    let rest = text.split_once("'descr': '");
    rest.and_then(|(_, rest)| rest.split('\'').next())
        .unwrap_or_default()
}

/// Converts elements of N bytes. A rest is counted as an element, so that the shape does not match.
fn chunks<const N: usize>(data: &[u8], convert: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    let (whole, rest) = data.as_chunks::<N>();
    let mut values: Vec<f32> = whole.iter().map(|bytes| convert(*bytes)).collect();
    if !rest.is_empty() {
        values.push(f32::NAN);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_round_trip() {
        for shape in [vec![], vec![6], vec![2, 3], vec![1, 2, 3], vec![0, 3]] {
            let count = shape.iter().product::<usize>();
            let array = Array {
                shape,
                values: (0..count).map(|n| n as f32 - 1.5).collect(),
            };
            let bytes = array.to_bytes();
            assert_eq!((bytes.len() - 4 * count) % ALIGNMENT, 0);
            assert_eq!(Array::parse(&bytes).unwrap(), array);
        }
    }

    #[test]
    fn messages_have_one_line() {
        for header in [
            "{'fortran_order': True,\u{1}}\n",
            "{'fortran_order': False, \n}\n",
        ] {
            let mut file = b"\x93NUMPY\x01\x00".to_vec();
            file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
            file.extend(header.as_bytes());
            let message = Array::parse(&file).unwrap_err().to_string();
            assert!(!message.contains(char::is_control), "{message:?}");
        }
    }

    #[test]
    fn reads_other_floats() {
        let file = |element: &str, shape: &str, data: &[u8]| {
            let text =
                format!("{{'descr': '{element}', 'fortran_order': False, 'shape': ({shape}), }}\n");
            let mut file = b"\x93NUMPY\x02\x00".to_vec();
            file.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
            file.extend(text.as_bytes());
            file.extend(data);
            Array::parse(&file)
        };
        let double = [0.5f64, -2.0].map(f64::to_le_bytes).concat();
        assert_eq!(file("<f8", "2,", &double).unwrap().values, [0.5, -2.0]);
        let half = [0x3800u16, 0xc000].map(u16::to_le_bytes).concat();
        assert_eq!(file("<f2", "1, 2", &half).unwrap().values, [0.5, -2.0]);
        for (element, shape, bytes, expected) in [
            ("<i4", "1,", 4, "elements of type \"<i4\""),
            ("<f4", "3,", 8, "shape [3] does not match 2 elements"),
            ("<f4", "2,", 9, "shape [2] does not match 3 elements"),
            ("<f4", "-1,", 4, "no shape"),
        ] {
            let e = file(element, shape, &vec![0; bytes]).unwrap_err();
            assert!(e.message().contains(expected), "{e}");
        }
        let e = Array::parse(b"\x93NUMPY\x03\x00").unwrap_err();
        assert!(e.message().contains("version 1 or 2"), "{e}");
    }
}
