//! AVX-512 BF16: products of pairs of bf16 numbers with `vdpbf16ps`, on processors with the AVX-512
//! level.

use super::stack;
use super::vectors::Task;
use std::arch::x86_64::{
    __m512, __m512bh, _mm_storeu_ps, _mm512_add_ps, _mm512_castpd_ps, _mm512_castps_pd,
    _mm512_castps512_ps128, _mm512_dpbf16_ps, _mm512_loadu_si512, _mm512_setzero_ps,
    _mm512_shuffle_f32x4, _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd,
    _mm512_unpacklo_ps,
};
use std::hint::black_box;
use std::mem::transmute;

/// Proof that the processor has AVX-512 BF16 and the AVX-512 level.
#[derive(Clone, Copy, Debug)]
pub struct Bf16(());

/// Runs a task compiled for these instructions.
///
/// # Safety
///
/// The processor must have AVX-512 BF16 and meet the requirements of `Avx512::assume`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")]
pub(super) unsafe fn enter<T: Task<Bf16>>(task: T) {
    stack::align();
    task.run(Bf16(()));
}

/// As [`enter`], for a task that is called in several places.
///
/// # Safety
///
/// As for [`enter`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")]
#[inline(never)]
unsafe fn outlined<T: Task<Bf16>>(s: Bf16, task: T) {
    stack::align();
    task.run(s);
}

/// Runs products on registers; returns the number of operations.
///
/// # Safety
///
/// As for [`enter`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")]
pub(super) unsafe fn probe(rounds: u32) -> u64 {
    /// Independent sums: enough for two units with a latency of six cycles.
    const SUMS: usize = 12;
    let s = Bf16(());
    let [w, x] = black_box([[0x3f; 64], [0x3e; 64]]);
    let (w, x) = (s.load(&w), s.load(&x));
    let mut sums = black_box([s.zero(); SUMS]);
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = s.dot(*sum, w, x);
        }
    }
    black_box(sums);
    // 16 lanes of two products and two additions.
    u64::from(rounds) * 64 * SUMS as u64
}

/// Calls intrinsics of this level.
macro_rules! with {
    ($self:ident, $call:expr) => {{
        let Bf16(()) = $self;
        // SAFETY: `self` proves the instructions that these intrinsics need.
        unsafe { $call }
    }};
}

impl Bf16 {
    /// Runs a task that is not inlined.
    #[inline(always)]
    pub(crate) fn outlined<T: Task<Self>>(self, task: T) {
        // SAFETY: `self` proves what the function needs.
        unsafe { outlined(self, task) };
    }

    /// Zeros.
    #[inline(always)]
    pub(crate) fn zero(self) -> __m512 {
        with!(self, _mm512_setzero_ps())
    }

    /// Loads 32 numbers.
    #[inline(always)]
    pub(crate) fn load(self, bytes: &[u8; 64]) -> __m512bh {
        // SAFETY: 64 bytes are readable, the load needs no alignment, and `self` proves AVX-512.
        let v = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
        // SAFETY: both are 64 bytes, and any bits are bf16.
        unsafe { transmute(v) }
    }

    /// `sums[i] += w[2 i] x[2 i] + w[2 i + 1] x[2 i + 1]`. Subnormal numbers count as zero.
    ///
    /// Source: `VDPBF16PS` in Intel's Software Developer's Manual.
    #[inline(always)]
    pub(crate) fn dot(self, sums: __m512, w: __m512bh, x: __m512bh) -> __m512 {
        with!(self, _mm512_dpbf16_ps(sums, w, x))
    }

    /// Adds up the lanes of each vector, in an order that does not depend on the others.
    #[inline(always)]
    pub(crate) fn sums(self, [a, b, c, d]: [__m512; 4]) -> [f32; 4] {
        // Pairs of lanes of two vectors, then of four, interleaved.
        let ab = with!(
            self,
            _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b))
        );
        let cd = with!(
            self,
            _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d))
        );
        let (ab, cd) = with!(self, (_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
        let low = with!(self, _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)));
        let high = with!(self, _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
        let all = with!(self, _mm512_add_ps(low, high));
        // The four quarters.
        let halves = with!(self, _mm512_shuffle_f32x4::<0b01_00_11_10>(all, all));
        let all = with!(self, _mm512_add_ps(all, halves));
        let quarters = with!(self, _mm512_shuffle_f32x4::<0b10_11_00_01>(all, all));
        let all = with!(self, _mm512_add_ps(all, quarters));
        let all = with!(self, _mm512_castps512_ps128(all));
        let mut sums = [0.0; 4];
        // SAFETY: four numbers are writable, and the store needs no alignment.
        unsafe { _mm_storeu_ps(sums.as_mut_ptr(), all) };
        sums
    }
}
