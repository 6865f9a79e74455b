//! Weights on their way to the device, in the layouts that `shaders/lib/quant` reads.
//!
//! Floats: rows padded with zeros to whole octets (8 numbers). Quantised: the quants of all
//! blocks, then their scales, so that both are read in whole words; nibbles in the order of
//! octets. Tensors pass through one small piece of host memory; no second copy stays.

use super::arena::Entry;
use super::device::Device;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::op::table::SlotInfo;

/// Bytes that are handed to wgpu at once.
const PIECE_BYTES: usize = 4 << 20;
/// Bytes in wgpu's staging buffers before the host waits for them to be copied.
const PENDING_BYTES_MAX: usize = 64 << 20;
/// Numbers of an octet.
const OCTET: u32 = 8;

/// Bytes of a weight on the device.
pub(super) fn weight_bytes(slot: &SlotInfo) -> u64 {
    match slot.dtype.facts().block {
        1 => {
            let cols = u64::from(slot.cols).next_multiple_of(u64::from(OCTET));
            u64::from(slot.rows) * cols * slot.dtype.facts().bytes as u64
        }
        _ => slot.bytes(),
    }
}

/// Sends a weight.
pub(super) fn weight(stream: &mut Stream<'_>, entry: &Entry, bytes: &[u8]) -> Result<()> {
    let facts = entry.slot.dtype.facts();
    checked(entry, bytes)?;
    stream.begin(&entry.buffer);
    if facts.block == 1 {
        let row = entry.slot.cols as usize * facts.bytes;
        let pad = row.next_multiple_of(OCTET as usize * facts.bytes) - row;
        if pad == 0 {
            stream.push(bytes)?;
        } else {
            for row in bytes.chunks_exact(row) {
                stream.push(row)?;
                stream.push(&[0; 32][..pad])?;
            }
        }
        return stream.end();
    }
    let blocks = || bytes.chunks_exact(facts.bytes);
    match entry.slot.dtype {
        DType::Q8_0 => {
            blocks().try_for_each(|b| stream.push(&b[2..]))?;
            blocks().try_for_each(|b| stream.push(&b[..2]))?;
        }
        DType::Q4_0 => {
            blocks().try_for_each(|b| stream.push(&octets(&b[2..])))?;
            blocks().try_for_each(|b| stream.push(&b[..2]))?;
        }
        DType::Q4_1 => {
            blocks().try_for_each(|b| stream.push(&octets(&b[4..])))?;
            blocks().try_for_each(|b| stream.push(&b[..4]))?;
        }
        other => bail!(
            Unsupported,
            "gpu: {}: no layout for {other}",
            entry.slot.name
        ),
    }
    stream.end()
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
