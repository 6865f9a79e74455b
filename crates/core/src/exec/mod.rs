//! Executor interface: tables are linked to a device once, then replayed.

mod digest;
pub mod philox;
mod programs;
#[rustfmt::skip] // generated
mod sampler_off;
mod split;
pub mod state;

use crate::device::Profile;
use crate::error::{Result, bail};
use crate::op::table::{BufferId, Cmds, Table};
use crate::scales::Scales;
pub use digest::Digest;
pub use programs::{Programs, is_private, reject_empty};
pub use split::{SplitExecutor, SplitProgram};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Layout of a weight that a device reads, in which compiled models store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// Panels of rows, which the kernels of every CPU with vectors read.
    Panels,
    /// Sections of fields, which shaders read.
    Sections,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Self; 2] = [Self::Panels, Self::Sections];

    /// Returns the name in compiled models.
    pub fn name(self) -> &'static str {
        match self {
            Self::Panels => "panels",
            Self::Sections => "sections",
        }
    }
}

/// Read-only tensors of a program. They outlive all executors linked to them.
pub trait Tensors: Send + Sync {
    /// Returns the bytes of [`BufferId::Weight`] `index`, as stored in the file.
    fn weight(&self, index: u32) -> &[u8];
    /// Returns the scales of [`BufferId::Weight`] `index`, if they are separate tensors.
    fn scales(&self, _index: u32) -> Option<Scales<'_>> {
        None
    }
    /// Returns the bytes of [`BufferId::Weight`] `index` in a layout of a device, if a compiled model has
    /// them. Then [`weight`](Self::weight) may be empty.
    fn in_layout(&self, _index: u32, _layout: Layout) -> Option<&[u8]> {
        None
    }
    /// Copies the bytes of [`BufferId::Weight`] `index` from byte `first` on. Unlike
    /// [`weight`](Self::weight), it does not map pages of the file into memory.
    ///
    /// # Errors
    ///
    /// `Io` if the file cannot be read, `Argument` if the weight has fewer bytes.
    fn read(&self, index: u32, first: usize, to: &mut [u8]) -> Result<()> {
        let weight = self.weight(index);
        match weight.get(first..).and_then(|bytes| bytes.get(..to.len())) {
            Some(bytes) => to.copy_from_slice(bytes),
            None => bail!(
                Argument,
                "weight {index}: {} bytes from byte {first} on exceed its {} bytes",
                to.len(),
                weight.len()
            ),
        }
        Ok(())
    }
    /// Hints that these bytes of a weight were copied, so that the operating system may reclaim
    /// their pages. They remain readable.
    fn release(&self, _index: u32, _range: Range<usize>) {}
    /// Copies weights that are read in place, also in the layout of a compiled model, into memory if the options of
    /// loading ask for it. Their addresses do not change.
    ///
    /// # Errors
    ///
    /// `Io` if a file cannot be read, `Memory` if the copies do not fit into memory.
    fn copy_in_place(&self, _weights: &BTreeSet<u32>) -> Result<()> {
        Ok(())
    }
    /// Checks that no file was truncated while it was read.
    ///
    /// # Errors
    ///
    /// `Io` with the path of the file.
    fn check_faults(&self) -> Result<()> {
        Ok(())
    }
    /// Returns the bytes of [`BufferId::Constant`] `index`.
    fn constant(&self, index: u32) -> &[u8];
}

/// Input of linking: tables that share buffers, and the tensors they read.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it contains a trait object")]
pub struct Program {
    /// Tables; executor methods take their index.
    pub tables: Arc<[Table]>,
    /// Weights and constants.
    pub tensors: Arc<dyn Tensors>,
}

/// Number of runs and total time of a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandTiming {
    /// Number of replays of the command.
    pub runs: u32,
    /// Total time of all replays. Time that threads wait at a barrier counts for the command they
    /// wait for.
    pub took: Duration,
    /// Start of the last replay, relative to the start of timing.
    pub begun: Duration,
}

/// Upload to a device with its own memory at link time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Upload {
    /// Size of weights and constants in bytes, in the device layout.
    pub bytes: u64,
    /// Time from the first byte until the upload was complete.
    pub took: Duration,
}

/// Byte range of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Buffer.
    pub buffer: BufferId,
    /// Offset of the first byte.
    pub offset: usize,
    /// Number of bytes.
    pub bytes: usize,
}

impl Span {
    /// Creates the range of `bytes` bytes at `offset`.
    pub fn new(buffer: BufferId, offset: usize, bytes: usize) -> Self {
        Self {
            buffer,
            offset,
            bytes,
        }
    }
}

/// Maximum number of copies to the host in flight.
pub const COPIES_MAX: usize = 4;
/// Maximum size of a copy in bytes: the tokens of a burst for the largest batch.
pub const COPY_BYTES_MAX: usize = 8448;

/// Handle of a copy to the host: its sequence number.
#[derive(Debug)]
pub struct Copying(u64);

/// Rejects overlapping ranges of `bytes` bytes at `from` and `to`.
pub fn check_disjoint(from: usize, to: usize, bytes: usize) -> Result<()> {
    if from.abs_diff(to) < bytes {
        bail!(
            Argument,
            "ranges of {bytes} bytes at offsets {from} and {to} overlap"
        );
    }
    Ok(())
}

/// Ring of [`COPIES_MAX`] staging slots for copies; a slot is reused after [`COPIES_MAX`] further
/// copies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copies {
    /// Number of copies started.
    begun: u64,
    /// Size of the copy in each slot.
    bytes: [usize; COPIES_MAX],
}

