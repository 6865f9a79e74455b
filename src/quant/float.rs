//! Floats, one after the other, little endian: f32, f16 and bf16.

use half::{bf16, f16};

pub(super) fn decode_f32(bytes: &[u8], row: &mut [f32]) {
    for (x, b) in row.iter_mut().zip(bytes.as_chunks().0) {
        *x = f32::from_le_bytes(*b);
    }
}

pub(super) fn decode_f16(bytes: &[u8], row: &mut [f32]) {
    for (x, b) in row.iter_mut().zip(bytes.as_chunks().0) {
        *x = f16::from_le_bytes(*b).to_f32_const();
    }
}

pub(super) fn decode_bf16(bytes: &[u8], row: &mut [f32]) {
    for (x, b) in row.iter_mut().zip(bytes.as_chunks().0) {
        *x = bf16::from_le_bytes(*b).to_f32_const();
    }
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
