//! SIMD128 of WebAssembly: 4 lanes.
//!
//! A module with these instructions is valid only where the engine has them, so the level is part of a build with
//! `-C target-feature=+simd128` and needs no detection. There is no fused multiply-add: products are rounded, as at the
//! scalar level.

use super::rows::{Column, Half, Rows, Word, unroll};
use super::vectors::{Simd, Task};
use std::arch::wasm32::{
    f32x4_abs, f32x4_add, f32x4_convert_i32x4, f32x4_extract_lane, f32x4_mul, f32x4_pmax,
    f32x4_splat, i8x16_eq, i8x16_shuffle, i8x16_swizzle, i16x8_extend_high_i8x16,
    i16x8_extend_low_i8x16, i32x4_add, i32x4_dot_i16x8, i32x4_extract_lane, i32x4_shl, i32x4_shr,
    i32x4_shuffle, i32x4_splat, u8x16_add, u8x16_max, u8x16_splat, u8x16_sub, u16x8_narrow_i32x4,
    u16x8_shl, u16x8_shr, u32x4_extend_high_u16x8, u32x4_extend_low_u16x8, u32x4_ge, u32x4_gt,
    u32x4_max, u32x4_shl, u32x4_shr, u32x4_splat, v128, v128_and, v128_bitselect, v128_or,
};

/// Proof that the build has SIMD128.
#[derive(Clone, Copy, Debug)]
pub(super) struct Simd128;

/// The first 16 bytes as a vector.
#[inline(always)]
fn sixteen(bytes: &[u8]) -> v128 {
    let bytes: &[u8; 16] = bytes.first_chunk().expect("a full vector");
    bytemuck::cast(*bytes)
}

#[inline(always)]
fn four(x: &[f32]) -> v128 {
    let x: &[f32; 4] = x.first_chunk().expect("a full vector");
    bytemuck::cast(*x)
}

#[inline(always)]
fn put_four(y: &mut [f32], v: v128) {
    let y: &mut [f32; 4] = y.first_chunk_mut().expect("a full vector");
    *y = bytemuck::cast(v);
}

/// Four 16-bit numbers at the start of `bytes` as 32-bit numbers.
#[inline(always)]
fn shorts(bytes: &[u8]) -> v128 {
    let bytes: &[u8; 8] = bytes.first_chunk().expect("half a vector");
    u32x4_extend_low_u16x8(bytemuck::cast([u64::from_le_bytes(*bytes), 0]))
}

/// The numbers of four f16, which are the low halves of the lanes.
#[inline(always)]
fn of_f16(h: v128) -> v128 {
    let sign = u32x4_shl(v128_and(h, u32x4_splat(0x8000)), 16);
    let rest = u32x4_shl(v128_and(h, u32x4_splat(0x7fff)), 13);
    // 2^112 is the difference of the biases; the product is exact, also of subnormal numbers.
    let finite = f32x4_mul(rest, f32x4_splat(f32::from_bits(0x7780_0000)));
    let not_finite = u32x4_ge(rest, u32x4_splat(0x7c00 << 13));
    let exponent = v128_and(not_finite, u32x4_splat(0x7f80_0000));
    v128_or(v128_or(sign, finite), exponent)
}

/// The bits of four numbers as f16, rounded to nearest even, in the low halves of the lanes (the conversion of the
/// library FP16 by M. Dukhan: the sum with a power of two rounds the mantissa).
#[inline(always)]
fn to_f16(v: v128) -> v128 {
    let scaled = f32x4_mul(f32x4_abs(v), f32x4_splat(f32::from_bits(0x7780_0000)));
    let scaled = f32x4_mul(scaled, f32x4_splat(f32::from_bits(0x0880_0000)));
    let doubled = u32x4_shl(v, 1);
    let exponent = v128_and(doubled, u32x4_splat(0xff00_0000));
    let bias = u32x4_max(exponent, u32x4_splat(0x7100_0000));
    let rounder = i32x4_add(u32x4_shr(bias, 1), u32x4_splat(0x0780_0000));
    let rounded = f32x4_add(rounder, scaled);
    let exponent = v128_and(u32x4_shr(rounded, 13), u32x4_splat(0x7c00));
    let number = i32x4_add(exponent, v128_and(rounded, u32x4_splat(0x0fff)));
    // Of a NaN, the upper bits of the mantissa remain, and it is quiet.
    let payload = v128_and(u32x4_shr(v, 13), u32x4_splat(0x01ff));
    let nan = v128_or(payload, u32x4_splat(0x7e00));
    let is_nan = u32x4_gt(doubled, u32x4_splat(0xff00_0000));
    let sign = v128_and(u32x4_shr(v, 16), u32x4_splat(0x8000));
    v128_or(sign, v128_bitselect(nan, number, is_nan))
}

