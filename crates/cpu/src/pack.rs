//! Packs weights into panels in huge pages, once, using all threads.

use super::memory::{Arena, Operand};
use super::panel::Pack;
use super::simd::rows::ROWS;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::ops::Range;
use tabla_core::error::{Result, bail};
use tabla_core::exec::{Layout, Program, Tensors};
use tabla_core::reserve;
use tabla_quant::Matrix;

/// Matrix to pack.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackSpec {
    /// Packing method.
    pub(super) pack: Pack,
    /// Rows.
    pub(super) rows: usize,
    /// Elements of a row.
    pub(super) cols: usize,
}

impl PackSpec {
    fn panel_bytes(&self) -> usize {
        self.pack.panel_bytes(self.cols)
    }

    /// Bytes of all panels.
    pub(super) fn bytes(&self) -> usize {
        self.rows.div_ceil(ROWS) * self.panel_bytes()
    }

    /// Whether the panels of the same weight are the same. Its storage type determines the rest of
    /// the packing method.
    fn has_panels_of(&self, other: &Self) -> bool {
        discriminant(&self.pack) == discriminant(&other.pack)
            && [self.rows, self.cols] == [other.rows, other.cols]
    }
}

/// Matrices to pack, by weight index.
pub(super) type PackSpecs = BTreeMap<u32, PackSpec>;

/// Panels of packed matrices, by weight index.
pub(super) type Panels = BTreeMap<u32, (Operand, PackSpec)>;

/// Returns the panels in a compiled model.
///
/// # Errors
///
/// `Format` for a weight whose panels have another size.
pub(super) fn stored(tensors: &dyn Tensors, specs: &PackSpecs) -> Result<Panels> {
    let mut panels = Panels::new();
    for (weight, spec) in specs {
        let Some(bytes) = tensors.in_layout(*weight, Layout::Panels) else {
            continue;
        };
        if bytes.len() != spec.bytes() {
            bail!(
                Format,
                "weight {weight}: expected panels of {} bytes, got {}",
                spec.bytes(),
                bytes.len()
            );
        }
        panels.insert(*weight, (Operand::of(bytes), *spec));
    }
    Ok(panels)
}

/// Returns the weights that are not packed in `panels`.
pub(super) fn unpacked(mut specs: PackSpecs, panels: &Panels) -> PackSpecs {
    specs.retain(|weight, spec| {
        let packed = panels.get(weight);
        packed.is_none_or(|(_, packed)| !packed.has_panels_of(spec))
    });
    specs
}

/// Selects weights whose panels fit into `bytes` bytes, in order of their indices, `last` after the others.
pub(super) fn fitting(specs: &PackSpecs, last: &BTreeSet<u32>, mut bytes: u64) -> BTreeSet<u32> {
    let (late, early): (Vec<_>, Vec<_>) = specs.iter().partition(|spec| last.contains(spec.0));
    let mut selected = BTreeSet::new();
    for (weight, spec) in early.into_iter().chain(late) {
        if let Some(rest) = bytes.checked_sub(spec.bytes() as u64) {
            bytes = rest;
            selected.insert(*weight);
        }
    }
    selected
}

/// Packed matrices and their memory.
pub(super) struct PackedWeights {
    arena: Arena,
    pub(super) panels: Panels,
}

/// Bytes that are packed at a time. Block formats are read to a buffer, which should stay in the L2
/// cache. Other weights are mapped; their pages are released afterwards, in huge pages, so that
/// weights are rarely in memory twice.
const READ_BYTES: usize = 512 << 10;
const MAPPED_BYTES: usize = 2 << 20;

/// Some panels of a matrix, packed by one thread.
struct PackJob<'a> {
    weight: u32,
    spec: PackSpec,
    panels: Range<usize>,
    out: &'a mut [u8],
}

