//! Packing: weights rearranged once, by all threads, into panels in huge pages.

use super::memory::{Arena, Operand};
use super::panel::Pack;
use super::simd::rows::ROWS;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use tabla_core::error::Result;
use tabla_core::exec::{Program, Tensors};
use tabla_quant::Matrix;

/// A matrix to be packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packing {
    /// How.
    pub(super) pack: Pack,
    /// Rows.
    pub(super) rows: usize,
    /// Elements of a row.
    pub(super) cols: usize,
}

impl Packing {
    fn panel_bytes(&self) -> usize {
        self.pack.panel_bytes(self.cols)
    }

    /// Bytes of all its panels.
    pub(super) fn bytes(&self) -> usize {
        self.rows.div_ceil(ROWS) * self.panel_bytes()
    }
}

/// Packed matrices by the index of their weight.
pub(super) struct Packed {
    _arena: Arena,
    panels: BTreeMap<u32, (Operand, Pack)>,
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
        let mut panels = BTreeMap::new();
        let mut first = 0;
        for (weight, packing) in packings {
            let range = first..first + packing.bytes();
            first = range.end;
            panels.insert(*weight, (arena.operand(range), packing.pack));
        }
        let pieces = Mutex::new(apart(pieces(packings, arena.bytes()), threads).into_iter());
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
                let thread = std::thread::Builder::new().name("tabla-pack".to_string());
                let _ = thread.spawn_scoped(scope, work);
            }
            work();
        });
        Ok(Self {
            _arena: arena,
            panels,
        })
    }

    /// The panels of a weight, where it is packed, and how.
    pub(super) fn panels(&self, weight: u32) -> Option<(Operand, Pack)> {
        self.panels.get(&weight).copied()
    }
}

/// The same things, each `1 / shares` of all behind the last one: neighbours, which may share
/// pages, are not in work at one time.
fn apart<T>(things: Vec<T>, shares: usize) -> Vec<T> {
    let share = things.len().div_ceil(shares).max(1);
    let mut things: Vec<_> = things.into_iter().enumerate().collect();
    things.sort_by_key(|(i, _)| (i % share, i / share));
    things.into_iter().map(|(_, thing)| thing).collect()
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
        let Packing { pack, rows, cols } = self.packing;
        let matrix = Matrix {
            bytes: tensors.weight(self.weight),
            scales: tensors.scales(self.weight),
            rows,
            cols,
        };
        let panels = self.out.chunks_exact_mut(self.packing.panel_bytes());
        for (panel, out) in self.panels.clone().zip(panels) {
            pack.pack(&matrix, panel * ROWS..rows.min((panel + 1) * ROWS), out);
        }
        let row_bytes = matrix.bytes.len() / rows.max(1);
        let done = self.panels.start * ROWS..rows.min(self.panels.end * ROWS);
        tensors.release(self.weight, done.start * row_bytes..done.end * row_bytes);
    }
}
