//! Handles: what C holds is a number, resolved here. NULL, stale and foreign ones are errors.

use parking_lot::RwLock;
use std::any::Any;
use std::sync::Arc;
use tabla::error::{Error, ErrorKind, Result, bail};

/// A type that C has handles of.
pub(super) trait Handled: Send + Sync + Sized + 'static {
    /// Name of the type in messages.
    const NAME: &'static str;

    /// Ends whatever is at work with the object: its handle is gone.
    fn close(&self) {}
}

/// An object of any [`Handled`] type.
struct Object {
    /// [`Handled::NAME`] of its type.
    name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl Object {
    fn new<T: Handled>(value: T) -> Self {
        Self {
            name: T::NAME,
            value: Arc::new(value),
        }
    }

    /// The object as a `T`; `None` if it is of another type.
    fn of<T: Handled>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.value).downcast().ok()
    }
}

/// A place in the table; `generation` counts how often it was emptied.
struct Entry {
    generation: usize,
    object: Option<Object>,
}

/// Every object that C has a handle of.
struct Table {
    entries: Vec<Entry>,
    /// Empty places.
    free: Vec<usize>,
}

static TABLE: RwLock<Table> = RwLock::new(Table {
    entries: Vec::new(),
    free: Vec::new(),
});

/// Bits of a handle that are the index; above them stands the generation, below a mark, which
/// keeps a handle from being NULL and makes it odd, as no real pointer to an object is.
const INDEX_BITS: u32 = if usize::BITS == 64 { 24 } else { 16 };
const MARK: usize = 1;

/// Generations that a handle has bits for. A place that had them all is not given out again.
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

/// Gives an object a handle.
///
/// # Errors
///
/// `TooLarge` where there are too many, `Memory`.
pub(super) fn insert<T: Handled>(object: T) -> Result<*mut T> {
    let object = Object::new(object);
    let mut table = TABLE.write();
    let Table { entries, free } = &mut *table;
    let index = match free.pop() {
        Some(index) => index,
        None => {
            let count = entries.len();
            if count >> INDEX_BITS != 0 {
                bail!(TooLarge, "{count} handles are in use, which is the limit");
            }
            let failed = |e| {
                let message = "room for a handle cannot be had";
                Error::new(ErrorKind::Memory, message).caused_by(e)
            };
            entries.try_reserve(1).map_err(failed)?;
            // Every place can be freed without more memory.
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

/// What a handle stands for.
///
/// # Errors
///
/// `Handle` where it stands for nothing, or for something else than a `T`.
pub(super) fn resolve<T: Handled>(handle: *const T) -> Result<Arc<T>> {
    let name = T::NAME;
    if handle.is_null() {
        bail!(Handle, "the {name} is NULL");
    }
    let table = TABLE.read();
    let found = decode(handle).and_then(|(index, generation)| {
        let entry = table.entries.get(index)?;
        entry
            .object
            .as_ref()
            .filter(|_| entry.generation == generation)
    });
    let Some(object) = found else {
        bail!(Handle, "the {name} was freed or is no {name}");
    };
    match object.of() {
        Some(object) => Ok(object),
        None => bail!(Handle, "the {name} is a {}", object.name),
    }
}

/// Forgets a handle. A call that is inside the object ends first, on its own thread.
///
/// # Errors
///
/// As of [`resolve`].
pub(super) fn remove<T: Handled>(handle: *const T) -> Result<()> {
    let object = resolve(handle)?;
    object.close();
    let mut table = TABLE.write();
    let Table { entries, free } = &mut *table;
    let index = decode(handle).map(|(index, _)| index);
    let entry = index.and_then(|index| Some((index, entries.get_mut(index)?)));
    let same = |entry: &Entry| {
        let found = entry.object.as_ref().and_then(Object::of::<T>);
        found.is_some_and(|found| Arc::ptr_eq(&found, &object))
    };
    let Some((index, entry)) = entry.filter(|(_, entry)| same(entry)) else {
        bail!(Handle, "the {} was freed by another thread", T::NAME);
    };
    entry.object = None;
    entry.generation += 1;
    if entry.generation < GENERATIONS {
        free.push(index);
    }
    // What the object has goes without the lock.
    drop(table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_odd_and_come_back() {
        for (index, generation) in [(0, 0), (1, 0), (65535, 7), (3, 1 << 20)] {
            let handle: *mut () = encode(index, generation);
            assert_eq!(handle.addr() & 1, 1);
            assert_eq!(decode(handle), Some((index, generation)));
        }
        let real: *const () = std::ptr::without_provenance(0x7f00_0000_1000);
        assert!(decode(real).is_none());
    }
}
