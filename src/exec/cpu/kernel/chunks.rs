//! Products and lookups with weights of any storage type, a chunk at a time: the kernels of the
//! types that have none of their own.
//!
//! A function of the storage type and the level turns a chunk of a row into small integers with
//! scales, or into floats; link picks it once. It costs as much for one token as for many, so a
//! chunk passes by all tokens of a tile before the next one is read.

use super::product::{Sizes, Sums};
use super::quantise::{BLOCK, Rows, Shape};
use super::{Launch, Request};
use crate::device::Precision;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Decode, Isa, Kernel, Quantised, Simd, Unpack};
use crate::exec::cpu::step::Split;
use crate::quant::{self, CHUNK, Chunk, Floats, Ints, Matrix};
use std::marker::PhantomData;

/// How a step reads its weights; link chooses.
#[derive(Clone, Copy, Debug)]
pub(in crate::exec::cpu) enum Read {
    /// As integers.
    Ints(Unpack),
    /// As floats.
    Floats(Decode),
}

/// The ways in which a storage type can be read at a level.
#[derive(Clone, Copy)]
struct Ways {
    /// As integers, and whether they have minima.
    ints: Option<(Unpack, bool)>,
    floats: Decode,
}

impl Ways {
    fn of(isa: Isa, dtype: Option<DType>) -> Result<Self> {
        struct At(Isa);
        impl quant::Visit for At {
            type Out = Ways;
            fn ints<T: Ints>(self) -> Ways {
                Ways {
                    ints: Some((self.0.unpack::<T>(), T::MIN)),
                    floats: self.0.decode::<T>(),
                }
            }
            fn floats<T: Floats>(self) -> Ways {
                Ways {
                    ints: None,
                    floats: self.0.decode::<T>(),
                }
            }
        }
        match dtype.and_then(|dtype| quant::visit(dtype, At(isa))) {
            Some(ways) => Ok(ways),
            None => bail!(Unsupported, "no kernel for weights of {dtype:?}"),
        }
    }
}

/// How rows of this type are decoded.
pub(super) fn decoder(isa: Isa, dtype: Option<DType>) -> Result<Read> {
    Ok(Read::Floats(Ways::of(isa, dtype)?.floats))
}

/// How rows of this type, which are integers, are unpacked.
pub(super) fn unpacker(isa: Isa, dtype: Option<DType>) -> Result<Read> {
    match Ways::of(isa, dtype)?.ints {
        Some((unpack, _)) => Ok(Read::Ints(unpack)),
        None => bail!(Unsupported, "weights of {dtype:?} are no integers"),
    }
}

/// Tokens that a chunk passes by before the next one is read.
const TOKENS: usize = 16;

/// Numbers of the widest vector.
const LANES_MAX: usize = 16;

/// What a chunk is read as, and its products.
trait Form {
    type Chunk;
    type Activations<'a>: Copy;
    type Read: Copy;

    fn zero() -> Self::Chunk;
    fn activations<'a>(args: &Args<'a>, cols: usize) -> Self::Activations<'a>;
    fn reader(args: &Args<'_>) -> Self::Read;
    fn read(read: Self::Read, m: &Matrix<'_>, row: usize, first: usize, out: &mut Self::Chunk);
    /// `acc + w . x[t, first..first + count]`.
    fn dot<S: Simd>(
        s: S,
        w: &Self::Chunk,
        x: (Self::Activations<'_>, usize),
        part: (usize, usize),
        acc: S::V,
    ) -> S::V;
}

/// Integers, by activations in int8 blocks.
struct AsInts<const MIN: bool>;

impl<const MIN: bool> Form for AsInts<MIN> {
    type Chunk = Chunk;
    type Activations<'a> = Rows<'a>;
    type Read = Unpack;

    fn zero() -> Chunk {
        Chunk::ZERO
    }
    fn activations<'a>(args: &Args<'a>, cols: usize) -> Rows<'a> {
        let cols = u32::try_from(cols).expect("a parameter of 32 bits");
        Rows::new(args.bytes(4), Shape { tokens: 0, cols })
    }
    fn reader(args: &Args<'_>) -> Unpack {
        match args.read() {
            Some(Read::Ints(unpack)) => unpack,
            other => unreachable!("link chose {other:?}"),
        }
    }
    #[inline(always)]
    fn read(read: Unpack, m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
        read(m, row, first, out);
    }
    #[inline(always)]
    fn dot<S: Simd>(
        s: S,
        w: &Chunk,
        (x, t): (Rows<'_>, usize),
        (first, count): (usize, usize),
        acc: S::V,
    ) -> S::V {
        let x: Quantised<'_> = x.row(t).blocks(first / BLOCK, count / BLOCK);
        s.dot_chunk::<MIN>(w, x, acc)
    }
}

/// Floats, by activations as they are.
struct AsFloats;

impl Form for AsFloats {
    type Chunk = [f32; CHUNK];
    type Activations<'a> = (&'a [f32], usize);
    type Read = Decode;

    fn zero() -> [f32; CHUNK] {
        [0.0; CHUNK]
    }
    fn activations<'a>(args: &Args<'a>, cols: usize) -> (&'a [f32], usize) {
        (args.f32s(1), cols)
    }
    fn reader(args: &Args<'_>) -> Decode {
        match args.read() {
            Some(Read::Floats(decode)) => decode,
            other => unreachable!("link chose {other:?}"),
        }
    }
    #[inline(always)]
    fn read(read: Decode, m: &Matrix<'_>, row: usize, first: usize, out: &mut [f32; CHUNK]) {
        read(m, row, first, out);
    }
    #[inline(always)]
    fn dot<S: Simd>(
        s: S,
        w: &[f32; CHUNK],
        ((x, cols), t): ((&[f32], usize), usize),
        (first, count): (usize, usize),
        acc: S::V,
    ) -> S::V {
        dot_floats(s, w, &x[t * cols + first..][..count], acc)
    }
}

