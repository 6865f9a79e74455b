//! GGUF parser: header, metadata and tensor list. Every number is checked before use.
//!
//! The layout follows `docs/gguf.md` in ggml: magic, version, counts, key-value pairs, tensor
//! list, padding, tensor data. Versions 2 and 3 are identical in little-endian files.

use std::sync::Arc;

use super::map::Bytes;
use super::metadata::{Entry, Metadata};
use super::part::Header;
use super::reader::{Reader, reserve, to_u64};
use super::tensor::{TensorInfo, TensorType};
use super::value::{LENGTH_BYTES, Value, ValueType};
use tabla_core::dtype::DType;
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Maximum number of key-value pairs; typical files have 20 to 60.
const KEYS_MAX: u64 = 65_536;
/// Maximum number of tensors; the largest MoE models have a few thousand.
const TENSORS_MAX: u64 = 200_000;
/// Maximum length of a key in bytes.
const KEY_BYTES_MAX: u64 = 1024;
/// Maximum length of a tensor name in bytes; the limit of ggml is 63.
const NAME_BYTES_MAX: u64 = 256;
/// Maximum length of a metadata string in bytes; chat templates have tens of thousands.
const STRING_BYTES_MAX: u64 = 16 << 20;
/// Maximum size of a metadata array in bytes; the merges of a large vocabulary have ten million.
const ARRAY_BYTES_MAX: usize = 1 << 30;
/// Maximum number of tensor dimensions, as in ggml.
const DIMS_MAX: u32 = 4;
/// Maximum alignment of tensor data in bytes.
const ALIGNMENT_MAX: u32 = 1 << 20;
const ALIGNMENT_DEFAULT: u32 = 32;

/// Size of the smallest key-value pair in bytes: a one-byte key and a `u8`.
const KEY_BYTES_MIN: u64 = 8 + 1 + 4 + 1;
/// Size of the smallest tensor entry in bytes: a one-byte name and one dimension.
const TENSOR_BYTES_MIN: u64 = 8 + 1 + 4 + 8 + 4 + 8;

const MAGIC: &[u8; 4] = b"GGUF";

/// Parses the header, metadata and tensor list of file number `shard` of a set.
pub(super) fn parse(source: &Arc<Bytes>, shard: usize) -> Result<Header> {
    let mut r = Reader::new(source.as_slice());
    let version = version(r.bytes)?;
    r.take(8, "magic and version")?;
    let tensor_count = r.count("tensors", TENSORS_MAX, TENSOR_BYTES_MIN)?;
    let key_count = r.count("keys", KEYS_MAX, KEY_BYTES_MIN)?;

    let mut entries = reserve(key_count)?;
    for _ in 0..key_count {
        entries.push(r.entry()?);
    }
    let metadata = Metadata::new(Arc::clone(source), entries)?;
    let alignment = alignment(&metadata)?;

    let mut tensors = reserve(tensor_count)?;
    for _ in 0..tensor_count {
        tensors.push(r.tensor(shard, alignment)?);
    }
    resolve_offsets(&mut tensors, r.at, alignment, r.bytes.len())?;
    Ok(Header {
        version: Some(version),
        metadata,
        tensors,
    })
}

/// Returns the version of a GGUF file if it is supported.
pub(super) fn version(head: &[u8]) -> Result<u32> {
    let Some((magic, rest)) = head.split_first_chunk::<4>() else {
        bail!(Format, "truncated: the file has {} bytes", head.len());
    };
    if magic == b"FUGG" {
        bail!(
            Unsupported,
            "a big-endian GGUF file; convert it to little-endian"
        );
    }
    if magic != MAGIC {
        bail!(
            Format,
            "not a GGUF file: it begins with \"{}\"",
            magic.escape_ascii()
        );
    }
    let Some(version) = rest.first_chunk().map(|v| u32::from_le_bytes(*v)) else {
        bail!(
            Format,
            "truncated: the file ends inside the version field; download it again"
        );
    };
    match version {
        2 | 3 => Ok(version),
        0 => bail!(Format, "header byte 4: GGUF version 0 does not exist"),
        1 => bail!(
            Unsupported,
            "GGUF version 1 is not supported; convert the model to version 3"
        ),
        v if v & 0xffff == 0 => {
            bail!(
                Unsupported,
                "a big-endian GGUF file; convert it to little-endian"
            )
        }
        v => bail!(
            Unsupported,
            "GGUF version {v} is not supported, expected 2 or 3"
        ),
    }
}

fn alignment(metadata: &Metadata) -> Result<u32> {
    match metadata.get("general.alignment") {
        None => Ok(ALIGNMENT_DEFAULT),
        Some(Value::U32(n)) if n.is_power_of_two() && n <= ALIGNMENT_MAX => Ok(n),
        Some(value) => bail!(
            Format,
            "general.alignment: expected a u32 power of two up to {ALIGNMENT_MAX}, got {} {value}",
            value.kind().name()
        ),
    }
}

