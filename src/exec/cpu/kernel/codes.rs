//! Products of codes and int8 activations, sixteen rows of weights side by side.
//!
//! The sum of a row and a token runs over stretches of 32 columns: exact integers within one,
//! then `sum = ints * (scale d) + sum`, in the order of the columns. Nothing else touches it, so
//! a token's result is the same bits alone, in a batch of any size, on any number of threads,
//! and from packed weights as from mapped ones.

use super::product::Sizes;
use super::quantise::{Block, Shape, Tiles};
use super::{Launch, Request};
use crate::dtype::DType;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::panel::{
    self, Codes, Format, STRETCH, Sink, StoredCodes, StoredNumbers, Stretch, WORDS,
};
use crate::exec::cpu::simd::rows::{Column, ROWS, Rows};
use crate::exec::cpu::simd::{Isa, Kernel, Simd, Unpack};
use crate::exec::cpu::step::Split;
use crate::quant::{CHUNK, Chunk};
use std::marker::PhantomData;
use std::ops::Range;

/// Columns of a panel that are read at once: their codes stay in the nearest cache while all
/// tokens pass by.
const COLUMNS: usize = 1024;

/// Where stretches come from.
trait Source: Codes {
    /// Bytes that it needs to read [`COLUMNS`].
    fn buffer_bytes() -> usize;

    /// Gives the stretches of some columns of a panel, at most [`COLUMNS`].
    fn stretches<S: Rows, K: Sink<S>>(
        s: S,
        args: &Args<'_>,
        at: At,
        buffer: &mut [u8],
        sink: &mut K,
    );
}

/// Columns of a panel of a matrix.
struct At {
    rows: usize,
    cols: usize,
    panel: usize,
    columns: Range<usize>,
}

impl At {
    /// The rows of the panel.
    fn rows(&self) -> Range<usize> {
        self.panel * ROWS..self.rows.min((self.panel + 1) * ROWS)
    }
}

macro_rules! codes_of {
    ($($source:ty, $codes:ty;)+) => {
        $(
            impl<F: Format> Codes for $source {
                const MAX: u8 = <$codes>::MAX;
                const OFFSET: i32 = <$codes>::OFFSET;
                const HALVES: bool = <$codes>::HALVES;
                const MIN: bool = <$codes>::MIN;
            }
        )+
    };
}
codes_of! {
    Packed<F>, F;
    Mapped<F>, F;
}

/// Weights that link packed.
struct Packed<F>(PhantomData<F>);

impl<F: Format> Source for Packed<F> {
    fn buffer_bytes() -> usize {
        0
    }

    #[inline(always)]
    fn stretches<S: Rows, K: Sink<S>>(s: S, args: &Args<'_>, at: At, _: &mut [u8], sink: &mut K) {
        let layout = const { &F::LAYOUT };
        let bytes = layout.panel_bytes(at.cols);
        let panel = &args.bytes(0)[at.panel * bytes..][..bytes];
        panel::stretches::<F, S, K>(s, &layout.open(panel, at.cols), at.columns, sink);
    }
}

/// Weights as the file has them, packed on the way.
struct Mapped<F>(PhantomData<F>);

impl<F: Format> Source for Mapped<F> {
    fn buffer_bytes() -> usize {
        F::LAYOUT.panel_bytes(COLUMNS)
    }

    #[inline(always)]
    fn stretches<S: Rows, K: Sink<S>>(
        s: S,
        args: &Args<'_>,
        at: At,
        buffer: &mut [u8],
        sink: &mut K,
    ) {
        let layout = const { &F::LAYOUT };
        let (w, row_bytes) = (args.bytes(0), layout.row_bytes(at.cols));
        let part = layout.row_bytes(at.columns.start)..layout.row_bytes(at.columns.end);
        let mut rows = [&w[..0]; ROWS];
        let count = at.rows().len();
        for (row, r) in rows.iter_mut().zip(at.rows()) {
            *row = &w[r * row_bytes..][part.clone()];
        }
        let buffer = &mut buffer[..layout.panel_bytes(at.columns.len())];
        layout.pack(&rows[..count], buffer);
        let columns = 0..at.columns.len();
        let panel = layout.open(buffer, columns.len());
        panel::stretches::<F, S, K>(s, &panel, columns, sink);
    }
}

/// Weights of any other type that can be read as integers, chunk by chunk.
struct Chunks<const MIN: bool>;

impl<const MIN: bool> Codes for Chunks<MIN> {
    const MAX: u8 = 128;
    const OFFSET: i32 = 0;
    const HALVES: bool = true;
    const MIN: bool = MIN;
}

