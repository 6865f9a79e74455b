//! The stack of functions that spill vectors.

use std::arch::x86_64::__m512;
use std::hint::black_box;
use std::mem::MaybeUninit;

/// Makes the calling function align its stack to cache lines, so that no vector that it spills
/// crosses one. Without this the compiler spills relative to the end of the caller's stack; where
/// that was no multiple of 64, products of many tokens took 9 % longer.
#[inline(always)]
pub(super) fn align() {
    // A local variable whose address is taken is aligned, and with it the whole frame.
    black_box(&MaybeUninit::<__m512>::uninit());
}
