//! Sixteen rows of a matrix side by side: the vocabulary in which packed weights are read.
//!
//! A lane is a row. Nothing is ever summed across lanes, so a row's sum runs along its columns in
//! one order, at every level, whatever else is in the batch.

/// Rows of a panel.
pub const ROWS: usize = 16;

/// Four bytes of each row, as memory has them: `[ROWS][4]`.
pub(crate) type Word = [u8; 4 * ROWS];

/// Two bytes of each row.
pub(crate) type Half = [u8; 2 * ROWS];

/// A number of each row.
pub(crate) type Column = [f32; ROWS];

/// How far ahead of its use a block is asked for.
pub(crate) const AHEAD: usize = 4096;

/// Vectors with a lane for each row.
pub trait Rows: Copy {
    /// Four bytes of each row.
    type Bytes: Copy;
    /// An i32 of each row.
    type Ints: Copy;
    /// An f32 of each row.
    type Floats: Copy;

    /// What [`Rows::raise`] adds to signed bytes, and a product's start takes away again.
    const RAISED: i32;
    /// Tokens that a tile of products has at most.
    const TOKENS: usize;
    /// Whether blocks are read in panels; the scalar level reads every type by chunks.
    const PANELS: bool = true;

    /// From memory.
    fn bytes(self, word: &Word) -> Self::Bytes;
    /// To memory.
    fn put_bytes(self, word: &mut Word, v: Self::Bytes);
    /// Every byte masked.
    fn and(self, v: Self::Bytes, mask: u8) -> Self::Bytes;
    /// Bit by bit.
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Each pair of bytes shifted right, as a number of 16 bits.
    fn right(self, v: Self::Bytes, by: u32) -> Self::Bytes;
    /// Each pair of bytes shifted left, as a number of 16 bits.
    fn left(self, v: Self::Bytes, by: u32) -> Self::Bytes;
    /// The entry of a table for every byte, each below 16.
    fn lookup(self, table: &[i8; 16], v: Self::Bytes) -> Self::Bytes;
    /// `floor(3 v / 256)` of every byte: the leading ternary digit of a fraction.
    fn thirds(self, v: Self::Bytes) -> Self::Bytes;
    /// `3 v` of every byte, modulo 256: the fraction behind that digit.
    fn triple(self, v: Self::Bytes) -> Self::Bytes;
    /// Signed bytes in the form in which this level multiplies them.
    fn raise(self, v: Self::Bytes) -> Self::Bytes;

    /// `start + sum_i w[i] x[4 i..4 i + 4]`, exactly. `x` are signed bytes from -127 to 127; `w`
    /// are at most `max`, a constant, or [`Rows::raise`]d signed bytes where it is 128.
    fn dot<const N: usize>(
        self,
        max: u8,
        start: Self::Ints,
        w: &[Self::Bytes; N],
        x: &[u8],
    ) -> Self::Ints;

    /// The same for several `x`, whose sums wait for one another as little as registers allow.
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

    /// The bytes of each row as a number, the first lowest.
    fn ints(self, v: Self::Bytes) -> Self::Ints;
    /// The numbers of 16 bits, without signs.
    fn ints_of_halves(self, half: &Half) -> Self::Ints;
    /// `x` for every row.
    fn splat_int(self, x: i32) -> Self::Ints;
    /// `v >> by & mask`.
    fn bits(self, v: Self::Ints, by: u32, mask: i32) -> Self::Ints;
    /// `a + (b << by)`.
    fn add_shifted(self, a: Self::Ints, b: Self::Ints, by: u32) -> Self::Ints;
    /// Byte `i` of each number, with its sign.
    fn signed_byte(self, v: Self::Ints, i: u32) -> Self::Ints;
    /// As floats, which the numbers must fit.
    fn floats(self, v: Self::Ints) -> Self::Floats;

    /// From memory.
    fn column(self, column: &Column) -> Self::Floats;
    /// To memory.
    fn put_column(self, column: &mut Column, v: Self::Floats);
    /// f16 as f32.
    fn halves(self, half: &Half) -> Self::Floats;
    /// `x` for every row.
    fn splat_float(self, x: f32) -> Self::Floats;
    /// `a b`.
    fn times(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a b + c`.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
}

/// The body for `i` from 0 up to `N`, 16 at most, written out: what it indexes by `i` stays in
/// registers, which a loop that the compiler leaves rolled would put into memory.
macro_rules! unroll {
    ($i:ident < $n:expr => $body:block) => {
        unroll!(@each $i, $n, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@each $i:ident, $n:expr, $body:block, $($at:literal)+) => {
        // Decided where the function is instantiated, so that no other body is compiled.
        $(if const { $n > $at } {
            let $i: usize = $at;
            $body
        })+
    };
}
pub(crate) use unroll;