impl<const MIN: bool> Source for Chunks<MIN> {
    fn buffer_bytes() -> usize {
        0
    }

    #[inline(always)]
    fn stretches<S: Rows, K: Sink<S>>(s: S, args: &Args<'_>, at: At, _: &mut [u8], sink: &mut K) {
        const STRETCHES: usize = CHUNK / STRETCH;
        let unpack = args.unpack();
        let m = args.matrix(at.rows, at.cols);
        let mut chunk = Chunk::ZERO;
        let mut codes = [[[0u8; 4 * ROWS]; WORDS]; STRETCHES];
        let mut numbers = [[[[0.0; ROWS]; 2]; STRETCHES]; 2];
        for first in at.columns.clone().step_by(CHUNK) {
            for (lane, r) in at.rows().enumerate() {
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
                let mut stretch = stored::<S, Self>(s, codes, scale, min);
                for code in &mut stretch.codes {
                    *code = s.raise(*code);
                }
                sink.take(stretch);
            }
        }
    }
}

/// A stretch in memory.
#[inline(always)]
fn stored<S: Rows, C: Codes>(
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

/// Adds the products of a stretch and the first `T` tokens of a block from `first` on.
#[inline(always)]
fn multiply<S: Rows, C: Codes, const T: usize>(
    s: S,
    stretch: &Stretch<S>,
    x: Block<'_>,
    first: usize,
    sums: &mut [S::Floats; T],
) {
    const HALF: usize = WORDS / 2;
    let q = &x.q[first..][..T];
    let d = &x.d[first..][..T];
    let start = x.start.map(|start| &start[first..][..T]);
    let sum_x = x.sum.map(|sum| &sum[first..][..T]);
    for t in 0..T {
        let mut sum = sums[t];
        let d = s.splat_float(d[t]);
        if C::HALVES {
            let [low, high] = stretch.codes.as_chunks::<HALF>().0 else {
                unreachable!("two halves");
            };
            let halves = [(low, &q[t][..16]), (high, &q[t][16..])];
            for (h, (codes, q)) in halves.into_iter().enumerate() {
                let ints = s.dot::<HALF>(C::MAX, s.splat_int(start[h][t]), codes, q);
                sum = s.times_add(s.floats(ints), s.times(stretch.scale[h], d), sum);
            }
        } else {
            let start = s.splat_int(start[0][t]);
            let ints = s.dot::<WORDS>(C::MAX, start, &stretch.codes, &q[t]);
            sum = s.times_add(s.floats(ints), s.times(stretch.scale[0], d), sum);
        }
        if C::MIN {
            sum = s.times_add(stretch.min[0], s.splat_float(sum_x[0][t]), sum);
            if C::HALVES {
                sum = s.times_add(stretch.min[1], s.splat_float(sum_x[1][t]), sum);
            }
        }
        sums[t] = sum;
    }
}

/// The products of stretches and one token, as they come.
struct One<'a, S: Rows, C> {
    s: S,
    x: Tiles<'a>,
    /// Tile of the token and its place there.
    token: [usize; 2],
    block: usize,
    sum: [S::Floats; 1],
    codes: PhantomData<C>,
}

impl<S: Rows, C: Codes> Sink<S> for One<'_, S, C> {
    #[inline(always)]
    fn take(&mut self, stretch: Stretch<S>) {
        let [tile, t] = self.token;
        let x = self.x.block(tile, self.block);
        multiply::<S, C, 1>(self.s, &stretch, x, t, &mut self.sum);
        self.block += 1;
    }
}

/// Stretches in memory, for many tokens.
struct Store<'a, S, C> {
    s: S,
    codes: std::slice::IterMut<'a, StoredCodes>,
    scales: std::slice::IterMut<'a, StoredNumbers>,
    mins: std::slice::IterMut<'a, StoredNumbers>,
    kind: PhantomData<C>,
}

impl<S: Rows, C: Codes> Sink<S> for Store<'_, S, C> {
    #[inline(always)]
    fn take(&mut self, stretch: Stretch<S>) {
        let s = self.s;
        let (Some(codes), Some(scale), Some(min)) =
            (self.codes.next(), self.scales.next(), self.mins.next())
        else {
            unreachable!("columns are read as many as there is room for");
        };
        for (word, code) in codes.iter_mut().zip(stretch.codes) {
            s.put_bytes(word, code);
        }
        for h in 0..1 + usize::from(C::HALVES) {
            s.put_column(&mut scale[h], stretch.scale[h]);
            if C::MIN {
                s.put_column(&mut min[h], stretch.min[h]);
            }
        }
    }
}

