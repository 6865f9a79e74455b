//! Products of a decoded block of weights and tokens of a tile.

use super::activations::ActivationBlock;
use crate::panel::{Codes, PanelBlock, QK, WORDS};
use crate::simd::rows::{Rows, unroll};

/// Adds the products of a block and `T` tokens of a tile of `N`, starting at token `F`. `STORED` blocks
/// are in the order of [`Rows::tile_words`].
#[inline(always)]
pub(crate) fn multiply<
    S: Rows,
    C: Codes,
    const T: usize,
    const N: usize,
    const F: usize,
    const STORED: bool,
>(
    s: S,
    block: &PanelBlock<S>,
    x: ActivationBlock<'_, N>,
    sums: &mut [S::Floats; T],
) {
    // Interleaves several tokens, as far as registers allow, to hide the latency of their products.
    // With sixteen registers, four tokens fit only if a block needs one kind of sums: of pairs of
    // products, or of single ones.
    if const { T >= 4 && (!S::PAIRS || C::MAX <= 15 || C::MAX == 128) } {
        unroll!(i < T / 4 => { multiply_group::<S, C, T, N, F, STORED, 4>(s, block, x, sums, 4 * i); });
    } else if const { T >= 2 && S::TOKENS == 4 } {
        unroll!(i < T / 2 => { multiply_group::<S, C, T, N, F, STORED, 2>(s, block, x, sums, 2 * i); });
    } else {
        unroll!(t < T => { multiply_group::<S, C, T, N, F, STORED, 1>(s, block, x, sums, t); });
    }
}

/// Adds the products of a block and `J` of the tokens.
#[inline(always)]
fn multiply_group<
    S: Rows,
    C: Codes,
    const T: usize,
    const N: usize,
    const F: usize,
    const STORED: bool,
    const J: usize,
>(
    s: S,
    block: &PanelBlock<S>,
    x: ActivationBlock<'_, N>,
    sums: &mut [S::Floats; T],
    first: usize,
) {
    const HALF: usize = WORDS / 2;
    let halves = const { 1 + C::HALVES as usize };
    for h in 0..halves {
        let mut q = [&x.q()[first][..]; J];
        let mut starts = [s.splat_int(0); J];
        unroll!(j < J => {
            q[j] = &x.q()[F + first + j][h * QK / halves..];
            starts[j] = s.splat_int(x.start(h)[F + first + j]);
        });
        let ints = if C::HALVES {
            let codes = block.codes[h * HALF..].first_chunk().expect("two halves");
            dots::<S, HALF, J, STORED>(s, C::MAX, starts, codes, q)
        } else {
            dots::<S, WORDS, J, STORED>(s, C::MAX, starts, &block.codes, q)
        };
        unroll!(j < J => {
            let scale = s.mul(block.scale[h], s.splat_float(x.d()[F + first + j]));
            let sum = sum_of::<S, J>(s, &mut sums[first + j]);
            *sum = s.mul_add(s.floats(ints[j]), scale, *sum);
            if C::MIN && !C::HALVES {
                let x = s.splat_float(x.sum(h)[F + first + j]);
                *sum = s.mul_add(block.min[h], x, *sum);
            }
        });
    }
    // Minima are added after all products of a block.
    if C::MIN && C::HALVES {
        for h in 0..halves {
            unroll!(j < J => {
                let x = s.splat_float(x.sum(h)[F + first + j]);
                let sum = sum_of::<S, J>(s, &mut sums[first + j]);
                *sum = s.mul_add(block.min[h], x, *sum);
            });
        }
    }
}

#[inline(always)]
fn dots<S: Rows, const N: usize, const J: usize, const STORED: bool>(
    s: S,
    max: u8,
    starts: [S::Ints; J],
    w: &[S::Bytes; N],
    x: [&[u8]; J],
) -> [S::Ints; J] {
    match STORED {
        true => s.tile_dots(max, starts, w, x),
        false => s.dots(max, starts, w, x),
    }
}

/// Sum of one of `J` tokens that are multiplied together.
#[inline(always)]
fn sum_of<S: Rows, const J: usize>(s: S, sum: &mut S::Floats) -> &mut S::Floats {
    if J == 1 { sum } else { s.in_memory(sum) }
}
