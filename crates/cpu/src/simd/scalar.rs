//! The scalar level: direct implementation of the formulas; the reference for the other levels.

use super::rows::{Column, Half, ROWS, Rows, Word};
use super::vectors::{Simd, Task};
use half::{bf16, f16};

/// Proof for the scalar level, which runs on any processor.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

fn two(bytes: &[u8]) -> [u8; 2] {
    [bytes[0], bytes[1]]
}

impl Simd for Scalar {
    #[inline(never)]
    fn outlined<T: Task<Self>>(self, task: T) {
        task.run(self);
    }

    const LANES: usize = 1;
    type V = f32;

    #[inline(always)]
    fn splat(self, x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn load(self, x: &[f32]) -> f32 {
        x[0]
    }
    #[inline(always)]
    fn store(self, y: &mut [f32], v: f32) {
        y[0] = v;
    }
    #[inline(always)]
    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
    #[inline(always)]
    fn sum(self, v: f32) -> f32 {
        v
    }
    #[inline(always)]
    fn load_f32(self, bytes: &[u8]) -> f32 {
        f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
    #[inline(always)]
    fn load_f16(self, bytes: &[u8]) -> f32 {
        f16::from_le_bytes(two(bytes)).to_f32_const()
    }
    #[inline(always)]
    fn load_bf16(self, bytes: &[u8]) -> f32 {
        bf16::from_le_bytes(two(bytes)).to_f32_const()
    }
    #[inline(always)]
    fn prefetch(self, _: &[u8], _: usize) {}

    #[inline(always)]
    fn dot_i8(self, w: &[[i8; 64]], x: &[[i8; 64]]) -> i32 {
        let pairs = w.as_flattened().iter().zip(x.as_flattened());
        pairs.map(|(w, x)| i32::from(*w) * i32::from(*x)).sum()
    }

    #[inline(always)]
    fn transpose(self, _: &mut [f32]) {}

    #[inline(always)]
    fn store_f16(self, y: &mut [u16], v: f32) {
        y[0] = f16::from_f32_const(v).to_bits();
    }

    #[inline(always)]
    fn store_bytes(self, y: &mut [u8], v: f32) {
        y[0] = v.to_bits().to_le_bytes()[0];
    }

    #[inline(always)]
    fn max(self, a: f32, b: f32) -> f32 {
        if a > b { a } else { b }
    }

    #[inline(always)]
    fn exp2i(self, n: f32) -> f32 {
        f32::from_bits(n.to_bits().wrapping_add(127) << 23)
    }
}

#[inline(always)]
fn each<A: Copy, B: Copy, const N: usize>(a: [A; N], f: impl Fn(A) -> B) -> [B; N] {
    a.map(f)
}

#[inline(always)]
fn pairs(v: Word, f: impl Fn(u16) -> u16) -> Word {
    let halves: [u16; 2 * ROWS] = bytemuck::cast(v);
    bytemuck::cast(each(halves, f))
}

/// Functions that expand to many instructions are not inlined: this saves 5 MB of the library and
/// is faster.
impl Rows for Scalar {
    type Bytes = Word;
    type Ints = [i32; ROWS];
    type Floats = Column;

    const SIGNED_OFFSET: i32 = 0;
    const TOKENS: usize = 4;
    const PANELS: bool = false;

    #[inline(always)]
    fn bytes(self, word: &Word) -> Word {
        *word
    }
    #[inline(always)]
    fn put_bytes(self, word: &mut Word, v: Word) {
        *word = v;
    }
    #[inline(always)]
    fn and(self, v: Word, mask: u8) -> Word {
        each(v, |v| v & mask)
    }
    #[inline(always)]
    fn or(self, a: Word, b: Word) -> Word {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn shr(self, v: Word, by: u32) -> Word {
        pairs(v, |v| v >> by)
    }
    #[inline(always)]
    fn shl(self, v: Word, by: u32) -> Word {
        pairs(v, |v| v << by)
    }
    #[inline(never)]
    fn lookup(self, table: &[i8; 16], v: Word) -> Word {
        each(v, |v| table[usize::from(v & 15)].cast_unsigned())
    }
    #[inline(never)]
    fn leading_digit(self, v: Word) -> Word {
        each(v, |v| u8::from(v > 85) + u8::from(v > 170))
    }
    #[inline(always)]
    fn mul3(self, v: Word) -> Word {
        each(v, |v| v.wrapping_mul(3))
    }
    #[inline(always)]
    fn offset_signed(self, v: Word) -> Word {
        v
    }

    #[inline(never)]
    fn dot<const N: usize>(
        self,
        _: u8,
        mut start: [i32; ROWS],
        w: &[Word; N],
        x: &[u8],
    ) -> [i32; ROWS] {
        for (w, x) in w.iter().zip(x.as_chunks::<4>().0) {
            for (sum, w) in start.iter_mut().zip(w.as_chunks::<4>().0) {
                for (w, x) in w.iter().zip(x) {
                    // All other codes are below 128, where signed and unsigned are the same.
                    *sum += i32::from(w.cast_signed()) * i32::from(x.cast_signed());
                }
            }
        }
        start
    }

    #[inline(always)]
    fn ints(self, v: Word) -> [i32; ROWS] {
        bytemuck::cast(v)
    }
    #[inline(always)]
    fn ints_of_halves(self, half: &Half) -> [i32; ROWS] {
        each(bytemuck::cast::<Half, [u16; ROWS]>(*half), i32::from)
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> [i32; ROWS] {
        [x; ROWS]
    }
    #[inline(always)]
    fn bits(self, v: [i32; ROWS], by: u32, mask: i32) -> [i32; ROWS] {
        each(v, |v| v >> by & mask)
    }
    #[inline(always)]
    fn add_shifted(self, a: [i32; ROWS], b: [i32; ROWS], by: u32) -> [i32; ROWS] {
        std::array::from_fn(|i| a[i] + (b[i] << by))
    }
    #[inline(always)]
    fn signed_byte(self, v: [i32; ROWS], i: u32) -> [i32; ROWS] {
        each(v, |v| v << (24 - 8 * i) >> 24)
    }
    #[inline(always)]
    fn floats(self, v: [i32; ROWS]) -> Column {
        each(v, |v| v as f32)
    }

    #[inline(always)]
    fn column(self, column: &Column) -> Column {
        *column
    }
    #[inline(always)]
    fn put_column(self, column: &mut Column, v: Column) {
        *column = v;
    }
    #[inline(never)]
    fn halves(self, half: &Half) -> Column {
        let halves: [u16; ROWS] = bytemuck::cast(*half);
        each(halves, |h| f16::from_bits(h).to_f32_const())
    }
    #[inline(always)]
    fn splat_float(self, x: f32) -> Column {
        [x; ROWS]
    }
    #[inline(always)]
    fn mul(self, a: Column, b: Column) -> Column {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: Column, b: Column, c: Column) -> Column {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
}