/// `acc + w . x`, for as many numbers as `x` has.
#[inline(always)]
pub(super) fn dot_floats<S: Simd>(s: S, w: &[f32; CHUNK], x: &[f32], mut acc: S::V) -> S::V {
    let count = x.len();
    let whole = count / S::LANES * S::LANES;
    for (w, x) in w.chunks_exact(S::LANES).zip(x.chunks_exact(S::LANES)) {
        acc = s.fma(s.load(w), s.load(x), acc);
    }
    if whole < count {
        // Zeros stand behind the end of the row.
        let (mut last_w, mut last_x) = ([0.0; LANES_MAX], [0.0; LANES_MAX]);
        last_w[..count - whole].copy_from_slice(&w[whole..count]);
        last_x[..count - whole].copy_from_slice(&x[whole..]);
        acc = s.fma(s.load(&last_w), s.load(&last_x), acc);
    }
    acc
}

struct Product<F, N, const ADD: bool>(PhantomData<(F, N)>);

impl<F: Form, N: Sizes, const ADD: bool> Kernel for Product<F, N, ADD> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let [rows, cols] = N::sizes(&args);
        let range = args.range();
        let mut out = Sums::<ADD>::open(&mut args, rows);
        let x = F::activations(&args, cols);
        let m = args.matrix(rows, cols);
        let read = F::reader(&args);
        let mut chunk = F::zero();
        for start in (0..args.live()).step_by(TOKENS) {
            let tokens = TOKENS.min(args.live() - start);
            for r in range.clone() {
                let mut acc = [s.splat(0.0); TOKENS];
                for first in (0..cols).step_by(CHUNK) {
                    F::read(read, &m, r, first, &mut chunk);
                    let part = (first, CHUNK.min(cols - first));
                    for (t, acc) in acc[..tokens].iter_mut().enumerate() {
                        *acc = F::dot(s, &chunk, (x, start + t), part, *acc);
                    }
                }
                for (t, acc) in acc[..tokens].iter().enumerate() {
                    out.put::<1, 1>(r, start + t, [[s.sum(*acc)]]);
                }
            }
        }
    }
}

/// The kernel of a product of this shape: `[tokens, rows, cols]`.
pub(super) fn link<N: Sizes, const ADD: bool>(
    request: &Request<'_>,
    [tokens, rows, cols]: [u32; 3],
) -> Result<Launch> {
    let ways = Ways::of(request.isa, request.variant)?;
    let split = Split::Units(rows as usize);
    // Activations go to int8 in whole blocks.
    let whole = (cols as usize).is_multiple_of(BLOCK);
    let fast = request.precision == Precision::Fast && whole;
    let ints = ways.ints.filter(|_| fast);
    let launch = match ints {
        Some((_, true)) => request.launch::<Product<AsInts<true>, N, ADD>>(split, tokens),
        Some((_, false)) => request.launch::<Product<AsInts<false>, N, ADD>>(split, tokens),
        None => request.launch::<Product<AsFloats, N, ADD>>(split, tokens),
    };
    Ok(match ints {
        Some((unpack, _)) => Launch {
            read: Some(Read::Ints(unpack)),
            quantise: Some(Shape { tokens, cols }),
            ..launch
        },
        None => Launch {
            read: Some(Read::Floats(ways.floats)),
            ..launch
        },
    })
}
