//! GGUF: the header, the metadata and the tensor list, every number checked before it is used.
//!
//! The layout is that of `docs/gguf.md` in ggml: magic, version, counts, key-value pairs, tensor
//! list, padding, tensor data. Versions 2 and 3 have the same bytes in little-endian files.

use std::sync::Arc;

use super::map::Bytes;
use super::metadata::{Entry, Metadata};
use super::part::Header;
use super::reader::{Reader, reserve, to_u64};
use super::tensor::{TensorInfo, TensorType};
use super::value::{LENGTH_BYTES, Value, ValueType};
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Key-value pairs of a file; real ones have 20 to 60.
const KEYS_MAX: u64 = 65_536;
/// Tensors of a file; the largest sparse models have a few thousand.
const TENSORS_MAX: u64 = 200_000;
/// Bytes of a key.
const KEY_BYTES_MAX: u64 = 1024;
/// Bytes of a tensor's name; ggml's own limit is 63.
const NAME_BYTES_MAX: u64 = 256;
/// Bytes of a string in the metadata; chat templates have tens of thousands.
const STRING_BYTES_MAX: u64 = 16 << 20;
/// Bytes of an array in the metadata; the merges of a large vocabulary have ten million.
const ARRAY_BYTES_MAX: usize = 1 << 30;
/// Dimensions of a tensor, as in ggml.
const DIMS_MAX: u32 = 4;
/// Bytes that tensor data is aligned to.
const ALIGNMENT_MAX: u32 = 1 << 20;
const ALIGNMENT_DEFAULT: u32 = 32;

/// Bytes of the shortest key-value pair: a key of one letter and a `u8`.
const KEY_BYTES_MIN: u64 = 8 + 1 + 4 + 1;
/// Bytes of the shortest tensor entry: a name of one letter and one dimension.
const TENSOR_BYTES_MIN: u64 = 8 + 1 + 4 + 8 + 4 + 8;

const MAGIC: &[u8; 4] = b"GGUF";

/// Reads header, metadata and tensor list of the file that is number `shard` of its set.
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
    place(&mut tensors, r.at, alignment, r.bytes.len())?;
    Ok(Header {
        version: Some(version),
        metadata,
        tensors,
    })
}

/// The version of a GGUF file, if this build can read it.
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
            "truncated: the file ends inside the version; download it again"
        );
    };
    match version {
        2 | 3 => Ok(version),
        0 => bail!(Format, "header byte 4: GGUF version 0 does not exist"),
        1 => bail!(
            Unsupported,
            "GGUF version 1 was replaced in 2023; convert the model again"
        ),
        v if v & 0xffff == 0 => {
            bail!(
                Unsupported,
                "a big-endian GGUF file; convert it to little-endian"
            )
        }
        v => bail!(Unsupported, "GGUF version {v}; this build reads 2 and 3"),
    }
}

fn alignment(metadata: &Metadata) -> Result<u32> {
    match metadata.get("general.alignment") {
        None => Ok(ALIGNMENT_DEFAULT),
        Some(Value::U32(n)) if n.is_power_of_two() && n <= ALIGNMENT_MAX => Ok(n),
        Some(found) => bail!(
            Format,
            "general.alignment: wanted a u32, a power of two up to {ALIGNMENT_MAX}, found {} {found}",
            found.kind().name()
        ),
    }
}

/// Turns offsets in the data section into offsets in the file and holds them against its length
/// and against each other.
fn place(tensors: &mut [TensorInfo], header: usize, alignment: u32, file: usize) -> Result<()> {
    let file = u64::try_from(file).map_err(|_| wrapped("the file"))?;
    let header = u64::try_from(header).map_err(|_| wrapped("the header"))?;
    let data = header.checked_next_multiple_of(alignment.into());
    let mut spans = reserve(tensors.len())?;
    for t in tensors {
        let start = data
            .and_then(|d| d.checked_add(t.offset))
            .ok_or_else(|| wrapped(&t.name))?;
        let end = start.checked_add(t.bytes).ok_or_else(|| wrapped(&t.name))?;
        // A tensor without elements may stand at the end of a file without padding.
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
                "tensor {b} begins at byte {start}, inside {a}, which ends at {end}"
            );
        }
    }
    Ok(())
}

fn wrapped(what: &str) -> Error {
    Error::new(
        ErrorKind::Format,
        format_args!("{what}: place or size is over 64 bits"),
    )
}

impl Reader<'_> {
    fn value_type(&mut self, key: &str) -> Result<ValueType> {
        let at = self.at;
        let id = self.u32("a value's type")?;
        let Some(kind) = ValueType::from_gguf(id) else {
            bail!(
                Format,
                "header byte {at}: key {key} has the unknown type {id}"
            );
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
                "header byte {at}: key {key}: a bool is 0 or 1, found {data:?}"
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
        let each = kind.size().unwrap_or(LENGTH_BYTES);
        let max = u64::try_from(ARRAY_BYTES_MAX).unwrap_or(u64::MAX);
        let count = self.count(format_args!("items of {key}"), max, to_u64(each))?;
        let at = self.at;
        let starts = if kind == ValueType::String {
            self.strings(&key, count)?
        } else {
            let data = self.take(count.saturating_mul(each), &key)?;
            if kind == ValueType::Bool && data.iter().any(|b| *b > 1) {
                bail!(
                    Format,
                    "header byte {at}: key {key}: a bool is neither 0 nor 1"
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

    /// Walks over the strings of an array and keeps where each begins and the last ends.
    fn strings(&mut self, key: &str, count: usize) -> Result<Vec<u32>> {
        let first = self.at;
        let mut starts = reserve(count.saturating_add(1))?;
        for _ in 0..count {
            starts.push(start(self.at, first, key)?);
            // The same checks as for other strings, without a message made in advance.
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
        let name = self.name("a tensor's name", NAME_BYTES_MAX)?;
        let at = self.at;
        let dim_count = self.u32(&name)?;
        if !(1..=DIMS_MAX).contains(&dim_count) {
            bail!(
                Format,
                "header byte {at}: tensor {name} has {dim_count} dimensions, not 1 to {DIMS_MAX}"
            );
        }
        let dims = (0..dim_count)
            .map(|_| self.u64(&name))
            .collect::<Result<Vec<_>>>()?;
        let type_at = self.at;
        let dtype = tensor_type(self.u32(&name)?, &name, type_at)?;
        let offset_at = self.at;
        let offset = self.u64(&name)?;

        let mut rest = dims.iter().copied();
        let cols = rest.next().unwrap_or(1);
        let rows = rest.try_fold(1u64, u64::checked_mul);
        let Some(bytes) = rows.and_then(|rows| dtype.bytes(rows, cols)) else {
            bail!(
                Format,
                "header byte {at}: tensor {name}: {dims:?} elements are no whole rows of {dtype}, \
                 or more than 64 bits can count"
            );
        };
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

fn tensor_type(id: u32, name: &str, at: usize) -> Result<TensorType> {
    match (TensorType::from_gguf(id), id) {
        (Some(dtype), _) => Ok(dtype),
        (None, 4 | 5 | 31..=33 | 37 | 38) => bail!(
            Unsupported,
            "header byte {at}: tensor {name} has type {id}, which ggml has retired; \
             convert the model again"
        ),
        (None, _) => bail!(
            Format,
            "header byte {at}: tensor {name} has the unknown type {id}"
        ),
    }
}

/// Where a string begins, counted from the first.
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
