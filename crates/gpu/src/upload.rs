//! Weights on their way to the device, section by section as `layout` says.
//!
//! Tensors pass through a small piece of host memory for each thread; no second copy stays.

use super::arena::{Arena, Entry};
use super::device::Device;
use super::layout::{Section, sections};
use std::ops::Range;
use std::time::Instant;
use tabla_core::dtype::DType;
use tabla_core::error::{Error, ErrorKind, Result, bail};
use tabla_core::exec::{Program, Tensors, Upload};
use tabla_core::op::table::{BufferId, SlotInfo};
use tabla_quant::Matrix;

/// Bytes that are handed to wgpu at once.
const PIECE_BYTES: usize = 4 << 20;
/// Bytes in wgpu's staging buffers before the host waits for them to be copied.
const PENDING_BYTES_MAX: usize = 64 << 20;

/// Bytes of a weight on the device.
pub(super) fn weight_bytes(dtype: DType, rows: u32, cols: u32) -> u64 {
    let shape = [rows, cols].map(|n| n as usize);
    let sections = sections(dtype).into_iter();
    sections.map(|s| s.bytes(dtype, shape) as u64).sum()
}

/// Memory for all places: tensors as they were given, zeros everywhere else.
pub(super) fn filled(device: &Device, program: &Program) -> Result<Arena> {
    let mut arena = Arena::new(device, &program.tables)?;
    if device.recorded {
        arena.clear(device);
    }
    let begun = Instant::now();
    let bytes = send(device, &arena, &*program.tensors)?;
    let took = begun.elapsed();
    arena.upload = Upload { bytes, took };
    Ok(arena)
}

/// Sends the tensors, and says how many bytes they are there.
fn send(device: &Device, arena: &Arena, tensors: &dyn Tensors) -> Result<u64> {
    let mut stream = Stream::new(device);
    for entry in arena.entries() {
        match entry.place {
            BufferId::Weight(index, first) => {
                weight(&mut stream, entry, tensors, (index, first))?;
            }
            BufferId::Constant(i) => constant(&mut stream, entry, tensors.constant(i))?,
            _ => {}
        }
    }
    stream.wait()?;
    Ok(stream.sent)
}

/// Sends rows of a weight and, where they lie in a tensor of their own, its scales.
fn weight(
    stream: &mut Stream<'_>,
    entry: &Entry,
    tensors: &dyn Tensors,
    (index, first): (u32, u32),
) -> Result<()> {
    let slot = &entry.slot;
    let matrix = whole(slot, tensors, index)?;
    let rows = first as usize..first as usize + slot.rows as usize;
    if rows.end > matrix.rows {
        bail!(
            Internal,
            "gpu: {}: rows {rows:?} of {}",
            slot.name,
            matrix.rows
        );
    }
    stream.begin(&entry.buffer);
    for section in sections(slot.dtype) {
        if let (Section::Scales { columns, .. }, Some(scales)) = (&section, &matrix.scales) {
            grouped(slot, scales.group[1], *columns)?;
        }
        stream.push(&section.head(slot.dtype, &matrix))?;
        let row_bytes = section.bytes(slot.dtype, [1, matrix.cols]).max(1);
        let pack = |rows: Range<usize>, piece: &mut Vec<u8>| {
            piece.clear();
            rows.for_each(|row| section.row(slot.dtype, &matrix, row, piece));
        };
        stream.packed(rows.clone(), row_bytes, &pack)?;
    }
    stream.end()?;
    // The file's pages are not read again.
    let row_bytes = matrix.bytes.len() / matrix.rows.max(1);
    tensors.release(index, rows.start * row_bytes..rows.end * row_bytes);
    Ok(())
}

/// The matrix of which a slot has some rows.
fn whole<'a>(slot: &SlotInfo, tensors: &'a dyn Tensors, index: u32) -> Result<Matrix<'a>> {
    let (bytes, facts) = (tensors.weight(index), slot.dtype.facts());
    let blocks = bytes.len().saturating_sub(facts.tail) / facts.bytes;
    let cols = slot.cols as usize;
    let rows = blocks * facts.block / cols.max(1);
    if slot.dtype.bytes((rows * cols) as u64) != Some(bytes.len() as u64) {
        bail!(
            Internal,
            "gpu: {}: {} bytes are no rows of {cols} columns",
            slot.name,
            bytes.len()
        );
    }
    Ok(Matrix {
        bytes,
        scales: tensors.scales(index),
        rows,
        cols,
    })
}

/// Refuses groups that part what the shaders scale at once.
fn grouped(slot: &SlotInfo, group: usize, columns: usize) -> Result<()> {
    let cols = slot.cols as usize;
    if group < cols && !group.is_multiple_of(columns.min(cols)) {
        bail!(
            Unsupported,
            "gpu: {}: a scale for {group} columns, where {} takes multiples of {columns}",
            slot.name,
            slot.dtype
        );
    }
    Ok(())
}

