//! Safetensors: the header of a file, every number checked before it is used.
//!
//! The layout is that of the `safetensors` crate: eight bytes of length, a JSON object from names
//! to type, shape and place, then tensor data without a gap. Own code reads it, because the
//! crate keeps the last of two equal names and allows a header of 100 MB.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};

use super::metadata::Metadata;
use super::part::Header;
use super::reader::{Reader, to_u64};
use super::tensor::{TensorInfo, TensorType};
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Bytes of a header; one of a thousand tensors has a hundred thousand.
pub(super) const HEADER_BYTES_MAX: u64 = 25 << 20;
/// Tensors of a file or of an index; the largest sparse models have some ten thousand.
const TENSORS_MAX: usize = 200_000;
/// Bytes of a tensor's name.
const NAME_BYTES_MAX: usize = 256;
/// Dimensions of a tensor; those of images and sounds have five.
const DIMS_MAX: usize = 8;
/// The key of an object of strings among the tensors.
const NOTES: &str = "__metadata__";

/// Whether the first bytes of a file are those of a safetensors header.
pub(super) fn sniff(head: &[u8]) -> bool {
    let length = head.first_chunk().map(|b| u64::from_le_bytes(*b));
    // A longer header is for `parse` to refuse, with the limit; 100 MB is the format's own.
    length.is_some_and(|n| n <= 100_000_000) && head.get(8) == Some(&b'{')
}

/// Reads the header of the file that is number `shard` of its set.
pub(super) fn parse(bytes: &[u8], shard: usize) -> Result<Header> {
    let mut r = Reader::new(bytes);
    let length = r.u64("the header's length")?;
    if length > HEADER_BYTES_MAX {
        bail!(
            Format,
            "a header of {length} bytes is over the limit of {HEADER_BYTES_MAX}"
        );
    }
    let text = r.take(usize::try_from(length).unwrap_or(usize::MAX), "the header")?;
    let entries: Entries<Entry> =
        serde_json::from_slice(text).map_err(|e| json_error("the header", &e))?;
    let data = to_u64(r.at);
    let end = to_u64(bytes.len());
    let tensors = entries
        .0
        .into_iter()
        .map(|(name, entry)| entry.tensor(name, shard, data))
        .collect::<Result<Vec<_>>>()?;
    check_tiles(&tensors, data, end)?;
    Ok(Header {
        version: None,
        metadata: Metadata::empty(),
        tensors,
    })
}

/// The header of a file of these tensors, one behind the other: name, type by the format's name,
/// elements along each dimension, the fastest first, and bytes.
///
/// # Errors
/// `TooLarge` for more bytes than can be counted.
pub fn safetensors_header(tensors: &[(String, &str, &[u64], u64)]) -> Result<Vec<u8>> {
    let mut entries = serde_json::Map::new();
    // Readers of PyTorch files ask for it.
    entries.insert(NOTES.into(), serde_json::json!({ "format": "pt" }));
    let mut at = 0u64;
    for (name, dtype, dims, bytes) in tensors {
        let Some(end) = at.checked_add(*bytes) else {
            bail!(TooLarge, "tensor {name}: {bytes} bytes behind {at} others");
        };
        let shape: Vec<_> = dims.iter().rev().collect();
        let entry = serde_json::json!({
            "dtype": dtype, "shape": shape, "data_offsets": [at, end],
        });
        entries.insert(name.clone(), entry);
        at = end;
    }
    let mut text = serde_json::Value::from(entries).to_string().into_bytes();
    // Data begins at a multiple of eight bytes.
    let length = text.len().checked_next_multiple_of(8);
    text.resize(length.unwrap_or(text.len()), b' ');
    let mut header = to_u64(text.len()).to_le_bytes().to_vec();
    header.append(&mut text);
    Ok(header)
}

/// The tensors must fill the rest of the file, one behind the other: what no tensor names could
/// be anything, and what two name would change under both.
fn check_tiles(tensors: &[TensorInfo], data: u64, end: u64) -> Result<()> {
    let mut order: Vec<_> = tensors.iter().collect();
    order.sort_by_key(|t| (t.offset, t.bytes));
    let mut at = data;
    for t in order {
        if t.offset != at {
            bail!(
                Format,
                "tensor {} begins at byte {}, the one before it ends at {at}",
                t.name,
                t.offset
            );
        }
        // `Entry::tensor` has added these two before.
        at = t.offset.saturating_add(t.bytes);
        if at > end {
            bail!(
                Format,
                "truncated: tensor {} ends at byte {at}, the file has {end} bytes; \
                 the download was probably interrupted",
                t.name
            );
        }
    }
    if at != end {
        bail!(
            Format,
            "the tensors end at byte {at}, the file has {end} bytes"
        );
    }
    Ok(())
}

