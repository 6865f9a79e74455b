//! Safetensors files whose header a generator writes.

use super::choices::Choices;
use super::edits::edit;
use super::errors::accepted;
use super::gguf;
use std::fmt::Write;
use tabla::format;

const TYPES: [(&str, u64); 8] = [
    ("F32", 4),
    ("BF16", 2),
    ("F16", 2),
    ("U8", 1),
    ("I8", 1),
    ("F8_E4M3", 1),
    ("I64", 8),
    ("F4", 1),
];

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let file = file(&mut choices);
    let size = file.len();
    let data = file
        .first_chunk()
        .map_or(0, |length| u64::from_le_bytes(*length))
        .saturating_add(8);
    let Some(directory) = accepted(size, || format::open_bytes("test", file)) else {
        return;
    };
    if directory.version.is_some() {
        return; // Edits made it a GGUF file.
    }
    gguf::check(&directory, size);
    // The tensors cover the data without holes: nothing is hidden in the file.
    let mut ranges: Vec<_> = directory
        .tensors
        .iter()
        .map(|t| (t.offset, t.offset + t.bytes))
        .collect();
    ranges.sort_unstable();
    let end = ranges.into_iter().fold(data, |end, range| {
        assert_eq!(range.0, end, "a hole or an overlap");
        range.1
    });
    assert_eq!(end, size as u64);
}

/// Writes a file.
pub(crate) fn file(choices: &mut Choices<'_>) -> Vec<u8> {
    let (mut header, mut end) = (String::from("{"), 0);
    if choices.rarely(3) {
        header += choices.pick::<&str>(&[
            r#""__metadata__":{"format":"pt"}"#,
            r#""__metadata__":{"a":1}"#,
            r#""__metadata__":[]"#,
        ]);
    }
    for index in 0..choices.below(5) {
        if header.len() > 1 {
            header.push(',');
        }
        tensor(&mut header, &mut end, index, choices);
    }
    header += choices.pick::<&str>(&["}", "} ", "}\n", "", "},", "}}"]);
    let mut file = choices.number(header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + choices.number(end).min(1 << 16) as usize, 3);
    let all = 0..file.len();
    edit(&mut file, all, choices);
    file
}

fn tensor(header: &mut String, end: &mut u64, index: usize, choices: &mut Choices<'_>) {
    let name = if choices.rarely(12) {
        *choices.pick(&["", "w0", "a\\u0000", "../x", "__metadata__"])
    } else {
        "w"
    };
    let (dtype, bytes) = *choices.pick(&TYPES);
    let shape: Vec<u64> = (0..choices.below(4))
        .map(|_| *choices.pick(&[2, 1, 8, 0]))
        .collect();
    let start = choices.number(*end);
    *end += bytes * shape.iter().product::<u64>();
    let shape: Vec<u64> = shape.into_iter().map(|dim| choices.number(dim)).collect();
    let stop = choices.number(*end);
    let more = choices.pick(&["", "", "", r#","dtype":"F32""#, r#","x":1"#]);
    let all = format!(
        r#""{name}{index}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{stop}]{more}}}"#
    );
    header.write_str(&all).expect("a string takes any text");
}
