//! Tests of `open` on GGUF files from `Writer`, valid and corrupted.

use std::path::{Path, PathBuf};

use super::write::Writer;
use super::{Directory, TensorType, Value, detect, open, open_bytes, read_text};
use tabla_core::dtype::DType;
use tabla_core::error::{ErrorKind, Result};
use tempfile::TempDir;

/// Bytes between tests of damaged files; more under Miri, which runs programs several hundred times more slowly.
const STEP: usize = if cfg!(miri) { 41 } else { 1 };

/// Returns a small file with a value of every type and four tensors.
fn writer() -> Writer<'static> {
    let mut w = Writer::new();
    w.set("general.architecture", "llama");
    w.set("a.u8", 200u8)
        .set("a.i8", -5i8)
        .set("a.u16", 60_000u16)
        .set("a.i16", -300i16);
    w.set("a.u32", 7u32)
        .set("a.i32", -7i32)
        .set("a.u64", 1u64 << 40)
        .set("a.i64", -1i64);
    w.set("a.f32", 0.5f32)
        .set("a.f64", 1e-5f64)
        .set("a.bool", true);
    w.list("a.tokens", &["<s>", "", "h\u{e9}"])
        .list("a.scores", &[0.0f32, -1.0, f32::INFINITY]);
    w.list("a.types", &[1i32, 2, 3])
        .list("a.flags", &[true, false])
        .list::<u32>("a.none", &[]);
    w.tensor("x", DType::F32, &[2, 3], (0..24).collect::<Vec<u8>>());
    w.tensor("empty", DType::F32, &[0, 3], vec![]);
    w.tensor("y", DType::Q4_0, &[32, 2], vec![1; 36]);
    w.tensor("z", TensorType::Other(9), &[128], vec![2; 144]);
    w
}

pub(super) fn bytes() -> Vec<u8> {
    writer().finish().unwrap()
}

/// Opens bytes in a buffer of the exact length, so that tools detect a read past the end.
fn read(bytes: Vec<u8>) -> Result<Directory> {
    open_bytes("test", bytes)
}

#[track_caller]
pub(super) fn assert_rejected(bytes: Vec<u8>, kind: ErrorKind, part: &str) {
    let e = read(bytes).expect_err(part);
    assert!(e.message().contains(part), "{part:?} is not in: {e}");
    assert_eq!(e.kind(), kind, "{e}");
}

/// Returns the position of `needle` in `bytes`.
fn find(bytes: &[u8], needle: &[u8]) -> usize {
    bytes
        .windows(needle.len())
        .position(|w| w == needle)
        .expect("`needle` occurs in the file")
}