/// What the header says of a tensor.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl Entry {
    /// The entry with its numbers held against each other; `data` is where offsets count from.
    fn tensor(self, name: String, shard: usize, data: u64) -> Result<TensorInfo> {
        let Self {
            dtype,
            shape,
            data_offsets: [from, to],
        } = self;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let shown: String = name.chars().take(32).collect();
            bail!(
                Format,
                "the name {shown:?} of {} bytes is no name: 1 to {NAME_BYTES_MAX} bytes that can be printed",
                name.len()
            );
        }
        if shape.len() > DIMS_MAX {
            bail!(
                Format,
                "tensor {name} has {} dimensions, not up to {DIMS_MAX}",
                shape.len()
            );
        }
        let Some(kind) = TensorType::from_safetensors(&dtype) else {
            bail!(
                Unsupported,
                "tensor {name} has the type {dtype:?}, which is not known"
            );
        };
        let cols = shape.last().copied().unwrap_or(1);
        let rows = shape
            .iter()
            .rev()
            .skip(1)
            .try_fold(1u64, |n, d| n.checked_mul(*d));
        let size = rows.and_then(|rows| kind.bytes(rows, cols));
        let (Some(bytes), Some(offset)) = (to.checked_sub(from), data.checked_add(from)) else {
            bail!(Format, "tensor {name} lies from byte {from} to byte {to}");
        };
        if size != Some(bytes) || offset.checked_add(bytes).is_none() {
            bail!(
                Format,
                "tensor {name}: {shape:?} elements of {dtype} in bytes {from} to {to}"
            );
        }
        let dims = if shape.is_empty() {
            vec![1]
        } else {
            shape.into_iter().rev().collect()
        };
        Ok(TensorInfo {
            name,
            dtype: kind,
            dims,
            shard,
            offset,
            bytes,
        })
    }
}

/// A JSON object of tensors as a list, so that a name that stands twice is seen.
pub(super) struct Entries<T>(pub(super) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reading<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reading<T> {
            type Value = Vec<(String, T)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == NOTES {
                        map.next_value::<HashMap<String, IgnoredAny>>()?;
                        continue;
                    }
                    if entries.len() >= TENSORS_MAX {
                        let message = format_args!("more than {TENSORS_MAX} tensors");
                        return Err(A::Error::custom(message));
                    }
                    entries.push((name, map.next_value()?));
                }
                Ok(entries)
            }
        }
        from.deserialize_map(Reading(std::marker::PhantomData))
            .map(Self)
    }
}

