//! Matrix products and lookups with weights of any storage type, chunk by chunk: kernels for types
//! without specialized ones.
//!
//! A function for the storage type and level converts a chunk of a row to small integers with
//! scales, or to floats; link selects it. The conversion costs the same for any number of tokens,
//! so a chunk is multiplied by all tokens of a tile before the next one is read.

use super::output::MatmulOutput;
use super::quantized::launch;
use crate::descriptors::{IntReader, MatmulShape, WeightReader};
use crate::kernel::{Launch, Request};
use crate::memory::Args;
use crate::panel::QK;
use crate::simd::{Decode, Isa, Kernel, Simd, Unpack, Uses};
use crate::work::Split;
use tabla_core::device::Precision;
use tabla_core::dtype::DType;
use tabla_core::error::{Result, bail};
use tabla_core::op::operands::gemm::AT;
use tabla_quant::{CHUNK, Floats, Ints};

/// Functions that read a storage type at a level.
#[derive(Clone, Copy)]
struct TypeReaders {
    /// `None` if the type has no integer codes.
    ints: Option<IntReader>,
    floats: Decode,
}

impl TypeReaders {
    fn of(isa: Isa, dtype: Option<DType>) -> Result<Self> {
        struct ReadersFor(Isa);
        impl tabla_quant::Visit for ReadersFor {
            type Out = TypeReaders;
            fn ints<T: Ints>(self) -> TypeReaders {
                TypeReaders {
                    ints: Some(IntReader {
                        unpack: self.0.unpack::<T>(),
                        min: T::MIN,
                    }),
                    floats: self.0.decode::<T>(),
                }
            }
            fn floats<T: Floats>(self) -> TypeReaders {
                TypeReaders {
                    ints: None,
                    floats: self.0.decode::<T>(),
                }
            }
        }
        match dtype.and_then(|dtype| tabla_quant::visit(dtype, ReadersFor(isa))) {
            Some(readers) => Ok(readers),
            None => bail!(Unsupported, "no kernel for weight type {dtype:?}"),
        }
    }
}

/// Returns the decoder of rows of this type.
pub(crate) fn decoder(isa: Isa, dtype: Option<DType>) -> Result<Decode> {
    Ok(TypeReaders::of(isa, dtype)?.floats)
}

/// Returns the reader of the weights as integers; `None` if they are floats.
pub(crate) fn ints(request: &Request<'_>) -> Result<Option<IntReader>> {
    Ok(TypeReaders::of(request.isa, request.variant)?.ints)
}

/// Returns the function that unpacks rows of this type, which must have integer codes.
pub(crate) fn unpacker(isa: Isa, dtype: Option<DType>) -> Result<Unpack> {
    match TypeReaders::of(isa, dtype)?.ints {
        Some(ints) => Ok(ints.unpack),
        None => bail!(
            Unsupported,
            "weight type {dtype:?} cannot be unpacked to integers"
        ),
    }
}

/// Tokens that a chunk is multiplied by before the next one is read.
const TOKENS: usize = 16;

/// Elements of the widest vector.
const LANES_MAX: usize = 16;

/// `acc + w . x`, for all elements of `x`.
#[inline(always)]
pub(crate) fn dot_floats<S: Simd>(s: S, w: &[f32; CHUNK], x: &[f32], mut acc: S::V) -> S::V {
    let count = x.len();
    let whole = count / S::LANES * S::LANES;
    for (w, x) in w.chunks_exact(S::LANES).zip(x.chunks_exact(S::LANES)) {
        acc = s.fma(s.load(w), s.load(x), acc);
    }
    if whole < count {
        // The rest of the row, padded with zeros.
        let (mut last_w, mut last_x) = ([0.0; LANES_MAX], [0.0; LANES_MAX]);
        last_w[..count - whole].copy_from_slice(&w[whole..count]);
        last_x[..count - whole].copy_from_slice(&x[whole..]);
        acc = s.fma(s.load(&last_w), s.load(&last_x), acc);
    }
    acc
}

/// Matrix product of decoded weights and f32 activations.
struct ChunkMatmul;

impl Kernel for ChunkMatmul {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let matmul @ &MatmulShape { rows, cols, .. } = args.matmul();
        let range = args.range();
        let mut out = MatmulOutput::open(&mut args, matmul);
        let x = args.f32s(AT.x);
        let m = args.matrix(rows, cols);
        let decode = args.decode();
        let mut chunk = [0.0; CHUNK];
        for start in (0..args.active_rows()).step_by(TOKENS) {
            let tokens = TOKENS.min(args.active_rows() - start);
            for r in range.clone() {
                let mut acc = [s.splat(0.0); TOKENS];
                for first in (0..cols).step_by(CHUNK) {
                    decode(&m, r, first, &mut chunk);
                    let count = CHUNK.min(cols - first);
                    for (t, acc) in acc[..tokens].iter_mut().enumerate() {
                        let x = &x[(start + t) * cols + first..][..count];
                        *acc = dot_floats(s, &chunk, x, *acc);
                    }
                }
                for (t, acc) in acc[..tokens].iter().enumerate() {
                    out.put::<1, 1>(r, start + t, [[s.sum(*acc)]]);
                }
            }
        }
    }
}

/// Returns the kernel of a matrix product with weights of any type.
pub(crate) fn link(request: &Request<'_>, matmul: MatmulShape) -> Result<Launch> {
    let readers = TypeReaders::of(request.isa, request.variant)?;
    // Activations are quantized in whole blocks.
    let whole = matmul.cols.is_multiple_of(QK);
    match readers.ints {
        Some(ints) if request.precision == Precision::Fast && whole => {
            Ok(launch::link_chunks(request, ints, matmul))
        }
        _ => Ok(Launch {
            reader: Some(WeightReader::Floats(readers.floats)),
            ..request.launch::<ChunkMatmul>(Split::Units(matmul.rows), matmul.tokens)
        }),
    }
}