/// Converts offsets in the data section to file offsets, and rejects tensors that overlap or end
/// after the end of the file.
fn resolve_offsets(
    tensors: &mut [TensorInfo],
    header: usize,
    alignment: u32,
    file: usize,
) -> Result<()> {
    let file = u64::try_from(file).map_err(|_| overflow("the file"))?;
    let header = u64::try_from(header).map_err(|_| overflow("the header"))?;
    let data = header.checked_next_multiple_of(alignment.into());
    reject_wide_q2_0(tensors, data.unwrap_or(u64::MAX), alignment, file)?;
    let mut spans = reserve(tensors.len())?;
    for t in tensors {
        let start = data
            .and_then(|d| d.checked_add(t.offset))
            .ok_or_else(|| overflow(&t.name))?;
        let end = start
            .checked_add(t.bytes)
            .ok_or_else(|| overflow(&t.name))?;
        // An empty tensor may be at the end of a file without padding.
        if end > file && t.bytes > 0 {
            bail!(
                Format,
                "truncated: tensor {} ends at byte {end}, the file has {file} bytes; \
                 the download was probably interrupted",
                t.name
            );
        }
        t.offset = start.min(file);
        if t.bytes > 0 {
            spans.push((start, end, &*t));
        }
    }
    spans.sort_unstable_by_key(|s| s.0);
    for pair in spans.windows(2) {
        if let [(_, end, a), (start, _, b)] = pair
            && start < end
        {
            let (a, b) = (&a.name, &b.name);
            bail!(
                Format,
                "tensor {b} at byte {start} overlaps tensor {a}, which ends at byte {end}"
            );
        }
    }
    Ok(())
}

/// Rejects `Q2_0` tensors in blocks of 128 elements, as in older files of `PrismML`: the next tensor, or the
/// end of the file, is where 34 bytes for each 128 elements end. `data` is the start of the data section.
fn reject_wide_q2_0(tensors: &[TensorInfo], data: u64, alignment: u32, file: u64) -> Result<()> {
    let mut q2_0 = tensors.iter().filter(|t| t.dtype == DType::Q2_0.into());
    let Some(first) = q2_0.next() else {
        return Ok(());
    };
    let mut starts = reserve(tensors.len())?;
    starts.extend(tensors.iter().map(|t| data.saturating_add(t.offset)));
    starts.sort_unstable();
    for t in std::iter::once(first).chain(q2_0) {
        let start = data.saturating_add(t.offset);
        let next = starts.get(starts.partition_point(|other| *other <= start));
        let next = next.copied().unwrap_or(file);
        let wide_end = start.saturating_add((t.elements() / 128).saturating_mul(34));
        let padded = wide_end.checked_next_multiple_of(alignment.into());
        let is_wide = wide_end == next || padded == Some(next);
        if is_wide && start.saturating_add(t.bytes) > next {
            bail!(
                Unsupported,
                "tensor {}: q2_0 in blocks of 128 elements, as in older files of PrismML, expected \
                 blocks of 64; use the file whose name ends in Q2_0_g64.gguf",
                t.name
            );
        }
    }
    Ok(())
}

fn overflow(what: &str) -> Error {
    Error::new(
        ErrorKind::Format,
        format_args!("{what}: offset or size overflows 64 bits"),
    )
}

