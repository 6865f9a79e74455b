//! Uploads weights in the sections of `tabla_quant::sections`.
//!
//! Tensors are packed in a small buffer per thread, so that no second copy stays in host memory.

use super::arena::{Arena, Entry};
use super::device::Device;
use std::ops::Range;
use std::time::Instant;
use tabla_core::dtype::DType;
use tabla_core::error::{Error, ErrorKind, Result, bail};
use tabla_core::exec::{Layout, Program, Tensors, Upload};
use tabla_core::op::table::{BufferId, SlotInfo};
use tabla_core::reserve;
use tabla_quant::Matrix;
use tabla_quant::{Section, sections};

/// Size of one write to wgpu in bytes.
const CHUNK_BYTES: usize = 4 << 20;
/// Maximum number of bytes in wgpu's staging buffers before the host waits for their copies.
const PENDING_BYTES_MAX: usize = 64 << 20;

/// Returns the size of a weight on the device in bytes.
pub(super) fn weight_bytes(dtype: DType, rows: u32, cols: u32) -> u64 {
    let shape = [rows, cols].map(|n| n as usize);
    let sections = sections(dtype).into_iter();
    sections.map(|s| s.bytes(dtype, shape) as u64).sum()
}

/// Allocates all buffers that are not shared with `linked`, and uploads weights and constants; other
/// buffers are zeroed.
pub(super) fn create_arena(device: &Device, program: &Program, linked: &Arena) -> Result<Arena> {
    let mut arena = Arena::new(device, &program.tables, linked)?;
    if device.recorded {
        arena.clear(device);
    }
    let start = Instant::now();
    let bytes = upload(device, &arena, &*program.tensors)?;
    let took = start.elapsed();
    arena.upload = Upload { bytes, took };
    Ok(arena)
}

/// Uploads all tensors; returns the number of bytes sent.
fn upload(device: &Device, arena: &Arena, tensors: &dyn Tensors) -> Result<u64> {
    let mut stream = Stream::new(device);
    for entry in arena.entries() {
        match entry.id {
            BufferId::Weight(index, first) => {
                weight(&mut stream, entry, tensors, index, first)?;
            }
            BufferId::Constant(i) => constant(&mut stream, entry, tensors.constant(i))?,
            _ => {}
        }
    }
    stream.wait()?;
    Ok(stream.sent)
}

/// Uploads rows of a weight, with its scales if they are in a separate tensor.
fn weight(
    stream: &mut Stream<'_>,
    entry: &Entry,
    tensors: &dyn Tensors,
    index: u32,
    first: u32,
) -> Result<()> {
    let slot = &entry.slot;
    let rows = first as usize..first as usize + slot.rows as usize;
    if let Some(bytes) = tensors.in_layout(index, Layout::Sections) {
        stream.begin(&entry.buffer);
        stored_rows(slot, bytes, rows)?
            .into_iter()
            .try_for_each(|part| stream.push(part))?;
        return stream.end();
    }
    let matrix = full_matrix(slot, tensors, index)?;
    if rows.end > matrix.rows {
        bail!(
            Internal,
            "gpu: {}: rows {rows:?} are out of bounds of {} rows",
            slot.name,
            matrix.rows
        );
    }
    stream.begin(&entry.buffer);
    for section in sections(slot.dtype) {
        if let (Section::Scales { columns, .. }, Some(scales)) = (&section, &matrix.scales) {
            check_group(slot, scales.group[1], *columns)?;
        }
        stream.push(&section.head(slot.dtype, &matrix))?;
        let row_bytes = section.bytes(slot.dtype, [1, matrix.cols]).max(1);
        let pack = |rows: Range<usize>, chunk: &mut Vec<u8>| {
            chunk.clear();
            rows.for_each(|row| section.row(slot.dtype, &matrix, row, chunk));
        };
        stream.push_packed(rows.clone(), row_bytes, &pack)?;
    }
    stream.end()?;
    // The file's pages are not read again.
    let row_bytes = matrix.bytes.len() / matrix.rows.max(1);
    tensors.release(index, rows.start * row_bytes..rows.end * row_bytes);
    Ok(())
}

