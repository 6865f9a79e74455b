//! Where the stretches of a matrix come from: panels, rows that become panels on the way, or
//! chunks of any type that can be read as integers.

use crate::descriptors::Product;
use crate::memory::Args;
use crate::panel::affine::{self, Width};
use crate::panel::{
    self, Codes, Format, Kind, Panel, STRETCH, Sink, StoredCodes, StoredNumbers, Stretch, WORDS,
};
use crate::simd::rows::{ROWS, Rows};
use crate::simd::{Simd, Task};
use std::marker::PhantomData;
use std::ops::Range;
use tabla_core::op::operands::gemm::AT;
use tabla_quant::{CHUNK, Chunk};

/// Columns of a panel that are read at once: beside their codes a tile of tokens stays in the
/// nearest cache.
pub(super) const COLUMNS: usize = 512;

/// Where stretches come from.
pub(super) trait Source {
    type Codes: Codes;

    /// Bytes that it needs to read [`COLUMNS`].
    fn buffer_bytes() -> usize {
        0
    }

    /// Gives the stretches of some columns of a panel, at most [`COLUMNS`].
    fn stretches<S: Simd, K: Sink<S>>(s: S, args: &Args<'_>, at: At, buffer: &mut [u8], sink: K);
}

/// Columns of a panel of a matrix.
pub(super) struct At {
    pub(super) panel: usize,
    pub(super) columns: Range<usize>,
}

impl At {
    /// The rows of the panel.
    fn rows(&self, rows: usize) -> Range<usize> {
        self.panel * ROWS..rows.min((self.panel + 1) * ROWS)
    }
}

/// Reads stretches in a function of its own: there is one for each format and sink, whatever
/// kernel they are read for.
struct Read<'a, F, K> {
    panel: Panel<'a>,
    columns: Range<usize>,
    sink: K,
    format: PhantomData<F>,
}

impl<F: Format, S: Simd, K: Sink<S>> Task<S> for Read<'_, F, K> {
    #[inline(always)]
    fn run(self, s: S) {
        panel::stretches::<F, S, K>(s, &self.panel, self.columns, self.sink);
    }
}

/// Weights that link packed.
pub(super) struct Packed<F>(PhantomData<F>);

impl<F: Format> Source for Packed<F> {
    type Codes = F::Codes;

    #[inline(always)]
    fn stretches<S: Simd, K: Sink<S>>(s: S, args: &Args<'_>, at: At, _: &mut [u8], sink: K) {
        let layout = const { &F::LAYOUT };
        s.apart(Read::<F, K> {
            panel: layout.open_at(args.bytes(AT.w), at.panel, args.product().cols),
            columns: at.columns,
            sink,
            format: PhantomData,
        });
    }
}

/// Weights as the file has them, packed on the way.
pub(super) struct Mapped<F>(PhantomData<F>);

impl<F: Format> Source for Mapped<F> {
    type Codes = F::Codes;

    fn buffer_bytes() -> usize {
        F::LAYOUT.panel_bytes(COLUMNS)
    }

    #[inline(always)]
    fn stretches<S: Simd, K: Sink<S>>(s: S, args: &Args<'_>, at: At, buffer: &mut [u8], sink: K) {
        let (layout, shape) = (const { &F::LAYOUT }, args.product());
        let (w, row_bytes) = (args.bytes(AT.w), layout.row_bytes(shape.cols));
        let part = layout.row_bytes(at.columns.start)..layout.row_bytes(at.columns.end);
        let mut rows = [&w[..0]; ROWS];
        let count = at.rows(shape.rows).len();
        for (row, r) in rows.iter_mut().zip(at.rows(shape.rows)) {
            *row = &w[r * row_bytes..][part.clone()];
        }
        // Sixteen short stretches are too short for the processor to foresee the next ones: those
        // behind, or of the next panel.
        let next = if at.columns.end < shape.cols {
            part.len()
        } else {
            ROWS * row_bytes - part.start
        };
        for row in &rows[..count] {
            for line in (0..part.len()).step_by(64) {
                s.prefetch(row, next + line);
            }
        }
        let buffer = &mut buffer[..layout.panel_bytes(at.columns.len())];
        layout.pack(&rows[..count], buffer);
        s.apart(Read::<F, K> {
            panel: layout.open(buffer, at.columns.len()),
            columns: 0..at.columns.len(),
            sink,
            format: PhantomData,
        });
    }
}

