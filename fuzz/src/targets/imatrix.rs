//! Importance matrices, both GGUF and legacy files.

use super::choices::Choices;
use super::edits::edit;
use super::errors::accepted;
use super::folder::Folder;
use tabla::dtype::DType;
use tabla::format::Importance;
use tabla::format::write::Writer;

/// Dimensions of the tensors whose columns are asked for.
const DIMS: [&[u64]; 6] = [
    &[8, 2],
    &[8],
    &[0],
    &[4, 3, 2],
    &[u64::MAX, 2, u64::MAX],
    &[],
];

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let file = if choices.rarely(2) {
        list(&mut choices)
    } else {
        gguf(&mut choices)
    };
    let folder = Folder::new();
    let path = folder.write("imatrix", &file);
    let Some(importance) = accepted(file.len(), || Importance::open(&path)) else {
        return;
    };
    assert!(!importance.is_empty());
    for (name, dims) in ["a", "blk.0", ""]
        .iter()
        .flat_map(|name| DIMS.map(|dims| (name, dims)))
    {
        if let Some(Some(columns)) = accepted(file.len(), || importance.columns(name, dims)) {
            assert!(
                columns.len() * 4 <= file.len(),
                "more columns than the file has"
            );
            assert!(
                columns
                    .iter()
                    .all(|value| value.is_finite() && *value >= 0.0),
                "{columns:?}"
            );
        }
    }
}

fn value(choices: &mut Choices<'_>) -> [u8; 4] {
    let values = [1.0f32, 0.0, 0.5, 1e38, -1.0, f32::NAN, f32::INFINITY, 1e-45];
    let at = choices.below(24);
    values.get(at).unwrap_or(&2.0).to_le_bytes()
}

fn values(count: u64, choices: &mut Choices<'_>) -> Vec<u8> {
    (0..count).flat_map(|_| value(choices)).collect()
}

fn gguf(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut writer = Writer::new();
    for name in ["a", "blk.0"].iter().take(1 + choices.below(2)) {
        let (columns, experts) = (*choices.pick(&[8, 4, 1, 0]), *choices.pick(&[1, 2, 3, 0]));
        let dtype = if choices.rarely(12) {
            DType::I32
        } else {
            DType::F32
        };
        let sums = values(columns * experts, choices);
        let counted = if choices.rarely(8) { 1 } else { experts };
        let counts = values(counted, choices);
        if !choices.rarely(12) {
            writer.tensor(&format!("{name}.in_sum2"), dtype, &[columns, experts], sums);
        }
        if !choices.rarely(12) {
            writer.tensor(&format!("{name}.counts"), DType::F32, &[1, counted], counts);
        }
    }
    let mut file = writer.finish().expect("valid tensors");
    let all = 0..file.len();
    edit(&mut file, all, choices);
    file
}

fn list(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut file = Vec::new();
    let count = 1 + choices.below(3);
    let put = |file: &mut Vec<u8>, n: usize, choices: &mut Choices<'_>| {
        file.extend(&choices.number(n as u64).to_le_bytes()[..4]);
    };
    put(&mut file, count, choices);
    for name in ["a", "blk.0", ""].iter().take(count) {
        let columns = choices.below(9);
        put(&mut file, name.len(), choices);
        file.extend(name.as_bytes());
        let calls = choices.below(3);
        put(&mut file, calls, choices);
        put(&mut file, columns, choices);
        file.extend(values(columns as u64, choices));
    }
    let all = 0..file.len();
    edit(&mut file, all, choices);
    file
}
