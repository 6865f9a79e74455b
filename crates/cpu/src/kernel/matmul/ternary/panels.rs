//! Ternary products with packed weights: panels of sixteen rows.

use crate::descriptors::Write;
use crate::memory::{Args, Out};
use crate::panel::digits;
use crate::simd::rows::ROWS;
use crate::simd::{Kernel, Simd, Task, Uses};
use tabla_core::op::operands::bit_mat::{AT, COUNT};
use tabla_core::op::params::bit_mat::Params;

/// Bytes of activations that stay in cache while the matrix is read.
pub(crate) const ACTIVATIONS_BYTES: usize = 192 << 10;

#[inline(always)]
pub(super) fn write_sum(write: Write, y: &mut f32, sum: f32) {
    *y = match write {
        Write::Store => sum,
        Write::Add => *y + sum,
    };
}

/// Returns how sums are written by kernels with this constant.
pub(crate) const fn write<const ADD: bool>() -> Write {
    if ADD { Write::Add } else { Write::Store }
}

/// Kernel for packed panels.
pub(crate) struct BitPanels<const ADD: bool>;

impl<const ADD: bool> Kernel for BitPanels<ADD> {
    const USES: Uses = Uses::ByteProducts;

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let (rows, padded) = (p.rows as usize, (p.cols as usize).next_multiple_of(64));
        let (q, d) = (args.bytes(AT.q), args.f32s(AT.d));
        let bytes = digits::panel_bytes(p.cols as usize);
        let w = args.bytes(AT.w);
        let (range, live) = (args.range(), args.active_rows());
        let mut y = args.open::<f32>(AT.y);
        let mut starts = args.open::<i32>(COUNT);
        let starts = starts.whole();
        // Codes are the ternary values plus 1: the start value compensates for it.
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
                            s.outlined(PanelTile::<$tokens> {
                                write: const { write::<ADD>() },
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
                    // Conditions on the level are evaluated at instantiation.
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

/// Computes the results of a panel for `T` tokens.
struct PanelTile<'a, 'b, const T: usize> {
    write: Write,
    panel: &'a [u8],
    x: [&'a [u8]; T],
    d: &'a [f32],
    starts: &'a [i32],
    scale: f32,
    /// First token, and the panel.
    first: [usize; 2],
    rows: usize,
    y: &'a mut Out<'b, f32>,
}

impl<S: Simd, const T: usize> Task<S> for PanelTile<'_, '_, T> {
    #[inline(always)]
    fn run(self, s: S) {
        let starts = self.starts.first_chunk().expect("one per token");
        let sums = digits::dots::<S, T>(s, self.panel, self.x, *starts);
        let [token, panel] = self.first;
        for (t, sums) in sums.into_iter().enumerate() {
            let mut column = [0.0; ROWS];
            s.put_column(&mut column, s.floats(sums));
            let scale = self.d[t] * self.scale;
            let y = self.y.panels(token + t, self.rows, panel..panel + 1, ROWS);
            for (y, sum) in y.iter_mut().zip(column) {
                write_sum(self.write, y, sum * scale);
            }
        }
    }
}
