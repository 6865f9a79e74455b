//! A reserve of memory, so that a failed allocation becomes an error of the operation that needs too much.
//!
//! Rust ends the process if a small allocation fails. The allocator of the C library and of the program then takes
//! the memory from a reserve, a part of the process that is in no memory until it is used. Operations
//! [check](check) it at their start and between their steps, and fail while it is in use, which frees what they took.
//! The emergency pool of libstdc++ serves exceptions in the same way.
#![expect(unsafe_code, reason = "an allocator is unsafe by its trait")]

use crate::error::{Result, bail};
use linked_list_allocator::Heap;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Builder;

/// Number of bytes of the reserve.
pub const RESERVE_BYTES: usize = if cfg!(target_family = "wasm") {
    2 << 20
} else {
    32 << 20
};

/// Maximum number of bytes of the reserve that may stay in use while operations run.
const USED_MAX: usize = RESERVE_BYTES / 8;

/// An allocator that takes memory from the reserve if `A` has none. Programs that link the Rust crate can use it too:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: tabla_core::reserve::Reserve = tabla_core::reserve::Reserve::new(std::alloc::System);
/// ```
///
/// All allocators of this type share one reserve. If it is used up as well, allocations fail as without it.
#[derive(Debug, Default)]
pub struct Reserve<A = System> {
    allocator: A,
}

impl<A> Reserve<A> {
    /// Returns an allocator whose memory is that of `allocator`.
    pub const fn new(allocator: A) -> Self {
        Self { allocator }
    }
}

/// Checks that operations do not live on the reserve.
///
/// # Errors
///
/// `Memory` while more than an eighth of the reserve is in use: allocations have failed, and few of them were freed.
pub fn check() -> Result<()> {
    if USED.load(Ordering::Relaxed) > USED_MAX {
        bail!(
            Memory,
            "memory is used up: the system or a limit of this process allows no more"
        );
    }
    Ok(())
}

/// Returns the number of bytes of the reserve that are in use.
pub fn bytes_used() -> usize {
    USED.load(Ordering::Relaxed)
}

/// Whether this build has threads: WebAssembly only with shared memory.
pub const HAS_THREADS: bool = cfg!(any(not(target_family = "wasm"), target_feature = "atomics"));

/// Returns a number of threads: as many as requested, or one per core for 0. Builds without threads have one.
pub fn threads(requested: u32) -> usize {
    match requested {
        _ if !HAS_THREADS => 1,
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n as usize,
    }
}

/// Returns the builder of a thread of this name. Every thread of the library starts with it.
///
/// # Errors
///
/// `OutOfMemory` if the system has no memory for the thread: the standard library takes some of it from the system
/// itself, and would end the process.
pub fn thread(name: &str) -> io::Result<Builder> {
    /// More than the standard library takes.
    const BYTES: Layout = Layout::new::<[u64; 512]>();
    // SAFETY: the size is not zero.
    let block = black_box(unsafe { System.alloc(BYTES) });
    if block.is_null() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    // SAFETY: allocated above with this layout.
    unsafe { System.dealloc(block, BYTES) };
    Ok(Builder::new().name(name.to_string()))
}

/// Number of bytes of the reserve that are in use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Memory of the reserve: zeros, so that it is in no file and, until it is used, in no memory.
#[repr(align(4096))]
struct Memory(UnsafeCell<[u8; RESERVE_BYTES]>);

// SAFETY: only blocks that `BLOCKS` has given out are accessed, each by its owner.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; RESERVE_BYTES]));

/// The free blocks of the reserve.
struct Blocks {
    /// A lock of its own: those of the standard library and `parking_lot` may allocate.
    is_locked: AtomicBool,
    heap: UnsafeCell<Heap>,
}

// SAFETY: `with` gives access to one thread at a time.
unsafe impl Sync for Blocks {}

static BLOCKS: Blocks = Blocks {
    is_locked: AtomicBool::new(false),
    heap: UnsafeCell::new(Heap::empty()),
};

impl Blocks {
    /// Runs `work`, which neither panics nor allocates, on the free blocks.
    fn with<T>(&self, work: impl FnOnce(&mut Heap) -> T) -> T {
        while self.is_locked.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: the lock is held, so that this is the only reference.
        let heap = unsafe { &mut *self.heap.get() };
        if heap.size() == 0 {
            // SAFETY: once, on the empty heap; nothing else refers to this memory.
            unsafe { heap.init(MEMORY.0.get().cast(), RESERVE_BYTES) };
        }
        let out = work(heap);
        USED.store(heap.used(), Ordering::Relaxed);
        self.is_locked.store(false, Ordering::Release);
        out
    }

