//! GGUF writer.

use std::borrow::Cow;
use std::io::{self, Read, Write};

use super::map;
use super::tensor::TensorType;
use super::value::{Value, ValueType};
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Builder of a GGUF file.
///
/// A small file is built in memory with [`finish`](Writer::finish). For a large file, tensors are
/// added with [`declare`](Writer::declare) and their data is streamed after
/// [`begin`](Writer::begin).
///
/// ```
/// # use tabla_core::dtype::DType;
/// # use tabla_format::{open_bytes, write::Writer};
/// let mut w = Writer::new();
/// w.set("general.architecture", "llama");
/// w.list("tokenizer.ggml.tokens", &["a", "b"]);
/// w.tensor("token_embd.weight", DType::F32, &[2, 1], vec![0; 8]);
/// let file = open_bytes("test", w.finish()?)?;
/// assert_eq!(file.metadata.str("general.architecture")?, Some("llama"));
/// # Ok::<(), tabla_core::error::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer<'a> {
    version: u32,
    alignment: usize,
    keys: u64,
    pairs: Vec<u8>,
    tensors: Vec<TensorHeader>,
    /// Data of the tensors, empty if the data is streamed.
    data: Vec<Cow<'a, [u8]>>,
}

#[derive(Debug)]
struct TensorHeader {
    name: String,
    dtype: TensorType,
    dims: Vec<u64>,
}

/// A type that can be written as a value or array item.
pub trait Item {
    /// Type in the file.
    const KIND: ValueType;
    /// Returns the value.
    fn value(&self) -> Value<'_>;
}

macro_rules! items {
    ($($kind:ident $ty:ty: $self:ident => $value:expr;)*) => {$(
        impl Item for $ty {
            const KIND: ValueType = ValueType::$kind;
            fn value(&$self) -> Value<'_> {
                Value::$kind($value)
            }
        }
    )*};
}
items! {
    U8 u8: self => *self;
    I8 i8: self => *self;
    U16 u16: self => *self;
    I16 i16: self => *self;
    U32 u32: self => *self;
    I32 i32: self => *self;
    U64 u64: self => *self;
    I64 i64: self => *self;
    F32 f32: self => *self;
    F64 f64: self => *self;
    Bool bool: self => *self;
    String &str: self => self.as_bytes();
    String String: self => self.as_bytes();
    String &[u8]: self => self;
}

impl<'a> Writer<'a> {
    /// Returns an empty file of version 3.
    pub fn new() -> Self {
        Self {
            version: 3,
            alignment: 32,
            keys: 0,
            pairs: Vec::new(),
            tensors: Vec::new(),
            data: Vec::new(),
        }
    }

    /// Sets the version; [`open`](super::open) supports 2 and 3.
    pub fn version(&mut self, version: u32) -> &mut Self {
        self.version = version;
        self
    }

    /// Sets the alignment of tensor data in bytes, and adds `general.alignment`.
    pub fn alignment(&mut self, bytes: u32) -> &mut Self {
        self.alignment = bytes as usize;
        self.set("general.alignment", bytes)
    }

    /// Adds a key with a single value.
    #[expect(clippy::needless_pass_by_value, reason = "callers write literals")]
    pub fn set(&mut self, key: &str, value: impl Item) -> &mut Self {
        self.copy(key, value.value())
    }

    /// Adds a key with an array.
    pub fn list<T: Item>(&mut self, key: &str, items: &[T]) -> &mut Self {
        self.key(key, ValueType::Array);
        self.pairs.extend(T::KIND.gguf().to_le_bytes());
        self.pairs.extend((items.len() as u64).to_le_bytes());
        items.iter().for_each(|i| put(&mut self.pairs, i.value()));
        self
    }

    /// Adds a key with a value read from another file.
    pub fn copy(&mut self, key: &str, value: Value<'_>) -> &mut Self {
        self.key(key, value.kind());
        put(&mut self.pairs, value);
        self
    }

    /// Adds a tensor with its data; `dims` is the shape, fastest dimension first.
    pub fn tensor(
        &mut self,
        name: &str,
        dtype: impl Into<TensorType>,
        dims: &[u64],
        data: impl Into<Cow<'a, [u8]>>,
    ) -> &mut Self {
        self.data.push(data.into());
        self.declare(name, dtype, dims)
    }

    /// Adds a tensor whose data is streamed.
    pub fn declare(&mut self, name: &str, dtype: impl Into<TensorType>, dims: &[u64]) -> &mut Self {
        self.tensors.push(TensorHeader {
            name: name.to_owned(),
            dtype: dtype.into(),
            dims: dims.to_vec(),
        });
        self
    }

    /// Returns the bytes of the file.
    ///
    /// # Errors
    /// `Argument` if the data of a tensor does not match its type and shape, its type has no
    /// number in GGUF files, or the alignment is not a power of two.
    pub fn finish(&self) -> Result<Vec<u8>> {
        let mut body = self.begin(Vec::new())?;
        for (t, data) in self.tensors.iter().zip(&self.data) {
            let bytes = t.bytes()?;
            if data.len() as u64 != bytes {
                bail!(
                    Argument,
                    "tensor {}: expected {bytes} bytes, got {}",
                    t.name,
                    data.len()
                );
            }
            body.write(data)?;
        }
        body.end()
    }

