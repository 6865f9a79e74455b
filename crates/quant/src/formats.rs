//! Formats: the reader, the encoder and the layout on devices of every storage type.

use super::chunk::{CHUNK, Chunk, GROUP};
use super::matrix::Matrix;
use super::mxfp4::fp4;
use super::read::{Floats, Ints, Visit};
use super::section::{ROW, Section, plane, scales, ternary};
use super::{
    codes, float, i2_s, iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_nl, iq4_xs,
    mxfp4, nvfp4, q1_0, q2_0, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, q8_k,
    tq1_0, tq2_0,
};
use tabla_core::dtype::DType;

/// Block formats, whose rows are whole blocks: `type: file, elements of a block, minima`, and the encoder if there is
/// one.
macro_rules! blocks {
    ($($name:ident: $file:ident, $elements:literal, $min:literal $(, $encode:path)?;)+) => {
        $(
            struct $name;

            impl Ints for $name {
                const MIN: bool = $min;

                #[inline(always)]
                fn unpack(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
                    const N: usize = $elements;
                    let bytes = &m.row(row)[first / N * $file::BYTES..];
                    let blocks = bytes.as_chunks::<{ $file::BYTES }>().0.iter();
                    let q = out.q.as_chunks_mut::<N>().0.iter_mut();
                    let scales = out.scale.as_chunks_mut::<{ N / GROUP }>().0.iter_mut();
                    let mins = out.min.as_chunks_mut::<{ N / GROUP }>().0.iter_mut();
                    for (((block, q), scale), min) in blocks.zip(q).zip(scales).zip(mins) {
                        $file::unpack(block, q, scale, min);
                    }
                }
            }
        )+

        /// Calls the visitor with the block format of a storage type.
        fn visit_blocks<V: Visit>(dtype: DType, v: V) -> std::result::Result<V::Out, V> {
            match dtype {
                $(DType::$name => Ok(v.ints::<$name>()),)+
                _ => Err(v),
            }
        }

        /// Returns the sections of a block format on devices.
        fn block_sections(dtype: DType) -> Option<Vec<Section>> {
            match dtype {
                $(DType::$name => Some($file::sections()),)+
                _ => None,
            }
        }

        /// Returns the encoder of a block format.
        fn block_encoder(dtype: DType) -> Option<Encode> {
            match dtype {
                $($(DType::$name => Some(|x, w, out| encode_blocks(x, w, out, $encode)),)?)+
                _ => None,
            }
        }
    };
}
blocks! {
    Q4_0: q4_0, 32, false, q4_0::encode;
    Q4_1: q4_1, 32, true, q4_1::encode;
    Q5_0: q5_0, 32, false, q5_0::encode;
    Q5_1: q5_1, 32, true, q5_1::encode;
    Q8_0: q8_0, 32, false, q8_0::encode;
    Q2K: q2_k, 256, true, q2_k::encode;
    Q3K: q3_k, 256, false, q3_k::encode;
    Q4K: q4_k, 256, true, q4_k::encode;
    Q5K: q5_k, 256, true, q5_k::encode;
    Q6K: q6_k, 256, false, q6_k::encode;
    Q8K: q8_k, 256, false;
    Iq1S: iq1_s, 256, false;
    Iq1M: iq1_m, 256, false;
    Iq2Xxs: iq2_xxs, 256, false;
    Iq2Xs: iq2_xs, 256, false;
    Iq2S: iq2_s, 256, false;
    Iq3Xxs: iq3_xxs, 256, false;
    Iq3S: iq3_s, 256, false;
    Iq4Nl: iq4_nl, 32, false, iq4_nl::encode;
    Iq4Xs: iq4_xs, 256, false;
    Mxfp4: mxfp4, 32, false;
    Q1_0: q1_0, 128, false, q1_0::encode;
    Q2_0: q2_0, 64, false, q2_0::encode;
    Tq1_0: tq1_0, 256, false, tq1_0::encode;
    Tq2_0: tq2_0, 256, false, tq2_0::encode;
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

/// Calls a visitor with the reader of a storage type; `None` if it has no real numbers.
pub fn visit<V: Visit>(dtype: DType, v: V) -> Option<V::Out> {
    match visit_blocks(dtype, v).or_else(|v| visit_ints(dtype, v)) {
        Ok(out) => Some(out),
        Err(v) => visit_floats(dtype, v),
    }
}

/// Returns the sections of a type in storage order.
pub fn sections(dtype: DType) -> Vec<Section> {
    match dtype {
        DType::F16 | DType::Bf16 => vec![Section::Numbers { parts: 4 }],
        DType::E4m3 => vec![Section::Numbers { parts: 2 }, scales(32, 1)],
        DType::Nvfp4 => vec![fp4(), scales(ROW, 1), Section::Field(0..4)],
        DType::I2S => vec![ternary(), Section::Scale],
        DType::Ternary => vec![ternary(), scales(ROW, 1)],
        DType::E2m1 => vec![fp4(), scales(16, 1)],
        DType::I8 => vec![plane(0, 8), scales(32, 1)],
        DType::Affine2 => vec![plane(0, 2), scales(32, 2)],
        DType::Affine3 => vec![plane(0, 2), plane(2, 1), scales(32, 2)],
        DType::Affine4 => vec![plane(0, 4), scales(32, 2)],
        DType::Affine5 => vec![plane(0, 4), plane(4, 1), scales(32, 2)],
        DType::Affine6 => vec![plane(0, 4), plane(4, 2), scales(32, 2)],
        DType::Affine8 => vec![plane(0, 8), scales(32, 2)],
        _ => block_sections(dtype).unwrap_or_else(|| {
            assert_eq!(
                dtype.facts().block,
                1,
                "{dtype} is not in the list of block formats"
            );
            vec![Section::Numbers { parts: 1 }]
        }),
    }
}

/// Function that encodes a row and appends its bytes. The optional importance of each element
/// weights its error. Panics if the row is not a whole number of blocks.
pub type Encode = fn(row: &[f32], importance: Option<&[f32]>, bytes: &mut Vec<u8>);

/// Returns the encoder of a type; `None` if it can only be decoded. For `i2_s`, whose rows are not
/// encoded separately, see [`i2_s::encode`].
pub fn encoder(dtype: DType) -> Option<Encode> {
    match dtype {
        DType::F32 => Some(|x, _, out| float::encode_f32(x, out)),
        DType::F16 => Some(|x, _, out| float::encode_f16(x, out)),
        DType::Bf16 => Some(|x, _, out| float::encode_bf16(x, out)),
        _ => block_encoder(dtype),
    }
}

/// Encodes a block of `N` elements, with the optional importance of each.
type EncodeBlock<const BYTES: usize, const N: usize> =
    fn(&[f32; N], Option<&[f32; N]>) -> [u8; BYTES];

fn encode_blocks<const BYTES: usize, const N: usize>(
    row: &[f32],
    importance: Option<&[f32]>,
    bytes: &mut Vec<u8>,
    encode: EncodeBlock<BYTES, N>,
) {
    let (blocks, []) = row.as_chunks() else {
        panic!(
            "{} numbers are not a multiple of the block size {N}",
            row.len()
        );
    };
    let importance = importance.map(|w| w.as_chunks().0);
    for (i, block) in blocks.iter().enumerate() {
        bytes.extend_from_slice(&encode(block, importance.map(|w| &w[i])));
    }
}
