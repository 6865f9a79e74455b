//! Safetensors header parser. Every number is checked before use.
//!
//! The layout is that of the `safetensors` crate: an eight-byte length, a JSON object that maps
//! names to type, shape and offsets, then tensor data without gaps. The crate itself is not used,
//! because it accepts duplicate names and headers of up to 100 MB.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};

use super::metadata::Metadata;
use super::part::Header;
use super::reader::{Reader, to_u64};
use super::tensor::{TensorInfo, TensorType};
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Maximum size of a header in bytes; a header of a thousand tensors has a hundred thousand.
pub(super) const HEADER_BYTES_MAX: u64 = 25 << 20;
/// Maximum number of tensors of a file or an index; the largest MoE models have tens of thousands.
const TENSORS_MAX: usize = 200_000;
/// Maximum length of a tensor name in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Maximum number of tensor dimensions; vision and audio models use up to five.
const DIMS_MAX: usize = 8;
/// Header key of the string-to-string metadata object.
const METADATA_KEY: &str = "__metadata__";

/// Returns true if the first bytes of a file are a safetensors header.
pub(super) fn sniff(head: &[u8]) -> bool {
    let length = head.first_chunk().map(|b| u64::from_le_bytes(*b));
    // `parse` enforces the lower limit with a message; 100 MB is the limit of the format.
    length.is_some_and(|n| n <= 100_000_000) && head.get(8) == Some(&b'{')
}

/// Parses the header of file number `shard` of a set.
pub(super) fn parse(bytes: &[u8], shard: usize) -> Result<Header> {
    let mut r = Reader::new(bytes);
    let length = r.u64("the header length")?;
    if length > HEADER_BYTES_MAX {
        bail!(
            Format,
            "a header of {length} bytes is over the limit of {HEADER_BYTES_MAX}"
        );
    }
    let text = r.take_u64(length, "the header")?;
    let entries: Entries<TensorEntry> =
        serde_json::from_slice(text).map_err(|e| json_error("the header", &e))?;
    let data = to_u64(r.at);
    let end = to_u64(bytes.len());
    let tensors = entries
        .0
        .into_iter()
        .map(|(name, entry)| entry.tensor(name, shard, data))
        .collect::<Result<Vec<_>>>()?;
    check_contiguous(&tensors, data, end)?;
    Ok(Header {
        version: None,
        metadata: Metadata::empty(),
        tensors,
    })
}

/// Returns the header of a file with these contiguous tensors: name, safetensors type name, shape
/// (fastest dimension first) and size in bytes.
///
/// # Errors
/// `TooLarge` if the total size overflows 64 bits.
pub fn safetensors_header(tensors: &[(String, &str, &[u64], u64)]) -> Result<Vec<u8>> {
    let mut entries = serde_json::Map::new();
    // `transformers` requires this key.
    entries.insert(METADATA_KEY.into(), serde_json::json!({ "format": "pt" }));
    let mut at = 0u64;
    for (name, dtype, dims, bytes) in tensors {
        let Some(end) = at.checked_add(*bytes) else {
            bail!(
                TooLarge,
                "tensor {name}: {bytes} bytes at offset {at} overflow 64 bits"
            );
        };
        let shape: Vec<_> = dims.iter().rev().collect();
        let entry = serde_json::json!({
            "dtype": dtype, "shape": shape, "data_offsets": [at, end],
        });
        entries.insert(name.clone(), entry);
        at = end;
    }
    let mut text = serde_json::Value::from(entries).to_string().into_bytes();
    // Aligns the data to eight bytes.
    let length = text.len().checked_next_multiple_of(8);
    text.resize(length.unwrap_or(text.len()), b' ');
    let mut header = to_u64(text.len()).to_le_bytes().to_vec();
    header.append(&mut text);
    Ok(header)
}

/// Checks that the tensors cover the rest of the file without gaps or overlaps.
fn check_contiguous(tensors: &[TensorInfo], data: u64, end: u64) -> Result<()> {
    let mut order: Vec<_> = tensors.iter().collect();
    order.sort_by_key(|t| (t.offset, t.bytes));
    let mut at = data;
    for t in order {
        if t.offset != at {
            bail!(
                Format,
                "tensor {} begins at byte {}, expected {at}, the end of the previous tensor",
                t.name,
                t.offset
            );
        }
        // Cannot overflow: `TensorEntry::tensor` checks the sum.
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
            "the last tensor ends at byte {at}, the file has {end} bytes"
        );
    }
    Ok(())
}

