//! GGUF files that a generator writes field by field, with rare numbers at limits and rare edits of bytes.

use super::choices::Choices;
use super::edits::edit;
use super::errors::accepted;
use tabla::format::write::Writer;
use tabla::format::{self, Directory, TensorType};

const KEYS: [&str; 6] = [
    "general.architecture",
    "general.alignment",
    "split.count",
    "tokenizer.ggml.tokens",
    "k",
    "",
];
const NAMES: [&str; 5] = ["token_embd.weight", "blk.0.attn_q.weight", "x", "y", ""];

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let file = file(&mut choices, &[]);
    let size = file.len();
    if let Some(directory) = accepted(size, || format::open_bytes("test", file)) {
        check(&directory, size);
        round_trip(&directory);
    }
}

/// Writes a file that has these keys first.
pub(crate) fn file(choices: &mut Choices<'_>, keys: &[(&str, u32, u64)]) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    let version = if choices.rarely(30) {
        choices.extreme()
    } else {
        3
    };
    file.extend(&version.to_le_bytes()[..4]);
    let (tensors, pairs) = (choices.below(4), choices.below(5));
    file.extend(choices.number(tensors as u64).to_le_bytes());
    file.extend(choices.number((pairs + keys.len()) as u64).to_le_bytes());
    for (key, kind, value) in keys {
        string(&mut file, key.as_bytes(), choices);
        file.extend(kind.to_le_bytes());
        scalar(&mut file, *kind, *value);
    }
    (0..pairs).for_each(|_| pair(&mut file, choices));
    let mut offset = 0;
    (0..tensors).for_each(|_| tensor(&mut file, &mut offset, choices));
    let padding = file.len().next_multiple_of(32) - file.len();
    file.resize(file.len() + padding + offset as usize, 7);
    let all = 0..file.len();
    edit(&mut file, all, choices);
    file
}

fn string(file: &mut Vec<u8>, text: &[u8], choices: &mut Choices<'_>) {
    file.extend(choices.number(text.len() as u64).to_le_bytes());
    file.extend(text);
}

/// Writes a value of a number type, a boolean or a string.
fn scalar(file: &mut Vec<u8>, kind: u32, value: u64) {
    let bytes = match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        _ => 8,
    };
    file.extend(&value.to_le_bytes()[..bytes]);
}

fn value(file: &mut Vec<u8>, kind: u32, choices: &mut Choices<'_>) {
    match kind {
        8 => {
            let text = choices.byte();
            let text = choices.bytes(usize::from(text % 9));
            string(file, text, choices);
        }
        9 => array(file, choices),
        _ => {
            let value = choices.extreme();
            scalar(file, kind, value);
        }
    }
}

fn array(file: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let (kind, count) = (choices.below(13) as u32, choices.below(4));
    file.extend(kind.to_le_bytes());
    file.extend(choices.number(count as u64).to_le_bytes());
    // Arrays of arrays, at most as deep as the input is long.
    if !(kind == 9 && choices.is_empty()) {
        (0..count).for_each(|_| value(file, kind, choices));
    }
}

fn pair(file: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let key = *choices.pick(&KEYS);
    let other = choices.byte();
    // Other keys do not repeat.
    let key = if key == "k" {
        format!("k{other}")
    } else {
        key.to_string()
    };
    string(file, key.as_bytes(), choices);
    let kind = match &*key {
        "general.alignment" if !choices.rarely(8) => 4,
        _ => choices.below(14) as u32,
    };
    file.extend(kind.to_le_bytes());
    match &*key {
        "general.alignment" if kind == 4 => {
            file.extend([choices.pick(&[32, 1, 8, 64, 0, 13]), &0u8, &0, &0]);
        }
        _ => value(file, kind, choices),
    }
}

fn tensor(file: &mut Vec<u8>, offset: &mut u64, choices: &mut Choices<'_>) {
    let name = *choices.pick(&NAMES);
    string(file, name.as_bytes(), choices);
    let dims: Vec<u64> = (0..choices.below(5))
        .map(|_| *choices.pick(&[32, 1, 256, 3, 0]))
        .collect();
    file.extend(&choices.number(dims.len() as u64).to_le_bytes()[..4]);
    for dim in &dims {
        file.extend(choices.number(*dim).to_le_bytes());
    }
    let kind = *choices.pick(&[0, 1, 2, 8, 12, 14, 24, 30, 9, 39, 40, 99]);
    file.extend(u32::to_le_bytes(kind));
    file.extend(choices.number(*offset).to_le_bytes());
    let (cols, rows) = (dims.first().unwrap_or(&1), dims.iter().skip(1).product());
    let bytes = TensorType::from_gguf(kind).and_then(|kind| kind.bytes(rows, *cols));
    *offset += bytes.unwrap_or(0).min(1 << 16).next_multiple_of(32);
}

/// Checks that every tensor is inside the file and as large as its type and shape say, that names do not repeat, and
/// that values can be read.
pub(crate) fn check(directory: &Directory, size: usize) {
    let mut names = std::collections::HashSet::new();
    for tensor in &directory.tensors {
        let bytes = directory.bytes(tensor);
        assert_eq!(bytes.len() as u64, tensor.bytes, "{}", tensor.name);
        assert!(bytes.len() <= size, "{}", tensor.name);
        let product = tensor
            .dims
            .iter()
            .try_fold(1u64, |n, dim| n.checked_mul(*dim));
        let elements = if tensor.dims.contains(&0) {
            Some(0)
        } else {
            product
        };
        assert_eq!(elements, Some(tensor.elements()), "{}", tensor.name);
        assert_eq!(
            tensor.dtype.bytes(tensor.rows(), tensor.cols()),
            Some(tensor.bytes),
            "{}",
            tensor.name
        );
        assert!(names.insert(&tensor.name), "{} twice", tensor.name);
        // Read each end, as a kernel would.
        std::hint::black_box((bytes.first(), bytes.last()));
    }
    let mut keys = std::collections::HashSet::new();
    for (key, value) in directory.metadata.iter() {
        assert!(keys.insert(key), "{key} twice");
        let text = value.to_string();
        assert!(!text.contains('\n'), "{text:?}");
        if let Some(array) = value.array() {
            assert_eq!(array.iter().count(), array.len(), "{key}");
        }
    }
}

/// Checks that a copy has the same values and tensors.
fn round_trip(directory: &Directory) {
    let mut writer = Writer::new();
    for (key, value) in directory.metadata.iter() {
        if key != "general.alignment" {
            writer.copy(key, value);
        }
    }
    for tensor in &directory.tensors {
        writer.tensor(
            &tensor.name,
            tensor.dtype,
            &tensor.dims,
            directory.bytes(tensor),
        );
    }
    let copy =
        format::open_bytes("copy", writer.finish().expect("valid tensors")).expect("a valid copy");
    assert_eq!(copy.tensors.len(), directory.tensors.len());
    for (copied, tensor) in copy.tensors.iter().zip(&directory.tensors) {
        assert_eq!(
            (&copied.name, copied.dtype, &copied.dims),
            (&tensor.name, tensor.dtype, &tensor.dims)
        );
        assert_eq!(
            copy.bytes(copied),
            directory.bytes(tensor),
            "{}",
            tensor.name
        );
    }
    for (key, value) in directory.metadata.iter() {
        // By text, because NaN differs from itself.
        let copied = copy.metadata.get(key).map(|value| format!("{value:?}"));
        assert!(
            key == "general.alignment" || copied == Some(format!("{value:?}")),
            "{key}"
        );
    }
}