/// Returns the file with the bytes at `at` replaced by `new`.
fn patched(at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes();
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// Returns the position after the name in the tensor list entry of `name`.
fn after_name(name: &str) -> usize {
    let mut entry = (name.len() as u64).to_le_bytes().to_vec();
    entry.extend(name.bytes());
    find(&bytes(), &entry) + entry.len()
}

#[test]
fn reads_what_the_writer_wrote() {
    for version in [2, 3] {
        let file = read(writer().version(version).finish().unwrap()).unwrap();
        assert_eq!(file.version, Some(version));
        let m = &file.metadata;
        assert_eq!(m.str("general.architecture").unwrap(), Some("llama"));
        assert_eq!(m.u32("a.u8").unwrap(), Some(200));
        assert_eq!(m.get("a.i8"), Some(Value::I8(-5)));
        assert_eq!(m.u32("a.u16").unwrap(), Some(60_000));
        assert_eq!(m.get("a.i16"), Some(Value::I16(-300)));
        assert_eq!(m.u64("a.u64").unwrap(), Some(1 << 40));
        assert_eq!(m.f32("a.f32").unwrap(), Some(0.5));
        assert_eq!(m.f32("a.f64").unwrap(), Some(1e-5));
        assert_eq!(m.bool("a.bool").unwrap(), Some(true));
        assert_eq!(
            m.strs("a.tokens").unwrap(),
            Some(vec!["<s>", "", "h\u{e9}"])
        );
        assert_eq!(
            m.f32s("a.scores").unwrap(),
            Some(vec![0.0, -1.0, f32::INFINITY])
        );
        assert_eq!(m.u32s("a.types").unwrap(), Some(vec![1, 2, 3]));
        assert_eq!(m.bools("a.flags").unwrap(), Some(vec![true, false]));
        assert_eq!(m.u32s("a.none").unwrap(), Some(vec![]));
        assert_eq!(m.u32("absent").unwrap(), None);
        assert_eq!((m.len(), m.iter().count()), (17, 17));
        assert_eq!(m.iter().nth(1), Some(("a.u8", Value::U8(200))));

        let x = file.tensor("x").unwrap();
        assert_eq!((x.cols(), x.rows(), x.bytes), (2, 3, 24));
        assert_eq!(file.bytes(x), (0..24).collect::<Vec<u8>>());
        let z = file.tensor("z").unwrap();
        assert_eq!((z.dtype.name(), z.dtype.known()), ("q8_1", None));
        assert_eq!(file.bytes(z), [2; 144]);
        assert!(file.bytes(file.tensor("empty").unwrap()).is_empty());
        assert!(file.tensor("w").is_none(), "there is no tensor w");
    }
}

#[test]
fn copies_values_to_another_file() {
    let file = read(bytes()).unwrap();
    let mut copy = Writer::new();
    file.metadata
        .iter()
        .for_each(|(key, value)| _ = copy.copy(key, value));
    for t in &file.tensors {
        copy.tensor(&t.name, t.dtype, &t.dims, file.bytes(t));
    }
    assert_eq!(copy.finish().unwrap(), bytes());
}

#[test]
fn streams_data_in_chunks() {
    let mut whole = Writer::new();
    let mut declared = Writer::new();
    let tensors = [("a", 3), ("none", 0), ("b", 40), ("c", 32)];
    for (name, bytes) in tensors {
        let data = vec![7; bytes];
        whole.tensor(name, DType::I8, &[bytes as u64], data);
        declared.declare(name, DType::I8, &[bytes as u64]);
    }
    let mut body = declared.begin(Vec::new()).unwrap();
    for chunk in [1, 2, 30, 0, 10, 31, 1] {
        body.write(&vec![7; chunk]).unwrap();
    }
    assert_eq!(body.end().unwrap(), whole.finish().unwrap());

    let mut body = declared.begin(Vec::new()).unwrap();
    let e = body.write(&[7; 4]).unwrap_err();
    assert_eq!(
        e.message(),
        "expected at most 3 bytes of tensor data, got 4"
    );
    let e = declared.begin(Vec::new()).unwrap().end().unwrap_err();
    assert_eq!(
        e.message(),
        "incomplete tensor data: 3 bytes were not written"
    );
}

#[test]
fn displays_values_on_one_line() {
    let mut w = Writer::new();
    w.set("s", "a\nb")
        .set("long", "\u{e9}".repeat(100))
        .list("n", &[1u32, 2, 3, 4, 5]);
    let file = read(w.finish().unwrap()).unwrap();
    let show = |key| file.metadata.get(key).unwrap().to_string();
    assert_eq!(
        format!("{:?}", file.metadata.get("n").unwrap()),
        "Array(5 x u32 [1, 2, 3, 4, ...])"
    );
    assert!(
        format!("{file:?}").contains("\"n\": Array(5 x u32"),
        "{file:?}"
    );
    assert_eq!(show("s"), "\"a\\nb\"");
    assert_eq!(show("n"), "5 x u32 [1, 2, 3, 4, ...]");
    assert_eq!(
        show("long"),
        format!("\"{}\"... (200 bytes)", "\u{e9}".repeat(40))
    );
}

#[test]
fn getter_errors_have_key_expected_type_and_value() {
    let file = read(bytes()).unwrap();
    let m = &file.metadata;
    let e = m.u32("a.u64").unwrap_err();
    let expected = "a.u64: expected an integer from 0 to 4294967295, got u64 1099511627776";
    assert_eq!(e.message(), expected);
    let e = m.u32("general.architecture").unwrap_err();
    assert!(e.message().ends_with("got string \"llama\""), "{e}");
    assert!(m.u32("a.i32").is_err(), "negative");
    assert!(m.f32("a.u32").is_err(), "an integer is not a float");
    assert!(m.str("a.tokens").is_err(), "an array is not a string");
    assert!(
        m.u32s("a.scores").unwrap_err().message().contains("item 0"),
        "names the item"
    );
    let mut w = Writer::new();
    w.set("nan", f32::NAN)
        .set("big", 1e300f64)
        .set("raw", b"\xff".as_slice());
    let file = read(w.finish().unwrap()).unwrap();
    assert!(file.metadata.f32("nan").is_err(), "nan");
    assert!(file.metadata.f32("big").is_err(), "over f32");
    assert!(file.metadata.str("raw").is_err(), "not UTF-8");
    assert_eq!(file.metadata.get("raw"), Some(Value::String(b"\xff")));
}

#[test]
fn rejects_every_truncation() {
    let whole = bytes();
    for len in (0..whole.len()).step_by(STEP) {
        let e = read(whole[..len].to_vec()).expect_err("a part of a file");
        let known = e.message().contains("truncated") || len == 0;
        assert!(known && e.kind() == ErrorKind::Format, "{len}: {e}");
    }
    let e = read(whole[..whole.len() - 1].to_vec()).unwrap_err();
    let (end, has) = (whole.len(), whole.len() - 1);
    let expected = format!("truncated: tensor z ends at byte {end}, the file has {has} bytes");
    assert!(e.message().contains(&expected), "{e}");
    let mut more = whole;
    more.push(0);
    read(more).unwrap();
}

#[test]
fn rejects_lengths_over_the_file_size() {
    let whole = bytes();
    let count_at = |key: &str| find(&whole, key.as_bytes()) + key.len() + 8;
    let mut fields = vec![8, 16, find(&whole, b"a.u8") - 8, find(&whole, b"llama") - 8];
    fields.extend(["a.tokens", "a.scores", "a.types", "a.flags", "a.none"].map(count_at));
    fields.push(count_at("a.tokens") + 8);
    fields.extend([
        after_name("x") - 9,
        after_name("x") + 4,
        after_name("x") + 12,
    ]);
    fields.extend([
        after_name("x") + 24,
        after_name("z") + 4,
        after_name("z") + 16,
    ]);
    for at in fields {
        let left = (whole.len() - at - 8) as u64;
        for value in [
            0,
            1,
            1 << 31,
            1 << 32,
            1 << 63,
            u64::MAX,
            u64::MAX - 31,
            left,
            left + 1,
        ] {
            // Some of these files are valid by chance; none may panic or allocate much memory.
            let opened = read(patched(at, &value.to_le_bytes()));
            if value > left {
                let e = opened.expect_err("more than the file has");
                assert!(
                    matches!(e.kind(), ErrorKind::Format | ErrorKind::Unsupported),
                    "{e}"
                );
            }
        }
    }
}

#[test]
fn corrupt_header_bytes_do_not_panic() {
    let whole = bytes();
    for at in (0..whole.len() - 176).step_by(STEP) {
        for value in [0, 1, 2, 9, 0x7f, 0x80, 0xff] {
            if let Ok(file) = read(patched(at, &[value])) {
                file.metadata
                    .iter()
                    .for_each(|(key, value)| _ = format!("{key} {value}"));
                file.tensors.iter().for_each(|t| _ = file.bytes(t).len());
            }
        }
    }
}

#[test]
fn rejects_invalid_keys_and_values() {
    let with = |key: &str, patch: &[u8], skip: usize| {
        patched(find(&bytes(), key.as_bytes()) + skip, patch)
    };
    assert_rejected(
        with("a.bool", &[2], 10),
        ErrorKind::Format,
        "a bool of 0 or 1",
    );
    assert_rejected(
        with("a.flags", &[2], 23),
        ErrorKind::Format,
        "bools of 0 or 1",
    );
    assert_rejected(
        with("a.u8", &[13], 4),
        ErrorKind::Format,
        "key a.u8 has unknown type 13",
    );
    assert_rejected(
        with("a.types", &[13], 11),
        ErrorKind::Format,
        "unknown type 13",
    );
    assert_rejected(
        with("a.types", &[9], 11),
        ErrorKind::Unsupported,
        "arrays of arrays",
    );
    assert_rejected(
        with("a.u8", b"a\0", 0),
        ErrorKind::Format,
        "a control character",
    );
    assert_rejected(with("a.u8", b"\xff", 0), ErrorKind::Format, "is not UTF-8");
    assert_rejected(
        with("a.u8", b"a.i8", 0),
        ErrorKind::Format,
        "key a.i8 occurs twice",
    );
    assert_rejected(
        Writer::new().set("", 1u8).set("b", 1u64).finish().unwrap(),
        ErrorKind::Format,
        "a key is empty",
    );
    let long = "k".repeat(1025);
    assert_rejected(
        Writer::new().set(&long, 1u8).finish().unwrap(),
        ErrorKind::Format,
        "limit of 1024",
    );
}

#[test]
fn checks_the_alignment() {
    const KEY: &str = "general.alignment";
    let make = |set: &dyn Fn(&mut Writer<'_>)| {
        let mut w = Writer::new();
        set(&mut w);
        w.finish().unwrap()
    };
    for bad in [0u32, 13, 3 << 20, 1 << 21] {
        assert_rejected(
            make(&|w| _ = w.set(KEY, bad)),
            ErrorKind::Format,
            "expected a u32 power of two",
        );
    }
    assert_rejected(
        make(&|w| _ = w.set(KEY, 32i32)),
        ErrorKind::Format,
        "got i32 32",
    );
    assert_rejected(
        make(&|w| _ = w.set(KEY, 32u64)),
        ErrorKind::Format,
        "got u64 32",
    );
    assert_rejected(
        make(&|w| _ = w.list(KEY, &[32u32])),
        ErrorKind::Format,
        "got array",
    );
    for good in [1, 8, 4096] {
        let mut w = Writer::new();
        w.alignment(good).tensor("a", DType::F32, &[1], vec![7; 4]);
        w.tensor("b", DType::F32, &[1], vec![9; 4]);
        let file = read(w.finish().unwrap()).unwrap();
        assert_eq!(file.bytes(file.tensor("b").unwrap()), [9; 4], "{good}");
    }
}

#[test]
fn rejects_invalid_tensor_entries() {
    let (x, y) = (after_name("x"), after_name("y"));
    assert_rejected(patched(x, &[0]), ErrorKind::Format, "0 dimensions");
    assert_rejected(patched(x, &[5]), ErrorKind::Format, "5 dimensions");
    assert_rejected(
        patched(x + 20, &[43]),
        ErrorKind::Format,
        "tensor x has unknown type 43",
    );
    assert_rejected(patched(x + 20, &[4]), ErrorKind::Unsupported, "removed");
    assert_rejected(
        patched(y + 4, &[31]),
        ErrorKind::Format,
        "not a whole number of q4_0 blocks",
    );
    assert_rejected(
        patched(x - 1, b"\n"),
        ErrorKind::Format,
        "a control character",
    );
    assert_rejected(patched(x - 1, b"\xff"), ErrorKind::Format, "is not UTF-8");
    assert_rejected(
        patched(x - 1, b"y"),
        ErrorKind::Format,
        "tensor y is listed twice",
    );
    assert_rejected(
        patched(x + 24, &[8]),
        ErrorKind::Format,
        "offset 8 is not aligned to 32",
    );
    assert_rejected(patched(y + 24, &[0]), ErrorKind::Format, "overlaps");
    let huge = [(i64::MAX as u64).to_le_bytes(), 2u64.to_le_bytes()].concat();
    assert_rejected(
        patched(x + 4, &huge),
        ErrorKind::Format,
        "overflows 64 bits",
    );
    let wraps = (u64::MAX - 31).to_le_bytes();
    assert_rejected(
        patched(x + 24, &wraps),
        ErrorKind::Format,
        "overflows 64 bits",
    );
}

#[test]
fn names_the_types_of_other_programs() {
    let at = after_name("x") + 20;
    for (id, name) in [(142, "PQ2_0"), (143, "PTQ1_0")] {
        let expected = format!("tensor x has type {id} ({name})");
        assert_rejected(patched(at, &[id]), ErrorKind::Unsupported, &expected);
    }
}

#[test]
fn rejects_q2_0_in_blocks_of_128() {
    // 32 blocks of 34 bytes, written as q8_0: before another tensor, and at the end of the file.
    for others in [1, 0] {
        let mut w = Writer::new();
        w.tensor("old", DType::Q8_0, &[32 * 32], vec![0; 32 * 34]);
        if others > 0 {
            w.tensor("other", DType::F32, &[2], vec![0; 8]);
        }
        let mut bytes = w.finish().unwrap();
        let dims = find(&bytes, b"old") + 3 + 4;
        bytes[dims..dims + 8].copy_from_slice(&(128u64 * 32).to_le_bytes());
        bytes[dims + 8] = 42;
        let expected = "tensor old: q2_0 in blocks of 128 elements";
        assert_rejected(bytes, ErrorKind::Unsupported, expected);
    }
}

/// A temporary folder that is removed on drop.
pub(super) struct Folder(TempDir);

impl Folder {
    pub(super) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

#[test]
fn reads_part_of_tensor_and_reports_truncated_file() {
    let folder = Folder::new();
    let path = folder.write("model.gguf", &bytes());
    let file = open(&path).unwrap();
    let tensor = file.tensor("y").unwrap();
    let mut part = [0; 5];
    file.read(tensor, 31, &mut part).unwrap();
    assert_eq!(part, [1; 5]);
    let outside = file.read(tensor, 32, &mut part).unwrap_err();
    assert_eq!(
        outside.message(),
        "tensor y: 5 bytes from byte 32 on exceed its 36 bytes"
    );
    let options = std::fs::OpenOptions::new().write(true).open(&path);
    options.unwrap().set_len(64).unwrap();
    let error = file.read(tensor, 31, &mut part).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let message = error.to_string();
    let expected = format!(
        "model.gguf: tensor y: reading 5 bytes at byte {}",
        tensor.offset + 31
    );
    assert!(message.contains(&expected), "{message}");
}

#[test]
fn maps_files_and_detects_changes() {
    let folder = Folder::new();
    let path = folder.write("model.bin", &bytes());
    detect(&path).unwrap();
    let file = open(&path).unwrap();
    assert_eq!(
        (file.name().as_ref(), file.file_bytes()),
        ("model.bin", bytes().len() as u64)
    );
    assert_eq!(file.bytes(file.tensor("y").unwrap()), [1; 36]);
    file.check_unchanged().unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1 << 16)
        .unwrap();
    assert_eq!(file.check_unchanged().unwrap_err().kind(), ErrorKind::State);

    let e = open(folder.path()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Io);
    folder.write("other.gguf", b"");
    let e = open(folder.path()).unwrap_err();
    assert!(e.message().contains("open \"other.gguf\" inside it"), "{e}");
    let e = open(&folder.path().join("other.gguf")).unwrap_err();
    assert!(
        e.message().ends_with("other.gguf: the file is empty"),
        "{e}"
    );
    let e = open(&folder.path().join("none.gguf")).unwrap_err();
    assert!(e.message().ends_with("none.gguf: no such file"), "{e}");
    let page = folder.write("page.gguf", b"<!doctype html>");
    assert!(
        open(&page).unwrap_err().message().contains("web page"),
        "HTML page"
    );
    assert!(open(Path::new("/dev/null")).is_err(), "not a regular file");
}

#[test]
fn text_files_may_have_a_byte_order_mark() {
    let folder = Folder::new();
    let text = "{\"\u{e9}\": 1}";
    let units = || text.encode_utf16();
    let little: Vec<u8> = units().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = units().flat_map(u16::to_be_bytes).collect();
    let read = |bytes: &[u8]| read_text(&folder.write("config.json", bytes), 100);
    let marked = ["\u{feff}", text].concat();
    assert_eq!(read(marked.as_bytes()).unwrap().as_deref(), Some(text));
    assert_eq!(read(text.as_bytes()).unwrap().as_deref(), Some(text));
    assert_eq!(read("\u{feff}".as_bytes()).unwrap().as_deref(), Some(""));
    let with = |mark: &[u8], text: &[u8]| [mark, text].concat();
    for bytes in [
        with(b"\xff\xfe", &little),
        with(b"\xfe\xff", &big),
        little,
        big,
    ] {
        let e = read(&bytes).unwrap_err();
        assert!(
            e.message()
                .ends_with("config.json: the text is UTF-16: save it as UTF-8"),
            "{e}"
        );
    }
    let e = read(b"{\xe9}").unwrap_err();
    assert!(
        e.message()
            .ends_with("the text is not UTF-8: byte 1 is invalid"),
        "{e}"
    );
}
