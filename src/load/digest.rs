//! The digest of a model: what its files say of how it computes, and samples of its weights.
//!
//! A tensor of up to [`WHOLE`] bytes is read whole, of a larger one [`SAMPLE`] bytes at its
//! beginning, in its middle and at its end: a digest of all bytes would read every file once more.
//! Models of one family that were trained apart, or further, differ in their samples; one byte that
//! was changed by hand may lie between them.

use crate::error::Result;
use crate::format::{Directory, Value};
use blake3::Hasher;

/// Bytes of a sample.
const SAMPLE: usize = 4096;

/// Bytes of a tensor that is read whole.
const WHOLE: usize = 3 * SAMPLE;

/// The digest of the files of a model.
///
/// # Errors
///
/// `State` where a file has changed since it was opened.
pub(super) fn of(file: &Directory) -> Result<[u8; 32]> {
    file.check_unchanged()?;
    let mut hasher = Hasher::new();
    text(&mut hasher, "tabla model 1");
    let name = file.metadata.str("general.architecture")?;
    let name = name.unwrap_or_default();
    text(&mut hasher, name);
    let numbers = format!("{name}.");
    for (key, found) in file
        .metadata
        .iter()
        .filter(|(k, _)| k.starts_with(&numbers))
    {
        text(&mut hasher, key);
        value(&mut hasher, found);
    }
    for tensor in &file.tensors {
        text(&mut hasher, &tensor.name);
        text(&mut hasher, tensor.dtype.name());
        count(&mut hasher, tensor.dims.len());
        for dim in &tensor.dims {
            hasher.update(&dim.to_le_bytes());
        }
        let bytes = file.bytes(tensor);
        count(&mut hasher, bytes.len());
        for sample in samples(bytes) {
            hasher.update(sample);
        }
    }
    Ok(hasher.finalize().into())
}

/// The samples of a tensor.
fn samples(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let last = bytes.len().saturating_sub(SAMPLE);
    let (starts, len) = match bytes.len() {
        0..=WHOLE => (vec![0], bytes.len()),
        _ => (vec![0, last / 2, last], SAMPLE),
    };
    starts
        .into_iter()
        .map(move |start| &bytes[start..start + len])
}

/// A text, and how long it is.
fn text(hasher: &mut Hasher, text: &str) {
    count(hasher, text.len());
    hasher.update(text.as_bytes());
}

fn count(hasher: &mut Hasher, count: usize) {
    hasher.update(&(count as u64).to_le_bytes());
}

fn value(hasher: &mut Hasher, found: Value<'_>) {
    text(hasher, found.kind().name());
    match found {
        Value::Array(items) => {
            count(hasher, items.len());
            items.iter().for_each(|item| value(hasher, item));
        }
        Value::String(bytes) => {
            count(hasher, bytes.len());
            hasher.update(bytes);
        }
        // Numbers are written so that they are read as the same.
        number => text(hasher, &number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_of_the_beginning_the_middle_and_the_end() {
        let bytes = vec![0; WHOLE + 2];
        let of = |len: usize| samples(&bytes[..len]).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(of(0), [0]);
        assert_eq!(of(WHOLE), [WHOLE]);
        assert_eq!(of(WHOLE + 2), [SAMPLE; 3]);
        let places: Vec<usize> = samples(&bytes)
            .map(|sample| sample.as_ptr() as usize - bytes.as_ptr() as usize)
            .collect();
        assert_eq!(places, [0, SAMPLE + 1, 2 * SAMPLE + 2]);
    }
}
