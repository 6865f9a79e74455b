//! Arrays of the big parts of a tokenizer: owned, or in place in a section of a compiled file.

use bytemuck::Pod;
use bytes::Bytes;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use tabla_core::error::{Result, bail};

/// Bytes of a section of a compiled file, which its users share, such as a part of a mapped file.
#[derive(Clone)]
pub struct Section(Bytes);

/// The owner of the bytes of a section.
struct Part {
    whole: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

/// Aligned bytes.
struct Words(Vec<u64>);

impl AsRef<[u8]> for Words {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        let whole = (*self.whole).as_ref();
        whole.get(self.range.clone()).unwrap_or_default()
    }
}

impl Section {
    /// Creates a section of the bytes `range` of a file. An array in it is used in place if its address is a
    /// multiple of the size of its elements.
    ///
    /// # Errors
    /// `Format` for a range that is not in the file.
    pub fn new(whole: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> Result<Self> {
        let bytes = (*whole).as_ref().len();
        if range.start > range.end || range.end > bytes {
            bail!(
                Format,
                "a section at bytes {range:?} exceeds the file of {bytes} bytes"
            );
        }
        Ok(Self(Bytes::from_owner(Part { whole, range })))
    }

    /// Copies bytes to an address at which every array can be used in place.
    pub fn aligned_copy(bytes: &[u8]) -> Self {
        let mut words = vec![0; bytes.len().div_ceil(size_of::<u64>())];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self(Bytes::from_owner(Words(words)).slice(..bytes.len()))
    }

    /// Returns the bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// An array that is owned or in a section.
pub(super) enum Array<T> {
    Owned(Vec<T>),
    Shared(Section),
}

impl<T: Pod> Array<T> {
    /// Uses the array in a section.
    ///
    /// # Errors
    /// `Format` for a length or an address that is not a multiple of the size of the elements.
    pub(super) fn shared(section: Section) -> Result<Self> {
        if let Err(error) = bytemuck::try_cast_slice::<u8, T>(section.bytes()) {
            let bytes = section.bytes().len();
            bail!(
                Format,
                "{bytes} bytes are not an array of elements of {} bytes: {error}",
                size_of::<T>()
            );
        }
        Ok(Self::Shared(section))
    }

    /// Returns the bytes of the elements, which are little-endian in a file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        bytemuck::cast_slice(self).to_vec()
    }

    /// Returns the owned memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Owned(elements) => size_of::<T>() * elements.capacity(),
            Self::Shared(_) => 0,
        }
    }
}

impl<T: Pod> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Owned(elements) => elements,
            Self::Shared(section) => bytemuck::try_cast_slice(section.bytes()).unwrap_or_default(),
        }
    }
}

impl<T> From<Vec<T>> for Array<T> {
    fn from(elements: Vec<T>) -> Self {
        Self::Owned(elements)
    }
}

impl<T: Pod> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements", self.len())
    }
}
