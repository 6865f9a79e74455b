//! Digest of a model: its hyperparameters and samples of its weights.
//!
//! A tensor of up to [`WHOLE`] bytes is hashed whole. Of a larger tensor, [`SAMPLE`] bytes at the
//! start, middle and end are hashed, because hashing all bytes would read every file again. Models
//! that were trained differently differ in their samples; a change to a single byte may be missed.

use crate::error::Result;
use crate::format::{Directory, Value};
use blake3::Hasher;

/// Size of a sample in bytes.
const SAMPLE: usize = 4096;

/// Maximum size in bytes of a tensor that is hashed whole.
const WHOLE: usize = 3 * SAMPLE;

/// Computes the digest of the files of a model.
///
/// # Errors
///
/// `State` if a file has changed since it was opened.
pub(super) fn of(file: &Directory) -> Result<[u8; 32]> {
    file.check_unchanged()?;
    let mut hasher = Hasher::new();
    text(&mut hasher, "tabla model 1");
    let name = file.metadata.str("general.architecture")?;
    let name = name.unwrap_or_default();
    text(&mut hasher, name);
    let numbers = format!("{name}.");
    for (key, item) in file
        .metadata
        .iter()
        .filter(|(k, _)| k.starts_with(&numbers))
    {
        text(&mut hasher, key);
        value(&mut hasher, item);
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

/// Returns the samples of a tensor.
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

/// Hashes a text with its length.
fn text(hasher: &mut Hasher, text: &str) {
    count(hasher, text.len());
    hasher.update(text.as_bytes());
}

fn count(hasher: &mut Hasher, count: usize) {
    hasher.update(&(count as u64).to_le_bytes());
}

fn value(hasher: &mut Hasher, item: Value<'_>) {
    text(hasher, item.kind().name());
    match item {
        Value::Array(items) => {
            count(hasher, items.len());
            items.iter().for_each(|item| value(hasher, item));
        }
        Value::String(bytes) => {
            count(hasher, bytes.len());
            hasher.update(bytes);
        }
        // The decimal form of a number round-trips.
        number => text(hasher, &number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_cover_start_middle_and_end() {
        let bytes = vec![0; WHOLE + 2];
        let of = |len: usize| samples(&bytes[..len]).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(of(0), [0]);
        assert_eq!(of(WHOLE), [WHOLE]);
        assert_eq!(of(WHOLE + 2), [SAMPLE; 3]);
        let offsets: Vec<usize> = samples(&bytes)
            .map(|sample| sample.as_ptr() as usize - bytes.as_ptr() as usize)
            .collect();
        assert_eq!(offsets, [0, SAMPLE + 1, 2 * SAMPLE + 2]);
    }
}
