//! Matrix products of packed BF16 weights with AMX, in tiles of 16 tokens, 16 rows and 32 columns.
//!
//! Weights are stored in tile order. Sums use the same chains of products as `float_tiles`, which
//! reads weights in file order, so the results have the same bits. A single token uses vectors
//! instead, whose loads run ahead of memory stalls, with the same chains.

use super::amx::{STEP, bf16_shape};
use crate::descriptors::{ActivationFormat, MatmulShape, Write};
use crate::kernel::{Launch, Request};
use crate::memory::{Args, Out};
use crate::panel::{FLOATS, Pack};
use crate::simd::ProofKernel;
use crate::simd::Simd;
use crate::simd::amx::{Amx, ROW_BYTES, Strides, SumTile, TILE, TileShape};
use crate::simd::avx512::Avx512;
use crate::work::Split;
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_core::op::operands::gemm::{AT, COUNT};

/// Tokens multiplied at once.
const PAIR: usize = 2 * TILE;

/// Steps after which sums are written to the output, and tokens per pass over the panels: these
/// columns of the tokens stay in the L2 cache.
const STEPS: usize = 64;
const TOKENS: usize = 256;

/// Steps of two panels that stay in the L1 cache together with the prefetched ones.
const L1_STEPS: usize = 12;

/// Bytes of a step of a panel.
const STEP_BYTES: usize = TILE * ROW_BYTES;

struct FloatPanels;

impl ProofKernel<Amx> for FloatPanels {
    #[inline(always)]
    fn run(s: Amx, mut args: Args<'_>) {
        let &MatmulShape {
            rows, cols, write, ..
        } = args.matmul();
        let (live, range) = (args.active_rows(), args.range());
        let (w, x) = (args.bytes(AT.w), args.bytes(COUNT));
        let panel_bytes = FLOATS.panel_bytes(cols);
        let mut y = PanelOutput {
            y: args.open(AT.y),
            rows,
        };
        if args.tokens() == 1 {
            for panel in range {
                let w = &w[panel * panel_bytes..];
                y.gemv_panel(s, panel, write, w, &x[..cols / STEP * ROW_BYTES]);
            }
            return;
        }
        let all = cols / STEP;
        let tile_bytes = all * STEP_BYTES;
        // A single pair of tiles stays in cache and is processed along all columns.
        let single_pass = live <= PAIR;
        let (span_steps, chunk_steps) = if single_pass {
            (all, L1_STEPS)
        } else {
            (STEPS, STEPS)
        };
        for first in (0..live).step_by(TOKENS) {
            let tokens = first..live.min(first + TOKENS);
            for from in (0..all).step_by(span_steps) {
                let to = all.min(from + span_steps);
                for panel in range.clone().step_by(2) {
                    let panels = panel..range.end.min(panel + 2);
                    for t in tokens.clone().step_by(PAIR) {
                        let tokens = t..tokens.end.min(t + PAIR);
                        let shape = TileShape {
                            rows: tokens.len(),
                            lanes: TILE,
                            wide: panels.len() > 1,
                        };
                        let mut sums = [SumTile::ZERO; 4];
                        if write == Write::Add || from > 0 {
                            y.load(&panels, &tokens, &mut sums);
                        }
                        for step in (from..to).step_by(chunk_steps) {
                            let steps = chunk_steps.min(to - step);
                            let w = [panels.start, panels.end - 1]
                                .map(|panel| &w[panel * panel_bytes + step * STEP_BYTES..]);
                            if single_pass {
                                let (bytes, next) = match chunk_steps.min(to - step - steps) {
                                    0 => ((to - step) * STEP_BYTES + panel_bytes, chunk_steps),
                                    next => (steps * STEP_BYTES, next),
                                };
                                prefetch_panels(
                                    s,
                                    &w[..panels.len()],
                                    bytes..bytes + next * STEP_BYTES,
                                );
                            }
                            let x = &x[t / TILE * tile_bytes + step * STEP_BYTES..];
                            let strides = Strides::tiles(tile_bytes, TILE);
                            let span = shape.span(x, strides, w, STEP_BYTES, steps);
                            s.bf16(&[span], &mut sums);
                        }
                        y.store(&panels, &tokens, &sums);
                    }
                }
            }
        }
    }
}

/// Prefetches the weights that are read next: these bytes of each panel.
#[inline(always)]
fn prefetch_panels(s: Amx, w: &[&[u8]], bytes: Range<usize>) {
    for w in w {
        for line in bytes.clone().step_by(ROW_BYTES) {
            Avx512::from(s).prefetch(w, line);
        }
    }
}

/// The output, `[tokens, rows]`, loaded into and stored from tiles of sums.
struct PanelOutput<'a> {
    y: Out<'a, f32>,
    rows: usize,
}

impl PanelOutput<'_> {
    /// Multiplies a panel by a single token.
    #[inline(always)]
    fn gemv_panel(&mut self, s: Amx, panel: usize, write: Write, w: &[u8], x: &[u8]) {
        let vectors = Avx512::from(s);
        let y = self.y.panels(0, self.rows, panel..panel + 1, TILE);
        let mut sums = [0.0; TILE];
        if write == Write::Add {
            sums[..y.len()].copy_from_slice(y);
        }
        let mut sum = vectors.load(&sums);
        let steps = w.as_chunks().0.as_chunks::<TILE>().0;
        for (w, x) in steps.iter().zip(x.as_chunks().0) {
            sum = s.bf16_gemv(w, x, sum);
        }
        vectors.store(&mut sums, sum);
        y.copy_from_slice(&sums[..y.len()]);
    }

    #[inline(always)]
    fn load(&mut self, panels: &Range<usize>, tokens: &Range<usize>, sums: &mut [SumTile; 4]) {
        for (at, t) in tokens.clone().enumerate() {
            let y = self.y.panels(t, self.rows, panels.clone(), TILE);
            for (y, sums) in y.chunks(TILE).zip(&mut sums[at / TILE * 2..]) {
                sums.0[at % TILE][..y.len()].copy_from_slice(y);
            }
        }
    }

    #[inline(always)]
    fn store(&mut self, panels: &Range<usize>, tokens: &Range<usize>, sums: &[SumTile; 4]) {
        for (at, t) in tokens.clone().enumerate() {
            let y = self.y.panels(t, self.rows, panels.clone(), TILE);
            for (y, sums) in y.chunks_mut(TILE).zip(&sums[at / TILE * 2..]) {
                y.copy_from_slice(&sums.0[at % TILE][..y.len()]);
            }
        }
    }
}

/// Returns the kernel of a matrix product with packed BF16 weights.
pub(crate) fn link(request: &Request<'_>, matmul: MatmulShape) -> Option<Launch> {
    if request.variant != Some(DType::Bf16)
        || !request.packed
        || !matmul.cols.is_multiple_of(FLOATS.columns)
    {
        return None;
    }
    let entry = request.isa.tiles::<FloatPanels>()?;
    let panels = Split::Units(matmul.rows.div_ceil(TILE));
    Some(Launch {
        quantize: Some(bf16_shape(matmul, ActivationFormat::Bf16Rows)),
        pack: Some(Pack::Blocks(&FLOATS)),
        ..request.launch_entry(entry, panels, matmul.tokens)
    })
}
