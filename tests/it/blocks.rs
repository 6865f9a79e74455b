//! Compares decoding of all GGUF types with the reference, bit by bit (`tests/reference/blocks.py`).

use crate::common::golden;
use tabla::dtype::DType;
use tabla::quant;

#[test]
fn decoded_values_match_the_reference() {
    let folder = golden("blocks");
    let files = std::fs::read_dir(&folder).expect("goldens of blocks");
    let mut names: Vec<String> = files
        .filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_string()))
        .collect();
    names.sort();
    for name in &names {
        check(DType::from_name(name).unwrap_or_else(|| panic!("no type {name}")));
    }
    // Types without a number in GGUF are codes of safetensors.
    let of_files = (0..1000).filter_map(DType::from_gguf);
    let mut of_files: Vec<String> = of_files.map(|dtype| dtype.to_string()).collect();
    of_files.sort();
    assert_eq!(names, of_files, "files of tests/golden/blocks, and types");
}

/// Checks a file that contains blocks followed by their decoded values.
fn check(dtype: DType) {
    let file = std::fs::read(golden("blocks").join(format!("{dtype}.bin")));
    let file = file.expect("the file was listed");
    let facts = dtype.facts();
    let blocks = (file.len() - facts.tail) / (facts.bytes + 4 * facts.block);
    let (bytes, numbers) = file.split_at(blocks * facts.bytes + facts.tail);
    let expected: Vec<f32> = numbers
        .as_chunks()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect();
    assert_eq!(expected.len(), blocks * facts.block, "{dtype}");
    assert!(!expected.is_empty(), "{dtype}");
    let mut row = vec![0.0; expected.len()];
    quant::decode_row(dtype, bytes, &mut row);
    for (i, (x, y)) in row.iter().zip(&expected).enumerate() {
        let equal = x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
        let (block, at) = (i / facts.block, i % facts.block);
        assert!(equal, "{dtype}, block {block}, element {at}: {x} {y}");
    }
}
