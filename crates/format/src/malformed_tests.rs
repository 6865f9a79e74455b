//! Malformed files and the expected result of each: the files of llama.cpp's `tests/test-gguf.cpp`, by their names
//! there, and those of the tests and attacks of the `safetensors` crate.
//!
//! The files are written byte by byte, without [`Writer`](super::write::Writer), which could share a fault with the
//! parser.

use super::{Directory, open_bytes};
use tabla_core::error::ErrorKind::{self, Format, Unsupported};
use tabla_core::error::Result;

/// A file, and the kind of the error with a part of its message; `None` for a valid file.
type Case = (&'static str, Vec<u8>, Option<(ErrorKind, &'static str)>);

fn check(cases: Vec<Case>) {
    for (name, file, expected) in cases {
        let opened: Result<Directory> = open_bytes("test", file);
        match (opened, expected) {
            (Ok(file), None) => {
                // The data of each tensor is in the file.
                file.tensors.iter().for_each(|t| _ = file.bytes(t).len());
            }
            (Err(error), Some((kind, part))) => {
                assert_eq!(error.kind(), kind, "{name}: {error}");
                assert!(
                    error.message().contains(part),
                    "{name}: {part:?} is not in: {error}"
                );
            }
            (Ok(_), Some((_, part))) => panic!("{name}: no error, expected {part:?}"),
            (Err(error), None) => panic!("{name}: {error}"),
        }
    }
}

const U8: u32 = 0;
const U32: u32 = 4;
const I32: u32 = 5;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
/// The first number that is no type of values.
const COUNT: u32 = 13;

const F32: u32 = 0;
const I8: u32 = 24;
const I64: u32 = 27;

/// A length and the bytes.
fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

fn key(name: &[u8], kind: u32, value: &[u8]) -> Vec<u8> {
    [&string(name)[..], &kind.to_le_bytes(), value].concat()
}

fn alignment(bytes: u32) -> Vec<u8> {
    key(b"general.alignment", U32, &bytes.to_le_bytes())
}

fn array(kind: u32, count: u64, items: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &count.to_le_bytes(), items].concat()
}

fn tensor(name: &[u8], dims: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let count = u32::try_from(dims.len()).expect("few").to_le_bytes();
    let dims: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
    [
        &string(name)[..],
        &count,
        &dims,
        &kind.to_le_bytes(),
        &offset.to_le_bytes(),
    ]
    .concat()
}

/// A file with other numbers of tensors and keys than it has, and data after the header.
fn counted(counts: [u64; 2], keys: &[Vec<u8>], tensors: &[Vec<u8>], data: usize) -> Vec<u8> {
    let mut file = [
        &b"GGUF\x03\0\0\0"[..],
        &counts[0].to_le_bytes(),
        &counts[1].to_le_bytes(),
    ]
    .concat();
    file.extend(keys.concat());
    file.extend(tensors.concat());
    let start = file.len().next_multiple_of(32);
    file.resize(start + data, 1);
    file
}

fn gguf(keys: &[Vec<u8>], tensors: &[Vec<u8>], data: usize) -> Vec<u8> {
    counted(
        [tensors.len() as u64, keys.len() as u64],
        keys,
        tensors,
        data,
    )
}

fn tensors(tensors: &[Vec<u8>], data: usize) -> Vec<u8> {
    gguf(&[], tensors, data)
}

fn keys(keys: &[Vec<u8>]) -> Vec<u8> {
    gguf(keys, &[], 0)
}

/// An empty file with these first bytes.
fn start(bytes: &[u8; 8]) -> Vec<u8> {
    let mut file = gguf(&[], &[], 0);
    file[..8].copy_from_slice(bytes);
    file
}

/// A key with a value of every type.
fn every_type() -> Vec<Vec<u8>> {
    let bytes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
    let types = (0u32..).zip(bytes);
    let all = types.flat_map(|(kind, bytes)| {
        let value = match kind {
            STRING => string(b"text"),
            ARRAY => return [None, None],
            _ => vec![1; bytes],
        };
        let items = array(kind, 2, &value.repeat(2));
        let name = |what: &str| format!("{what}.{kind}").into_bytes();
        [
            Some(key(&name("one"), kind, &value)),
            Some(key(&name("list"), ARRAY, &items)),
        ]
    });
    all.flatten().collect()
}

