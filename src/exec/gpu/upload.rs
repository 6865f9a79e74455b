//! Weights on their way to the device, in the layouts that `shaders/lib/quant` reads.
//!
//! The pieces of the file come one after the other, each padded with zeros: rows of numbers to
//! whole octets (8 numbers), blocks to whole words. In the types made for speed, quants and
//! scales of all blocks go apart instead. Behind them stands what else decoding needs: the grid
//! of an iq type, or scales from a tensor of their own.
//! Tensors pass through one small piece of host memory; no second copy stays.

use super::arena::Entry;
use super::device::Device;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::exec::Tensors;
use crate::op::table::{Place, SlotInfo};
use crate::quant::{Scales, iq_grids};
use bytemuck::cast_slice;

/// Bytes that are handed to wgpu at once.
const PIECE_BYTES: usize = 4 << 20;
/// Bytes in wgpu's staging buffers before the host waits for them to be copied.
const PENDING_BYTES_MAX: usize = 64 << 20;
/// Numbers of an octet.
const OCTET: usize = 8;

/// Bytes of a weight on the device.
pub(super) fn weight_bytes(dtype: DType, rows: u32, cols: u32) -> u64 {
    let slot = &SlotInfo {
        name: String::new(),
        dtype,
        rows,
        cols,
        place: Place::Weight(0, 0),
    };
    let [piece, padded] = piece_bytes(slot).map(|bytes| bytes as u64);
    let behind = match behind(slot) {
        Behind::Nothing => 0,
        Behind::Grid(grid) => grid.len() as u64,
        Behind::Scales { columns, numbers } => {
            let groups = u64::from(slot.cols).div_ceil(columns as u64);
            u64::from(slot.rows) * groups * (numbers * size_of::<f32>()) as u64
        }
    };
    slot.bytes() / piece * padded + behind
}

/// Bytes of a piece of the file, and of a piece on the device.
fn piece_bytes(slot: &SlotInfo) -> [usize; 2] {
    let facts = slot.dtype.facts();
    let row = slot.cols as usize * facts.bytes;
    match slot.dtype {
        DType::Q8_0 | DType::Q4_0 | DType::Q4_1 => [facts.bytes; 2],
        // A byte holds a column of four rows.
        DType::Ternary => [row, row.next_multiple_of(OCTET)],
        _ if facts.block == 1 => [row, row.next_multiple_of(OCTET * facts.bytes)],
        _ => [facts.bytes, facts.bytes.next_multiple_of(size_of::<u32>())],
    }
}

/// What stands behind the pieces of a weight.
enum Behind {
    Nothing,
    Grid(&'static [u8]),
    /// For every so many columns of each row an f32 scale, and where there are two an f32 bias.
    Scales {
        columns: usize,
        numbers: usize,
    },
}

fn behind(slot: &SlotInfo) -> Behind {
    let scales = |columns, numbers| Behind::Scales { columns, numbers };
    match slot.dtype {
        DType::Iq1S | DType::Iq1M => Behind::Grid(cast_slice(&iq_grids::IQ1)),
        DType::Iq2Xxs => Behind::Grid(cast_slice(&iq_grids::IQ2_XXS)),
        DType::Iq2Xs => Behind::Grid(cast_slice(&iq_grids::IQ2_XS)),
        DType::Iq2S => Behind::Grid(cast_slice(&iq_grids::IQ2_S)),
        DType::Iq3Xxs => Behind::Grid(cast_slice(&iq_grids::IQ3_XXS)),
        DType::Iq3S => Behind::Grid(cast_slice(&iq_grids::IQ3_S)),
        DType::Affine2
        | DType::Affine3
        | DType::Affine4
        | DType::Affine5
        | DType::Affine6
        | DType::Affine8 => scales(32, 2),
        DType::E2m1 => scales(16, 1),
        DType::E4m3 | DType::I8 => scales(32, 1),
        DType::Ternary => scales(slot.cols as usize, 1),
        _ => Behind::Nothing,
    }
}

/// Sends rows of a weight and, where they lie in a tensor of their own, its scales.
pub(super) fn weight(
    stream: &mut Stream<'_>,
    entry: &Entry,
    tensors: &dyn Tensors,
    (index, first): (u32, u32),
) -> Result<()> {
    let slot = &entry.slot;
    let bytes = rows(slot, tensors.weight(index), first)?;
    stream.begin(&entry.buffer);
    let [piece, padded] = piece_bytes(slot);
    let pieces = || bytes.chunks_exact(piece);
    match slot.dtype {
        DType::Q8_0 => {
            pieces().try_for_each(|b| stream.push(&b[2..]))?;
            pieces().try_for_each(|b| stream.push(&b[..2]))?;
        }
        DType::Q4_0 => {
            pieces().try_for_each(|b| stream.push(&octets(&b[2..])))?;
            pieces().try_for_each(|b| stream.push(&b[..2]))?;
        }
        DType::Q4_1 => {
            pieces().try_for_each(|b| stream.push(&octets(&b[4..])))?;
            pieces().try_for_each(|b| stream.push(&b[..4]))?;
        }
        _ if piece == padded => stream.push(bytes)?,
        _ => {
            let zeros = &[0; 32][..padded - piece];
            pieces().try_for_each(|b| stream.push(b).and_then(|()| stream.push(zeros)))?;
        }
    }
    match behind(slot) {
        Behind::Nothing => {}
        Behind::Grid(grid) => stream.push(grid)?,
        Behind::Scales { columns, numbers } => {
            let scales = tensors.scales(index).map(|scales| (scales, first as usize));
            send_scales(stream, slot, scales, columns, numbers)?;
        }
    }
    stream.end()
}

/// The bytes of the rows of a tensor that a slot has, from `first` on.
fn rows<'a>(slot: &SlotInfo, tensor: &'a [u8], first: u32) -> Result<&'a [u8]> {
    let facts = slot.dtype.facts();
    let blocks = u64::from(first) * u64::from(slot.cols) / facts.block as u64;
    let begin = usize::try_from(blocks * facts.bytes as u64).ok();
    let len = usize::try_from(slot.bytes()).ok();
    let range = begin
        .zip(len)
        .and_then(|(begin, len)| Some(begin..begin.checked_add(len)?));
    match range.and_then(|range| tensor.get(range)) {
        Some(bytes) => Ok(bytes),
        None => bail!(
            Internal,
            "gpu: {}: {} bytes from row {first} on, of {}",
            slot.name,
            slot.bytes(),
            tensor.len()
        ),
    }
}

