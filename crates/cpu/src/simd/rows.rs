//! Vectors over sixteen rows of a matrix, used to read packed weights.
//!
//! Each lane is a row. Lanes are never added up, so the sum of a row runs along its columns in the
//! same order at every level and for every batch.

/// Rows of a panel.
pub const ROWS: usize = 16;

/// Four bytes of each row in memory order: `[ROWS][4]`.
pub(crate) type Word = [u8; 4 * ROWS];

/// Two bytes of each row.
pub(crate) type Half = [u8; 2 * ROWS];

/// One f32 of each row.
pub(crate) type Column = [f32; ROWS];

/// Prefetch distance in bytes.
pub(crate) const AHEAD: usize = 4096;

/// Vectors with one lane per row.
pub trait Rows: Copy {
    /// Four bytes of each row.
    type Bytes: Copy;
    /// One i32 of each row.
    type Ints: Copy;
    /// One f32 of each row.
    type Floats: Copy;

    /// Offset that [`Rows::offset_signed`] adds to signed bytes; the start value of a sum
    /// compensates for it.
    const SIGNED_OFFSET: i32;
    /// Maximum number of tokens of a tile.
    const TOKENS: usize;
    /// Whether products of bytes are added up in pairs of 16 bits first, as far as they fit.
    const PAIRS: bool = false;
    /// Whether blocks are read from panels; the scalar level reads every type in chunks.
    const PANELS: bool = true;

    /// Loads a word.
    fn bytes(self, word: &Word) -> Self::Bytes;
    /// Stores a word.
    fn put_bytes(self, word: &mut Word, v: Self::Bytes);
    /// Bitwise and of every byte with a mask.
    fn and(self, v: Self::Bytes, mask: u8) -> Self::Bytes;
    /// Bitwise or.
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Each pair of bytes shifted right as a 16-bit number.
    fn shr(self, v: Self::Bytes, by: u32) -> Self::Bytes;
    /// Each pair of bytes shifted left as a 16-bit number.
    fn shl(self, v: Self::Bytes, by: u32) -> Self::Bytes;
    /// Table entry of every byte; bytes must be below 16.
    fn lookup(self, table: &[i8; 16], v: Self::Bytes) -> Self::Bytes;
    /// `floor(3 v / 256)` of every byte: the leading ternary digit of a fraction.
    fn leading_digit(self, v: Self::Bytes) -> Self::Bytes;
    /// `3 v` of every byte, modulo 256: the fraction after that digit.
    fn mul3(self, v: Self::Bytes) -> Self::Bytes;
    /// Signed bytes plus [`Rows::SIGNED_OFFSET`], the form in which this level multiplies them.
    fn offset_signed(self, v: Self::Bytes) -> Self::Bytes;

    /// `start + sum_i w[i] x[4 i..4 i + 4]`, exact. `x` are signed bytes from -127 to 127; `w` are
    /// at most `max`, a constant, or results of [`Rows::offset_signed`] if it is 128.
    fn dot<const N: usize>(
        self,
        max: u8,
        start: Self::Ints,
        w: &[Self::Bytes; N],
        x: &[u8],
    ) -> Self::Ints;

    /// [`Rows::dot`] for several `x`, interleaved to hide latency as far as registers allow.
    #[inline(always)]
    fn dots<const N: usize, const J: usize>(
        self,
        max: u8,
        mut starts: [Self::Ints; J],
        w: &[Self::Bytes; N],
        x: [&[u8]; J],
    ) -> [Self::Ints; J] {
        for (start, x) in starts.iter_mut().zip(x) {
            *start = self.dot(max, *start, w, x);
        }
        starts
    }

    /// Words of a block in the order in which they are stored for [`Rows::tile_dots`].
    #[inline(always)]
    fn tile_words<const N: usize>(self, words: [Self::Bytes; N]) -> [Self::Bytes; N] {
        words
    }

    /// [`Rows::dots`] for words in the order of [`Rows::tile_words`], or a half of them.
    #[inline(always)]
    fn tile_dots<const N: usize, const J: usize>(
        self,
        max: u8,
        starts: [Self::Ints; J],
        w: &[Self::Bytes; N],
        x: [&[u8]; J],
    ) -> [Self::Ints; J] {
        self.dots(max, starts, w, x)
    }

    /// A sum of one of several tokens, kept in memory at levels with too few registers: otherwise
    /// LLVM stores and loads the products too.
    #[inline(always)]
    fn in_memory<T>(self, sum: &mut T) -> &mut T {
        sum
    }

    /// The sum, computed where it is in the source: LLVM moves it after the prefetches of later
    /// blocks otherwise, and the core drops prefetches that come all at once.
    #[inline(always)]
    fn in_place(self, sum: Self::Floats) -> Self::Floats {
        sum
    }

    /// The four bytes of each row as an i32, little-endian.
    fn ints(self, v: Self::Bytes) -> Self::Ints;
    /// 16-bit unsigned numbers as i32.
    fn ints_of_halves(self, half: &Half) -> Self::Ints;
    /// `x` for every row.
    fn splat_int(self, x: i32) -> Self::Ints;
    /// `v >> by & mask`.
    fn bits(self, v: Self::Ints, by: u32, mask: i32) -> Self::Ints;
    /// `a + (b << by)`.
    fn add_shifted(self, a: Self::Ints, b: Self::Ints, by: u32) -> Self::Ints;
    /// Byte `i` of each number, sign-extended.
    fn signed_byte(self, v: Self::Ints, i: u32) -> Self::Ints;
    /// Converts to f32; the numbers must be exactly representable.
    fn floats(self, v: Self::Ints) -> Self::Floats;

    /// Loads a column.
    fn column(self, column: &Column) -> Self::Floats;
    /// Stores a column.
    fn put_column(self, column: &mut Column, v: Self::Floats);
    /// Loads f16 numbers as f32.
    fn halves(self, half: &Half) -> Self::Floats;
    /// `x` for every row.
    fn splat_float(self, x: f32) -> Self::Floats;
    /// `a b`.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a b + c`.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
}

/// Repeats the body for `i` from 0 to `N - 1`, with `N` at most 16. Variables indexed by `i` stay
/// in registers, which a loop that is not unrolled would prevent.
macro_rules! unroll {
    ($i:ident < $n:expr => $body:block) => {
        unroll!(@each $i, $n, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@each $i:ident, $n:expr, $body:block, $($at:literal)+) => {
        // Evaluated at instantiation, so that unused bodies are not compiled.
        $(if const { $n > $at } {
            let $i: usize = $at;
            $body
        })+
    };
}
pub(crate) use unroll;
