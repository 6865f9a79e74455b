//! What a file is, told by its first bytes; what it is instead, said in words a user can act on.

use std::io::Read;
use std::path::Path;

use super::map::{io, regular_file};
use super::part::Kind;
use super::{gguf, index, safetensors};
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};

/// Bytes that are looked at.
pub(super) const HEAD_BYTES: usize = 512;

/// Tells what a file is by its content, never by its name.
///
/// # Errors
/// Names what the file is instead: a directory without a model, a page of HTML, a pointer of Git LFS, a checkpoint
/// of `PyTorch`, a format or a version that this build does not read.
pub fn detect(path: &Path) -> Result<Kind> {
    let look = || {
        if index::is_model(path) {
            return Ok(Kind::Safetensors);
        }
        let (mut file, _) = regular_file(path)?;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        let limit = u64::try_from(HEAD_BYTES).unwrap_or(u64::MAX);
        file.by_ref()
            .take(limit)
            .read_to_end(&mut head)
            .map_err(|e| io("cannot be read", e))?;
        sniff(&head)
    };
    look().context(path.display())
}

const PYTORCH: &str = "a PyTorch checkpoint, which is a program and not only data; \
                       convert it to GGUF";
const PACKED: &str = "a compressed file; unpack it first";
const RETIRED: &str = "a llama.cpp file older than GGUF; convert the model again";
const WHISPER: &str = "a ggml Whisper file, which is not supported yet";

/// What other files begin with.
const OTHERS: [(&[u8], ErrorKind, &str); 15] = [
    (
        b"version https://git-lfs",
        ErrorKind::Format,
        "a pointer of Git LFS; run `git lfs pull`",
    ),
    (b"lmgg", ErrorKind::Unsupported, WHISPER),
    (b"tjgg", ErrorKind::Unsupported, RETIRED),
    (b"fmgg", ErrorKind::Unsupported, RETIRED),
    (
        b"algg",
        ErrorKind::Unsupported,
        "a ggml LoRA adapter; convert it to GGUF",
    ),
    (
        b"PK\x03\x04",
        ErrorKind::Unsupported,
        "a zip archive, perhaps of PyTorch; convert it to GGUF",
    ),
    (b"\x80\x02", ErrorKind::Unsupported, PYTORCH),
    (b"\x80\x04", ErrorKind::Unsupported, PYTORCH),
    (b"\x1f\x8b", ErrorKind::Format, PACKED),
    (b"\x28\xb5\x2f\xfd", ErrorKind::Format, PACKED),
    (b"\xfd7zXZ\0", ErrorKind::Format, PACKED),
    (b"BZh", ErrorKind::Format, PACKED),
    (
        b"\x93NUMPY",
        ErrorKind::Unsupported,
        "a NumPy array, not a model",
    ),
    (
        b"\x89HDF",
        ErrorKind::Unsupported,
        "an HDF5 file; convert the model to GGUF",
    ),
    (
        &[0; 8],
        ErrorKind::Format,
        "all zeros at the start; the download never finished",
    ),
];

/// Judges the first bytes of a file.
pub(super) fn sniff(head: &[u8]) -> Result<Kind> {
    if head.is_empty() {
        bail!(Format, "the file is empty");
    }
    if head.starts_with(b"GGUF") || head.starts_with(b"FUGG") {
        gguf::version(head)?;
        return Ok(Kind::Gguf);
    }
    if b"GGUF".starts_with(head) {
        bail!(
            Format,
            "truncated: the file has {} bytes; download it again",
            head.len()
        );
    }
    if let Some((_, kind, what)) = OTHERS.iter().find(|o| head.starts_with(o.0)) {
        return Err(Error::new(*kind, what));
    }
    if safetensors::sniff(head) {
        return Ok(Kind::Safetensors);
    }
    text(head)
}