impl Reader<'_> {
    fn value_type(&mut self, key: &str) -> Result<ValueType> {
        let at = self.at;
        let id = self.u32("a value type")?;
        let Some(kind) = ValueType::from_gguf(id) else {
            bail!(Format, "header byte {at}: key {key} has unknown type {id}");
        };
        Ok(kind)
    }

    fn entry(&mut self) -> Result<Entry> {
        let key = self.name("a key", KEY_BYTES_MAX)?;
        let kind = self.value_type(&key)?;
        if kind == ValueType::Array {
            return self.array(key);
        }
        let data = match kind.size() {
            Some(size) => self.take(size, &key)?,
            None => self.string(&key, STRING_BYTES_MAX)?,
        };
        let at = self.at.saturating_sub(data.len());
        if kind.decode(data).is_none() {
            bail!(
                Format,
                "header byte {at}: key {key}: expected a bool of 0 or 1, got {data:?}"
            );
        }
        Ok(Entry {
            key,
            kind,
            at,
            bytes: data.len(),
            items: None,
            starts: Vec::new(),
        })
    }

    fn array(&mut self, key: String) -> Result<Entry> {
        let kind = self.value_type(&key)?;
        if kind == ValueType::Array {
            let at = self.at;
            bail!(
                Unsupported,
                "header byte {at}: key {key}: arrays of arrays are not supported"
            );
        }
        let item_bytes = kind.size().unwrap_or(LENGTH_BYTES);
        let max = u64::try_from(ARRAY_BYTES_MAX).unwrap_or(u64::MAX);
        let count = self.count(format_args!("items of {key}"), max, to_u64(item_bytes))?;
        let at = self.at;
        let starts = if kind == ValueType::String {
            self.strings(&key, count)?
        } else {
            let data = self.take(count.saturating_mul(item_bytes), &key)?;
            if kind == ValueType::Bool && data.iter().any(|b| *b > 1) {
                bail!(
                    Format,
                    "header byte {at}: key {key}: expected bools of 0 or 1"
                );
            }
            Vec::new()
        };
        let bytes = self.at.saturating_sub(at);
        Ok(Entry {
            key,
            kind,
            at,
            bytes,
            items: Some(count),
            starts,
        })
    }

    /// Reads the strings of an array; returns the start of each string and the end of the last.
    fn strings(&mut self, key: &str, count: usize) -> Result<Vec<u32>> {
        let first = self.at;
        let mut starts = reserve(count.saturating_add(1))?;
        for _ in 0..count {
            starts.push(start(self.at, first, key)?);
            // The checks of `Reader::string`, without formatting a message for every string.
            let len = self.u64(key)?;
            match usize::try_from(len) {
                Ok(len) if to_u64(len) <= STRING_BYTES_MAX => self.take(len, key)?,
                _ => bail!(
                    Format,
                    "header byte {}: key {key}: a string of {len} bytes is over the limit of \
                     {STRING_BYTES_MAX}",
                    self.at
                ),
            };
        }
        starts.push(start(self.at, first, key)?);
        Ok(starts)
    }

    fn tensor(&mut self, shard: usize, alignment: u32) -> Result<TensorInfo> {
        let name = self.name("a tensor name", NAME_BYTES_MAX)?;
        let at = self.at;
        let dim_count = self.u32(&name)?;
        if !(1..=DIMS_MAX).contains(&dim_count) {
            bail!(
                Format,
                "header byte {at}: tensor {name} has {dim_count} dimensions, expected 1 to {DIMS_MAX}"
            );
        }
        let dims = (0..dim_count)
            .map(|_| self.u64(&name))
            .collect::<Result<Vec<_>>>()?;
        let type_at = self.at;
        let dtype = tensor_type(self.u32(&name)?, &name, type_at)?;
        let offset_at = self.at;
        let offset = self.u64(&name)?;

        let bytes = data_bytes(&name, dtype, &dims, at)?;
        if !offset.is_multiple_of(alignment.into()) {
            bail!(
                Format,
                "header byte {offset_at}: tensor {name}: offset {offset} is not aligned to {alignment}"
            );
        }
        Ok(TensorInfo {
            name,
            dtype,
            dims,
            shard,
            offset,
            bytes,
        })
    }
}

/// Returns the size of a tensor's data; its shape was read at byte `at`.
pub(super) fn data_bytes(name: &str, dtype: TensorType, dims: &[u64], at: usize) -> Result<u64> {
    let mut rest = dims.iter().copied();
    let cols = rest.next().unwrap_or(1);
    let rows = rest.try_fold(1u64, u64::checked_mul);
    match rows.and_then(|rows| dtype.bytes(rows, cols)) {
        Some(bytes) => Ok(bytes),
        None => bail!(
            Format,
            "header byte {at}: tensor {name}: invalid shape {dims:?}: a row is not a whole \
             number of {dtype} blocks, or the size overflows 64 bits"
        ),
    }
}

/// Returns the tensor type with this number, read at byte `at`.
pub(super) fn tensor_type(id: u32, name: &str, at: usize) -> Result<TensorType> {
    match (TensorType::from_gguf(id), id) {
        (Some(dtype), _) => Ok(dtype),
        (None, 4 | 5 | 31..=33 | 37 | 38) => bail!(
            Unsupported,
            "header byte {at}: tensor {name} has type {id}, which ggml has removed; \
             convert the model again"
        ),
        (None, 142 | 143) => bail!(
            Unsupported,
            "header byte {at}: tensor {name} has type {id} ({}) of PrismML's fork of llama.cpp, which is \
             not supported",
            if id == 142 { "PQ2_0" } else { "PTQ1_0" }
        ),
        (None, _) => bail!(
            Format,
            "header byte {at}: tensor {name} has unknown type {id}"
        ),
    }
}

/// Returns the offset of a string from the first string.
fn start(at: usize, first: usize, key: &str) -> Result<u32> {
    let distance = at.saturating_sub(first);
    match u32::try_from(distance) {
        Ok(start) if distance <= ARRAY_BYTES_MAX => Ok(start),
        _ => {
            bail!(
                Format,
                "header byte {at}: key {key} is over the limit of {ARRAY_BYTES_MAX} bytes"
            )
        }
    }
}