/// Header entry of a tensor.
#[derive(Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl TensorEntry {
    /// Validates the entry; `data` is the file offset of the data section.
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
                "invalid tensor name {shown:?} of {} bytes, expected 1 to {NAME_BYTES_MAX} bytes \
                 without control characters",
                name.len()
            );
        }
        if shape.len() > DIMS_MAX {
            bail!(
                Format,
                "tensor {name} has {} dimensions, expected at most {DIMS_MAX}",
                shape.len()
            );
        }
        let Some(kind) = TensorType::from_safetensors(&dtype) else {
            bail!(Unsupported, "tensor {name} has unknown type {dtype:?}");
        };
        let cols = shape.last().copied().unwrap_or(1);
        let rows = shape
            .iter()
            .rev()
            .skip(1)
            .try_fold(1u64, |n, d| n.checked_mul(*d));
        let size = rows.and_then(|rows| kind.bytes(rows, cols));
        let (Some(bytes), Some(offset)) = (to.checked_sub(from), data.checked_add(from)) else {
            bail!(
                Format,
                "tensor {name}: invalid data_offsets: from byte {from} to byte {to}"
            );
        };
        if size != Some(bytes) || offset.checked_add(bytes).is_none() {
            bail!(
                Format,
                "tensor {name}: size mismatch: shape {shape:?} of {dtype}, data from byte {from} to \
                 byte {to}"
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

/// A JSON object of tensors as a list, so that duplicate names can be rejected.
pub(super) struct Entries<T>(pub(super) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
            type Value = Vec<(String, T)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA_KEY {
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
        from.deserialize_map(EntriesVisitor(std::marker::PhantomData))
            .map(Self)
    }
}

pub(super) fn json_error(what: &str, cause: &serde_json::Error) -> Error {
    Error::new(
        ErrorKind::Format,
        format_args!("{what} is invalid JSON: {cause}"),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Kind, open_bytes};
    use tabla_core::dtype::DType;

    /// Returns a file with this header and `data` bytes of data.
    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = to_u64(header.len()).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.extend((0..data).map(|i| u8::try_from(i % 251).unwrap()));
        bytes
    }

    /// Returns a file with one tensor of two floats per name.
    pub(crate) fn floats(names: &[&str]) -> Vec<u8> {
        let entry = |(i, name): (usize, &&str)| {
            let (from, to) = (8 * i, 8 * i + 8);
            format!(r#""{name}":{{"dtype":"F32","shape":[2],"data_offsets":[{from},{to}]}}"#)
        };
        let entries: Vec<_> = names.iter().enumerate().map(entry).collect();
        file(&format!("{{{}}}", entries.join(",")), 8 * names.len())
    }

    #[track_caller]
    fn assert_rejected(bytes: Vec<u8>, kind: ErrorKind, part: &str) {
        let e = open_bytes("test", bytes).expect_err(part);
        assert!(e.message().contains(part), "{part:?} is not in: {e}");
        assert_eq!(e.kind(), kind, "{e}");
    }

    /// Returns a file with one tensor, `x`, and four bytes of data.
    fn one(dtype: &str, shape: &str, offsets: &str) -> Vec<u8> {
        let entry = format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#);
        file(&format!(r#"{{"x":{entry}}}"#), 4)
    }

    #[test]
    fn reads_tensors_at_their_offsets() {
        let header = r#"{"__metadata__":{"format":"pt"},
            "b":{"dtype":"BF16","shape":[3,2],"data_offsets":[4,16]},
            "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
            "none":{"dtype":"U8","shape":[0,7],"data_offsets":[4,4]}}   "#;
        let opened = open_bytes("test", file(header, 16)).unwrap();
        assert_eq!((opened.kind, opened.version), (Kind::Safetensors, None));
        let b = opened.tensor("b").unwrap();
        assert_eq!(
            (b.dims.as_slice(), b.dtype),
            ([2, 3].as_slice(), DType::Bf16.into())
        );
        assert_eq!(opened.bytes(b), (4..16).collect::<Vec<u8>>());
        let a = opened.tensor("a").unwrap();
        assert_eq!(
            (a.dims.as_slice(), opened.bytes(a)),
            ([1].as_slice(), [0, 1, 2, 3].as_slice())
        );
        assert_eq!(opened.tensor("none").unwrap().elements(), 0);
    }

    #[test]
    fn rejects_invalid_sizes_and_offsets() {
        let long = HEADER_BYTES_MAX + 1;
        let mut bytes = one("F32", "[1]", "[0,4]");
        bytes[..8].copy_from_slice(&long.to_le_bytes());
        assert_rejected(
            bytes.clone(),
            ErrorKind::Format,
            "a header of 26214401 bytes is over the limit",
        );
        bytes[..8].copy_from_slice(&9999u64.to_le_bytes());
        assert_rejected(bytes, ErrorKind::Format, "truncated");
        assert_rejected(
            one("F32", "[1]", "[0,3]"),
            ErrorKind::Format,
            "size mismatch: shape [1] of F32",
        );
        assert_rejected(
            one("F32", "[2]", "[0,8]"),
            ErrorKind::Format,
            "tensor x ends at byte",
        );
        assert_rejected(
            one("F32", "[1]", "[4,0]"),
            ErrorKind::Format,
            "from byte 4 to byte 0",
        );
        assert_rejected(
            one("F32", "[1]", "[4,8]"),
            ErrorKind::Format,
            "the end of the previous tensor",
        );
        assert_rejected(
            one("U8", "[3]", "[0,3]"),
            ErrorKind::Format,
            "the last tensor ends at byte",
        );
        assert_rejected(one("I7", "[4]", "[0,4]"), ErrorKind::Unsupported, "I7");
        let wide = "[4294967296,4294967296,4]";
        assert_rejected(one("U8", wide, "[0,4]"), ErrorKind::Format, "tensor x");
        let far = "[18446744073709551612,18446744073709551615]";
        assert_rejected(
            one("U8", "[3]", far),
            ErrorKind::Format,
            "18446744073709551612",
        );
        assert_rejected(
            one("U8", "[1,1,1,1,1,1,1,1,4]", "[0,4]"),
            ErrorKind::Format,
            "9 dimensions",
        );
        assert_rejected(
            one("U8", "[-4]", "[0,4]"),
            ErrorKind::Format,
            "invalid JSON",
        );
    }

    #[test]
    fn rejects_malformed_headers() {
        assert_rejected(
            floats(&["a", "b", "a"]),
            ErrorKind::Format,
            "tensor a is listed twice",
        );
        assert_rejected(floats(&["", "b"]), ErrorKind::Format, "invalid tensor name");
        assert_rejected(
            file("{\"a\":1}", 0),
            ErrorKind::Format,
            "the header is invalid JSON",
        );
        assert_rejected(
            file("{\"a\":", 0),
            ErrorKind::Format,
            "the header is invalid JSON",
        );
        let deep = format!("{{\"a\":{}", "[".repeat(100_000));
        assert_rejected(
            file(&deep, 0),
            ErrorKind::Format,
            "the header is invalid JSON",
        );
        let one = r#""x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
        let same = file(&format!("{{{one},{one}}}"), 4);
        assert_rejected(same, ErrorKind::Format, "tensor x");
        let fields = r#"{"x":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}}"#;
        assert_rejected(file(fields, 4), ErrorKind::Format, "duplicate field");
        let empty = r#"{"dtype":"U8","shape":[0],"data_offsets":[0,0]}"#;
        let many: Vec<_> = (0..=TENSORS_MAX)
            .map(|i| format!("\"{i}\":{empty}"))
            .collect();
        let many = format!("{{{}}}", many.join(","));
        assert_rejected(
            file(&many, 0),
            ErrorKind::Format,
            "more than 200000 tensors",
        );
    }

    #[test]
    fn rejects_every_truncation() {
        let whole = floats(&["a", "b"]);
        for length in 0..whole.len() {
            let e = open_bytes("test", whole[..length].to_vec()).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Format, "{length} bytes: {e}");
        }
    }
}
