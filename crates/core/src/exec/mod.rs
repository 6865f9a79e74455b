//! Executors: link tables to a device once, then replay them.

mod digest;
pub mod philox;
pub mod state;

use crate::device::Profile;
use crate::error::{Result, bail};
use crate::op::table::{BufferId, Cmds, Table};
use crate::scales::Scales;
pub use digest::Digest;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The bytes that tables read and never write. They outlive every executor linked to them.
pub trait Tensors: Send + Sync {
    /// The bytes of a [`BufferId::Weight`] by its index, as the file has them.
    fn weight(&self, index: u32) -> &[u8];
    /// The scales of a [`BufferId::Weight`], where they lie in tensors of their own.
    fn scales(&self, _index: u32) -> Option<Scales<'_>> {
        None
    }
    /// Says that these bytes of a weight were copied and will hardly be read again: the system may
    /// have their memory back for as long as nobody reads them.
    fn release(&self, _index: u32, _range: Range<usize>) {}
    /// The bytes of [`BufferId::Constant`]`(index)`.
    fn constant(&self, index: u32) -> &[u8];
}

/// What is linked: tables that share places, and the tensors they read.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it holds a trait object")]
pub struct Program {
    /// The tables; an executor knows them by their index.
    pub tables: Arc<[Table]>,
    /// Weights and constants.
    pub tensors: Arc<dyn Tensors>,
}

/// How often a command ran, and how long that took in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandTiming {
    /// Replays of the command.
    pub runs: u32,
    /// Their time together. Where threads wait for each other, that counts for the command which
    /// they wait for.
    pub took: Duration,
    /// When its last replay began, from when timing began.
    pub begun: Duration,
}

/// What linking sent to a device with memory of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Upload {
    /// Bytes of weights and constants, as the device has them.
    pub bytes: u64,
    /// From the first of them until all had arrived.
    pub took: Duration,
}

/// Bytes of a place.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The place.
    pub place: BufferId,
    /// Where they begin.
    pub offset: usize,
    /// How many they are.
    pub bytes: usize,
}

impl Span {
    /// Bytes of a place from an offset on.
    pub fn new(place: BufferId, offset: usize, bytes: usize) -> Self {
        Self {
            place,
            offset,
            bytes,
        }
    }
}

/// Copies that may be on their way to the host at a time.
pub const COPIES_MAX: usize = 4;
/// Bytes of one at most: what a chain picks for as many sequences as go together.
pub const COPY_BYTES_MAX: usize = 8192;

/// A copy on its way to the host: its number among all.
#[derive(Debug)]
pub struct Copying(u64);

/// Refuses stretches of so many bytes that share one.
pub fn check_apart(from: usize, to: usize, bytes: usize) -> Result<()> {
    if from.abs_diff(to) < bytes {
        bail!(Argument, "{bytes} bytes from {from} and from {to} meet");
    }
    Ok(())
}

/// Numbers copies; each has one of [`COPIES_MAX`] rooms until so many others were begun.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copies {
    begun: u64,
    /// Of the copy that has each room.
    bytes: [usize; COPIES_MAX],
}

impl Copies {
    /// The next copy, of these spans, and its room.
    ///
    /// # Errors
    ///
    /// `Argument` for none, and for more than [`COPY_BYTES_MAX`].
    pub fn begin(&mut self, spans: &[Span]) -> Result<(Copying, usize)> {
        let bytes: usize = spans.iter().map(|span| span.bytes).sum();
        if !(1..=COPY_BYTES_MAX).contains(&bytes) {
            bail!(
                Argument,
                "a copy has 1 to {COPY_BYTES_MAX} bytes, not {bytes}"
            );
        }
        let copying = Copying(self.begun);
        self.begun += 1;
        let room = Self::room(&copying);
        self.bytes[room] = bytes;
        Ok((copying, room))
    }

    /// The room of a copy that has it still, and so many bytes.
    ///
    /// # Errors
    ///
    /// `State` where it has its room no more, `Argument` where it has fewer bytes.
    pub fn find(&self, copying: &Copying, wanted: usize) -> Result<usize> {
        let ago = self.begun.saturating_sub(copying.0);
        if !(1..=COPIES_MAX as u64).contains(&ago) {
            bail!(
                State,
                "a copy is forgotten once {COPIES_MAX} others were begun"
            );
        }
        let room = Self::room(copying);
        let has = self.bytes[room];
        if wanted > has {
            bail!(Argument, "{wanted} bytes are wanted of a copy of {has}");
        }
        Ok(room)
    }

    fn room(copying: &Copying) -> usize {
        usize::try_from(copying.0 % COPIES_MAX as u64).expect("a small number")
    }
}

/// A device with tables linked to it: their places have memory, their kernels are chosen.
///
/// Places begin as zeros. Nothing that is done between two tokens allocates.
pub trait Executor: Send {
    /// The facts that the tables were planned with.
    fn profile(&self) -> &Profile;

    /// What linking sent there; `None` where tensors stay in the host's memory.
    fn upload(&self) -> Option<Upload> {
        None
    }

    /// The device of another crate that it runs on: for tests that lose a GPU.
    #[doc(hidden)]
    fn device(&self) -> Option<&dyn Any> {
        None
    }

    /// Replays `cmds` of a table `times` times; the host does not wait for the device.
    ///
    /// # Errors
    ///
    /// `Argument` for commands that the table lacks, `Device` or `DeviceLost`.
    fn run(&mut self, table: usize, cmds: Cmds, times: u32) -> Result<()>;

    /// Writes bytes into a place, before whatever runs next.
    ///
    /// # Errors
    ///
    /// `Argument` for a place that no table names or a range that leaves it.
    fn write(&mut self, place: BufferId, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Reads bytes of a place, after whatever ran last.
    ///
    /// # Errors
    ///
    /// As `write`, and `Device` or `DeviceLost`.
    fn read(&mut self, place: BufferId, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Makes bytes of a place a copy of others of it, after whatever ran last and before whatever runs
    /// next. The two do not meet.
    ///
    /// # Errors
    ///
    /// As `write`, and `Argument` where they meet.
    fn duplicate(&mut self, place: BufferId, from: usize, to: usize, bytes: usize) -> Result<()>;

    /// Has spans copied as they are after whatever ran last, one behind the other; the host does not
    /// wait for them.
    ///
    /// # Errors
    ///
    /// As `write`, and `Argument` for no bytes and for more than [`COPY_BYTES_MAX`].
    fn copy(&mut self, spans: &[Span]) -> Result<Copying>;

    /// Waits for a copy, and for nothing behind it, and takes its first bytes.
    ///
    /// # Errors
    ///
    /// `State` for a copy behind which [`COPIES_MAX`] others were begun, `Argument` for more bytes than
    /// it has; `Device` or `DeviceLost`.
    fn take(&mut self, copying: Copying, bytes: &mut [u8]) -> Result<()>;

    /// Begins to time every command that runs, from nothing.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a device that cannot tell the times of commands.
    fn time_commands(&mut self) -> Result<()>;

    /// Ends timing; what was timed stays.
    fn end_timing(&mut self);

    /// The commands of a table, as timed; empty where timing never began.
    fn laps(&self, table: usize) -> &[CommandTiming];
}
