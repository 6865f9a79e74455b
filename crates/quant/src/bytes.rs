//! Arithmetic on the bytes of blocks, eight at a time in a u64.

use bytemuck::{cast, pod_read_unaligned};

/// Eight bytes with value 1.
pub(super) const ONES: u64 = 0x0101_0101_0101_0101;
/// Eight bytes with value 128.
pub(super) const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// The low nibbles of 16 bytes, then the high ones.
#[inline(always)]
pub(super) fn nibbles(bytes: &[u8; 16]) -> [u64; 4] {
    let [a, b]: [u64; 2] = pod_read_unaligned(bytes);
    [a, b, a >> 4, b >> 4].map(|word| word & (15 * ONES))
}

/// Subtracts `by` from the bytes of a word, which must be below 128.
#[inline(always)]
pub(super) fn sub_bytes(word: u64, by: u8) -> u64 {
    // The top bits absorb the borrows.
    ((word | HIGH_BITS) - ONES * u64::from(by)) ^ HIGH_BITS
}

/// `y[i] = d x[i]`.
#[inline(always)]
pub(super) fn scale_bytes(d: f32, x: [i8; 16]) -> [f32; 16] {
    x.map(|x| d * f32::from(x))
}

/// `q = f(a)`, eight bytes at a time.
#[inline(always)]
pub(super) fn map_words(q: &mut [i8; 32], a: &[u8; 32], f: impl Fn(u64) -> u64) {
    let a: [u64; 4] = pod_read_unaligned(a);
    *q = cast(a.map(f));
}

/// `q = f(a, b)`, eight bytes at a time.
#[inline(always)]
pub(super) fn map_words2(
    q: &mut [i8; 32],
    a: &[u8; 32],
    b: &[u8; 32],
    f: impl Fn(u64, u64) -> u64,
) {
    let (a, b): ([u64; 4], [u64; 4]) = (pod_read_unaligned(a), pod_read_unaligned(b));
    *q = cast(std::array::from_fn::<_, 4, _>(|i| f(a[i], b[i])));
}

/// `q[i] = f(a[i])`, as an int8.
#[inline(always)]
pub(super) fn map_bytes<const N: usize>(q: &mut [i8; N], a: &[u8; N], f: impl Fn(u8) -> u8) {
    for (q, a) in q.iter_mut().zip(a) {
        *q = f(*a).cast_signed();
    }
}

/// Converts a block to its stored bytes.
pub(super) fn to_bytes<const BYTES: usize>(block: impl bytemuck::NoUninit) -> [u8; BYTES] {
    let bytes = bytemuck::bytes_of(&block).try_into();
    bytes.expect("the struct has the size of a stored block")
}