/// Returns all sections of the whole weight of a slot, one after the other, which compiled models store.
///
/// # Errors
///
/// Those of an upload.
pub fn stored_sections(slot: &SlotInfo, tensors: &dyn Tensors, index: u32) -> Result<Vec<u8>> {
    let matrix = full_matrix(slot, tensors, index)?;
    let mut out = Vec::new();
    for section in sections(slot.dtype) {
        if let (Section::Scales { columns, .. }, Some(scales)) = (&section, &matrix.scales) {
            check_group(slot, scales.group[1], *columns)?;
        }
        out.extend(section.head(slot.dtype, &matrix));
        (0..matrix.rows).for_each(|row| section.row(slot.dtype, &matrix, row, &mut out));
    }
    Ok(out)
}

/// Returns the bytes of rows of a weight in the sections of a compiled model.
///
/// # Errors
///
/// `Format` if the bytes are not those of whole rows, or have fewer rows.
fn stored_rows<'a>(slot: &SlotInfo, bytes: &'a [u8], rows: Range<usize>) -> Result<Vec<&'a [u8]>> {
    let cols = slot.cols as usize;
    // Sections of a row, or 0 for those that are stored once.
    let sizes: Vec<_> = sections(slot.dtype)
        .iter()
        .map(|s| [0, 1].map(|rows| s.bytes(slot.dtype, [rows, cols])))
        .collect();
    let once: usize = sizes.iter().map(|[none, _]| none).sum();
    let row_bytes: usize = sizes.iter().map(|[none, one]| one - none).sum();
    let all = bytes.len().saturating_sub(once) / row_bytes.max(1);
    if once + all * row_bytes != bytes.len() || rows.end > all {
        bail!(
            Format,
            "gpu: {}: {} bytes of sections are not those of {} rows of {cols} columns",
            slot.name,
            bytes.len(),
            rows.end
        );
    }
    let (mut parts, mut start) = (Vec::new(), 0);
    for [none, one] in sizes {
        let row_bytes = one - none;
        let first = start + none;
        parts.push(&bytes[start..first]);
        parts.push(&bytes[first + rows.start * row_bytes..first + rows.end * row_bytes]);
        start = first + all * row_bytes;
    }
    Ok(parts)
}