#[test]
fn gguf_headers() {
    check(vec![
        (
            "HEADER_BAD_MAGIC",
            start(b"FUGG\x03\0\0\0"),
            Some((Unsupported, "big-endian")),
        ),
        (
            "HEADER_BAD_VERSION_0",
            start(b"GGUF\0\0\0\0"),
            Some((Format, "version 0")),
        ),
        (
            "HEADER_BAD_VERSION_1",
            start(b"GGUF\x01\0\0\0"),
            Some((Unsupported, "version 1")),
        ),
        (
            "HEADER_BAD_VERSION_FUTURE",
            start(b"GGUF\x04\0\0\0"),
            Some((Unsupported, "version 4")),
        ),
        (
            "HEADER_BAD_N_TENSORS",
            counted([u64::MAX, 0], &[], &[], 0),
            Some((Format, "tensors")),
        ),
        (
            "HEADER_BAD_N_KV",
            counted([0, u64::MAX], &[], &[], 0),
            Some((Format, "keys")),
        ),
        ("HEADER_EMPTY", gguf(&[], &[], 0), None),
        // Ours.
        (
            "big-endian version",
            start(b"GGUF\0\0\0\x03"),
            Some((Unsupported, "big-endian")),
        ),
        (
            "one tensor more",
            counted([1, 0], &[], &[], 64),
            Some((Format, "tensor")),
        ),
        (
            "one key more",
            counted([0, 1], &[], &[], 64),
            Some((Format, "key")),
        ),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn gguf_keys() {
    let one = |name: &[u8], kind, value: &[u8]| keys(&[key(name, kind, value)]);
    let mut long_key = keys(&[key(b"k", U8, &[1])]);
    long_key[24..32].fill(0xff);
    let nested = array(ARRAY, 1, &array(U8, 1, &[1]));
    check(vec![
        (
            "KV_BAD_KEY_SIZE",
            long_key,
            Some((Format, "over the limit")),
        ),
        (
            "KV_EMPTY_KEY",
            keys(&[key(b"", U8, &[1]), key(b"a", U8, &[1])]),
            Some((Format, "a key is empty")),
        ),
        (
            "KV_BAD_TYPE",
            one(b"k", COUNT, &[1; 8]),
            Some((Format, "unknown type 13")),
        ),
        (
            "KV_BAD_TYPE of an array",
            one(b"k", ARRAY, &array(COUNT, 1, &[1; 8])),
            Some((Format, "unknown type 13")),
        ),
        (
            "KV_DUPLICATE_KEY",
            keys(&[key(b"k", U8, &[1]), key(b"k", U32, &[1; 4])]),
            Some((Format, "occurs twice")),
        ),
        (
            "KV_BAD_ALIGN",
            keys(&[alignment(13)]),
            Some((Format, "power of two")),
        ),
        (
            "KV_WRONG_TYPE_ALIGN",
            one(b"general.alignment", I32, &[32, 0, 0, 0]),
            Some((Format, "got i32 32")),
        ),
        ("KV_SUCCESS", keys(&every_type()), None),
        // Ours.
        (
            "alignment of 0",
            keys(&[alignment(0)]),
            Some((Format, "power of two")),
        ),
        (
            "a bool of 2",
            one(b"k", BOOL, &[2]),
            Some((Format, "a bool of 0 or 1")),
        ),
        (
            "an array of arrays",
            one(b"k", ARRAY, &nested),
            Some((Unsupported, "arrays of arrays")),
        ),
        (
            "a longer string than the file",
            one(b"k", STRING, &u64::MAX.to_le_bytes()),
            Some((Format, "over the limit")),
        ),
        (
            "a longer array than the file",
            one(b"k", ARRAY, &array(U8, 1 << 63, &[1])),
            Some((Format, "k")),
        ),
        (
            "strings that are longer",
            one(b"k", ARRAY, &array(STRING, 1 << 60, &[0; 8])),
            Some((Format, "k")),
        ),
        (
            "a NUL in a key",
            one(b"k\0", U8, &[1]),
            Some((Format, "control character")),
        ),
        (
            "a key that is not UTF-8",
            one(b"k\xff", U8, &[1]),
            Some((Format, "not UTF-8")),
        ),
        (
            "a string that is not UTF-8",
            one(b"k", STRING, &string(b"\xff\0")),
            None,
        ),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn gguf_tensors() {
    let one = |dims: &[u64], kind, offset, data| tensors(&[tensor(b"x", dims, kind, offset)], data);
    let two = |offsets: [u64; 2], data| {
        let tensor = |(name, offset): (&&[u8], u64)| tensor(name, &[1], F32, offset);
        let names: [&[u8]; 2] = [b"x", b"y"];
        (names.iter().zip(offsets).map(tensor).collect(), data)
    };
    let file =
        |keys: &[Vec<u8>], (tensors, data): (Vec<Vec<u8>>, usize)| gguf(keys, &tensors, data);
    let most = i64::MAX as u64;
    let long = 4 * u64::from(u32::MAX >> 1);
    check(vec![
        (
            "TENSORS_BAD_NAME_SIZE",
            tensors(&[tensor(&[b'n'; 2000], &[1], F32, 0)], 4),
            Some((Format, "limit")),
        ),
        (
            "TENSORS_BAD_N_DIMS",
            one(&[1; 5], F32, 0, 4),
            Some((Format, "5 dimensions")),
        ),
        (
            "TENSORS_BAD_SHAPE",
            one(&[u64::MAX], F32, 0, 4),
            Some((Format, "overflows 64 bits")),
        ),
        ("TENSORS_ZERO_DIM", one(&[0, 3], F32, 0, 0), None),
        (
            "TENSORS_NE_TOO_BIG",
            one(&[long, long], F32, 0, 4),
            Some((Format, "overflows 64 bits")),
        ),
        (
            "TENSORS_NBYTES_TOO_BIG",
            one(&[1 << 31, 1 << 30], I64, 0, 4),
            Some((Format, "overflows 64 bits")),
        ),
        (
            "TENSORS_BAD_TYPE",
            one(&[1], 99, 0, 4),
            Some((Format, "unknown type 99")),
        ),
        (
            "TENSORS_BAD_OFFSET",
            one(&[1], F32, u64::MAX, 4),
            Some((Format, "aligned")),
        ),
        (
            "TENSORS_DUPLICATE_NAME",
            tensors(
                &[tensor(b"x", &[1], F32, 0), tensor(b"x", &[1], F32, 32)],
                64,
            ),
            Some((Format, "listed twice")),
        ),
        (
            "TENSORS_BAD_ALIGN",
            file(&[alignment(13)], two([0, 13], 64)),
            Some((Format, "power of two")),
        ),
        (
            "TENSORS_INCONSISTENT_ALIGN",
            file(&[alignment(64)], two([0, 32], 64)),
            Some((Format, "aligned to 64")),
        ),
        ("TENSORS_SUCCESS", file(&[], two([0, 32], 36)), None),
        (
            "TENSORS_CUSTOM_ALIGN",
            file(&[alignment(1)], two([0, 4], 8)),
            None,
        ),
        (
            "DATA_NOT_ENOUGH_DATA",
            file(&[], two([0, 32], 35)),
            Some((Format, "truncated")),
        ),
        (
            "DATA_MEM_SIZE_OVERFLOW",
            tensors(
                &[
                    tensor(b"x", &[0x7fff_ffff_ffff_ffc0], I8, 0),
                    tensor(b"y", &[0x7fff_ffff_ffff_ffc0], I8, 0x7fff_ffff_ffff_ffc0),
                ],
                64,
            ),
            Some((Format, "truncated")),
        ),
        // Ours.
        (
            "a product that is negative as i64",
            one(&[most, 2, 1, 1], F32, 0, 4),
            Some((Format, "overflows 64 bits")),
        ),
        (
            "a dimension of 0 before a large one",
            one(&[0, u64::MAX], F32, 0, 0),
            None,
        ),
        (
            "no dimensions",
            one(&[], F32, 0, 4),
            Some((Format, "0 dimensions")),
        ),
        (
            "an end that wraps",
            one(&[32], I8, u64::MAX - 31, 4),
            Some((Format, "overflows 64 bits")),
        ),
        (
            "tensors at one offset",
            file(&[], two([0, 0], 64)),
            Some((Format, "overlaps")),
        ),
        (
            "a tensor that ends in another",
            file(&[alignment(1)], two([0, 3], 8)),
            Some((Format, "overlaps")),
        ),
        ("a hole between tensors", file(&[], two([0, 64], 68)), None),
        (
            "a type that ggml has removed",
            one(&[32], 4, 0, 64),
            Some((Unsupported, "removed")),
        ),
        (
            "a name that is empty",
            tensors(&[tensor(b"", &[1], F32, 0)], 4),
            Some((Format, "empty")),
        ),
    ]);
}

/// A safetensors file with this header and `data` bytes after it.
fn safetensors(header: &[u8], data: usize) -> Vec<u8> {
    [&string(header)[..], &vec![7; data]].concat()
}

/// A header of tensors: name, type, shape and offsets.
fn header(tensors: &[(&str, &str, &str, &str)]) -> Vec<u8> {
    let tensors = tensors.iter().map(|(name, dtype, shape, offsets)| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
    });
    format!("{{{}}}", tensors.collect::<Vec<_>>().join(",")).into_bytes()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn safetensors_files() {
    let one =
        |dtype, shape, offsets, data| safetensors(&header(&[("x", dtype, shape, offsets)]), data);
    let i32 = || header(&[("x", "I32", "[2,2]", "[0,16]")]);
    let padded = [&i32()[..], b"   "].concat();
    let names: Vec<String> = (0..10).map(|i| format!("weight_{i}")).collect();
    let attack: Vec<_> = names
        .iter()
        .map(|name| (&**name, "I32", "[2,2]", "[0,16]"))
        .collect();
    let lie = |length: u64| [&length.to_le_bytes()[..], b"{}      ", &[0; 64]].concat();
    check(vec![
        (
            "json_attack",
            safetensors(&header(&attack), 16),
            Some((Format, "the end of the previous tensor")),
        ),
        (
            "metadata_incomplete_buffer: bytes after the tensors",
            safetensors(&i32(), 32),
            Some((Format, "the last tensor ends")),
        ),
        (
            "metadata_incomplete_buffer: 2 bytes less",
            safetensors(&i32(), 14),
            Some((Format, "ends at byte")),
        ),
        (
            "header_too_large",
            [&[0xff; 8][..], b"{}"].concat(),
            Some((Format, "")),
        ),
        ("header_too_small", Vec::new(), Some((Format, "empty"))),
        (
            "invalid_header_length",
            vec![60, 0, 0, 0, 0, 0, 0, 0],
            Some((Format, "")),
        ),
        (
            "non_utf8",
            safetensors(b"{\"\xff\":1}", 0),
            Some((Format, "invalid JSON")),
        ),
        (
            "not_json",
            safetensors(b"{#]", 0),
            Some((Format, "invalid JSON")),
        ),
        ("whitespace_padded_header", safetensors(&padded, 16), None),
        ("zero_sized_tensor", one("I32", "[2,0]", "[0,0]", 0), None),
        ("empty_shapes_allowed", one("I32", "[]", "[0,4]", 4), None),
        (
            "invalid_info",
            one("I32", "[2,2]", "[0,4]", 4),
            Some((Format, "size mismatch")),
        ),
        (
            "validation_overflow of the shape",
            one("I32", "[2,18446744073709551614]", "[0,16]", 16),
            Some((Format, "tensor x")),
        ),
        (
            "validation_overflow of the size",
            one("I32", "[2,9223372036854775807]", "[0,16]", 16),
            Some((Format, "tensor x")),
        ),
        (
            "fp4_misaligned",
            one("F4", "[1]", "[0,1]", 1),
            Some((Unsupported, "F4")),
        ),
        (
            "abuse 1: a header longer than the file",
            lie(25 << 20),
            Some((Format, "truncated")),
        ),
        (
            "abuse 1: a header longer than memory",
            lie(u64::MAX >> 8),
            Some((Format, "")),
        ),
    ]);
}
