//! Products of quantized weights and int8 activations, sixteen rows of weights at a time.
//!
//! The sum of a row and a token runs over blocks of 32 columns: exact integers within a block, then
//! `sum = ints * (scale d) + sum`, in column order. Nothing else affects it, so the result of a
//! token has the same bits in a batch of any size, on any number of threads, and from packed or
//! mapped weights.

#[cfg(target_arch = "x86_64")]
use super::code_tiles;
use super::pieces::{Piece, carried};
use super::quantize::{self, Block, Tiles};
use super::sources::{At, COLUMNS, stored, stretches};
use super::{Launch, Request};
use crate::descriptors::{CodeProduct, Number, Product, Read, Shape, Weights};
use crate::memory::Args;
use crate::panel::affine::{Eight, Four, Groups};
use crate::panel::{
    self, Codes, Format, Formats, Kind, Pack, STRETCH, Sink, StoredCodes, StoredNumbers, Stretch,
    WORDS, Width,
};
use crate::simd::rows::{Column, ROWS, Rows, unroll};
use crate::simd::{Kernel, Simd, Task, Unpack};
use crate::work::Split;
use std::marker::PhantomData;
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_core::op::operands::gemm::{AT, COUNT};

/// Panels whose codes stay in the L2 cache while all tokens are processed, so that each tile of
/// tokens is loaded into L1 once for all of them.
const PANELS: usize = 8;

/// Tokens of the largest tile.
const TOKENS_MAX: usize = 16;

/// Adds the products of a block and `T` tokens of a tile of `N`, starting at token `F`.
#[inline(always)]
fn multiply<S: Rows, C: Codes, const T: usize, const N: usize, const F: usize>(
    s: S,
    stretch: &Stretch<S>,
    x: Block<'_, N>,
    sums: &mut [S::Floats; T],
) {
    // Interleaves several tokens, as far as registers allow, to hide the latency of their products.
    if const { S::TOKENS > 4 && T >= 4 } {
        unroll!(i < T / 4 => { some::<S, C, T, N, F, 4>(s, stretch, x, sums, 4 * i); });
    } else {
        unroll!(t < T => { some::<S, C, T, N, F, 1>(s, stretch, x, sums, t); });
    }
}

/// Adds the products of a block and `J` of the tokens.
#[inline(always)]
fn some<S: Rows, C: Codes, const T: usize, const N: usize, const F: usize, const J: usize>(
    s: S,
    stretch: &Stretch<S>,
    x: Block<'_, N>,
    sums: &mut [S::Floats; T],
    first: usize,
) {
    const HALF: usize = WORDS / 2;
    let halves = const { 1 + C::HALVES as usize };
    for h in 0..halves {
        let mut q = [&x.q()[first][..]; J];
        let mut starts = [s.splat_int(0); J];
        unroll!(j < J => {
            q[j] = &x.q()[F + first + j][h * STRETCH / halves..];
            starts[j] = s.splat_int(x.start(h)[F + first + j]);
        });
        let ints = if C::HALVES {
            let codes = stretch.codes[h * HALF..].first_chunk().expect("two halves");
            s.dots::<HALF, J>(C::MAX, starts, codes, q)
        } else {
            s.dots::<WORDS, J>(C::MAX, starts, &stretch.codes, q)
        };
        unroll!(j < J => {
            let scale = s.times(stretch.scale[h], s.splat_float(x.d()[F + first + j]));
            sums[first + j] = s.mul_add(s.floats(ints[j]), scale, sums[first + j]);
        });
    }
    if C::MIN {
        for h in 0..halves {
            unroll!(j < J => {
                let sum = s.splat_float(x.sum(h)[F + first + j]);
                sums[first + j] = s.mul_add(stretch.min[h], sum, sums[first + j]);
            });
        }
    }
}

/// Multiplies decoded blocks by `T` tokens of a tile of `N` while they are in registers.
struct Few<'a, S: Rows, C, X, const T: usize, const N: usize, const F: usize> {
    s: S,
    x: X,
    sums: [S::Floats; T],
    to: &'a mut [Column; T],
    codes: PhantomData<C>,
}

impl<'x, S, C, X, const T: usize, const N: usize, const F: usize> Sink<S>
    for Few<'_, S, C, X, T, N, F>
where
    S: Rows,
    C: Codes,
    X: Iterator<Item = Block<'x, N>>,
{
    #[inline(always)]
    fn take(&mut self, stretch: Stretch<S>) {
        let Some(x) = self.x.next() else {
            unreachable!("there is a block of activations for every block of weights");
        };
        multiply::<S, C, T, N, F>(self.s, &stretch, x, &mut self.sums);
    }

    #[inline(always)]
    fn end(self) {
        unroll!(t < T => { self.s.put_column(&mut self.to[t], self.sums[t]); });
    }
}