/// Says what a text is, and shows the start of anything unknown.
fn text(head: &[u8]) -> Result<Kind> {
    let trimmed = head
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(head)
        .trim_ascii_start();
    let starts = |tag: &str| {
        trimmed
            .get(..tag.len())
            .is_some_and(|t| t.eq_ignore_ascii_case(tag.as_bytes()))
    };
    if ["<!doctype", "<html", "<head", "<?xml", "<error"]
        .into_iter()
        .any(starts)
    {
        bail!(
            Format,
            "a web page (HTML or XML) saved as a model; the download needs a login or another address"
        );
    }
    let printable = |b: &u8| b.is_ascii_graphic() || b.is_ascii_whitespace();
    let begins = head.get(..32).unwrap_or(head).escape_ascii();
    match trimmed.first() {
        Some(b'{' | b'[') => bail!(
            Format,
            "a JSON file, not a model; if it stands beside one, open their folder"
        ),
        Some(_) if head.iter().all(printable) => {
            bail!(Format, "a text, not a model; it begins with \"{begins}\"")
        }
        _ => bail!(
            Format,
            "not a model that is known here; it begins with \"{begins}\""
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &[u8], kind: ErrorKind, part: &str) {
        let e = sniff(head).expect_err(part);
        assert_eq!(e.kind(), kind, "{e}");
        assert!(e.message().contains(part), "{part:?} is not in: {e}");
    }

    #[test]
    fn gguf_is_told_by_content() {
        assert_eq!(sniff(b"GGUF\x03\0\0\0").unwrap(), Kind::Gguf);
        assert_eq!(sniff(b"GGUF\x02\0\0\0rest").unwrap(), Kind::Gguf);
    }

    #[test]
    fn versions_and_byte_orders() {
        check(b"GGUF\0\0\0\x03", ErrorKind::Unsupported, "big-endian");
        check(b"FUGG\0\0\0\x03", ErrorKind::Unsupported, "big-endian");
        check(b"GGUF\0\0\0\0", ErrorKind::Format, "version 0");
        check(b"GGUF\x01\0\0\0", ErrorKind::Unsupported, "version 1");
        check(b"GGUF\x04\0\0\0", ErrorKind::Unsupported, "version 4");
        check(
            b"GGUF\xff\xff\xff\xff",
            ErrorKind::Unsupported,
            "version 4294967295",
        );
    }

    #[test]
    fn beginnings_of_downloads() {
        check(b"", ErrorKind::Format, "empty");
        check(b"G", ErrorKind::Format, "truncated");
        check(b"GGUF", ErrorKind::Format, "truncated");
        check(b"GGUF\x03\0\0", ErrorKind::Format, "truncated");
        check(&[0; 64], ErrorKind::Format, "zeros");
    }

    #[test]
    fn texts_in_place_of_models() {
        check(b"\n <!DOCTYPE html><html>", ErrorKind::Format, "web page");
        check(b"\xef\xbb\xbf<HTML>", ErrorKind::Format, "web page");
        check(
            b"<?xml version=\"1.0\"?><Error>",
            ErrorKind::Format,
            "web page",
        );
        check(
            b"version https://git-lfs.github.com/spec/v1\n",
            ErrorKind::Format,
            "git lfs pull",
        );
        check(b"{\"model_type\": \"llama\"}", ErrorKind::Format, "JSON");
        check(b"Entry not found", ErrorKind::Format, "Entry not found");
        check(b"\xff\xfe\x01", ErrorKind::Format, "\\xff\\xfe\\x01");
    }

    #[test]
    fn other_formats() {
        assert_eq!(
            sniff(b"\x40\0\0\0\0\0\0\0{\"a\":").unwrap(),
            Kind::Safetensors
        );
        check(b"lmgg\x99\xca\0\0", ErrorKind::Unsupported, "Whisper");
        check(b"tjgg\x03\0\0\0", ErrorKind::Unsupported, "older than GGUF");
        check(b"PK\x03\x04....", ErrorKind::Unsupported, "zip");
        check(b"\x80\x02}q\0", ErrorKind::Unsupported, "PyTorch");
        check(b"\x1f\x8b\x08\0", ErrorKind::Format, "unpack");
    }

    #[test]
    fn paths_that_are_no_files() {
        let e = detect(Path::new("/nowhere/model.gguf")).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Io);
        assert_eq!(e.message(), "/nowhere/model.gguf: no such file");
        let e = detect(&std::env::temp_dir()).unwrap_err();
        assert!(e.message().contains("a directory"), "{e}");
    }
}
