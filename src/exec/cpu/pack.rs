//! Packing: weights rearranged once, by all threads, into panels in huge pages.

use super::memory::{Arena, Operand};
use super::panel::Layout;
use super::simd::rows::ROWS;
use crate::error::Result;
use crate::exec::{Program, Tensors};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;

/// A matrix to be packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packing {
    /// How its blocks lie.
    pub(super) layout: &'static Layout,
    /// Rows.
    pub(super) rows: usize,
    /// Elements of a row.
    pub(super) cols: usize,
}

impl Packing {
    fn panel_bytes(&self) -> usize {
        self.layout.panel_bytes(self.cols)
    }

    fn bytes(&self) -> usize {
        self.rows.div_ceil(ROWS) * self.panel_bytes()
    }
}

/// Packed matrices by the index of their weight.
pub(super) struct Packed {
    _arena: Arena,
    operands: BTreeMap<u32, Operand>,
}

/// Bytes of a file that are packed in one go: their pages are given back behind it, so that
/// weights are hardly ever in memory twice.
const PIECE: usize = 2 << 20;

/// Some panels of a matrix.
struct Piece<'a> {
    weight: u32,
    packing: Packing,
    panels: Range<usize>,
    out: &'a mut [u8],
}

impl Packed {
    /// Packs weights of a program, by so many threads.
    pub(super) fn new(
        program: &Program,
        packings: &BTreeMap<u32, Packing>,
        threads: usize,
    ) -> Result<Self> {
        let bytes = packings.values().map(Packing::bytes).sum();
        let mut arena = Arena::new(bytes)?;
        let mut operands = BTreeMap::new();
        let mut first = 0;
        for (weight, packing) in packings {
            let range = first..first + packing.bytes();
            first = range.end;
            operands.insert(*weight, arena.operand(range));
        }
        let pieces = Mutex::new(pieces(packings, arena.bytes()).into_iter());
        let tensors = &*program.tensors;
        std::thread::scope(|scope| {
            let work = || {
                // Bound by a name, the lock would be held while the piece is packed.
                while let Some(piece) = next(&pieces) {
                    piece.pack(tensors);
                }
            };
            for _ in 1..threads {
                // Without another thread this one does it all.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        Ok(Self {
            _arena: arena,
            operands,
        })
    }

    /// The panels of a weight, where it is packed.
    pub(super) fn operand(&self, weight: u32) -> Option<Operand> {
        self.operands.get(&weight).copied()
    }
}

fn next<T>(items: &Mutex<std::vec::IntoIter<T>>) -> Option<T> {
    items.lock().next()
}

/// Cuts the matrices into pieces, each with its part of the memory.
fn pieces<'a>(packings: &BTreeMap<u32, Packing>, mut rest: &'a mut [u8]) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    for (weight, packing) in packings {
        let (bytes, panels) = (packing.panel_bytes(), packing.rows.div_ceil(ROWS));
        let step = (PIECE / bytes.max(1)).max(1);
        for first in (0..panels).step_by(step) {
            let range = first..panels.min(first + step);
            let (out, behind) = rest.split_at_mut(range.len() * bytes);
            rest = behind;
            pieces.push(Piece {
                weight: *weight,
                packing: *packing,
                panels: range,
                out,
            });
        }
    }
    pieces
}

impl Piece<'_> {
    fn pack(self, tensors: &dyn Tensors) {
        let Packing { layout, rows, cols } = self.packing;
        let row_bytes = layout.row_bytes(cols);
        let weight = tensors.weight(self.weight);
        let first_row = self.panels.start * ROWS;
        let last_row = rows.min(self.panels.end * ROWS);
        let mut rows = weight[first_row * row_bytes..last_row * row_bytes].chunks_exact(row_bytes);
        for panel in self.out.chunks_exact_mut(self.packing.panel_bytes()) {
            let mut lanes = [&weight[..0]; ROWS];
            let mut count = 0;
            for (lane, row) in lanes.iter_mut().zip(rows.by_ref()) {
                *lane = row;
                count += 1;
            }
            layout.pack(&lanes[..count], panel);
        }
        tensors.release(self.weight, first_row * row_bytes..last_row * row_bytes);
    }
}