/// Sends `numbers` of scale and bias for every `columns` of each row; scales come with the tensor's
/// row that is the first.
fn send_scales(
    stream: &mut Stream<'_>,
    slot: &SlotInfo,
    scales: Option<(Scales<'_>, usize)>,
    columns: usize,
    numbers: usize,
) -> Result<()> {
    let [rows, cols] = [slot.rows, slot.cols].map(|n| n as usize);
    if let Some((scales, _)) = scales {
        grouped(slot, scales.group[1], columns)?;
    }
    for row in 0..rows {
        for col in (0..cols).step_by(columns) {
            let all = scales.map_or([1.0, 0.0], |(s, first)| s.at(first + row, col, cols));
            stream.push(cast_slice(&all[..numbers]))?;
        }
    }
    Ok(())
}

/// Refuses groups that part what the shaders scale at once.
fn grouped(slot: &SlotInfo, group: usize, columns: usize) -> Result<()> {
    if group < slot.cols as usize && !group.is_multiple_of(columns) {
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
pub(super) fn constant(stream: &mut Stream<'_>, entry: &Entry, bytes: &[u8]) -> Result<()> {
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

/// 32 nibbles of a block, number j in the low half of byte j and j + 16 in its high half, in the
/// order of octets: number j of 8 in the low half of byte j, j + 4 in its high half.
fn octets(nibbles: &[u8]) -> [u8; 16] {
    let mut out = [0; 16];
    for j in 0..4 {
        let [a, b, c, d] = [0, 4, 8, 12].map(|i| nibbles[i + j]);
        out[j] = a & 0xf | b << 4;
        out[4 + j] = c & 0xf | d << 4;
        out[8 + j] = a >> 4 | b & 0xf0;
        out[12 + j] = c >> 4 | d & 0xf0;
    }
    out
}

/// Bytes on their way into one buffer after another.
#[derive(Debug)]
pub(super) struct Stream<'a> {
    device: &'a Device,
    target: Option<wgpu::Buffer>,
    offset: u64,
    piece: Vec<u8>,
    pending: usize,
}

impl<'a> Stream<'a> {
    pub(super) fn new(device: &'a Device) -> Self {
        Self {
            device,
            target: None,
            offset: 0,
            piece: Vec::with_capacity(PIECE_BYTES),
            pending: 0,
        }
    }

    fn begin(&mut self, target: &wgpu::Buffer) {
        self.target = Some(target.clone());
        self.offset = 0;
    }

    fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
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

    /// Sends the rest, in whole words as wgpu wants it: the buffer has room for them.
    fn end(&mut self) -> Result<()> {
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
            place: Place::Weight(0, 0),
        }
    }

    #[test]
    fn a_weight_has_the_bytes_of_its_pieces_and_of_what_stands_behind() {
        for (dtype, rows, cols, bytes) in [
            (DType::F32, 3, 5, 3 * 32),
            (DType::Q4_1, 2, 32, 2 * 20),
            (DType::Q6K, 3, 512, 3 * 2 * 212),
            (DType::Mxfp4, 2, 64, 2 * 2 * 20),
            (DType::I2S, 4, 96, 96 + 32),
            (DType::Iq3S, 1, 256, 112 + 512 * 4),
            (DType::Affine3, 4, 96, 4 * (3 * 12 + 3 * 8)),
            (DType::E2m1, 2, 64, 2 * (2 * 16 + 4 * 4)),
            (DType::E4m3, 5, 77, 5 * (80 + 3 * 4)),
            (DType::Ternary, 8, 77, 2 * 80 + 8 * 4),
        ] {
            assert_eq!(weight_bytes(dtype, rows, cols), bytes, "{dtype}");
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

    #[test]
    fn octets_hold_the_numbers_in_their_order() {
        // Number n of a block is n % 16 in the first half and 15 - n % 16 in the second.
        let block: Vec<u8> = (0..16).map(|j| j | (15 - j) << 4).collect();
        let number = |n: u8| if n < 16 { n } else { 15 - n % 16 };
        for (o, octet) in (0..4).zip(octets(&block).chunks(4)) {
            for (j, byte) in (0..4).zip(octet) {
                assert_eq!(byte & 15, number(8 * o + j), "octet {o}, number {j}");
                assert_eq!(
                    byte >> 4,
                    number(8 * o + 4 + j),
                    "octet {o}, number {j} + 4"
                );
            }
        }
    }
}
