//! Writing GGUF files: what a quantiser makes, and what tests read back.

use std::borrow::Cow;

use super::tensor::TensorType;
use super::value::{Value, ValueType};
use crate::error::{Result, bail};

/// A GGUF file in the making.
///
/// ```
/// # use tabla::{dtype::DType, format::{open_bytes, write::Writer}};
/// let mut w = Writer::new();
/// w.set("general.architecture", "llama");
/// w.list("tokenizer.ggml.tokens", &["a", "b"]);
/// w.tensor("token_embd.weight", DType::F32, &[2, 1], vec![0; 8]);
/// let file = open_bytes("test", w.finish()?)?;
/// assert_eq!(file.metadata.str("general.architecture")?, Some("llama"));
/// # Ok::<(), tabla::error::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer<'a> {
    version: u32,
    alignment: usize,
    keys: u64,
    pairs: Vec<u8>,
    tensors: Vec<Entry<'a>>,
}

#[derive(Debug)]
struct Entry<'a> {
    name: String,
    dtype: TensorType,
    dims: Vec<u64>,
    data: Cow<'a, [u8]>,
}

/// A value that can be written, alone or in a list.
pub trait Item {
    /// The type in the file.
    const KIND: ValueType;
    /// The value.
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
    /// An empty file of version 3.
    pub fn new() -> Self {
        Self {
            version: 3,
            alignment: 32,
            keys: 0,
            pairs: Vec::new(),
            tensors: Vec::new(),
        }
    }

    /// Writes another version: 2 is the other one that [`open`](super::open) reads.
    pub fn version(&mut self, version: u32) -> &mut Self {
        self.version = version;
        self
    }

    /// Aligns tensor data to `bytes`, and says so in the metadata.
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

    /// Adds a key with a value of another file.
    pub fn copy(&mut self, key: &str, value: Value<'_>) -> &mut Self {
        self.key(key, value.kind());
        put(&mut self.pairs, value);
        self
    }

    /// Adds a tensor; `dims` are the elements along each dimension, the fastest first.
    pub fn tensor(
        &mut self,
        name: &str,
        dtype: impl Into<TensorType>,
        dims: &[u64],
        data: impl Into<Cow<'a, [u8]>>,
    ) -> &mut Self {
        let (name, dims) = (name.to_owned(), dims.to_vec());
        self.tensors.push(Entry {
            name,
            dtype: dtype.into(),
            dims,
            data: data.into(),
        });
        self
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// `Argument` when a tensor's data has another size than its type and dimensions say, or its
    /// type has no number in GGUF files; when the alignment is no power of two.
    pub fn finish(&self) -> Result<Vec<u8>> {
        if !self.alignment.is_power_of_two() {
            bail!(Argument, "alignment {} is no power of two", self.alignment);
        }
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend(self.keys.to_le_bytes());
        out.extend(&self.pairs);
        let mut offset = 0usize;
        for t in &self.tensors {
            let cols = t.dims.first().copied().unwrap_or(1);
            let rows = t
                .dims
                .iter()
                .skip(1)
                .try_fold(1, |n: u64, d| n.checked_mul(*d));
            let bytes = rows.and_then(|rows| t.dtype.bytes(rows, cols));
            let dims = u32::try_from(t.dims.len());
            let (Some(id), Some(bytes), Ok(dims)) = (t.dtype.gguf(), bytes, dims) else {
                bail!(
                    Argument,
                    "{}: {:?} of {} cannot be written",
                    t.name,
                    t.dims,
                    t.dtype
                );
            };
            if t.data.len() as u64 != bytes {
                bail!(
                    Argument,
                    "{}: {} bytes of data, wanted {bytes}",
                    t.name,
                    t.data.len()
                );
            }
            put(&mut out, Value::String(t.name.as_bytes()));
            out.extend(dims.to_le_bytes());
            t.dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(id.to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            let padded = t.data.len().next_multiple_of(self.alignment);
            offset = offset.saturating_add(padded);
        }
        for t in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(&*t.data);
        }
        Ok(out)
    }

    fn key(&mut self, key: &str, kind: ValueType) {
        self.keys = self.keys.saturating_add(1);
        put(&mut self.pairs, Value::String(key.as_bytes()));
        self.pairs.extend(kind.gguf().to_le_bytes());
    }
}

impl Default for Writer<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Appends a value as the file has it, without its type.
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