/// The sums of neighbours: of `a` in the lower half, of `b` in the upper one.
#[inline(always)]
fn pair_sums(a: v128, b: v128) -> v128 {
    i32x4_add(
        i32x4_shuffle::<0, 2, 4, 6>(a, b),
        i32x4_shuffle::<1, 3, 5, 7>(a, b),
    )
}

/// Four bytes as 16-bit numbers, twice.
#[inline(always)]
fn columns(x: &[u8; 4]) -> v128 {
    i16x8_extend_low_i8x16(i32x4_splat(i32::from_le_bytes(*x)))
}

/// Adds the products of the rows of vector `Q` of each word: four rows at a time, so that their sums and weights are in
/// registers. The weights are extended once for all tokens.
#[inline(always)]
fn add_products<const Q: usize, const N: usize, const J: usize>(
    starts: &mut [[v128; 4]; J],
    w: &[[v128; 4]; N],
    x: &[[v128; J]; N],
) {
    // Two sums of each row.
    let mut sums = [[i32x4_splat(0); 2]; J];
    unroll!(i < N => {
        let w = w[i][Q];
        let w = [i16x8_extend_low_i8x16(w), i16x8_extend_high_i8x16(w)];
        unroll!(j < J => {
            let products = w.map(|w| i32x4_dot_i16x8(w, x[i][j]));
            sums[j] = match i {
                0 => products,
                _ => [0, 1].map(|half| i32x4_add(sums[j][half], products[half])),
            };
        });
    });
    unroll!(j < J => {
        let [low, high] = sums[j];
        starts[j][Q] = i32x4_add(starts[j][Q], pair_sums(low, high));
    });
}

impl Simd for Simd128 {
    #[inline(never)]
    fn outlined<T: Task<Self>>(self, task: T) {
        task.run(self);
    }

    const LANES: usize = 4;
    type V = v128;

    #[inline(always)]
    fn splat(self, x: f32) -> v128 {
        f32x4_splat(x)
    }
    #[inline(always)]
    fn load(self, x: &[f32]) -> v128 {
        four(x)
    }
    #[inline(always)]
    fn store(self, y: &mut [f32], v: v128) {
        put_four(y, v);
    }
    #[inline(always)]
    fn fma(self, a: v128, b: v128, c: v128) -> v128 {
        f32x4_add(f32x4_mul(a, b), c)
    }
    #[inline(always)]
    fn sum(self, v: v128) -> f32 {
        let two = f32x4_add(v, i32x4_shuffle::<2, 3, 0, 1>(v, v));
        f32x4_extract_lane::<0>(two) + f32x4_extract_lane::<1>(two)
    }
    #[inline(always)]
    fn load_f32(self, bytes: &[u8]) -> v128 {
        sixteen(bytes)
    }
    #[inline(always)]
    fn load_f16(self, bytes: &[u8]) -> v128 {
        of_f16(shorts(bytes))
    }
    #[inline(always)]
    fn load_bf16(self, bytes: &[u8]) -> v128 {
        u32x4_shl(shorts(bytes), 16)
    }
    #[inline(always)]
    fn prefetch(self, _: &[u8], _: usize) {}

