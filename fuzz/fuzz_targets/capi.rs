//! Calls of `tests/capi/random.c`, in one thread. The input decides what is called with which handles.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::ffi::c_int;
use tabla_fuzz as _;

unsafe extern "C" {
    /// Returns the number of calls whose status is an error of the library.
    fn random_calls(input: *const u8, bytes: usize) -> c_int;
}

fuzz_target!(|input: &[u8]| {
    // SAFETY: the function reads this many bytes.
    let bad = unsafe { random_calls(input.as_ptr(), input.len()) };
    assert_eq!(bad, 0, "statuses that are errors of the library");
});
