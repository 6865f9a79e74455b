//! An allocator that fails after a number of allocations, to test that operations return errors then and free everything.
#![expect(unsafe_code, reason = "an allocator is unsafe by its trait")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// An allocator that takes its memory from `A`, counts it, and fails within [`with_failures`].
#[derive(Debug)]
pub struct Failing<A>(pub A);

/// Bytes that are allocated.
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// Allocations until the first that fails; `u64::MAX` if none does.
static UNTIL_FAILURE: AtomicU64 = AtomicU64::new(u64::MAX);
/// Number of allocations that fail then.
static FAILURES: AtomicU64 = AtomicU64::new(0);
/// Allocations since the failures were set.
static SINCE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether the allocations of this thread neither fail nor count.
    static IS_EXEMPT: Cell<bool> = const { Cell::new(false) };
}

/// Returns the number of bytes that are allocated.
#[must_use]
pub fn bytes() -> usize {
    BYTES.load(Ordering::SeqCst)
}

/// Runs `work` while `count` allocations of the process fail, from allocation `from` on. Returns its result and the number
/// of its allocations.
pub fn with_failures<T>(from: u64, count: u64, work: impl FnOnce() -> T) -> (T, u64) {
    SINCE.store(0, Ordering::Relaxed);
    FAILURES.store(count, Ordering::Relaxed);
    UNTIL_FAILURE.store(from, Ordering::Relaxed);
    let out = work();
    UNTIL_FAILURE.store(u64::MAX, Ordering::Relaxed);
    (out, SINCE.load(Ordering::Relaxed))
}

/// Returns the number of allocations of `work`.
pub fn count_allocations(work: impl FnOnce()) -> u64 {
    with_failures(u64::MAX - 1, 0, work).1
}

/// Runs `work`, which is not tested, without failures on this thread: a client, for example.
pub fn exempt<T>(work: impl FnOnce() -> T) -> T {
    IS_EXEMPT.set(true);
    let out = work();
    IS_EXEMPT.set(false);
    out
}

/// Returns whether the next allocation fails.
fn fails() -> bool {
    let from = UNTIL_FAILURE.load(Ordering::Relaxed);
    if from == u64::MAX || IS_EXEMPT.get() {
        return false;
    }
    let at = SINCE.fetch_add(1, Ordering::Relaxed);
    at >= from && at - from < FAILURES.load(Ordering::Relaxed)
}

// SAFETY: every call that does not fail is forwarded to `A` unchanged.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Failing<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails() {
            return null_mut();
        }
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { self.0.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if fails() {
            return null_mut();
        }
        BYTES.fetch_add(size.wrapping_sub(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { self.0.realloc(block, layout, size) }
    }
}