    #[inline(always)]
    fn dot_i8(self, w: &[[i8; 64]], x: &[[i8; 64]]) -> i32 {
        let mut sums = [i32x4_splat(0); 2];
        for (w, x) in w.iter().zip(x) {
            let w: &[[u8; 16]; 4] = bytemuck::cast_ref(w);
            let x: &[[u8; 16]; 4] = bytemuck::cast_ref(x);
            for (w, x) in w.iter().zip(x) {
                let (w, x) = (sixteen(w), sixteen(x));
                let low = (i16x8_extend_low_i8x16(w), i16x8_extend_low_i8x16(x));
                let high = (i16x8_extend_high_i8x16(w), i16x8_extend_high_i8x16(x));
                for (sum, (w, x)) in sums.iter_mut().zip([low, high]) {
                    *sum = i32x4_add(*sum, i32x4_dot_i16x8(w, x));
                }
            }
        }
        let two = pair_sums(sums[0], sums[1]);
        let one = pair_sums(two, two);
        i32x4_extract_lane::<0>(one) + i32x4_extract_lane::<1>(one)
    }

    #[inline(always)]
    fn transpose(self, v: &mut [v128]) {
        let v: &mut [v128; 4] = v.first_chunk_mut().expect("at least four vectors");
        let [a, b, c, d] = *v;
        let (ab, cd) = (
            i32x4_shuffle::<0, 4, 1, 5>(a, b),
            i32x4_shuffle::<0, 4, 1, 5>(c, d),
        );
        let (ab_high, cd_high) = (
            i32x4_shuffle::<2, 6, 3, 7>(a, b),
            i32x4_shuffle::<2, 6, 3, 7>(c, d),
        );
        *v = [
            i32x4_shuffle::<0, 1, 4, 5>(ab, cd),
            i32x4_shuffle::<2, 3, 6, 7>(ab, cd),
            i32x4_shuffle::<0, 1, 4, 5>(ab_high, cd_high),
            i32x4_shuffle::<2, 3, 6, 7>(ab_high, cd_high),
        ];
    }

    #[inline(always)]
    fn store_f16(self, y: &mut [u16], v: v128) {
        let y: &mut [u16; 4] = y.first_chunk_mut().expect("a full vector");
        let bits = to_f16(v);
        let [low, _]: [[u16; 4]; 2] = bytemuck::cast(u16x8_narrow_i32x4(bits, bits));
        *y = low;
    }

    #[inline(always)]
    fn store_bytes(self, y: &mut [u8], v: v128) {
        let y: &mut [u8; 4] = y.first_chunk_mut().expect("a full vector");
        let v = i8x16_shuffle::<0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12>(v, v);
        *y = i32x4_extract_lane::<0>(v).to_le_bytes();
    }

    #[inline(always)]
    fn max(self, a: v128, b: v128) -> v128 {
        // `b < a ? a : b`
        f32x4_pmax(b, a)
    }

    #[inline(always)]
    fn exp2i(self, n: v128) -> v128 {
        u32x4_shl(i32x4_add(n, i32x4_splat(127)), 23)
    }
}

impl Rows for Simd128 {
    type Bytes = [v128; 4];
    type Ints = [v128; 4];
    type Floats = [v128; 4];

    const SIGNED_OFFSET: i32 = 0;
    const TOKENS: usize = 4;

