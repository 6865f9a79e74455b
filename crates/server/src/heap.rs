//! Settings of glibc's allocator, which would keep the memory of large requests.
//!
//! It has up to eight heaps per processor, each of which keeps freed memory, and reserves 64 MiB of addresses for
//! each. Other allocators need no settings.
#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "functions of the C library")
)]

/// Maximum number of heaps.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS_MAX: libc::c_int = 4;

/// Minimum number of bytes of an allocation that is returned to the system as soon as it is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: libc::c_int = 256 << 10;

/// Limits the heaps of the process.
pub(crate) fn limit() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (setting, value) in [
        (libc::M_ARENA_MAX, HEAPS_MAX),
        (libc::M_MMAP_THRESHOLD, MAPPED_BYTES),
    ] {
        // SAFETY: any thread may change these settings at any time.
        unsafe {
            libc::mallopt(setting, value);
        }
    }
}

/// Returns freed memory to the system.
pub(crate) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