/// Returns the whole matrix of a slot, which may be a row range of it.
fn full_matrix<'a>(slot: &SlotInfo, tensors: &'a dyn Tensors, index: u32) -> Result<Matrix<'a>> {
    let (bytes, facts) = (tensors.weight(index), slot.dtype.facts());
    let blocks = bytes.len().saturating_sub(facts.tail) / facts.bytes;
    let cols = slot.cols as usize;
    let rows = blocks * facts.block / cols.max(1);
    if slot.dtype.bytes((rows * cols) as u64) != Some(bytes.len() as u64) {
        bail!(
            Internal,
            "gpu: {}: {} bytes are not whole rows of {cols} columns",
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

/// Rejects scale groups that split the column groups of the shaders.
fn check_group(slot: &SlotInfo, group: usize, columns: usize) -> Result<()> {
    let cols = slot.cols as usize;
    if group < cols && !group.is_multiple_of(columns.min(cols)) {
        bail!(
            Unsupported,
            "gpu: {}: scale groups of {group} columns, expected a multiple of {columns} for {}",
            slot.name,
            slot.dtype
        );
    }
    Ok(())
}

/// Uploads a constant.
fn constant(stream: &mut Stream<'_>, entry: &Entry, bytes: &[u8]) -> Result<()> {
    check_size(entry, bytes)?;
    stream.begin(&entry.buffer);
    stream.push(bytes)?;
    stream.end()
}

fn check_size(entry: &Entry, bytes: &[u8]) -> Result<()> {
    let (actual, expected) = (bytes.len() as u64, entry.slot.bytes());
    if actual != expected {
        let name = &entry.slot.name;
        bail!(
            Internal,
            "gpu: {name}: expected {expected} bytes, got {actual}"
        );
    }
    Ok(())
}

/// Buffered writer into one device buffer after another.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    device: &'a Device,
    target: Option<wgpu::Buffer>,
    offset: u64,
    chunk: Vec<u8>,
    /// One packing buffer per thread.
    packed: Vec<Vec<u8>>,
    pending: usize,
    /// Total number of bytes sent.
    pub(super) sent: u64,
}

impl<'a> Stream<'a> {
    pub(super) fn new(device: &'a Device) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            device,
            target: None,
            offset: 0,
            chunk: Vec::with_capacity(CHUNK_BYTES),
            packed: vec![Vec::new(); threads],
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
            let free = CHUNK_BYTES - self.chunk.len();
            let (head, rest) = bytes.split_at(free.min(bytes.len()));
            self.chunk.extend_from_slice(head);
            bytes = rest;
            if self.chunk.len() == CHUNK_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Sends rows of `row_bytes` bytes, packed by all threads one chunk at a time.
    fn push_packed(
        &mut self,
        rows: Range<usize>,
        row_bytes: usize,
        pack: &(dyn Fn(Range<usize>, &mut Vec<u8>) + Sync),
    ) -> Result<()> {
        let share = (CHUNK_BYTES / row_bytes).max(1);
        let mut starts = rows.clone().step_by(share);
        while starts.len() > 0 {
            let threads = self.packed.len();
            let batch: Vec<Range<usize>> = starts
                .by_ref()
                .take(threads)
                .map(|first| first..rows.end.min(first + share))
                .collect();
            let mut packed = std::mem::take(&mut self.packed);
            match &batch[..] {
                [all] => pack(all.clone(), &mut packed[0]),
                _ => std::thread::scope(|scope| {
                    batch.iter().zip(&mut packed).try_for_each(|(rows, out)| {
                        let pack = move || pack(rows.clone(), out);
                        let spawned = reserve::thread("tabla-upload")
                            .and_then(|thread| thread.spawn_scoped(scope, pack));
                        let failed = |e| {
                            Error::new(ErrorKind::Memory, "cannot spawn an upload thread")
                                .caused_by(e)
                        };
                        spawned.map(drop).map_err(failed)
                    })
                })?,
            }
            let pushed = packed[..batch.len()].iter().try_for_each(|p| self.push(p));
            self.packed = packed;
            pushed?;
        }
        Ok(())
    }

    /// Sends the rest, padded to the whole words that wgpu requires; buffers are padded too.
    pub(super) fn end(&mut self) -> Result<()> {
        let padded = self.chunk.len().next_multiple_of(4);
        self.chunk.resize(padded, 0);
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        let target = self.target.as_ref().expect("`begin` was called");
        self.device
            .queue
            .write_buffer(target, self.offset, &self.chunk);
        self.offset += self.chunk.len() as u64;
        self.pending += self.chunk.len();
        self.sent += self.chunk.len() as u64;
        self.chunk.clear();
        if self.pending >= PENDING_BYTES_MAX {
            self.wait()?;
        }
        Ok(())
    }

    /// Waits until all bytes have been copied, and checks for errors.
    pub(super) fn wait(&mut self) -> Result<()> {
        self.pending = 0;
        self.device.finish()
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
            buffer: BufferId::Weight(0, 0),
        }
    }

    #[test]
    fn rejects_scale_groups_that_split_column_groups() {
        let slot = slot(DType::I8, 1, 80);
        assert!(check_group(&slot, 64, 32).is_ok());
        assert!(check_group(&slot, 80, 32).is_ok());
        let error = check_group(&slot, 48, 32).expect_err("48 is not a multiple of 32");
        assert!(error.message().contains("48 columns"), "{error}");
    }
}