/// What a thread needs beside its operands.
struct Scratch<'a> {
    codes: &'a mut [StoredCodes],
    scales: &'a mut [StoredNumbers],
    mins: &'a mut [StoredNumbers],
    /// The sums of all tokens while the columns are read piece by piece.
    sums: &'a mut [Column],
    buffer: &'a mut [u8],
}

impl<'a> Scratch<'a> {
    const STRETCHES: usize = COLUMNS / STRETCH;

    fn bytes(tokens: usize, buffer: usize) -> usize {
        let stretch = size_of::<StoredCodes>() + 2 * size_of::<StoredNumbers>();
        Self::STRETCHES * stretch + tokens * size_of::<Column>() + buffer
    }

    fn open(bytes: &'a mut [u8], buffer: usize) -> Self {
        let (bytes, buffer) = bytes.split_at_mut(bytes.len() - buffer);
        let n = Self::STRETCHES;
        let (codes, rest) = bytes.split_at_mut(n * size_of::<StoredCodes>());
        let (scales, rest) = rest.split_at_mut(n * size_of::<StoredNumbers>());
        let (mins, sums) = rest.split_at_mut(n * size_of::<StoredNumbers>());
        let sums: &mut [f32] = bytemuck::cast_slice_mut(sums);
        Self {
            codes: bytemuck::cast_slice_mut(codes),
            scales: bytemuck::cast_slice_mut(scales),
            mins: bytemuck::cast_slice_mut(mins),
            sums: sums.as_chunks_mut().0,
            buffer,
        }
    }
}

/// Adds the products of stored stretches and the tokens of a tile.
#[inline(always)]
fn tile<S: Rows, C: Codes, const T: usize>(
    s: S,
    scratch: &mut Scratch<'_>,
    stretches: usize,
    (x, tile, first_block): (Tiles<'_>, usize, usize),
    first_token: usize,
) {
    let carry = &mut scratch.sums[first_token..][..T];
    let mut sums = [s.splat_float(0.0); T];
    for (sum, carry) in sums.iter_mut().zip(carry.iter()) {
        *sum = s.column(carry);
    }
    let codes = scratch.codes[..stretches].iter();
    let numbers = scratch.scales.iter().zip(scratch.mins.iter());
    for ((codes, (scale, min)), block) in codes.zip(numbers).zip(first_block..) {
        let stretch = stored::<S, C>(s, codes, scale, min);
        multiply::<S, C, T>(s, &stretch, x.block(tile, block), 0, &mut sums);
    }
    for (carry, sum) in carry.iter_mut().zip(sums) {
        s.put_column(carry, sum);
    }
}

struct Product<W, N, const ADD: bool>(PhantomData<(W, N)>);

impl<W: Source, N: Sizes, const ADD: bool> Kernel for Product<W, N, ADD> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let [rows, cols] = N::sizes(&args);
        let live = args.live();
        let x = Tiles::new(args.bytes(5), shape(&args, cols, S::TOKENS));
        let mut scratch = args.open::<u8>(4);
        let mut scratch = Scratch::open(scratch.whole(), W::buffer_bytes());
        let mut y = args.open::<f32>(2);
        for panel in args.range() {
            if live == 1 {
                one::<S, W>(s, &args, [rows, cols, panel], x, &mut scratch);
            } else {
                many::<S, W>(s, &args, [rows, cols, panel], x, &mut scratch);
            }
            for (t, sums) in scratch.sums[..live].iter().enumerate() {
                let y = y.panel(t, rows, panel, ROWS);
                for (y, sum) in y.iter_mut().zip(sums) {
                    *y = if ADD { *y + sum } else { *sum };
                }
            }
        }
    }
}

/// How a step's activations lie.
fn shape(args: &Args<'_>, cols: usize, tile: usize) -> Shape {
    let tokens = args.tokens();
    Shape {
        tokens: u32::try_from(tokens).expect("a parameter of 32 bits"),
        cols: u32::try_from(cols).expect("a parameter of 32 bits"),
        tile: if tokens == 1 { 1 } else { tile as u32 },
        offset: 0,
        halves: 0,
        bf16: 0,
    }
}

