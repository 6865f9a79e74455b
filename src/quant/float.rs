//! Numbers one after the other, little endian: floats and whole numbers.

use super::{CHUNK, Matrix};
use half::{bf16, f16};

/// Decodes a chunk of numbers of `BYTES` bytes.
#[inline(always)]
fn decode<const BYTES: usize>(
    (m, row, first): (&Matrix<'_>, usize, usize),
    out: &mut [f32; CHUNK],
    number: impl Fn([u8; BYTES]) -> f32,
) {
    let bytes = &m.row(row)[first * BYTES..];
    for (x, b) in out.iter_mut().zip(bytes.as_chunks().0) {
        *x = number(*b);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest")]
#[inline(always)]
fn narrow(x: f64) -> f32 {
    x as f32
}

macro_rules! decoders {
    ($($name:ident: $number:expr;)+) => {
        $(
            #[inline(always)]
            pub(super) fn $name(m: &Matrix<'_>, row: usize, first: usize, out: &mut [f32; CHUNK]) {
                decode((m, row, first), out, $number);
            }
        )+
    };
}
decoders! {
    f32: f32::from_le_bytes;
    f16: |b| f16::from_le_bytes(b).to_f32_const();
    bf16: |b| bf16::from_le_bytes(b).to_f32_const();
    f64: |b| narrow(f64::from_le_bytes(b));
    i16: |b| f32::from(i16::from_le_bytes(b));
    i32: |b| i32::from_le_bytes(b) as f32;
    i64: |b| i64::from_le_bytes(b) as f32;
}

pub(super) fn encode_f32(row: &[f32], bytes: &mut Vec<u8>) {
    for x in row {
        bytes.extend_from_slice(&x.to_le_bytes());
    }
}

pub(super) fn encode_f16(row: &[f32], bytes: &mut Vec<u8>) {
    for &x in row {
        bytes.extend_from_slice(&f16::from_f32_const(x).to_le_bytes());
    }
}

pub(super) fn encode_bf16(row: &[f32], bytes: &mut Vec<u8>) {
    for &x in row {
        bytes.extend_from_slice(&bf16::from_f32_const(x).to_le_bytes());
    }
}