pub(super) fn json_error(what: &str, cause: &serde_json::Error) -> Error {
    Error::new(
        ErrorKind::Format,
        format_args!("{what} is damaged: {cause}"),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Kind, open_bytes};
    use tabla_core::dtype::DType;

    /// A file with this header and so many bytes of data.
    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = to_u64(header.len()).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.extend((0..data).map(|i| u8::try_from(i % 251).unwrap()));
        bytes
    }

    /// A tensor of two floats for each name, one behind the other.
    pub(crate) fn floats(names: &[&str]) -> Vec<u8> {
        let entry = |(i, name): (usize, &&str)| {
            let (from, to) = (8 * i, 8 * i + 8);
            format!(r#""{name}":{{"dtype":"F32","shape":[2],"data_offsets":[{from},{to}]}}"#)
        };
        let entries: Vec<_> = names.iter().enumerate().map(entry).collect();
        file(&format!("{{{}}}", entries.join(",")), 8 * names.len())
    }

    #[track_caller]
    fn refused(bytes: Vec<u8>, kind: ErrorKind, part: &str) {
        let e = open_bytes("test", bytes).expect_err(part);
        assert!(e.message().contains(part), "{part:?} is not in: {e}");
        assert_eq!(e.kind(), kind, "{e}");
    }

    /// A header of one tensor, `x`, with four bytes of data.
    fn one(dtype: &str, shape: &str, offsets: &str) -> Vec<u8> {
        let entry = format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#);
        file(&format!(r#"{{"x":{entry}}}"#), 4)
    }

    #[test]
    fn tensors_are_where_the_header_says() {
        let header = r#"{"__metadata__":{"format":"pt"},
            "b":{"dtype":"BF16","shape":[3,2],"data_offsets":[4,16]},
            "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
            "none":{"dtype":"U8","shape":[0,7],"data_offsets":[4,4]}}   "#;
        let found = open_bytes("test", file(header, 16)).unwrap();
        assert_eq!((found.kind, found.version), (Kind::Safetensors, None));
        let b = found.tensor("b").unwrap();
        assert_eq!(
            (b.dims.as_slice(), b.dtype),
            ([2, 3].as_slice(), DType::Bf16.into())
        );
        assert_eq!(found.bytes(b), (4..16).collect::<Vec<u8>>());
        let a = found.tensor("a").unwrap();
        assert_eq!(
            (a.dims.as_slice(), found.bytes(a)),
            ([1].as_slice(), [0, 1, 2, 3].as_slice())
        );
        assert_eq!(found.tensor("none").unwrap().elements(), 0);
    }

    #[test]
    fn sizes_and_places_are_held_against_the_file() {
        let long = HEADER_BYTES_MAX + 1;
        let mut lie = one("F32", "[1]", "[0,4]");
        lie[..8].copy_from_slice(&long.to_le_bytes());
        refused(
            lie.clone(),
            ErrorKind::Format,
            "a header of 26214401 bytes is over the limit",
        );
        lie[..8].copy_from_slice(&9999u64.to_le_bytes());
        refused(lie, ErrorKind::Format, "truncated");
        refused(
            one("F32", "[1]", "[0,3]"),
            ErrorKind::Format,
            "tensor x: [1] elements of F32",
        );
        refused(
            one("F32", "[2]", "[0,8]"),
            ErrorKind::Format,
            "tensor x ends at byte",
        );
        refused(
            one("F32", "[1]", "[4,0]"),
            ErrorKind::Format,
            "from byte 4 to byte 0",
        );
        refused(
            one("F32", "[1]", "[4,8]"),
            ErrorKind::Format,
            "the one before it ends",
        );
        refused(
            one("U8", "[3]", "[0,3]"),
            ErrorKind::Format,
            "the tensors end at byte",
        );
        refused(one("I7", "[4]", "[0,4]"), ErrorKind::Unsupported, "I7");
        let wide = "[4294967296,4294967296,4]";
        refused(one("U8", wide, "[0,4]"), ErrorKind::Format, "tensor x");
        let far = "[18446744073709551612,18446744073709551615]";
        refused(
            one("U8", "[3]", far),
            ErrorKind::Format,
            "18446744073709551612",
        );
        refused(
            one("U8", "[1,1,1,1,1,1,1,1,4]", "[0,4]"),
            ErrorKind::Format,
            "9 dimensions",
        );
        refused(one("U8", "[-4]", "[0,4]"), ErrorKind::Format, "damaged");
    }

    #[test]
    fn headers_that_lie_are_refused() {
        refused(
            floats(&["a", "b", "a"]),
            ErrorKind::Format,
            "tensor a is listed twice",
        );
        refused(floats(&["", "b"]), ErrorKind::Format, "is no name");
        refused(
            file("{\"a\":1}", 0),
            ErrorKind::Format,
            "the header is damaged",
        );
        refused(
            file("{\"a\":", 0),
            ErrorKind::Format,
            "the header is damaged",
        );
        let deep = format!("{{\"a\":{}", "[".repeat(100_000));
        refused(file(&deep, 0), ErrorKind::Format, "the header is damaged");
        let one = r#""x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
        let same = file(&format!("{{{one},{one}}}"), 4);
        refused(same, ErrorKind::Format, "tensor x");
        let fields = r#"{"x":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}}"#;
        refused(file(fields, 4), ErrorKind::Format, "duplicate field");
        let empty = r#"{"dtype":"U8","shape":[0],"data_offsets":[0,0]}"#;
        let many: Vec<_> = (0..=TENSORS_MAX)
            .map(|i| format!("\"{i}\":{empty}"))
            .collect();
        let many = format!("{{{}}}", many.join(","));
        refused(
            file(&many, 0),
            ErrorKind::Format,
            "more than 200000 tensors",
        );
    }

    #[test]
    fn every_length_short_of_the_whole_is_refused() {
        let whole = floats(&["a", "b"]);
        for length in 0..whole.len() {
            let e = open_bytes("test", whole[..length].to_vec()).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Format, "{length} bytes: {e}");
        }
    }
}