/// Stores decoded blocks in memory for a gemm tile.
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
            unreachable!("more blocks than the buffer holds");
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

    #[inline(always)]
    fn end(self) {}
}

/// Working memory of a thread.
struct Scratch<'a> {
    /// Blocks of the panels that are processed together.
    pieces: &'a mut [Piece],
    /// Sums of all tokens between column spans, panel by panel.
    sums: &'a mut [Column],
    buffer: &'a mut [u8],
}

impl<'a> Scratch<'a> {
    fn bytes(tokens: usize, panels: usize, buffer: usize) -> usize {
        panels * (size_of::<Piece>() + tokens * size_of::<Column>()) + buffer
    }

    fn open(bytes: &'a mut [u8], panels: usize, buffer: usize) -> Self {
        let (bytes, buffer) = bytes.split_at_mut(bytes.len() - buffer);
        let (pieces, sums) = bytes.split_at_mut(panels * size_of::<Piece>());
        let sums: &mut [f32] = bytemuck::cast_slice_mut(sums);
        Self {
            pieces: bytemuck::cast_slice_mut(pieces),
            sums: sums.as_chunks_mut().0,
            buffer,
        }
    }
}

/// Adds the products of stored blocks and the first `T` tokens of a tile of `N`.
struct Tile<'a, C, const T: usize, const N: usize> {
    piece: &'a Piece,
    blocks: Range<usize>,
    x: Tiles<'a>,
    tile: usize,
    sums: &'a mut [Column],
    kind: PhantomData<C>,
}

impl<S: Simd, C: Codes, const T: usize, const N: usize> Task<S> for Tile<'_, C, T, N> {
    #[inline(always)]
    fn run(self, s: S) {
        let mut sums = carried::<S, T>(s, self.sums, self.blocks.start);
        let Piece {
            codes,
            scales,
            mins,
        } = self.piece;
        let stretches = codes.iter().zip(scales.iter().zip(mins));
        for ((codes, (scale, min)), x) in stretches.zip(self.x.blocks(self.tile, self.blocks)) {
            let stretch = stored::<S, C>(s, codes, scale, min);
            multiply::<S, C, T, N, 0>(s, &stretch, x, &mut sums);
        }
        for (carry, sum) in self.sums.iter_mut().zip(sums) {
            s.put_column(carry, sum);
        }
    }
}

struct Products<C>(PhantomData<C>);

impl<C: Formats> Kernel for Products<C> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let Product { rows, add, .. } = args.product();
        let CodeProduct {
            weights,
            quantized,
            together,
            ..
        } = args.codes();
        let live = args.live();
        let x = Tiles::new(args.bytes(COUNT + 1), quantized);
        let mut scratch = args.open::<u8>(COUNT);
        let mut scratch = Scratch::open(scratch.whole(), together, weights.buffer_bytes());
        let mut y = args.open::<f32>(AT.y);
        // A single tile stays in cache, so panels are processed one by one.
        let together = if live > S::TOKENS { together } else { 1 };
        #[cfg(target_arch = "x86_64")]
        let reads_twice = args.codes().amx.is_none();
        #[cfg(not(target_arch = "x86_64"))]
        let reads_twice = true;
        let range = args.range();
        for first in range.clone().step_by(together) {
            let panels = first..range.end.min(first + together);
            match quantize::width(live, S::TOKENS) {
                _ if live > S::TOKENS => many::<S, C>(s, &args, panels.clone(), x, &mut scratch),
                1 => few::<S, C, 1, 1, 0>(s, &args, first, x, &mut scratch),
                2 => few::<S, C, 2, 2, 0>(s, &args, first, x, &mut scratch),
                4 => few::<S, C, 4, 4, 0>(s, &args, first, x, &mut scratch),
                // Conditions on the level are evaluated at instantiation.
                8 if const { S::TOKENS >= 8 } => {
                    few::<S, C, 8, 8, 0>(s, &args, first, x, &mut scratch);
                }
                // Sums and codes need more registers than there are, so the panel is read twice;
                // the second time it is in cache.
                16 if const { S::TOKENS >= 16 } && reads_twice => {
                    few::<S, C, 8, 16, 0>(s, &args, first, x, &mut scratch);
                    match live {
                        ..=12 => few::<S, C, 4, 16, 8>(s, &args, first, x, &mut scratch),
                        _ => few::<S, C, 8, 16, 8>(s, &args, first, x, &mut scratch),
                    }
                }
                _ => many::<S, C>(s, &args, panels.clone(), x, &mut scratch),
            }
            // Token by token: the results of a token for these panels are contiguous.
            for t in 0..live {
                let y = y.panels(t, rows, panels.clone(), ROWS);
                let sums = scratch.sums[t..].iter().step_by(room::<S>(live));
                for (y, sums) in y.chunks_mut(ROWS).zip(sums) {
                    for (y, sum) in y.iter_mut().zip(sums) {
                        *y = if add { *y + sum } else { *sum };
                    }
                }
            }
        }
    }
}

