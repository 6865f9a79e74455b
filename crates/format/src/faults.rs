//! Faults of mapped files: reading a page that the file no longer has, because another program truncated it.
//!
//! The system then sends `SIGBUS`, which ends the process. A handler, installed on request, replaces the missing
//! pages by zeros and marks the map; the caller checks the mark after it has computed with the bytes.
#![cfg_attr(
    unix,
    expect(unsafe_code, reason = "a signal handler replaces pages of a map")
)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tabla_core::error::Result;

/// Maximum number of maps that are guarded at a time; faults of others end the process.
const MAPS_MAX: usize = 4096;

static MAPS: [Entry; MAPS_MAX] = [const { Entry::free() }; MAPS_MAX];

/// A guarded map. The handler reads entries without a lock.
#[derive(Debug)]
struct Entry {
    is_used: AtomicBool,
    has_faulted: AtomicBool,
    /// Address of the first byte; 0 if there is no map.
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Entry {
    const fn free() -> Self {
        Self {
            is_used: AtomicBool::new(false),
            has_faulted: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }
    }

    /// Returns the end of the map if it has this address.
    #[cfg(unix)]
    fn end_of(&self, address: usize) -> Option<usize> {
        let start = self.start.load(Ordering::SeqCst);
        let end = self.end.load(Ordering::SeqCst);
        // Another map may have taken the entry between the two.
        let is_current = start != 0 && self.start.load(Ordering::SeqCst) == start;
        (is_current && (start..end).contains(&address)).then_some(end)
    }
}

/// Registers a map while it exists. It must be dropped before the map is.
#[derive(Debug)]
pub(super) struct Guard(Option<&'static Entry>);

impl Guard {
    pub(super) fn of(map: &[u8]) -> Self {
        let take = |entry: &&Entry| !entry.is_used.swap(true, Ordering::SeqCst);
        let entry = MAPS.iter().find(take);
        if let Some(entry) = entry {
            let start = map.as_ptr().addr();
            entry.has_faulted.store(false, Ordering::SeqCst);
            let end = start.saturating_add(map.len());
            entry.end.store(end, Ordering::SeqCst);
            entry.start.store(start, Ordering::SeqCst);
        }
        Self(entry)
    }

    /// Returns whether a page was missing when it was read.
    pub(super) fn has_faulted(&self) -> bool {
        self.0
            .is_some_and(|entry| entry.has_faulted.load(Ordering::SeqCst))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(entry) = self.0 {
            entry.start.store(0, Ordering::SeqCst);
            entry.is_used.store(false, Ordering::SeqCst);
        }
    }
}

/// Turns faults of mapped model files into errors: a pass that reads a page of a file that was truncated fails with
/// `Io`, and so does every later one, instead of ending the process with `SIGBUS`.
///
/// Installs a handler of `SIGBUS` for the whole process; a second call does nothing. Other faults are passed on to the
/// handler that was installed before. Programs that install their own one afterwards must pass faults on in the
/// same way.
///
/// # Errors
/// `Unsupported` where the system does not send `SIGBUS`; `Io` if it refuses the handler.
pub fn catch_file_faults() -> Result<()> {
    #[cfg(unix)]
    return handler::install();
    #[cfg(not(unix))]
    tabla_core::error::bail!(
        Unsupported,
        "faults of files cannot be caught on this system"
    )
}

#[cfg(unix)]
mod handler {
    use super::MAPS;
    use libc::{c_int, c_void, siginfo_t};
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, OnceLock};
    use tabla_core::error::{Error, ErrorKind, Result};

    /// Values of `si_code` of a page that a file no longer has: `BUS_ADRERR`; also `BUS_ADRALN` of Apple's systems on Arm,
    /// which have no other one (xnu's `bsd/dev/arm/unix_signal.c`), and `BUS_OBJERR` of FreeBSD. Not of a signal that was
    /// sent, nor of an error of the memory itself.
    const MISSING_PAGE: &[c_int] = if cfg!(target_vendor = "apple") {
        &[1, 2]
    } else if cfg!(target_os = "freebsd") {
        &[2, 3]
    } else {
        &[2]
    };

    /// Bytes that are replaced at a time: of a large map, few pages are touched before its pass ends.
    const REPLACED_BYTES: usize = 2 << 20;

    struct Installed {
        page: usize,
        previous: libc::sigaction,
    }

    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

    pub(super) fn install() -> Result<()> {
        static LOCK: Mutex<()> = Mutex::new(());
        let _lock = LOCK.lock();
        if IS_ACTIVE.load(Ordering::SeqCst) {
            return Ok(());
        }
        let failed = |what| {
            let cause = std::io::Error::last_os_error();
            Error::new(ErrorKind::Io, format_args!("{what}: {cause}")).caused_by(cause)
        };
        // SAFETY: the call has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| failed("no page size"))?;
        let mut previous = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: with a null pointer the call only writes the current action.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), previous.as_mut_ptr()) } != 0 {
            return Err(failed("reading the handler of SIGBUS failed"));
        }
        // SAFETY: the call above has written it.
        let previous = unsafe { previous.assume_init() };
        // The handler may run as soon as it is installed.
        let _ = INSTALLED.set(Installed { page, previous });
        let mut action = previous;
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both actions are valid, and `on_fault` only uses functions that handlers may call.
        match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } {
            0 => {
                IS_ACTIVE.store(true, Ordering::SeqCst);
                Ok(())
            }
            _ => Err(failed("installing a handler of SIGBUS failed")),
        }
    }

    extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let Some(installed) = INSTALLED.get() else {
            return;
        };
        // SAFETY: the system passes the details of the fault.
        let details = unsafe { &*info };
        // SAFETY: they are those of a fault, or of a signal that was sent, whose numbers are not an address of a map.
        let address = unsafe { details.si_addr() }.addr();
        if MISSING_PAGE.contains(&details.si_code) && replace(address, installed.page) {
            return;
        }
        match installed.previous.sa_sigaction {
            libc::SIG_IGN if details.si_code <= 0 => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                // SAFETY: the call sets the default action, which ends the process.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
                // SAFETY: the call has no preconditions. A signal that was sent does not come again by itself.
                unsafe { libc::raise(signal) };
            }
            handler if installed.previous.sa_flags & libc::SA_SIGINFO != 0 => {
                // SAFETY: an action with this flag has a handler of this type.
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(handler) };
                handler(signal, info, context);
            }
            handler => {
                // SAFETY: an action without the flag has a handler of this type.
                let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
                handler(signal);
            }
        }
    }

    /// Replaces pages of a guarded map by zeros, from that of the address on; `false` if no map has it.
    fn replace(address: usize, page: usize) -> bool {
        let find = |entry: &'static super::Entry| Some((entry, entry.end_of(address)?));
        let Some((entry, end)) = MAPS.iter().find_map(find) else {
            return false;
        };
        entry.has_faulted.store(true, Ordering::SeqCst);
        let start = address & !page.wrapping_sub(1);
        let end = end.min(start.saturating_add(REPLACED_BYTES));
        let bytes = end.saturating_sub(start).next_multiple_of(page);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the pages are those of a read-only map, which exists while a thread reads it; the call is a system
        // call without other effects. References to the map see zeros where they could not be read before.
        let zeros = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(start),
                bytes,
                libc::PROT_READ,
                flags,
                -1,
                0,
            )
        };
        zeros != libc::MAP_FAILED
    }
}