impl PackedWeights {
    /// Packs weights of a program using `threads` threads.
    pub(super) fn new(program: &Program, specs: &PackSpecs, threads: usize) -> Result<Self> {
        let sum = |sum: usize, spec: &PackSpec| sum.checked_add(spec.bytes());
        let Some(bytes) = specs.values().try_fold(0, sum) else {
            bail!(Memory, "packed weights exceed the address space");
        };
        let mut arena = Arena::new(bytes)?;
        arena.use_huge_pages(bytes);
        let mut panels = BTreeMap::new();
        let mut first = 0;
        for (weight, spec) in specs {
            let range = first..first + spec.bytes();
            first = range.end;
            panels.insert(*weight, (arena.operand(range), *spec));
        }
        let jobs = Mutex::new(spread_jobs(jobs(specs, arena.bytes()), threads).into_iter());
        let failed = Mutex::new(None);
        let tensors = &*program.tensors;
        std::thread::scope(|scope| {
            let work = || {
                let mut buffer = Vec::new();
                // Binding the guard to a name would hold the lock while the job runs.
                while failed.lock().is_none()
                    && let Some(job) = next(&jobs)
                {
                    if let Err(error) = job.pack(tensors, &mut buffer) {
                        failed.lock().get_or_insert(error);
                    }
                }
            };
            for _ in 1..threads {
                // If a thread cannot be started, the others do its work.
                let thread = reserve::thread("tabla-pack");
                let _ = thread.and_then(|thread| thread.spawn_scoped(scope, work));
            }
            work();
        });
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        Ok(Self { arena, panels })
    }

    /// Returns all panels, before any step refers to them.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.arena.bytes()
    }
}

/// Reorders jobs so that the next one is `1 / shares` of all further on: neighbours, which may
/// share pages, are not packed at the same time.
fn spread_jobs<T>(items: Vec<T>, shares: usize) -> Vec<T> {
    let share = items.len().div_ceil(shares).max(1);
    let mut items: Vec<_> = items.into_iter().enumerate().collect();
    items.sort_by_key(|(i, _)| (i % share, i / share));
    items.into_iter().map(|(_, item)| item).collect()
}

fn next<T>(items: &Mutex<std::vec::IntoIter<T>>) -> Option<T> {
    items.lock().next()
}

/// Divides the matrices into jobs, each with its part of the memory.
fn jobs<'a>(specs: &PackSpecs, mut rest: &'a mut [u8]) -> Vec<PackJob<'a>> {
    let mut jobs = Vec::new();
    for (weight, spec) in specs {
        let (bytes, panels) = (spec.panel_bytes(), spec.rows.div_ceil(ROWS));
        let job_bytes = match spec.pack {
            Pack::Blocks(_) => READ_BYTES,
            _ => MAPPED_BYTES,
        };
        let step = (job_bytes / bytes.max(1)).max(1);
        for first in (0..panels).step_by(step) {
            let range = first..panels.min(first + step);
            let (out, tail) = rest.split_at_mut(range.len() * bytes);
            rest = tail;
            jobs.push(PackJob {
                weight: *weight,
                spec: *spec,
                panels: range,
                out,
            });
        }
    }
    jobs
}

impl PackJob<'_> {
    /// Packs the panels. `buffer` may have any content.
    fn pack(self, tensors: &dyn Tensors, buffer: &mut Vec<u8>) -> Result<()> {
        let (weight, PackSpec { pack, rows, cols }) = (self.weight, self.spec);
        let own = self.panels.start * ROWS..rows.min(self.panels.end * ROWS);
        if let Pack::Blocks(layout) = pack {
            let row_bytes = layout.row_bytes(cols);
            buffer.resize(own.len() * row_bytes, 0);
            tensors.read(weight, own.start * row_bytes, buffer)?;
            let matrix = Matrix {
                bytes: buffer,
                scales: None,
                rows: own.len(),
                cols,
            };
            self.pack_rows(&matrix, 0..own.len());
        } else {
            let matrix = Matrix {
                bytes: tensors.weight(weight),
                scales: tensors.scales(weight),
                rows,
                cols,
            };
            let row_bytes = matrix.bytes.len() / rows.max(1);
            self.pack_rows(&matrix, own.clone());
            tensors.release(weight, own.start * row_bytes..own.end * row_bytes);
        }
        Ok(())
    }

    fn pack_rows(self, matrix: &Matrix<'_>, rows: Range<usize>) {
        let panels = self.out.chunks_exact_mut(self.spec.panel_bytes());
        for (first, panel) in rows.clone().step_by(ROWS).zip(panels) {
            let end = rows.end.min(first + ROWS);
            self.spec.pack.pack(matrix, first..end, panel);
        }
    }
}