/// Sums per panel: tokens rounded up to whole tiles.
fn room<S: Rows>(live: usize) -> usize {
    live.next_multiple_of(S::TOKENS)
}

/// Divides the columns of a row into spans of `step`.
fn pieces(cols: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    let piece = move |first| first..cols.min(first + step);
    (0..cols).step_by(step).map(piece)
}

/// Computes the sums of a panel for `T` tokens of the only tile, of `N` tokens, starting at token
/// `F`.
#[inline(always)]
fn few<S: Simd, C: Formats, const T: usize, const N: usize, const F: usize>(
    s: S,
    args: &Args<'_>,
    panel: usize,
    x: Tiles<'_>,
    scratch: &mut Scratch<'_>,
) {
    let sums = scratch.sums[F..].first_chunk_mut();
    let sums = sums.expect("one per token");
    // With fewer tokens, more columns of a tile fit the L1 cache.
    let step = match args.codes().weights {
        Weights::Packed(_) | Weights::Groups(..) => COLUMNS * (TOKENS_MAX / N),
        Weights::Mapped(_) | Weights::Chunks => COLUMNS,
    };
    for columns in pieces(args.product().cols, step) {
        let blocks = columns.start / STRETCH..columns.end / STRETCH;
        let sink = Few::<S, C, _, T, N, F> {
            s,
            sums: carried::<S, T>(s, &*sums, blocks.start),
            x: x.blocks::<N>(0, blocks),
            to: sums,
            codes: PhantomData,
        };
        stretches::<C, S, _>(s, args, At { panel, columns }, scratch.buffer, sink);
    }
}

/// Computes the sums of some panels for all tokens.
#[inline(always)]
fn many<S: Simd, C: Formats>(
    s: S,
    args: &Args<'_>,
    panels: Range<usize>,
    x: Tiles<'_>,
    scratch: &mut Scratch<'_>,
) {
    let live = args.live();
    #[cfg(target_arch = "x86_64")]
    let CodeProduct { amx, quantized, .. } = args.codes();
    for columns in pieces(args.product().cols, COLUMNS) {
        for (panel, piece) in panels.clone().zip(scratch.pieces.iter_mut()) {
            let sink = Store::<S, C> {
                s,
                codes: piece.codes.iter_mut(),
                scales: piece.scales.iter_mut(),
                mins: piece.mins.iter_mut(),
                kind: PhantomData,
            };
            let columns = columns.clone();
            stretches::<C, S, _>(s, args, At { panel, columns }, scratch.buffer, sink);
            #[cfg(target_arch = "x86_64")]
            if amx.is_some() {
                let by = quantized.offset.to_le_bytes()[0];
                s.apart(code_tiles::Lower { piece, by });
            }
        }
        let blocks = columns.start / STRETCH..columns.end / STRETCH;
        let pieces = &scratch.pieces[..panels.len()];
        #[cfg(target_arch = "x86_64")]
        if let Some(amx) = amx {
            let add = code_tiles::Add::<C> {
                pieces,
                blocks,
                x,
                sums: scratch.sums,
                room: room::<S>(live),
                kind: PhantomData,
            };
            amx.byte_tiles(code_tiles::columns::<C>(), add);
            continue;
        }
        for (tile, first) in (0..live).step_by(S::TOKENS).enumerate() {
            let sums = scratch.sums.chunks_exact_mut(room::<S>(live));
            for (piece, sums) in pieces.iter().zip(sums) {
                macro_rules! tile {
                    ($tokens:literal of $all:literal) => {
                        s.apart(Tile::<C, $tokens, $all> {
                            piece,
                            blocks: blocks.clone(),
                            x,
                            tile,
                            sums: &mut sums[first..],
                            kind: PhantomData,
                        })
                    };
                }
                let tokens = live - first;
                // Conditions on the level are evaluated at instantiation.
                if const { S::TOKENS == 16 } {
                    match tokens {
                        ..=4 => tile!(4 of 16),
                        5..=8 => tile!(8 of 16),
                        _ => tile!(16 of 16),
                    }
                } else if const { S::TOKENS == 8 } {
                    match tokens {
                        ..=4 => tile!(4 of 8),
                        _ => tile!(8 of 8),
                    }
                } else {
                    const { assert!(S::TOKENS == 4 || S::TOKENS == 8 || S::TOKENS == 16) };
                    tile!(4 of 4);
                }
            }
        }
    }
}

