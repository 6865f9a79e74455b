//! Decodes blocks of a matrix from panels, from rows that are packed on the fly, or from chunks of
//! any type that unpacks to integers.

use crate::descriptors::{MatmulShape, Weights};
use crate::memory::Args;
use crate::panel::{
    self, Codes, Format, Panel, PanelBlock, QK, Sink, Sinks, StoredCodes, StoredScales, WORDS,
    affine, is_same, with_format,
};
use crate::simd::rows::{ROWS, Rows};
use crate::simd::{Simd, Task};
use std::marker::PhantomData;
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_core::op::operands::gemm::AT;
use tabla_quant::{CHUNK, Chunk};

/// Columns of a panel decoded at a time: their codes and a tile of tokens fit the L1 cache.
pub(super) const COLUMNS: usize = 512;

/// Columns of some panels of a matrix.
pub(crate) struct PanelColumns {
    pub(crate) panels: Range<usize>,
    pub(crate) columns: Range<usize>,
}

/// Rows of a panel of a matrix with this number of rows.
fn panel_rows(panel: usize, rows: usize) -> Range<usize> {
    panel * ROWS..rows.min((panel + 1) * ROWS)
}

impl Weights {
    /// Bytes of the buffer needed to decode [`COLUMNS`] columns.
    pub(super) fn buffer_bytes(self) -> usize {
        match self {
            Self::Mapped(dtype) => {
                let layout = panel::layout(dtype).expect("link checked the format");
                layout.panel_bytes(COLUMNS)
            }
            _ => 0,
        }
    }
}

/// Decodes some columns of panels: at most [`COLUMNS`] columns of mapped weights, and at most as many
/// as a sink holds. Kernels are compiled per type of codes; the format of the weights is selected
/// here, once per call.
#[inline(always)]
pub(super) fn decode_span<C: Codes, S: Simd, K: Sinks<S>>(
    s: S,
    args: &Args<'_>,
    at: PanelColumns,
    buffer: &mut [u8],
    sinks: K,
) {
    match args.codes().weights {
        Weights::Packed(dtype) | Weights::Mapped(dtype) if const { S::PANELS } => {
            with_format!(dtype, |F| {
                if const { is_same::<C, <F as Format>::Codes>() } {
                    return decode_blocks::<F, S, K>(s, args, at, buffer, sinks);
                }
            });
        }
        Weights::Groups(groups) if const { S::PANELS && affine::is_affine::<C>() } => {
            return decode_groups::<C, S, K>(s, args, groups, at, sinks);
        }
        Weights::Chunks if const { C::MAX == 128 } => {
            return s.outlined(DecodeChunks::<C, K> {
                args,
                at,
                sinks,
                codes: PhantomData,
            });
        }
        _ => {}
    }
    unreachable!("link selects the kernel by the codes of the weights")
}

/// Decodes blocks of packed panels, or of rows that are packed into the buffer.
#[inline(always)]
fn decode_blocks<F: Format, S: Simd, K: Sinks<S>>(
    s: S,
    args: &Args<'_>,
    at: PanelColumns,
    buffer: &mut [u8],
    mut sinks: K,
) {
    let layout = const { &F::LAYOUT };
    let is_mapped = matches!(args.codes().weights, Weights::Mapped(_));
    let (w, cols) = (args.bytes(AT.w), args.matmul().cols);
    for (index, panel) in at.panels.enumerate() {
        let (panel, columns) = if is_mapped {
            let count = at.columns.len();
            let buffer = &mut buffer[..layout.panel_bytes(count)];
            s.outlined(PackRows::<F> {
                args,
                panel,
                columns: at.columns.clone(),
                buffer,
                format: PhantomData,
            });
            (layout.open(buffer, count), 0..count)
        } else {
            (layout.open_at(w, panel, cols), at.columns.clone())
        };
        s.outlined(DecodePanel::<F, _> {
            panel,
            columns,
            sink: sinks.sink(index),
            format: PhantomData,
        });
    }
}

/// Decodes groups of affine codes.
#[inline(always)]
fn decode_groups<C: Codes, S: Simd, K: Sinks<S>>(
    s: S,
    args: &Args<'_>,
    groups: affine::Groups,
    at: PanelColumns,
    mut sinks: K,
) {
    let bytes = groups.panel_bytes(args.matmul().cols);
    for (index, panel) in at.panels.enumerate() {
        s.outlined(affine::DecodeGroups::<C, _> {
            groups,
            panel: &args.bytes(AT.w)[panel * bytes..][..bytes],
            columns: at.columns.clone(),
            sink: sinks.sink(index),
            codes: PhantomData,
        });
    }
}

/// Decodes a panel in a function of its own: there is one per format and sink, shared by all
/// kernels.
struct DecodePanel<'a, F, K> {
    panel: Panel<'a>,
    columns: Range<usize>,
    sink: K,
    format: PhantomData<F>,
}

impl<F: Format, S: Simd, K: Sink<S>> Task<S> for DecodePanel<'_, F, K> {
    #[inline(always)]
    fn run(self, s: S) {
        panel::decode_columns::<F, S, K>(s, &self.panel, self.columns, self.sink);
    }
}

