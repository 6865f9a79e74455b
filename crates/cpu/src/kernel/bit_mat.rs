//! `y[t, r] = (W[r, :] . q[t, :]) d[t] scale`, the digits of a ternary W; and its adding twin
//!
//! A row of W is unpacked once for all the tokens that a core's cache holds. Sums are integers, so
//! that every level and the shader give the same bits; the sum of the twin is one of floats.

#[cfg(target_arch = "x86_64")]
use super::bit_tiles;
use super::chunks::{self, Read};
use super::{Launch, Request};
use crate::memory::{Args, Out};
use crate::panel::{Pack, digits};
use crate::simd::rows::ROWS;
use crate::simd::{Kernel, Simd, Task};
use crate::step::Split;
use tabla_core::error::Result;
use tabla_core::op::operands::bit_mat::{AT, COUNT};
use tabla_core::op::params::bit_mat::Params;
use tabla_quant::{CHUNK, Chunk};

/// Bytes of activations that stay in a core's cache while the matrix passes by.
const ACTIVATIONS_BYTES: usize = 192 << 10;

/// Rows unpacked one after the other, as the file has them.
struct BitMat<const ADD: bool>;

impl<const ADD: bool> Kernel for BitMat<ADD> {
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "rounded as the shader rounds")]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let (rows, cols) = (p.rows as usize, p.cols as usize);
        let padded = cols.next_multiple_of(64);
        let (q, d): (&[i8], _) = (bytemuck::cast_slice(args.bytes(AT.q)), args.f32s(AT.d));
        let m = args.matrix(rows, cols);
        let unpack = args.unpack();
        let (range, live) = (args.range(), args.live());
        let mut y = args.open::<f32>(AT.y);
        let mut scratch = args.open::<i8>(COUNT);
        let mut chunk = Chunk::ZERO;
        let block = (ACTIVATIONS_BYTES / padded.max(1)).max(1);
        for first in (0..live).step_by(block) {
            for r in range.clone() {
                let row = scratch.whole();
                for (at, part) in (0..cols).step_by(CHUNK).zip(row.chunks_exact_mut(CHUNK)) {
                    unpack(&m, r, at, &mut chunk);
                    part.copy_from_slice(&chunk.q);
                }
                for t in first..live.min(first + block) {
                    let x = &q[t * padded..][..padded];
                    let sum = s.dot_i8(row[..padded].as_chunks().0, x.as_chunks().0);
                    let y = &mut y.columns(t, rows, 1)[r - range.start];
                    put::<ADD>(y, sum as f32 * (d[t] * p.scale));
                }
            }
        }
    }
}

#[inline(always)]
pub(super) fn put<const ADD: bool>(y: &mut f32, sum: f32) {
    *y = if ADD { *y + sum } else { sum };
}

/// Panels of packed digits.
pub(super) struct BitPanels<const ADD: bool>;

impl<const ADD: bool> Kernel for BitPanels<ADD> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let (rows, padded) = (p.rows as usize, (p.cols as usize).next_multiple_of(64));
        let (q, d) = (args.bytes(AT.q), args.f32s(AT.d));
        let bytes = digits::panel_bytes(p.cols as usize);
        let w = args.bytes(AT.w);
        let (range, live) = (args.range(), args.live());
        let mut y = args.open::<f32>(AT.y);
        let mut starts = args.open::<i32>(COUNT);
        let starts = starts.whole();
        // Digits are stored plus 1: their product begins at what that adds.
        for (start, q) in starts[..live].iter_mut().zip(q.chunks_exact(padded)) {
            *start = -q.iter().map(|q| i32::from(q.cast_signed())).sum::<i32>();
        }
        let block = (ACTIVATIONS_BYTES / padded).next_multiple_of(S::TOKENS);
        for first in (0..live).step_by(block) {
            let end = live.min(first + block);
            for panel in range.clone() {
                let mut t = first;
                while t < end {
                    macro_rules! tile {
                        ($tokens:literal) => {{
                            s.apart(Tile::<ADD, $tokens> {
                                panel: &w[panel * bytes..][..bytes],
                                x: std::array::from_fn(|i| &q[(t + i) * padded..][..padded]),
                                d: &d[t..],
                                starts: &starts[t..],
                                scale: p.scale,
                                first: [t, panel],
                                rows,
                                y: &mut y,
                            });
                            t += $tokens;
                        }};
                    }
                    let tokens = (end - t).min(S::TOKENS);
                    // The conditions on a level are decided where the function is instantiated.
                    if const { S::TOKENS > 8 } && tokens > 15 {
                        tile!(16);
                    } else if const { S::TOKENS > 4 } && tokens > 7 {
                        tile!(8);
                    } else if tokens > 3 {
                        tile!(4);
                    } else if tokens > 1 {
                        tile!(2);
                    } else {
                        tile!(1);
                    }
                }
            }
        }
    }
}

/// The results of a panel for some tokens.
struct Tile<'a, 'b, const ADD: bool, const T: usize> {
    panel: &'a [u8],
    x: [&'a [u8]; T],
    d: &'a [f32],
    starts: &'a [i32],
    scale: f32,
    /// The first token and the panel.
    first: [usize; 2],
    rows: usize,
    y: &'a mut Out<'b, f32>,
}

impl<S: Simd, const ADD: bool, const T: usize> Task<S> for Tile<'_, '_, ADD, T> {
    #[inline(always)]
    fn run(self, s: S) {
        let starts = self.starts.first_chunk().expect("one for each token");
        let sums = digits::dots::<S, T>(s, self.panel, self.x, *starts);
        let [token, panel] = self.first;
        for (t, sums) in sums.into_iter().enumerate() {
            let mut column = [0.0; ROWS];
            s.put_column(&mut column, s.floats(sums));
            let scale = self.d[t] * self.scale;
            let y = self.y.panels(token + t, self.rows, panel..panel + 1, ROWS);
            for (y, sum) in y.iter_mut().zip(column) {
                put::<ADD>(y, sum * scale);
            }
        }
    }
}

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    link_as::<false>(request)
}

pub(super) fn link_as<const ADD: bool>(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let (rows, cols) = (p.rows as usize, p.cols as usize);
    let unpack = chunks::unpacker(request.isa, request.variant)?;
    if request.packed {
        let panels = Split::Units(rows.div_ceil(ROWS));
        let launch = Launch {
            scratch: p.tokens as usize * size_of::<i32>(),
            pack: Some(Pack::Digits(unpack)),
            ..request.launch::<BitPanels<ADD>>(panels, p.tokens)
        };
        #[cfg(target_arch = "x86_64")]
        if p.tokens > bit_tiles::FEW
            && let Some((entry, scratch)) = bit_tiles::link::<ADD>(request, cols)
        {
            let scratch = launch.scratch.max(scratch);
            return Ok(Launch {
                entry,
                scratch,
                ..launch
            });
        }
        return Ok(launch);
    }
    Ok(Launch {
        scratch: cols.next_multiple_of(CHUNK),
        read: Some(Read::Ints(unpack)),
        ..request.launch::<BitMat<ADD>>(Split::Units(rows), p.tokens)
    })
}