    fn allocate(&self, layout: Layout) -> *mut u8 {
        let block = self.with(|heap| heap.allocate_first_fit(layout));
        block.map_or(null_mut(), NonNull::as_ptr)
    }
}

/// Whether a block is one of the reserve.
fn is_reserved(block: *mut u8) -> bool {
    (block.addr().wrapping_sub(MEMORY.0.get().addr())) < RESERVE_BYTES
}

// SAFETY: blocks are those of `A` or of the reserve, and `dealloc` and `realloc` pass each to where it is from.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Reserve<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        let block = unsafe { self.allocator.alloc(layout) };
        match block.is_null() {
            true => BLOCKS.allocate(layout),
            false => block,
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        let mut block = unsafe { self.allocator.alloc_zeroed(layout) };
        if block.is_null() {
            block = BLOCKS.allocate(layout);
            if !block.is_null() {
                // SAFETY: a block of this size, which nothing else refers to.
                unsafe { block.write_bytes(0, layout.size()) };
            }
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match NonNull::new(block) {
            Some(block) if is_reserved(block.as_ptr()) => {
                // SAFETY: the reserve gave out this block with this layout.
                BLOCKS.with(|heap| unsafe { heap.deallocate(block, layout) });
            }
            // SAFETY: the caller upholds the contract, and the block is one of `A`.
            _ => unsafe { self.allocator.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_reserved(block) {
            // SAFETY: the caller upholds the contract, and the block is one of `A`.
            let grown = unsafe { self.allocator.realloc(block, layout, size) };
            if !grown.is_null() {
                return grown;
            }
        }
        // SAFETY: the caller guarantees that this size and alignment are valid.
        let larger = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the size is not zero by the contract of `realloc`.
        let new = unsafe { self.alloc(larger) };
        if !new.is_null() {
            // SAFETY: both blocks have these bytes, and nothing else refers to the new one.
            unsafe { block.copy_to_nonoverlapping(new, layout.size().min(size)) };
            // SAFETY: the caller guarantees that the block was allocated with `layout`.
            unsafe { self.dealloc(block, layout) };
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// An allocator that has no memory.
    struct Empty;

    // SAFETY: it gives out no blocks.
    unsafe impl GlobalAlloc for Empty {
        unsafe fn alloc(&self, _: Layout) -> *mut u8 {
            null_mut()
        }
        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {
            panic!("a block of another allocator");
        }
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 64).expect("a layout")
    }

    /// The first bytes of a block.
    fn content<'a>(block: *mut u8, bytes: usize) -> &'a mut [u8] {
        assert!(is_reserved(block) && block.addr().is_multiple_of(64));
        // SAFETY: the tests ask for bytes inside the block, one slice at a time.
        unsafe { std::slice::from_raw_parts_mut(block, bytes) }
    }

    #[test]
    fn blocks_of_the_reserve_keep_their_content_and_return_to_it() {
        let reserve = Reserve::new(Empty);
        // SAFETY: blocks are freed once, with their layouts.
        let grow = |block, from, to| unsafe { reserve.realloc(block, layout(from), to) };
        for _ in 0..3 {
            // SAFETY: the size is not zero.
            let block = unsafe { reserve.alloc_zeroed(layout(1000)) };
            assert_eq!(content(block, 1000), [0; 1000]);
            content(block, 1000).fill(7);
            let block = grow(block, 1000, USED_MAX + 1);
            assert_eq!(content(block, 1000), [7; 1000]);
            assert_eq!(check().expect_err("in use").kind(), ErrorKind::Memory);
            // SAFETY: the size is not zero.
            let other = unsafe { reserve.alloc(layout(RESERVE_BYTES)) };
            assert!(other.is_null(), "larger than what is left");
            let block = grow(block, USED_MAX + 1, 10);
            assert_eq!(content(block, 10), [7; 10]);
            check().expect("only a few bytes are in use");
            // SAFETY: as above.
            unsafe { reserve.dealloc(block, layout(10)) };
            assert_eq!(USED.load(Ordering::Relaxed), 0);
        }
    }
}