    #[inline(always)]
    fn bytes(self, word: &Word) -> Self::Bytes {
        bytemuck::cast(*word)
    }
    #[inline(always)]
    fn put_bytes(self, word: &mut Word, v: Self::Bytes) {
        *word = bytemuck::cast(v);
    }
    #[inline(always)]
    fn and(self, v: Self::Bytes, mask: u8) -> Self::Bytes {
        v.map(|v| v128_and(v, u8x16_splat(mask)))
    }
    #[inline(always)]
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        [0, 1, 2, 3].map(|i| v128_or(a[i], b[i]))
    }
    #[inline(always)]
    fn shr(self, v: Self::Bytes, by: u32) -> Self::Bytes {
        v.map(|v| u16x8_shr(v, by))
    }
    #[inline(always)]
    fn shl(self, v: Self::Bytes, by: u32) -> Self::Bytes {
        v.map(|v| u16x8_shl(v, by))
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: Self::Bytes) -> Self::Bytes {
        let table = sixteen(bytemuck::cast_slice(table));
        v.map(|v| i8x16_swizzle(table, v))
    }
    #[inline(always)]
    fn leading_digit(self, v: Self::Bytes) -> Self::Bytes {
        v.map(|v| {
            // The larger of v and n equals v where v >= n; the comparison yields -1 there.
            let least = |n| i8x16_eq(u8x16_max(v, u8x16_splat(n)), v);
            u8x16_sub(u8x16_splat(0), u8x16_add(least(86), least(171)))
        })
    }
    #[inline(always)]
    fn mul3(self, v: Self::Bytes) -> Self::Bytes {
        v.map(|v| u8x16_add(v, u8x16_add(v, v)))
    }
    #[inline(always)]
    fn offset_signed(self, v: Self::Bytes) -> Self::Bytes {
        v
    }

    #[inline(always)]
    fn dot<const N: usize>(
        self,
        max: u8,
        start: Self::Ints,
        w: &[Self::Bytes; N],
        x: &[u8],
    ) -> Self::Ints {
        let [sums] = self.dots(max, [start], w, [x]);
        sums
    }

    #[inline(always)]
    fn dots<const N: usize, const J: usize>(
        self,
        _: u8,
        mut starts: [Self::Ints; J],
        w: &[Self::Bytes; N],
        x: [&[u8]; J],
    ) -> [Self::Ints; J] {
        let x = x.map(|x| x.as_chunks::<4>().0);
        let mut tokens = [[i32x4_splat(0); J]; N];
        unroll!(i < N => {
            unroll!(j < J => { tokens[i][j] = columns(&x[j][i]); });
        });
        add_products::<0, N, J>(&mut starts, w, &tokens);
        add_products::<1, N, J>(&mut starts, w, &tokens);
        add_products::<2, N, J>(&mut starts, w, &tokens);
        add_products::<3, N, J>(&mut starts, w, &tokens);
        starts
    }

    #[inline(always)]
    fn ints(self, v: Self::Bytes) -> Self::Ints {
        v
    }
    #[inline(always)]
    fn ints_of_halves(self, half: &Half) -> Self::Ints {
        let [low, high]: [v128; 2] = bytemuck::cast(*half);
        [
            u32x4_extend_low_u16x8(low),
            u32x4_extend_high_u16x8(low),
            u32x4_extend_low_u16x8(high),
            u32x4_extend_high_u16x8(high),
        ]
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Ints {
        [i32x4_splat(x); 4]
    }
    #[inline(always)]
    fn bits(self, v: Self::Ints, by: u32, mask: i32) -> Self::Ints {
        v.map(|v| v128_and(u32x4_shr(v, by), i32x4_splat(mask)))
    }
    #[inline(always)]
    fn add_shifted(self, a: Self::Ints, b: Self::Ints, by: u32) -> Self::Ints {
        [0, 1, 2, 3].map(|i| i32x4_add(a[i], i32x4_shl(b[i], by)))
    }
    #[inline(always)]
    fn signed_byte(self, v: Self::Ints, i: u32) -> Self::Ints {
        v.map(|v| i32x4_shr(i32x4_shl(v, 24 - 8 * i), 24))
    }
    #[inline(always)]
    fn floats(self, v: Self::Ints) -> Self::Floats {
        v.map(|v| f32x4_convert_i32x4(v))
    }

    #[inline(always)]
    fn column(self, column: &Column) -> Self::Floats {
        bytemuck::cast(*column)
    }
    #[inline(always)]
    fn put_column(self, column: &mut Column, v: Self::Floats) {
        *column = bytemuck::cast(v);
    }
    #[inline(always)]
    fn halves(self, half: &Half) -> Self::Floats {
        self.ints_of_halves(half).map(of_f16)
    }
    #[inline(always)]
    fn splat_float(self, x: f32) -> Self::Floats {
        [f32x4_splat(x); 4]
    }
    #[inline(always)]
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        [0, 1, 2, 3].map(|i| f32x4_mul(a[i], b[i]))
    }
    #[inline(always)]
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        [0, 1, 2, 3].map(|i| f32x4_add(f32x4_mul(a[i], b[i]), c[i]))
    }
}