    /// Writes the header; the data of all tensors must follow in the order of the tensors.
    ///
    /// # Errors
    /// `Argument` as [`finish`](Self::finish), `Io` if writing to `out` fails.
    pub fn begin<W: Write>(&self, out: W) -> Result<Body<W>> {
        if !self.alignment.is_power_of_two() {
            bail!(
                Argument,
                "alignment {} is not a power of two",
                self.alignment
            );
        }
        let alignment = self.alignment as u64;
        let mut header = b"GGUF".to_vec();
        header.extend(self.version.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend(self.keys.to_le_bytes());
        header.extend(&self.pairs);
        let mut offset = 0u64;
        let mut ends = Vec::new();
        for t in &self.tensors {
            let bytes = t.bytes()?;
            let (Some(id), Ok(dims)) = (t.dtype.gguf(), u32::try_from(t.dims.len())) else {
                return Err(t.invalid());
            };
            put(&mut header, Value::String(t.name.as_bytes()));
            header.extend(dims.to_le_bytes());
            t.dims.iter().for_each(|d| header.extend(d.to_le_bytes()));
            header.extend(id.to_le_bytes());
            header.extend(offset.to_le_bytes());
            let end = offset.saturating_add(bytes);
            ends.push(end);
            offset = padded(end, alignment);
        }
        if !ends.is_empty() {
            let end = header.len().checked_next_multiple_of(self.alignment);
            header.resize(end.unwrap_or(usize::MAX), 0);
        }
        let mut body = Body {
            out,
            alignment,
            ends: ends.into_iter(),
            end: 0,
            at: 0,
        };
        body.put(&header)?;
        body.next_tensor()?;
        Ok(body)
    }

    fn key(&mut self, key: &str, kind: ValueType) {
        self.keys = self.keys.saturating_add(1);
        put(&mut self.pairs, Value::String(key.as_bytes()));
        self.pairs.extend(kind.gguf().to_le_bytes());
    }
}

impl TensorHeader {
    /// Returns the size of the data in bytes.
    fn bytes(&self) -> Result<u64> {
        let cols = self.dims.first().copied().unwrap_or(1);
        let mut rows = self.dims.iter().skip(1);
        let rows = rows.try_fold(1, |n: u64, d| n.checked_mul(*d));
        let bytes = rows.and_then(|rows| self.dtype.bytes(rows, cols));
        bytes.ok_or_else(|| self.invalid())
    }

    fn invalid(&self) -> Error {
        let (name, dims, dtype) = (&self.name, &self.dims, self.dtype);
        let message = format_args!("tensor {name}: shape {dims:?} of {dtype} cannot be written");
        Error::new(ErrorKind::Argument, message)
    }
}

/// Streaming writer of the tensor data, after the header.
#[derive(Debug)]
pub struct Body<W> {
    out: W,
    alignment: u64,
    /// Ends of the remaining tensors, relative to the data section.
    ends: std::vec::IntoIter<u64>,
    /// End of the current tensor.
    end: u64,
    at: u64,
}

impl<W: Write> Body<W> {
    /// Writes the next bytes of the current tensor.
    ///
    /// # Errors
    /// `Argument` for more bytes than the tensor has left, `Io` if writing fails.
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        let left = self.end.saturating_sub(self.at);
        if data.len() as u64 > left {
            bail!(
                Argument,
                "expected at most {left} bytes of tensor data, got {}",
                data.len()
            );
        }
        self.put(data)?;
        self.at = self.at.saturating_add(data.len() as u64);
        if self.at == self.end {
            self.next_tensor()?;
        }
        Ok(())
    }

    /// Finishes the file and returns the writer.
    ///
    /// # Errors
    /// `Argument` if the current tensor is incomplete.
    pub fn end(self) -> Result<W> {
        let left = self.end.saturating_sub(self.at);
        if left > 0 {
            bail!(
                Argument,
                "incomplete tensor data: {left} bytes were not written"
            );
        }
        Ok(self.out)
    }

    /// Advances to the next tensor with data; writes the padding before it.
    fn next_tensor(&mut self) -> Result<()> {
        while self.at == self.end {
            let Some(end) = self.ends.next() else { break };
            let start = padded(self.at, self.alignment);
            let padding = start.saturating_sub(self.at);
            io::copy(&mut io::repeat(0).take(padding), &mut self.out).map_err(write_failed)?;
            (self.at, self.end) = (start, end);
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(write_failed)
    }
}

fn padded(at: u64, alignment: u64) -> u64 {
    at.checked_next_multiple_of(alignment).unwrap_or(u64::MAX)
}

fn write_failed(cause: io::Error) -> Error {
    map::io("write failed", cause)
}

impl Default for Writer<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Appends the encoded value, without its type.
fn put(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::U8(v) => out.push(v),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push(v.into()),
        Value::String(v) => {
            out.extend((v.len() as u64).to_le_bytes());
            out.extend(v);
        }
        Value::Array(items) => {
            out.extend(items.kind().gguf().to_le_bytes());
            out.extend((items.len() as u64).to_le_bytes());
            out.extend(items.raw());
        }
    }
}