impl Copies {
    /// Starts a copy of these spans; returns its handle and its slot.
    ///
    /// # Errors
    ///
    /// `Argument` for 0 bytes and for more than [`COPY_BYTES_MAX`].
    pub fn begin(&mut self, spans: &[Span]) -> Result<(Copying, usize)> {
        let bytes: usize = spans.iter().map(|span| span.bytes).sum();
        if !(1..=COPY_BYTES_MAX).contains(&bytes) {
            bail!(
                Argument,
                "copy size must be 1 to {COPY_BYTES_MAX} bytes, got {bytes}"
            );
        }
        let copying = Copying(self.begun);
        self.begun += 1;
        let slot = Self::slot(&copying);
        self.bytes[slot] = bytes;
        Ok((copying, slot))
    }

    /// Returns the slot of a copy of at least `expected` bytes.
    ///
    /// # Errors
    ///
    /// `State` if the slot was reused, `Argument` if the copy is smaller.
    pub fn find(&self, copying: &Copying, expected: usize) -> Result<usize> {
        let ago = self.begun.saturating_sub(copying.0);
        if !(1..=COPIES_MAX as u64).contains(&ago) {
            bail!(
                State,
                "copy expired: {COPIES_MAX} or more copies were started after it"
            );
        }
        let slot = Self::slot(copying);
        let size = self.bytes[slot];
        if expected > size {
            bail!(
                Argument,
                "copy of {size} bytes is too small: expected at least {expected}"
            );
        }
        Ok(slot)
    }

    fn slot(copying: &Copying) -> usize {
        usize::try_from(copying.0 % COPIES_MAX as u64).expect("a small number")
    }
}

/// A device with linked tables: buffers are allocated, kernels are selected.
///
/// Buffers are zero-initialized. No method allocates memory between two tokens.
pub trait Executor: Send {
    /// Returns the profile that the tables were planned with.
    fn profile(&self) -> &Profile;

    /// Returns the upload of the first program; `None` if tensors stay in host memory.
    fn upload(&self) -> Option<Upload> {
        None
    }

    /// Links further tables, which share the buffers of the linked ones except scratch buffers,
    /// constants and captured values (own memory per call). Returns the index of the first.
    ///
    /// The tables have consecutive indices after those of all linked tables. `program.tensors`
    /// returns every tensor of the added tables; the weights of the first program keep their
    /// indices and are shared, other weights belong to the added tables. So does each buffer that
    /// no linked table uses; the host reads and writes it by its id. Scratch buffers and constants
    /// of added tables are not accessible by the host. Compiled kernels are kept and shared.
    ///
    /// After an error, the executor is unchanged.
    ///
    /// # Errors
    ///
    /// `Argument` for a program without tables; `Internal` for a shared buffer that is smaller than
    /// a slot of the added tables, and for a buffer of other added tables; those of linking.
    fn add_tables(&mut self, program: Program) -> Result<usize>;

    /// Removes the tables of one [`add_tables`](Self::add_tables) call, whose first index is
    /// `first`, and frees their memory. Waits for the device. The indices of other tables do not
    /// change; removed indices are invalid until they are assigned again.
    ///
    /// # Errors
    ///
    /// `Argument` if `first` is not the first index of added tables; `Device` or `DeviceLost`.
    fn remove_tables(&mut self, first: usize) -> Result<()>;

    /// Replays `cmds` of a table `times` times, without waiting for the device.
    ///
    /// # Errors
    ///
    /// `Argument` for an invalid table or commands out of range; `Device` or `DeviceLost`.
    fn run(&mut self, table: usize, cmds: Cmds, times: u32) -> Result<()>;

    /// Writes bytes into a buffer, ordered before the next run.
    ///
    /// # Errors
    ///
    /// `Argument` for a buffer that no table uses or a range out of bounds.
    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Reads bytes of a buffer, ordered after the last run.
    ///
    /// # Errors
    ///
    /// Those of `write`, and `Device` or `DeviceLost`.
    fn read(&mut self, buffer: BufferId, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Copies bytes within a buffer, ordered after the last run and before the next one. The ranges
    /// must not overlap.
    ///
    /// # Errors
    ///
    /// Those of `write`, and `Argument` for overlapping ranges.
    fn duplicate(&mut self, buffer: BufferId, from: usize, to: usize, bytes: usize) -> Result<()>;

    /// Starts a copy of the concatenated spans to the host, ordered after the last run, without
    /// waiting for it.
    ///
    /// # Errors
    ///
    /// Those of `write`, and `Argument` for 0 bytes and for more than [`COPY_BYTES_MAX`].
    fn copy(&mut self, spans: &[Span]) -> Result<Copying>;

    /// Waits for a copy, but not for later work, and reads its first bytes.
    ///
    /// # Errors
    ///
    /// `State` if [`COPIES_MAX`] or more copies were started after it, `Argument` for more bytes
    /// than it has; `Device` or `DeviceLost`.
    fn take(&mut self, copying: Copying, bytes: &mut [u8]) -> Result<()>;

    /// Resets and starts timing of the commands of all tables. Tables that are added later are not
    /// timed.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a device without timestamps.
    fn time_commands(&mut self) -> Result<()>;

    /// Stops timing and keeps the results.
    fn end_timing(&mut self);

    /// Returns the timings of the commands of a table; empty if the table was not linked when timing
    /// was started.
    fn command_timings(&self, table: usize) -> &[CommandTiming];
}