/// Sends a constant as it is.
fn constant(stream: &mut Stream<'_>, entry: &Entry, bytes: &[u8]) -> Result<()> {
    checked(entry, bytes)?;
    stream.begin(&entry.buffer);
    stream.push(bytes)?;
    stream.end()
}

fn checked(entry: &Entry, bytes: &[u8]) -> Result<()> {
    let (has, wants) = (bytes.len() as u64, entry.slot.bytes());
    if has != wants {
        let name = &entry.slot.name;
        bail!(Internal, "gpu: {name}: {has} bytes where {wants} were told");
    }
    Ok(())
}

/// Bytes on their way into one buffer after another.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    device: &'a Device,
    target: Option<wgpu::Buffer>,
    offset: u64,
    piece: Vec<u8>,
    /// What threads pack, one for each.
    pieces: Vec<Vec<u8>>,
    pending: usize,
    /// Bytes of all buffers together.
    pub(super) sent: u64,
}

impl<'a> Stream<'a> {
    pub(super) fn new(device: &'a Device) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            device,
            target: None,
            offset: 0,
            piece: Vec::with_capacity(PIECE_BYTES),
            pieces: vec![Vec::new(); threads],
            pending: 0,
            sent: 0,
        }
    }

    pub(super) fn begin(&mut self, target: &wgpu::Buffer) {
        self.target = Some(target.clone());
        self.offset = 0;
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = PIECE_BYTES - self.piece.len();
            let (some, rest) = bytes.split_at(room.min(bytes.len()));
            self.piece.extend_from_slice(some);
            bytes = rest;
            if self.piece.len() == PIECE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Sends rows of so many bytes, which all threads pack a piece at a time.
    fn packed(
        &mut self,
        rows: Range<usize>,
        row_bytes: usize,
        pack: &(dyn Fn(Range<usize>, &mut Vec<u8>) + Sync),
    ) -> Result<()> {
        let share = (PIECE_BYTES / row_bytes).max(1);
        let mut starts = rows.clone().step_by(share);
        while starts.len() > 0 {
            let threads = self.pieces.len();
            let batch: Vec<Range<usize>> = starts
                .by_ref()
                .take(threads)
                .map(|first| first..rows.end.min(first + share))
                .collect();
            let mut pieces = std::mem::take(&mut self.pieces);
            match &batch[..] {
                [all] => pack(all.clone(), &mut pieces[0]),
                _ => std::thread::scope(|scope| {
                    batch.iter().zip(&mut pieces).try_for_each(|(some, piece)| {
                        let thread = std::thread::Builder::new().name("tabla-upload".to_string());
                        let running = thread.spawn_scoped(scope, move || pack(some.clone(), piece));
                        let failed = |e| {
                            Error::new(ErrorKind::Memory, "no thread to pack weights").caused_by(e)
                        };
                        running.map(drop).map_err(failed)
                    })
                })?,
            }
            let sent = pieces[..batch.len()].iter().try_for_each(|p| self.push(p));
            self.pieces = pieces;
            sent?;
        }
        Ok(())
    }

    /// Sends the rest, in whole words as wgpu wants it: the buffer has room for them.
    pub(super) fn end(&mut self) -> Result<()> {
        let whole = self.piece.len().next_multiple_of(4);
        self.piece.resize(whole, 0);
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        let target = self.target.as_ref().expect("begin comes first");
        self.device
            .queue
            .write_buffer(target, self.offset, &self.piece);
        self.offset += self.piece.len() as u64;
        self.pending += self.piece.len();
        self.sent += self.piece.len() as u64;
        self.piece.clear();
        if self.pending >= PENDING_BYTES_MAX {
            self.wait()?;
        }
        Ok(())
    }

    /// Waits until all bytes have arrived, and hears whether they have.
    pub(super) fn wait(&mut self) -> Result<()> {
        self.pending = 0;
        let _turn = self.device.turn.lock();
        self.device.queue.submit([]);
        let failure = &self.device.failure;
        self.device
            .wgpu
            .poll(wgpu::PollType::wait_indefinitely())
            .map_err(|e| failure.explain(e))?;
        failure.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(dtype: DType, rows: u32, cols: u32) -> SlotInfo {
        SlotInfo {
            name: "w".into(),
            dtype,
            rows,
            cols,
            place: BufferId::Weight(0, 0),
        }
    }

    #[test]
    fn groups_are_whole_pieces_or_whole_rows() {
        let slot = slot(DType::I8, 1, 80);
        assert!(grouped(&slot, 64, 32).is_ok());
        assert!(grouped(&slot, 80, 32).is_ok());
        let error = grouped(&slot, 48, 32).expect_err("half of a piece");
        assert!(error.message().contains("48 columns"), "{error}");
    }
}
