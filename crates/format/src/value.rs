//! Metadata values: numbers, bools, strings, and arrays of them.

use std::fmt;

/// Type of a value, or of the items of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

/// Type, name, and size in bytes of fixed-size values; the index is the number in GGUF files.
const TYPES: [(ValueType, &str, Option<usize>); 13] = [
    (ValueType::U8, "u8", Some(1)),
    (ValueType::I8, "i8", Some(1)),
    (ValueType::U16, "u16", Some(2)),
    (ValueType::I16, "i16", Some(2)),
    (ValueType::U32, "u32", Some(4)),
    (ValueType::I32, "i32", Some(4)),
    (ValueType::F32, "f32", Some(4)),
    (ValueType::Bool, "bool", Some(1)),
    (ValueType::String, "string", None),
    (ValueType::Array, "array", None),
    (ValueType::U64, "u64", Some(8)),
    (ValueType::I64, "i64", Some(8)),
    (ValueType::F64, "f64", Some(8)),
];

impl ValueType {
    /// Returns the type with this number in GGUF files.
    pub fn from_gguf(id: u32) -> Option<Self> {
        TYPES.get(usize::try_from(id).ok()?).map(|t| t.0)
    }

    /// Returns the number in GGUF files.
    pub fn gguf(self) -> u32 {
        self as u32
    }

    /// Returns the name for listings and messages.
    pub fn name(self) -> &'static str {
        TYPES.get(self as usize).map_or("", |t| t.1)
    }

    /// Returns the size of a value in bytes; `None` for strings and arrays.
    pub(super) fn size(self) -> Option<usize> {
        TYPES.get(self as usize).and_then(|t| t.2)
    }

    /// Decodes one value; `bytes` must have its exact size.
    pub(super) fn decode(self, bytes: &[u8]) -> Option<Value<'_>> {
        Some(match self {
            Self::U8 => Value::U8(u8::from_le_bytes(bytes.try_into().ok()?)),
            Self::I8 => Value::I8(i8::from_le_bytes(bytes.try_into().ok()?)),
            Self::U16 => Value::U16(u16::from_le_bytes(bytes.try_into().ok()?)),
            Self::I16 => Value::I16(i16::from_le_bytes(bytes.try_into().ok()?)),
            Self::U32 => Value::U32(u32::from_le_bytes(bytes.try_into().ok()?)),
            Self::I32 => Value::I32(i32::from_le_bytes(bytes.try_into().ok()?)),
            Self::F32 => Value::F32(f32::from_le_bytes(bytes.try_into().ok()?)),
            Self::U64 => Value::U64(u64::from_le_bytes(bytes.try_into().ok()?)),
            Self::I64 => Value::I64(i64::from_le_bytes(bytes.try_into().ok()?)),
            Self::F64 => Value::F64(f64::from_le_bytes(bytes.try_into().ok()?)),
            Self::Bool => match bytes {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                _ => return None,
            },
            Self::String => Value::String(bytes),
            Self::Array => return None,
        })
    }
}

/// A metadata value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    /// Bytes of a string, which may not be UTF-8.
    String(&'a [u8]),
    Array(Array<'a>),
}

impl<'a> Value<'a> {
    /// Returns the type of this value.
    pub fn kind(self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F32(_) => ValueType::F32,
            Self::F64(_) => ValueType::F64,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
        }
    }

    /// Returns an integer of any type, if it is in the range of `T`.
    pub fn integer<T: TryFrom<i128>>(self) -> Option<T> {
        let wide = match self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        };
        T::try_from(wide).ok()
    }

    /// Returns an `f32` or `f64` as `f32`; `None` if a finite `f64` overflows.
    pub fn float(self) -> Option<f32> {
        match self {
            Self::F32(v) => Some(v),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounds, as `as` does for floats"
            )]
            Self::F64(v) => Some(v as f32).filter(|n| n.is_finite() || !v.is_finite()),
            _ => None,
        }
    }

    /// Returns a bool.
    pub fn boolean(self) -> Option<bool> {
        if let Self::Bool(v) = self {
            Some(v)
        } else {
            None
        }
    }

    /// Returns a string if it is UTF-8.
    pub fn text(self) -> Option<&'a str> {
        if let Self::String(bytes) = self {
            str::from_utf8(bytes).ok()
        } else {
            None
        }
    }

    /// Returns an array.
    pub fn array(self) -> Option<Array<'a>> {
        if let Self::Array(items) = self {
            Some(items)
        } else {
            None
        }
    }
}