/// Returns the kernel of a matrix product, if the type of the weights has panels at this level.
pub(super) fn link(request: &Request<'_>, product: Product) -> Option<Launch> {
    if !request.isa.panels() {
        return None;
    }
    struct Found<'a>(&'a Request<'a>, Product, DType);
    impl panel::Visit for Found<'_> {
        type Out = Launch;
        fn format<F: Format>(self) -> Launch {
            let Self(request, product, dtype) = self;
            if !request.packed {
                let weights = Weights::Mapped(dtype);
                return launch::<F::Codes>(request, weights, F::OFFSET, product);
            }
            Launch {
                pack: Some(Pack::Blocks(const { &F::LAYOUT })),
                ..launch::<F::Codes>(request, Weights::Packed(dtype), F::OFFSET, product)
            }
        }
    }
    let dtype = request.variant?;
    panel::visit(dtype, Found(request, product, dtype))
}

/// Returns the kernel for a type without panels that unpacks to integers.
pub(super) fn link_chunks(
    request: &Request<'_>,
    (unpack, min): (Unpack, bool),
    product: Product,
) -> Launch {
    let packed = match request.variant {
        _ if !request.isa.panels() => None,
        Some(DType::Affine4) => link_groups::<Four>(request, unpack, product),
        Some(DType::Affine8) => link_groups::<Eight>(request, unpack, product),
        _ => None,
    };
    if let Some(launch) = packed {
        return launch;
    }
    /// Returns whether the two halves of a block have separate scales.
    struct Halves;
    impl panel::Visit for Halves {
        type Out = bool;
        fn format<F: Format>(self) -> bool {
            F::Codes::HALVES
        }
    }
    let halves = match (&request.scales, request.variant) {
        // Scale groups may be whole blocks.
        (Some(scales), _) => Some(!scales.group[1].is_multiple_of(STRETCH)),
        (None, dtype) => dtype.and_then(|dtype| panel::visit(dtype, Halves)),
    };
    let launch = match (halves.unwrap_or(true), min) {
        (true, true) => launch::<Kind<128, true, true>>,
        (true, false) => launch::<Kind<128, true, false>>,
        (false, true) => launch::<Kind<128, false, true>>,
        (false, false) => launch::<Kind<128, false, false>>,
    };
    Launch {
        read: Some(Read::Ints(unpack)),
        ..launch(request, Weights::Chunks, 0, product)
    }
}

/// Returns the kernel for packed affine codes.
fn link_groups<W: Width>(
    request: &Request<'_>,
    unpack: Unpack,
    product: Product,
) -> Option<Launch> {
    let scales = request.scales.filter(|_| request.packed)?;
    let groups = Groups::of::<W>(&scales, product.cols)?;
    let weights = Weights::Groups(request.variant?, groups);
    Some(Launch {
        pack: Some(Pack::Affine(unpack, groups)),
        ..launch::<W::Codes>(request, weights, 0, product)
    })
}

fn launch<C: Formats>(
    request: &Request<'_>,
    weights: Weights,
    offset: i32,
    product: Product,
) -> Launch {
    let isa = request.isa;
    let tokens = product.tokens;
    let tile = if tokens == 1 { 1 } else { isa.tile_tokens() };
    let quantized = Shape {
        tokens,
        cols: product.columns(),
        tile,
        offset: match C::MAX {
            128 => isa.raised(),
            _ => offset,
        },
        halves: u32::from(C::HALVES),
        number: Number::Int8 as u32,
    };
    let room = tokens.next_multiple_of(tile) as usize;
    let together = if tokens > tile { PANELS } else { 1 };
    Launch {
        scratch: Scratch::bytes(room, together, weights.buffer_bytes()),
        quantize: Some(quantized),
        codes: Some(CodeProduct {
            weights,
            quantized,
            together,
            #[cfg(target_arch = "x86_64")]
            amx: isa.amx(),
        }),
        ..request.launch::<Products<C>>(Split::Units(product.rows.div_ceil(ROWS)), tokens)
    }
}
