//! `y[t, g, :] = x[t, g, :]` in another storage type, in blocks of 32. Plans for a CPU do not use it, because its products
//! convert their activations themselves; it is the reference for other devices.

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::panel::QK;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use half::f16;
use tabla_core::dtype::DType;
use tabla_core::error::{Result, bail};
use tabla_core::op::kind;
use tabla_core::op::operands::convert::AT;
use tabla_core::op::params::convert::Params;

/// Number of words of a half of a block in bytes, and of its scale and sums.
const WORDS: usize = 4;

/// Rows padded with zeros.
struct ToF32;

impl Kernel for ToF32 {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let cols = p.cols as usize;
        let x = args.f32s(AT.x);
        let mut y = args.open::<f32>(AT.y);
        for row in args.range() {
            let (numbers, rest) = y.unit(row, cols.next_multiple_of(QK)).split_at_mut(cols);
            numbers.copy_from_slice(&x[row * cols..][..cols]);
            rest.fill(0.0);
        }
    }
}

/// Eighths in f16, padded with zeros.
struct ToF16;

impl Kernel for ToF16 {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let cols = p.cols as usize;
        let x = args.f32s(AT.x);
        let mut y = args.open::<u16>(AT.y);
        for row in args.range() {
            let y = y.unit(row, cols.next_multiple_of(QK));
            let (numbers, rest) = y.split_at_mut(cols);
            for (y, x) in numbers.iter_mut().zip(&x[row * cols..]) {
                *y = f16::from_f32(0.125 * x).to_bits();
            }
            rest.fill(0);
        }
    }
}

/// Blocks of signed bytes, in planes: the first halves of all blocks of a row, the second halves, the scales and sums.
struct ToQ8_1;

impl Kernel for ToQ8_1 {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let cols = p.cols as usize;
        let blocks = cols.div_ceil(QK);
        let x = args.f32s(AT.x);
        let mut y = args.open::<[u32; WORDS]>(AT.y);
        for row in args.range() {
            let y = y.unit(row, 3 * blocks);
            for (i, x) in x[row * cols..][..cols].chunks(QK).enumerate() {
                [y[i], y[blocks + i], y[2 * blocks + i]] = block(x);
            }
        }
    }
}

/// Returns the words of a block, padded with zeros: both halves, then the scale and the scaled sums of both halves. `scale =
/// max |x| / 127`, bytes are `round(x / scale)`, halves to even, as in `shaders/lib/q8_1.wgsl`.
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "sums of 16 bytes")]
fn block(x: &[f32]) -> [[u32; WORDS]; 3] {
    /// Adding this number leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let largest = x.iter().fold(0, |m, x| m.max(x.abs().to_bits()));
    let largest = f32::from_bits(largest);
    // 0 for zeros and for values so small that the inverse overflows.
    let inverse = if largest > 4e-37 {
        127.0 / largest
    } else {
        0.0
    };
    let mut bytes = [0u8; QK];
    for (byte, x) in bytes.iter_mut().zip(x) {
        [*byte, ..] = x.mul_add(inverse, ROUND).to_bits().to_le_bytes();
    }
    let scale = largest / 127.0;
    let sum = |half: &[u8]| {
        let sum: i32 = half.iter().map(|q| i32::from(q.cast_signed())).sum();
        (scale * sum as f32).to_bits()
    };
    let (lo, hi) = bytes.split_at(QK / 2);
    let line = [scale.to_bits(), sum(lo), sum(hi), 0];
    let words = |half: &[u8]| bytemuck::pod_read_unaligned(half);
    [words(lo), words(hi), line]
}

impl Link for kind::Convert {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let split = Split::Rows(p.groups as usize);
        Ok(match request.variant {
            Some(DType::F32) => request.scalar::<ToF32>(split, p.tokens),
            Some(DType::F16) => request.scalar::<ToF16>(split, p.tokens),
            Some(DType::Q8_1) => request.scalar::<ToQ8_1>(split, p.tokens),
            other => bail!(Internal, "no conversion to {other:?}"),
        })
    }
}