/// An array of the file; items are decoded on access.
#[derive(Clone, Copy, PartialEq)]
pub struct Array<'a> {
    pub(super) kind: ValueType,
    pub(super) len: usize,
    /// The encoded items.
    pub(super) data: &'a [u8],
    /// For strings: the offset of each length prefix in `data`, and the end of the last string.
    pub(super) starts: &'a [u32],
}

/// Size of a string's length prefix in bytes.
pub(super) const LENGTH_BYTES: usize = 8;

impl<'a> Array<'a> {
    /// Returns the type of the items.
    pub fn kind(self) -> ValueType {
        self.kind
    }

    /// Returns the number of items.
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns true if there are no items.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the item at `index`.
    pub fn get(self, index: usize) -> Option<Value<'a>> {
        let item = match self.kind.size() {
            Some(size) => self.data.chunks_exact(size).nth(index)?,
            None => self.string(self.starts.get(index..)?.first_chunk()?)?,
        };
        self.kind.decode(item)
    }

    /// Returns all items in order.
    pub fn iter(self) -> impl Iterator<Item = Value<'a>> {
        let size = self.kind.size();
        let fixed = size.map(|size| self.data.chunks_exact(size));
        let fixed = fixed.into_iter().flatten();
        let strings = self.starts.array_windows();
        let strings = strings.map_while(move |ends| self.string(ends));
        let items = fixed.chain(strings);
        items.map_while(move |item| self.kind.decode(item))
    }

    /// Returns the encoded items if they are of this type of four bytes.
    pub(super) fn words(self, kind: ValueType) -> Option<&'a [[u8; 4]]> {
        let words = self.data.as_chunks().0;
        (self.kind == kind).then_some(words)
    }

    /// Returns the bytes of a string between two of `starts`.
    fn string(self, &[from, to]: &[u32; 2]) -> Option<&'a [u8]> {
        let from = usize::try_from(from).ok()?.checked_add(LENGTH_BYTES)?;
        self.data.get(from..usize::try_from(to).ok()?)
    }

    /// Returns the encoded items.
    pub(super) fn raw(self) -> &'a [u8] {
        self.data
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Value::Array(*self), f)
    }
}

/// Maximum number of string bytes in the displayed value.
const SHOWN_BYTES: usize = 80;
/// Maximum number of array items in the displayed value.
const SHOWN_ITEMS: usize = 4;

/// Formats the value on one line; long strings and arrays are truncated and show their length.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::U8(v) => v.fmt(f),
            Self::I8(v) => v.fmt(f),
            Self::U16(v) => v.fmt(f),
            Self::I16(v) => v.fmt(f),
            Self::U32(v) => v.fmt(f),
            Self::I32(v) => v.fmt(f),
            Self::U64(v) => v.fmt(f),
            Self::I64(v) => v.fmt(f),
            Self::F32(v) => v.fmt(f),
            Self::F64(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::String(bytes) => match bytes.get(..SHOWN_BYTES) {
                Some(head) if bytes.len() > SHOWN_BYTES => {
                    // Drops a character split by the truncation.
                    let head = String::from_utf8_lossy(head);
                    let head = head.trim_end_matches(char::REPLACEMENT_CHARACTER);
                    write!(f, "{head:?}... ({} bytes)", bytes.len())
                }
                _ => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            },
            Self::Array(items) => {
                write!(f, "{} x {} [", items.len, items.kind.name())?;
                for (i, item) in items.iter().take(SHOWN_ITEMS).enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(if items.len > SHOWN_ITEMS {
                    ", ...]"
                } else {
                    "]"
                })
            }
        }
    }
}
