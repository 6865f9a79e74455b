//! What comes through pointers from C: structs that say their size, texts, spans, and room for results.
#![expect(unsafe_code, reason = "pointers from C")]

use std::ffi::{CStr, c_char};
use std::fmt::Display;
use std::path::PathBuf;
use tabla::error::{Result, bail};

/// Bytes of a struct with a size at most: what is over it was never set.
pub(super) const STRUCT_BYTES_MAX: usize = 4096;

/// How many bytes a caller's struct says that it has.
///
/// # Safety
///
/// `at` is NULL or points to a struct whose first field is its size in bytes.
pub(super) unsafe fn size_of_struct<T>(at: *const T, name: &str) -> Result<usize> {
    if at.is_null() {
        bail!(Argument, "{name} is NULL");
    }
    // SAFETY: the caller's struct begins with its size.
    let size = unsafe { at.cast::<u32>().read() } as usize;
    if size < size_of::<u32>() || size > STRUCT_BYTES_MAX {
        bail!(
            Argument,
            "struct_size is {size}: set it to sizeof the struct"
        );
    }
    Ok(size)
}

/// Reads a struct that may be older (shorter: the rest keeps `defaults`) or newer (longer: the
/// rest must be 0) than this build's.
///
/// # Safety
///
/// `from` is NULL or points to a struct whose first field is its size in bytes.
pub(super) unsafe fn read_sized<T: Copy>(from: *const T, defaults: T) -> Result<T> {
    if from.is_null() {
        return Ok(defaults);
    }
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_struct(from, "the struct") }?;
    // SAFETY: the struct says that it has this many bytes.
    let given = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if given[known..].iter().any(|b| *b != 0) {
        bail!(
            Argument,
            "the options are newer than this library and use what it does not know"
        );
    }
    let mut out = defaults;
    // SAFETY: both spans hold `known` bytes and `out` is a plain C struct of ours.
    unsafe { std::ptr::copy_nonoverlapping(given.as_ptr(), (&raw mut out).cast(), known) };
    Ok(out)
}

/// Writes a struct into a caller's, which may be older (shorter) or newer (longer: the rest
/// becomes 0), and keeps the size that it says.
///
/// # Safety
///
/// `to` points to `size` bytes, of which there are at least 4; `T` begins with its size.
pub(super) unsafe fn write_sized<T: Copy>(from: &T, to: *mut T, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: the caller's promise.
    unsafe { to.cast::<u8>().write_bytes(0, size) };
    // SAFETY: both spans hold `known` bytes, and no `T` of ours overlaps the caller's.
    unsafe { std::ptr::copy_nonoverlapping((&raw const *from).cast(), to.cast::<u8>(), known) };
    let size = u32::try_from(size).expect("no larger than STRUCT_BYTES_MAX");
    // SAFETY: the struct begins with its size.
    unsafe { to.cast::<u32>().write(size) };
}

/// A path of C; `None` for NULL.
///
/// # Safety
///
/// `path` is NULL or a C string.
pub(super) unsafe fn path_of(path: *const c_char) -> Option<PathBuf> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) };
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(bytes.to_bytes())))
    }
    #[cfg(not(unix))]
    {
        Some(PathBuf::from(bytes.to_string_lossy().into_owned()))
    }
}

/// A text of C; empty for NULL.
///
/// # Safety
///
/// `text` is NULL or a C string that outlives the use.
pub(super) unsafe fn text_of<'a>(text: *const c_char, name: impl Display) -> Result<&'a str> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise.
    match unsafe { CStr::from_ptr(text) }.to_str() {
        Ok(text) => Ok(text),
        Err(error) => bail!(Argument, "{name} is not UTF-8: {error}"),
    }
}

/// Texts of C.
///
/// # Safety
///
/// Each of `texts` is NULL or a C string that outlives the use.
pub(super) unsafe fn texts_of<'a>(texts: &[*const c_char], name: &str) -> Result<Vec<&'a str>> {
    let one = |(at, text): (usize, &*const c_char)| {
        if text.is_null() {
            bail!(Argument, "{name}[{at}] is NULL");
        }
        // SAFETY: the caller's promise.
        unsafe { text_of(*text, format_args!("{name}[{at}]")) }
    };
    texts.iter().enumerate().map(one).collect()
}