/// Packs columns of the rows of a panel from the file layout.
struct PackRows<'a, 'b, F> {
    args: &'a Args<'b>,
    panel: usize,
    columns: Range<usize>,
    buffer: &'a mut [u8],
    format: PhantomData<F>,
}

impl<F: Format, S: Simd> Task<S> for PackRows<'_, '_, F> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self {
            args,
            panel,
            columns,
            buffer,
            ..
        } = self;
        let (layout, shape) = (const { &F::LAYOUT }, args.matmul());
        let (w, row_bytes) = (args.bytes(AT.w), layout.row_bytes(shape.cols));
        let part = layout.row_bytes(columns.start)..layout.row_bytes(columns.end);
        let mut rows = [&w[..0]; ROWS];
        let count = panel_rows(panel, shape.rows).len();
        for (row, r) in rows.iter_mut().zip(panel_rows(panel, shape.rows)) {
            *row = &w[r * row_bytes..][part.clone()];
        }
        // The hardware prefetcher does not follow sixteen short runs, so prefetch the next ones:
        // the columns that follow, or those of the next panel.
        let next = if columns.end < shape.cols {
            part.len()
        } else {
            ROWS * row_bytes - part.start
        };
        for row in &rows[..count] {
            for line in (0..part.len()).step_by(64) {
                s.prefetch(row, next + line);
            }
        }
        layout.pack(&rows[..count], buffer);
    }
}

/// Decodes weights of any other type as integers, chunk by chunk.
struct DecodeChunks<'a, 'b, C, K> {
    args: &'a Args<'b>,
    at: PanelColumns,
    sinks: K,
    codes: PhantomData<C>,
}

impl<C: Codes, S: Simd, K: Sinks<S>> Task<S> for DecodeChunks<'_, '_, C, K> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self {
            args,
            at,
            mut sinks,
            ..
        } = self;
        let mut chunks = PanelChunks::ZERO;
        for (index, panel) in at.panels.enumerate() {
            let mut sink = sinks.sink(index);
            for first in at.columns.clone().step_by(CHUNK) {
                s.outlined(UnpackChunks {
                    args,
                    panel,
                    first,
                    to: &mut chunks,
                });
                let count = (at.columns.end - first).min(CHUNK) / QK;
                let PanelChunks {
                    codes,
                    scales,
                    mins,
                } = &chunks;
                for (codes, (scale, min)) in codes.iter().zip(scales.iter().zip(mins)).take(count) {
                    let mut block = load_block::<S, C>(s, codes, scale, min);
                    for code in &mut block.codes {
                        *code = s.offset_signed(*code);
                    }
                    sink.push(block);
                }
            }
            sink.finish();
        }
    }
}

/// A chunk of the rows of a panel.
struct PanelChunks {
    codes: [StoredCodes; CHUNK / QK],
    scales: [StoredScales; CHUNK / QK],
    mins: [StoredScales; CHUNK / QK],
}

impl PanelChunks {
    const ZERO: Self = Self {
        codes: [[[0; 4 * ROWS]; WORDS]; CHUNK / QK],
        scales: [[[0.0; ROWS]; 2]; CHUNK / QK],
        mins: [[[0.0; ROWS]; 2]; CHUNK / QK],
    };
}

/// Unpacks the chunks of a panel that start at a column. It is compiled once for all sinks.
struct UnpackChunks<'a, 'b> {
    args: &'a Args<'b>,
    panel: usize,
    first: usize,
    to: &'a mut PanelChunks,
}

impl<S: Simd> Task<S> for UnpackChunks<'_, '_> {
    #[inline(always)]
    fn run(self, _: S) {
        let Self { args, to, .. } = self;
        let unpack = args.unpack();
        let &MatmulShape { rows, cols, .. } = args.matmul();
        let m = args.matrix(rows, cols);
        let mut chunk = Chunk::ZERO;
        for (lane, r) in panel_rows(self.panel, rows).enumerate() {
            unpack(&m, r, self.first, &mut chunk);
            let words = to.codes.as_flattened_mut().iter_mut();
            for (word, four) in words.zip(chunk.q.as_chunks::<4>().0) {
                word.as_chunks_mut::<4>().0[lane] = bytemuck::cast(*four);
            }
            let numbers = [(&mut to.scales, &chunk.scale), (&mut to.mins, &chunk.min)];
            for (numbers, groups) in numbers {
                for (column, group) in numbers.as_flattened_mut().iter_mut().zip(groups) {
                    column[lane] = *group;
                }
            }
        }
    }
}

/// Loads a decoded block from memory.
#[inline(always)]
pub(super) fn load_block<S: Rows, C: Codes>(
    s: S,
    codes: &StoredCodes,
    scale: &StoredScales,
    min: &StoredScales,
) -> PanelBlock<S> {
    let mut block = PanelBlock {
        codes: [s.bytes(&codes[0]); WORDS],
        scale: [s.column(&scale[0]); 2],
        min: [s.splat_float(0.0); 2],
    };
    for (code, word) in block.codes.iter_mut().zip(codes) {
        *code = s.bytes(word);
    }
    if C::HALVES {
        block.scale[1] = s.column(&scale[1]);
    }
    if C::MIN {
        block.min = [s.column(&min[0]), s.column(&min[1])];
    }
    block
}
