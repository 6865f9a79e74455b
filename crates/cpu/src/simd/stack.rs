//! Stack alignment of functions that spill vectors.

use std::arch::x86_64::__m512;
use std::hint::black_box;
use std::mem::MaybeUninit;

/// Makes the calling function align its stack frame to cache lines, so that no spilled vector
/// crosses one. Otherwise the compiler spills relative to the caller's stack pointer; if that is
/// not a multiple of 64, gemm takes 9 % longer.
#[inline(always)]
pub(super) fn align() {
    // A local variable whose address is taken is aligned, and the frame with it.
    black_box(&MaybeUninit::<__m512>::uninit());
}