/// A span of C.
///
/// # Safety
///
/// `from` is NULL or points to `count` values that outlive the use.
pub(super) unsafe fn slice_of<'a, T>(from: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        bail!(Argument, "{name} is NULL");
    }
    if count
        .checked_mul(size_of::<T>())
        .is_none_or(|bytes| bytes > isize::MAX as usize)
    {
        bail!(Argument, "{name}: a count of {count} is no span of memory");
    }
    // SAFETY: the caller's promise, and the span fits the address space.
    Ok(unsafe { std::slice::from_raw_parts(from, count) })
}

/// Where a result goes.
///
/// # Safety
///
/// `to` is NULL or points to a `T` that nobody else touches during the call.
pub(super) unsafe fn out_of<'a, T>(to: *mut T, name: &str) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    match unsafe { to.as_mut() } {
        Some(out) => Ok(out),
        None => bail!(Argument, "{name} is NULL"),
    }
}

/// Copies to a caller's room, if there is one.
///
/// # Safety
///
/// `to` is NULL or points to room for `capacity` values.
pub(super) unsafe fn copy_out<T: Copy>(from: &[T], to: *mut T, capacity: usize) -> Result<()> {
    if to.is_null() {
        return Ok(());
    }
    if capacity < from.len() {
        bail!(
            TooLarge,
            "{} values do not fit room for {capacity}",
            from.len()
        );
    }
    // SAFETY: the room holds at least as many values, and is the caller's alone.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    Ok(())
}

/// Where a caller wants floats: its room, and where their number goes.
#[derive(Clone, Copy)]
pub(super) struct Floats {
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
}

impl Floats {
    pub(super) fn new(out: *mut f32, capacity: usize, count: *mut usize) -> Self {
        Self {
            out,
            capacity,
            count,
        }
    }

    /// Says how many there are once `fill` has written them; where there is no room, it is not asked to.
    ///
    /// # Safety
    ///
    /// `out` is NULL or points to room for `capacity` floats, and `count` is NULL or points to a size;
    /// nobody else touches either during the call.
    pub(super) unsafe fn write(
        self,
        needed: usize,
        fill: impl FnOnce(&mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let Self {
            out,
            capacity,
            count,
        } = self;
        // SAFETY: the caller's promise.
        let count = unsafe { out_of(count, "count") }?;
        if !out.is_null() {
            if capacity < needed {
                bail!(TooLarge, "{needed} numbers do not fit room for {capacity}");
            }
            // SAFETY: the caller's room holds `capacity`, which is enough.
            fill(unsafe { std::slice::from_raw_parts_mut(out, needed) })?;
        }
        *count = needed;
        Ok(())
    }
}

/// A number that stands for a choice, the word for it, and what is chosen.
pub(super) type Choice<T> = (i32, &'static str, T);

/// What a number stands for.
///
/// # Errors
///
/// `Argument` where it stands for nothing.
pub(super) fn choose<T: Clone>(name: &str, number: i32, choices: &[Choice<T>]) -> Result<T> {
    if let Some((_, _, chosen)) = choices.iter().find(|choice| choice.0 == number) {
        return Ok(chosen.clone());
    }
    let words = choices.iter().map(|(n, word, _)| format!("{n} ({word})"));
    let words = words.collect::<Vec<_>>().join(", ");
    bail!(Argument, "{name} {number} is none of {words}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabla::error::ErrorKind;

    fn read(bytes: &[u32]) -> Result<[u32; 3]> {
        // SAFETY: the first word is the size in bytes of the slice, or refused before use.
        unsafe { read_sized(bytes.as_ptr().cast::<[u32; 3]>(), [12, 7, 8]) }
    }

    #[test]
    fn older_structs_keep_defaults_and_newer_ones_must_be_zero() {
        assert_eq!(read(&[12, 1, 2]).expect("same"), [12, 1, 2]);
        assert_eq!(read(&[8, 1]).expect("older"), [8, 1, 8]);
        assert_eq!(read(&[16, 1, 2, 0]).expect("newer, unused"), [16, 1, 2]);
        for bad in [&[16, 1, 2, 5][..], &[0], &[1 << 30]] {
            assert_eq!(read(bad).expect_err("refused").kind(), ErrorKind::Argument);
        }
    }
}
