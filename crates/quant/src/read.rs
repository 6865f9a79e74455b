//! Readers of storage types: rows are read chunk by chunk, at any instruction set.

use super::bytes::scale_bytes;
use super::chunk::{CHUNK, Chunk};
use super::matrix::Matrix;
use super::{codes, float, i2_s, nvfp4, visit_blocks};
use tabla_core::dtype::DType;

/// A storage type whose chunks are small integers with scales.
pub trait Ints {
    /// Whether its chunks have minima.
    const MIN: bool;
    /// Unpacks the chunk of a row that starts at element `first`, a multiple of [`CHUNK`]. If the
    /// row ends earlier, the rest of `out` is unchanged.
    fn unpack(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk);
}

/// A storage type whose chunks decode to floats.
pub trait Floats {
    /// Decodes the chunk of a row that starts at element `first`; see [`Ints::unpack`].
    fn decode(m: &Matrix<'_>, row: usize, first: usize, out: &mut [f32; CHUNK]);
}

impl<T: Ints> Floats for T {
    #[inline(always)]
    fn decode(m: &Matrix<'_>, row: usize, first: usize, out: &mut [f32; CHUNK]) {
        let mut chunk = Chunk::ZERO;
        T::unpack(m, row, first, &mut chunk);
        let (q, out) = (chunk.q.as_chunks().0, out.as_chunks_mut().0);
        // In halves: for a loop over all sixteen groups, the compiler would vectorize across them
        // and scatter.
        for half in 0..2 {
            for g in 8 * half..8 * half + 8 {
                let product = scale_bytes(chunk.scale[g], q[g]);
                // Without minima nothing is added, so that -0.0 keeps its sign.
                out[g] = if T::MIN {
                    product.map(|x| x + chunk.min[g])
                } else {
                    product
                };
            }
        }
    }
}

/// Integer types without rows of blocks: `name: function, minima`.
macro_rules! ints {
    ($($name:ident: $unpack:expr, $min:literal;)+) => {
        $(
            struct $name;

            impl Ints for $name {
                const MIN: bool = $min;

                #[inline(always)]
                fn unpack(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
                    $unpack(m, row, first, out);
                }
            }
        )+

        fn visit_ints<V: Visit>(dtype: DType, v: V) -> Result<V::Out, V> {
            match dtype {
                $(DType::$name => Ok(v.ints::<$name>()),)+
                _ => Err(v),
            }
        }
    };
}
ints! {
    I2S: i2_s::unpack, false;
    Nvfp4: nvfp4::unpack, false;
    Affine2: codes::affine::<2>, true;
    Affine3: codes::affine::<3>, true;
    Affine4: codes::affine::<4>, true;
    Affine5: codes::affine::<5>, true;
    Affine6: codes::affine::<6>, true;
    Affine8: codes::affine::<8>, true;
    E2m1: codes::e2m1, false;
    I8: codes::int8, false;
    Ternary: codes::ternary, false;
}

/// Types of plain numbers: `name: conversion from bytes`.
macro_rules! numbers {
    ($($name:ident: $number:expr;)+) => {
        $(
            struct $name;

            impl Floats for $name {
                #[inline(always)]
                fn decode(m: &Matrix<'_>, row: usize, first: usize, out: &mut [f32; CHUNK]) {
                    float::decode(m.row(row), first, out, $number);
                }
            }
        )+

        fn visit_floats<V: Visit>(dtype: DType, v: V) -> Option<V::Out> {
            match dtype {
                $(DType::$name => Some(v.floats::<$name>()),)+
                DType::E4m3 => Some(v.floats::<E4m3>()),
                _ => None,
            }
        }
    };
}
numbers! {
    F32: f32::from_le_bytes;
    F16: tabla_core::scales::f16;
    Bf16: |[a, b]| f32::from_le_bytes([0, 0, a, b]);
    F64: float::narrow;
    I16: |b| f32::from(i16::from_le_bytes(b));
    I32: |b| i32::from_le_bytes(b) as f32;
    I64: |b| i64::from_le_bytes(b) as f32;
}

struct E4m3;

impl Floats for E4m3 {
    #[inline(always)]
    fn decode(m: &Matrix<'_>, row: usize, first: usize, out: &mut [f32; CHUNK]) {
        codes::e4m3(m, row, first, out);
    }
}

/// Visitor for the reader of a storage type.
pub trait Visit {
    /// Result of the visitor.
    type Out;
    /// Called for a type that can be read as integers.
    fn ints<T: Ints>(self) -> Self::Out;
    /// Called for a type that can only be read as floats.
    fn floats<T: Floats>(self) -> Self::Out;
}

/// Calls a visitor with the reader of a storage type; `None` if it has no real numbers.
pub fn visit<V: Visit>(dtype: DType, v: V) -> Option<V::Out> {
    match visit_blocks(dtype, v).or_else(|v| visit_ints(dtype, v)) {
        Ok(out) => Some(out),
        Err(v) => visit_floats(dtype, v),
    }
}