/// Affine codes that link packed.
pub(super) struct Affine<W>(PhantomData<W>);

impl<W: Width> Source for Affine<W> {
    type Codes = W::Codes;

    #[inline(always)]
    fn stretches<S: Simd, K: Sink<S>>(s: S, args: &Args<'_>, at: At, _: &mut [u8], sink: K) {
        let Product { cols, groups, .. } = args.product();
        let groups = groups.expect("link found them");
        let bytes = groups.panel_bytes(cols);
        s.apart(affine::Read::<W, K> {
            groups,
            panel: &args.bytes(AT.w)[at.panel * bytes..][..bytes],
            columns: at.columns,
            sink,
            width: PhantomData,
        });
    }
}

/// Weights of any other type that can be read as integers, chunk by chunk.
pub(super) struct Chunks<const HALVES: bool, const MIN: bool>;

impl<const HALVES: bool, const MIN: bool> Source for Chunks<HALVES, MIN> {
    type Codes = Kind<128, HALVES, MIN>;

    #[inline(always)]
    fn stretches<S: Rows, K: Sink<S>>(s: S, args: &Args<'_>, at: At, _: &mut [u8], mut sink: K) {
        const STRETCHES: usize = CHUNK / STRETCH;
        let unpack = args.unpack();
        let Product { rows, cols, .. } = args.product();
        let m = args.matrix(rows, cols);
        let mut chunk = Chunk::ZERO;
        let mut codes = [[[0u8; 4 * ROWS]; WORDS]; STRETCHES];
        let mut numbers = [[[[0.0; ROWS]; 2]; STRETCHES]; 2];
        for first in at.columns.clone().step_by(CHUNK) {
            for (lane, r) in at.rows(rows).enumerate() {
                unpack(&m, r, first, &mut chunk);
                let words = codes.as_flattened_mut().iter_mut();
                for (word, four) in words.zip(chunk.q.as_chunks::<4>().0) {
                    word.as_chunks_mut::<4>().0[lane] = bytemuck::cast(*four);
                }
                for (numbers, groups) in numbers.iter_mut().zip([&chunk.scale, &chunk.min]) {
                    for (column, group) in numbers.as_flattened_mut().iter_mut().zip(groups) {
                        column[lane] = *group;
                    }
                }
            }
            let count = (at.columns.end - first).min(CHUNK) / STRETCH;
            let [scales, mins] = &numbers;
            for (codes, (scale, min)) in codes.iter().zip(scales.iter().zip(mins)).take(count) {
                let mut stretch = stored::<S, Self::Codes>(s, codes, scale, min);
                for code in &mut stretch.codes {
                    *code = s.raise(*code);
                }
                sink.take(stretch);
            }
        }
        sink.end();
    }
}

/// A stretch in memory.
#[inline(always)]
pub(super) fn stored<S: Rows, C: Codes>(
    s: S,
    codes: &StoredCodes,
    scale: &StoredNumbers,
    min: &StoredNumbers,
) -> Stretch<S> {
    let mut stretch = Stretch {
        codes: [s.bytes(&codes[0]); WORDS],
        scale: [s.column(&scale[0]); 2],
        min: [s.splat_float(0.0); 2],
    };
    for (code, word) in stretch.codes.iter_mut().zip(codes) {
        *code = s.bytes(word);
    }
    if C::HALVES {
        stretch.scale[1] = s.column(&scale[1]);
    }
    if C::MIN {
        stretch.min = [s.column(&min[0]), s.column(&min[1])];
    }
    stretch
}
