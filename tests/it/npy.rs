//! Reads NumPy arrays of `tests/golden`: format 1.0, little-endian f32, C order.

use std::path::Path;

/// A matrix of f32.
pub(crate) struct Npy {
    pub(crate) cols: usize,
    pub(crate) data: Vec<f32>,
}

impl Npy {
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00", "{}", path.display());
        let head = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let text = std::str::from_utf8(&bytes[10..10 + head]).expect("ASCII");
        assert!(text.contains("'<f4'") && text.contains("False"), "{text}");
        let shape = text.split_once("'shape': (").expect("a shape").1;
        let shape = shape.split_once(')').expect("a shape").0;
        let shape: Vec<usize> = shape
            .split(',')
            .filter_map(|n| n.trim().parse().ok())
            .collect();
        let data: Vec<f32> = bytes[10 + head..]
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        assert_eq!(data.len(), shape.iter().product::<usize>());
        Self {
            cols: shape[shape.len() - 1],
            data,
        }
    }
}
