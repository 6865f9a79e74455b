//! Conversions of C pointers: sized structs, strings, arrays and output buffers.
#![expect(unsafe_code, reason = "pointers from C")]

use std::ffi::{CStr, c_char};
use std::fmt::Display;
use std::path::PathBuf;
use tabla::Result;
use tabla::error::bail;

/// Maximum `struct_size`, in bytes. A larger value means that the field was not initialized.
const STRUCT_BYTES_MAX: usize = 4096;

/// Returns the `struct_size` of a caller's struct, in bytes.
///
/// # Safety
///
/// `at` is NULL or points to a struct with `struct_size` set in bytes.
pub(super) unsafe fn size_of_struct<T>(at: *const T, name: &str) -> Result<usize> {
    if at.is_null() {
        bail!(Argument, "{name} is NULL");
    }
    // SAFETY: the first field of the struct is its size.
    let size = unsafe { at.cast::<u32>().read() } as usize;
    if !is_sizeof::<T>(size) {
        bail!(
            Argument,
            "invalid struct_size {size}: set it to the sizeof of the struct"
        );
    }
    Ok(size)
}

/// Returns whether an older, equal or newer version of a struct can have this size. A multiple of the
/// alignment never ends inside a number or a pointer.
const fn is_sizeof<T>(size: usize) -> bool {
    size >= size_of::<u32>() && size <= STRUCT_BYTES_MAX && size.is_multiple_of(align_of::<T>())
}

/// Reads a struct that may be older (shorter: missing fields keep `defaults`) or newer (longer: the
/// excess must be 0) than this build's.
///
/// # Safety
///
/// `from` is NULL or points to a struct with `struct_size` set in bytes.
pub(super) unsafe fn read_sized<T: Copy>(from: *const T, defaults: T) -> Result<T> {
    if from.is_null() {
        return Ok(defaults);
    }
    // SAFETY: guaranteed by the caller.
    let size = unsafe { size_of_struct(from, "struct") }?;
    // SAFETY: the struct has `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if bytes[known..].iter().any(|b| *b != 0) {
        bail!(
            Argument,
            "the struct sets fields after byte {known}, which this version of the library does not support"
        );
    }
    let mut out = defaults;
    // SAFETY: both ranges have `known` bytes and `out` is a plain C struct of this library.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut out).cast(), known) };
    Ok(out)
}

/// Writes a struct to a caller's, which may be older (shorter) or newer (longer: the excess becomes
/// 0). Keeps the caller's `struct_size`.
///
/// # Safety
///
/// `to` points to `size` bytes, at least 4; the first field of `T` is its size.
pub(super) unsafe fn write_sized<T: Copy>(from: &T, to: *mut T, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: guaranteed by the caller.
    unsafe { to.cast::<u8>().write_bytes(0, size) };
    // SAFETY: both ranges have `known` bytes and do not overlap: `from` is a struct of this library.
    unsafe { std::ptr::copy_nonoverlapping((&raw const *from).cast(), to.cast::<u8>(), known) };
    let size = u32::try_from(size).expect("at most STRUCT_BYTES_MAX");
    // SAFETY: the first field of the struct is its size.
    unsafe { to.cast::<u32>().write(size) };
}

/// Sets a caller's options to `defaults`, for a function `tabla_*_options_init`. `size` is the
/// `sizeof` of the caller's struct, and `name` its type in messages.
///
/// # Safety
///
/// `options` is NULL or points to `size` bytes; the first field of `T` is its size.
pub(super) unsafe fn init_options<T: Copy>(
    options: *mut T,
    size: usize,
    name: &str,
    defaults: &T,
) -> Result<()> {
    if options.is_null() {
        bail!(Argument, "options is NULL");
    }
    if !is_sizeof::<T>(size) {
        bail!(Argument, "invalid size {size}: pass sizeof({name})");
    }
    // SAFETY: guaranteed by the caller, and the size is checked.
    unsafe { write_sized(defaults, options, size) };
    Ok(())
}

/// Converts a C string to a path. Returns `None` for NULL.
///
/// # Safety
///
/// `path` is NULL or a C string.
pub(super) unsafe fn path_of(path: *const c_char) -> Option<PathBuf> {
    if path.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
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

/// Converts a C string to a `str`. Returns an empty string for NULL.
///
/// # Safety
///
/// `text` is NULL or a C string that outlives the use.
pub(super) unsafe fn text_of<'a>(text: *const c_char, name: impl Display) -> Result<&'a str> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: guaranteed by the caller.
    match unsafe { CStr::from_ptr(text) }.to_str() {
        Ok(text) => Ok(text),
        Err(error) => bail!(Argument, "{name} is not UTF-8: {error}"),
    }
}

/// Converts a C string to a `String`. Returns `None` for NULL and for an empty string.
///
/// # Safety
///
/// `text` is NULL or a C string.
pub(super) unsafe fn optional_text(text: *const c_char, name: &str) -> Result<Option<String>> {
    // SAFETY: guaranteed by the caller.
    let text = unsafe { text_of(text, name) }?;
    Ok(Some(text.to_string()).filter(|text| !text.is_empty()))
}

