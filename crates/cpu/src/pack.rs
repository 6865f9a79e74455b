//! Packs weights into panels in huge pages, once, using all threads.

use super::memory::{Arena, Operand};
use super::panel::Pack;
use super::simd::rows::ROWS;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use tabla_core::error::Result;
use tabla_core::exec::{Program, Tensors};
use tabla_quant::Matrix;

/// Matrix to pack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packing {
    /// Packing method.
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

    /// Bytes of all panels.
    pub(super) fn bytes(&self) -> usize {
        self.rows.div_ceil(ROWS) * self.panel_bytes()
    }
}

/// Packed matrices by weight index.
pub(super) struct Packed {
    _arena: Arena,
    panels: BTreeMap<u32, (Operand, Pack)>,
}

/// Bytes of the file that are packed at a time. Their pages are released afterwards, so that
/// weights are rarely in memory twice.
const PIECE: usize = 2 << 20;

/// Some panels of a matrix, packed by one thread.
struct Piece<'a> {
    weight: u32,
    packing: Packing,
    panels: Range<usize>,
    out: &'a mut [u8],
}

impl Packed {
    /// Packs weights of a program using `threads` threads.
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
                // Binding the guard to a name would hold the lock while the job runs.
                while let Some(piece) = next(&pieces) {
                    piece.pack(tensors);
                }
            };
            for _ in 1..threads {
                // If a thread cannot be started, the others do its work.
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

    /// Returns the panels of a weight and their packing method, if it is packed.
    pub(super) fn panels(&self, weight: u32) -> Option<(Operand, Pack)> {
        self.panels.get(&weight).copied()
    }
}

/// Reorders jobs so that the next one is `1 / shares` of all further on: neighbours, which may
/// share pages, are not packed at the same time.
fn apart<T>(things: Vec<T>, shares: usize) -> Vec<T> {
    let share = things.len().div_ceil(shares).max(1);
    let mut things: Vec<_> = things.into_iter().enumerate().collect();
    things.sort_by_key(|(i, _)| (i % share, i / share));
    things.into_iter().map(|(_, thing)| thing).collect()
}

fn next<T>(items: &Mutex<std::vec::IntoIter<T>>) -> Option<T> {
    items.lock().next()
}

/// Divides the matrices into jobs, each with its part of the memory.
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
