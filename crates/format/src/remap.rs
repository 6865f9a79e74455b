//! Replaces pages of a mapped file by a copy of their content, and tells when to.
#![expect(unsafe_code, reason = "pages move from one map to another")]

use std::fs::File;
use std::io::{Error, Result};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::ptr::without_provenance_mut;

/// Size of a huge page in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// Replaces the pages of a byte range of a map, which is not empty, by memory of its own, in huge pages if the system has
/// them. `read` copies the bytes from an offset on.
///
/// # Errors
/// Those of the system, and of `read`; the map is then unchanged.
pub(super) fn copy_pages(
    map: &[u8],
    range: Range<usize>,
    read: impl FnOnce(usize, &mut [u8]) -> Result<()>,
) -> Result<()> {
    // SAFETY: the call has no preconditions.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
    let page = page.map_err(|_| Error::last_os_error())?;
    let (start, end) = (range.start & !page.wrapping_sub(1), range.end);
    let target = map.as_ptr().addr().wrapping_add(start);
    let pages = Pages::new(end.wrapping_sub(start).next_multiple_of(page), target)?;
    // To the end of the last page, where other bytes of the file may be in use.
    let bytes = pages.bytes.min(map.len().wrapping_sub(start));
    // SAFETY: the pages are new, and nothing else refers to them.
    let bytes = unsafe { std::slice::from_raw_parts_mut(pages.start as *mut u8, bytes) };
    read(start, bytes)?;
    pages.move_to(target)
}

/// New pages.
struct Pages {
    start: usize,
    bytes: usize,
}

impl Pages {
    /// Allocates pages at the same place within a huge page as `target`, so that they remain huge when they are moved.
    fn new(bytes: usize, target: usize) -> Result<Self> {
        let all = bytes
            .checked_add(HUGE_PAGE)
            .ok_or_else(Error::last_os_error)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the call allocates new memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), all, access, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let front = target.wrapping_sub(at.addr()) % HUGE_PAGE;
        let start = at.addr().wrapping_add(front);
        let end = start.wrapping_add(bytes);
        for (first, bytes) in [(at.addr(), front), (end, HUGE_PAGE.wrapping_sub(front))] {
            if bytes > 0 {
                // SAFETY: these pages were just allocated, and nothing refers to them.
                unsafe { libc::munmap(without_provenance_mut(first), bytes) };
            }
        }
        let pages = Self { start, bytes };
        // SAFETY: the pages were just allocated. Only a hint: without huge pages kernels run more slowly.
        unsafe { libc::madvise(pages.at(), bytes, libc::MADV_HUGEPAGE) };
        Ok(pages)
    }

    fn at(&self) -> *mut libc::c_void {
        without_provenance_mut(self.start)
    }

    /// Moves the pages to where the pages of a read-only map are, which are dropped.
    fn move_to(self, target: usize) -> Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let target = without_provenance_mut::<libc::c_void>(target);
        // SAFETY: the pages are those of this value, and nothing refers to them.
        if unsafe { libc::mprotect(self.at(), self.bytes, libc::PROT_READ) } != 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the pages at `target` are those of a map that exists, and have the same content, or one that changed,
        // which is allowed of a mapped file. The system replaces them at once: other threads may read them.
        let moved = unsafe { libc::mremap(self.at(), self.bytes, self.bytes, flags, target) };
        if moved == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages are those of this value, which were not moved.
        unsafe { libc::munmap(self.at(), self.bytes) };
    }
}

/// Types of file systems of other machines or of programs: NFS, SMB, 9P, Ceph, AFS, FUSE. Source: `linux/magic.h`, and
/// `statfs(2)` for SMB.
const REMOTE: [u32; 8] = [
    0x6b41_4653,
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x6573_5546,
];

/// Returns whether the file system of a file is one of [`REMOTE`].
pub(super) fn is_remote(file: &File) -> bool {
    let mut stat = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the call writes the value if it returns 0.
    let found = unsafe { libc::fstatfs(file.as_raw_fd(), stat.as_mut_ptr()) } == 0;
    // SAFETY: written by the call.
    let kind = found.then(|| unsafe { stat.assume_init() }.f_type);
    // The type of the number differs between architectures; its low 32 bits are the type of the file system.
    let kind = kind.and_then(|kind| u32::try_from(i128::from(kind) & 0xffff_ffff).ok());
    kind.is_some_and(|kind| REMOTE.contains(&kind))
}