/// Converts C strings.
///
/// # Safety
///
/// Each of `texts` is NULL or a C string that outlives the use.
pub(super) unsafe fn texts_of<'a>(texts: &[*const c_char], name: &str) -> Result<Vec<&'a str>> {
    let convert = |(at, text): (usize, &*const c_char)| {
        if text.is_null() {
            bail!(Argument, "{name}[{at}] is NULL");
        }
        // SAFETY: guaranteed by the caller.
        unsafe { text_of(*text, format_args!("{name}[{at}]")) }
    };
    texts.iter().enumerate().map(convert).collect()
}

/// Converts a pointer and a count to a slice.
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
        bail!(
            Argument,
            "{name}: {count} elements exceed the address space"
        );
    }
    // SAFETY: guaranteed by the caller, and the size fits the address space.
    Ok(unsafe { std::slice::from_raw_parts(from, count) })
}

/// Converts an output pointer to a reference. Fails for NULL.
///
/// # Safety
///
/// `to` is NULL or points to a `T` that no other code accesses during the call.
pub(super) unsafe fn out_of<'a, T>(to: *mut T, name: &str) -> Result<&'a mut T> {
    // SAFETY: guaranteed by the caller.
    match unsafe { to.as_mut() } {
        Some(out) => Ok(out),
        None => bail!(Argument, "{name} is NULL"),
    }
}

/// Copies values to the caller's buffer, unless it is NULL.
///
/// # Safety
///
/// `to` is NULL or points to a buffer of `capacity` values.
pub(super) unsafe fn copy_out<T: Copy>(from: &[T], to: *mut T, capacity: usize) -> Result<()> {
    if to.is_null() {
        return Ok(());
    }
    if capacity < from.len() {
        bail!(
            TooLarge,
            "buffer too small: capacity is {capacity}, result has {} values",
            from.len()
        );
    }
    // SAFETY: the buffer holds at least as many values, and no other code accesses it.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    Ok(())
}

/// Output arguments of a call that returns floats: the buffer, and the pointer for their number.
#[derive(Clone, Copy)]
pub(super) struct FloatBuffer {
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
}

impl FloatBuffer {
    pub(super) fn new(out: *mut f32, capacity: usize, count: *mut usize) -> Self {
        Self {
            out,
            capacity,
            count,
        }
    }

    /// Writes the values with `fill` and their number to `count`. If the buffer is NULL, only
    /// writes the number.
    ///
    /// # Safety
    ///
    /// `out` is NULL or points to a buffer of `capacity` floats; `count` is NULL or points to a
    /// `size_t`. No other code accesses either during the call.
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
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        if !out.is_null() {
            if capacity < needed {
                bail!(
                    TooLarge,
                    "buffer too small: capacity is {capacity}, result has {needed} values"
                );
            }
            // SAFETY: the buffer holds `capacity` floats, which is at least `needed`.
            fill(unsafe { std::slice::from_raw_parts_mut(out, needed) })?;
        }
        *count = needed;
        Ok(())
    }
}

/// An integer constant of the C API, its name in messages, and its value.
pub(super) type Choice<T> = (i32, &'static str, T);

/// Returns the value of an integer constant.
///
/// # Errors
///
/// `Argument` if no choice has this number.
pub(super) fn choose<T: Clone>(name: &str, number: i32, choices: &[Choice<T>]) -> Result<T> {
    if let Some((_, _, chosen)) = choices.iter().find(|choice| choice.0 == number) {
        return Ok(chosen.clone());
    }
    let names = choices.iter().map(|(n, name, _)| format!("{n} ({name})"));
    let names = names.collect::<Vec<_>>().join(", ");
    bail!(Argument, "invalid {name} {number}: expected one of {names}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabla::ErrorKind;

    fn read(bytes: &[u32]) -> Result<[u32; 3]> {
        // SAFETY: the first word is the size of the slice in bytes, or is rejected before use.
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

    /// Otherwise half of a pointer of the caller would be used.
    #[test]
    fn sizes_inside_a_field_are_refused() {
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        struct Options {
            struct_size: u32,
            number: u32,
            text: *const c_char,
        }
        let defaults = Options {
            struct_size: 16,
            number: 1,
            text: std::ptr::null(),
        };
        for size in 4..=24 {
            let mut options = [Options {
                struct_size: size,
                number: 2,
                text: c"text".as_ptr(),
            }; 2];
            options[1].struct_size = 0;
            options[1].number = 0;
            // SAFETY: the array has at least `size` bytes.
            let read = unsafe { read_sized(options.as_ptr(), defaults) };
            if [8, 16, 24].contains(&size) {
                let text = read.expect("a whole number of fields").text;
                assert_eq!(text.is_null(), size == 8, "{size}");
            } else {
                let error = read.expect_err("part of a field");
                assert_eq!(error.kind(), ErrorKind::Argument, "{size}");
            }
        }
    }
}