/// The sums of a panel for one token.
#[inline(always)]
fn one<S: Simd, W: Source>(
    s: S,
    args: &Args<'_>,
    [rows, cols, panel]: [usize; 3],
    x: Tiles<'_>,
    scratch: &mut Scratch<'_>,
) {
    let mut sink = One::<S, W> {
        s,
        x,
        token: [0, 0],
        block: 0,
        sum: [s.splat_float(0.0)],
        codes: PhantomData,
    };
    for first in (0..cols).step_by(COLUMNS) {
        let columns = first..cols.min(first + COLUMNS);
        let at = At {
            rows,
            cols,
            panel,
            columns,
        };
        W::stretches(s, args, at, scratch.buffer, &mut sink);
    }
    s.put_column(&mut scratch.sums[0], sink.sum[0]);
}

/// The sums of a panel for all tokens.
#[inline(always)]
fn many<S: Simd, W: Source>(
    s: S,
    args: &Args<'_>,
    [rows, cols, panel]: [usize; 3],
    x: Tiles<'_>,
    scratch: &mut Scratch<'_>,
) {
    let live = args.live();
    scratch.sums.as_flattened_mut().fill(0.0);
    for first in (0..cols).step_by(COLUMNS) {
        let columns = first..cols.min(first + COLUMNS);
        let stretches = columns.len() / STRETCH;
        let at = At {
            rows,
            cols,
            panel,
            columns,
        };
        let mut sink = Store::<S, W> {
            s,
            codes: scratch.codes.iter_mut(),
            scales: scratch.scales.iter_mut(),
            mins: scratch.mins.iter_mut(),
            kind: PhantomData,
        };
        W::stretches(s, args, at, scratch.buffer, &mut sink);
        for (t, token) in (0..live).step_by(S::TOKENS).enumerate() {
            let x = (x, t, first / STRETCH);
            match live - token {
                1 => tile::<S, W, 1>(s, scratch, stretches, x, token),
                2 => tile::<S, W, 2>(s, scratch, stretches, x, token),
                3 | 4 => tile::<S, W, 4>(s, scratch, stretches, x, token),
                _ if S::TOKENS == 4 => tile::<S, W, 4>(s, scratch, stretches, x, token),
                5..=8 => tile::<S, W, 8>(s, scratch, stretches, x, token),
                9..=12 => tile::<S, W, 12>(s, scratch, stretches, x, token),
                _ => tile::<S, W, 16>(s, scratch, stretches, x, token),
            }
        }
    }
}

/// The kernel of a product of this shape, `[tokens, rows, cols]`, where the type of its weights
/// can be read as integers.
pub(super) fn link<N: Sizes, const ADD: bool>(
    request: &Request<'_>,
    dtype: DType,
    shape: [u32; 3],
) -> Option<Launch> {
    struct Found<'a, N, const ADD: bool>(&'a Request<'a>, [u32; 3], PhantomData<N>);
    impl<N: Sizes, const ADD: bool> panel::Visit for Found<'_, N, ADD> {
        type Out = Launch;
        fn format<F: Format>(self) -> Launch {
            let Self(request, shape, _) = self;
            if request.packed {
                let launch = launch::<Packed<F>, N, ADD>(request, shape);
                return Launch {
                    pack: Some(const { &F::LAYOUT }),
                    ..launch
                };
            }
            launch::<Mapped<F>, N, ADD>(request, shape)
        }
    }
    panel::visit(dtype, Found::<N, ADD>(request, shape, PhantomData))
}

/// The same for a type without panels.
pub(super) fn link_chunks<N: Sizes, const ADD: bool>(
    request: &Request<'_>,
    (unpack, min): (Unpack, bool),
    shape: [u32; 3],
) -> Launch {
    let launch = if min {
        launch::<Chunks<true>, N, ADD>(request, shape)
    } else {
        launch::<Chunks<false>, N, ADD>(request, shape)
    };
    Launch {
        read: Some(super::chunks::Read::Ints(unpack)),
        ..launch
    }
}

fn launch<W: Source, N: Sizes, const ADD: bool>(
    request: &Request<'_>,
    [tokens, rows, cols]: [u32; 3],
) -> Launch {
    let isa: Isa = request.isa;
    let tile = if tokens == 1 { 1 } else { isa.tile_tokens() };
    let shape = Shape {
        tokens,
        cols,
        tile,
        offset: match W::MAX {
            128 => isa.raised(),
            _ => W::OFFSET,
        },
        halves: u32::from(W::HALVES),
        bf16: 0,
    };
    let room = tokens.next_multiple_of(tile) as usize;
    let panels = (rows as usize).div_ceil(ROWS);
    Launch {
        scratch: Scratch::bytes(room, W::buffer_bytes()),
        quantise: Some(shape),
        ..request.launch::<Product<W, N, ADD>>(Split::Units(panels), tokens)
    }
}
