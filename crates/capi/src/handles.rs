//! Handle table. A handle in C is a number that is resolved here; NULL, stale and foreign handles
//! are errors.

use parking_lot::RwLock;
use std::any::Any;
use std::sync::Arc;
use tabla::error::bail;
use tabla::{Error, ErrorKind, Result};

/// A type that is exposed to C through handles.
pub(super) trait HandleType: Send + Sync + Sized + 'static {
    /// Name of the type in messages.
    const NAME: &'static str;

    /// Cancels work in progress on the object. Called before its handle is removed.
    fn close(&self) {}
}

/// An object of any [`HandleType`] type.
struct Object {
    /// [`HandleType::NAME`] of its type.
    name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl Object {
    fn new<T: HandleType>(value: T) -> Self {
        Self {
            name: T::NAME,
            value: Arc::new(value),
        }
    }

    /// The object as a `T`, or `None` if it has another type.
    fn of<T: HandleType>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.value).downcast().ok()
    }
}

/// An entry of the table. `generation` counts how often the entry was freed.
struct Entry {
    generation: usize,
    object: Option<Object>,
}

/// All objects that have a handle.
struct Table {
    entries: Vec<Entry>,
    /// Indices of free entries.
    free: Vec<usize>,
}

static TABLE: RwLock<Table> = RwLock::new(Table {
    entries: Vec::new(),
    free: Vec::new(),
});

/// Number of index bits of a handle. The generation is above them. The lowest bit is always set, so
/// that a handle is never NULL and never equal to an aligned pointer.
const INDEX_BITS: u32 = if usize::BITS == 64 { 24 } else { 16 };
const MARK: usize = 1;

/// Number of generations that fit a handle. An entry that used all of them is not reused.
const GENERATIONS: usize = usize::MAX >> (INDEX_BITS + 1);

fn encode<T>(index: usize, generation: usize) -> *mut T {
    let bits = (generation << INDEX_BITS | index) << 1 | MARK;
    std::ptr::without_provenance_mut(bits)
}

fn decode<T>(handle: *const T) -> Option<(usize, usize)> {
    let bits = handle.addr();
    let marked = bits & MARK == MARK;
    marked.then_some((
        (bits >> 1) & ((1 << INDEX_BITS) - 1),
        bits >> 1 >> INDEX_BITS,
    ))
}

/// Creates a handle for an object.
///
/// # Errors
///
/// `TooLarge` if the table is full, `Memory` if it cannot grow.
pub(super) fn insert<T: HandleType>(object: T) -> Result<*mut T> {
    let object = Object::new(object);
    let mut table = TABLE.write();
    let Table { entries, free } = &mut *table;
    let index = match free.pop() {
        Some(index) => index,
        None => {
            let count = entries.len();
            if count >> INDEX_BITS != 0 {
                bail!(TooLarge, "limit of {count} handles reached");
            }
            let failed = |e| {
                let message = "out of memory for a new handle";
                Error::new(ErrorKind::Memory, message).caused_by(e)
            };
            entries.try_reserve(1).map_err(failed)?;
            // Reserves the free list too, so that freeing a handle never allocates.
            let missing = entries.len() + 1 - free.len();
            free.try_reserve(missing).map_err(failed)?;
            entries.push(Entry {
                generation: 0,
                object: None,
            });
            count
        }
    };
    let entry = &mut entries[index];
    entry.object = Some(object);
    Ok(encode(index, entry.generation))
}

/// Returns the object of a handle.
///
/// # Errors
///
/// `Handle` if the handle is invalid or its object is not a `T`.
pub(super) fn resolve<T: HandleType>(handle: *const T) -> Result<Arc<T>> {
    let name = T::NAME;
    if handle.is_null() {
        bail!(Handle, "{name} handle is NULL");
    }
    let table = TABLE.read();
    let object = decode(handle).and_then(|(index, generation)| {
        let entry = table.entries.get(index)?;
        entry
            .object
            .as_ref()
            .filter(|_| entry.generation == generation)
    });
    let Some(object) = object else {
        bail!(Handle, "invalid {name} handle: freed or never created");
    };
    match object.of() {
        Some(object) => Ok(object),
        None => bail!(
            Handle,
            "expected a {name} handle, got a {} handle",
            object.name
        ),
    }
}

/// Removes a handle. The object is dropped after the last call that uses it returns.
///
/// # Errors
///
/// Same as [`resolve`].
pub(super) fn remove<T: HandleType>(handle: *const T) -> Result<()> {
    let object = resolve(handle)?;
    object.close();
    let mut table = TABLE.write();
    let Table { entries, free } = &mut *table;
    let index = decode(handle).map(|(index, _)| index);
    let entry = index.and_then(|index| Some((index, entries.get_mut(index)?)));
    let same = |entry: &Entry| {
        let current = entry.object.as_ref().and_then(Object::of::<T>);
        current.is_some_and(|current| Arc::ptr_eq(&current, &object))
    };
    let Some((index, entry)) = entry.filter(|(_, entry)| same(entry)) else {
        bail!(
            Handle,
            "invalid {} handle: freed by another thread",
            T::NAME
        );
    };
    entry.object = None;
    entry.generation += 1;
    if entry.generation < GENERATIONS {
        free.push(index);
    }
    // Drops the object after the lock is released.
    drop(table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_odd_and_decode_to_their_index() {
        for (index, generation) in [(0, 0), (1, 0), (65535, 7), (3, 1 << 20)] {
            let handle: *mut () = encode(index, generation);
            assert_eq!(handle.addr() & 1, 1);
            assert_eq!(decode(handle), Some((index, generation)));
        }
        let real: *const () = std::ptr::without_provenance(0x7f00_0000_1000);
        assert!(decode(real).is_none());
    }
}
