//! Detection of the file format by its first bytes, with specific errors for other file types.

use std::io::Read;
use std::path::Path;

use super::map::{io, regular_file};
use super::part::Kind;
use super::{folder, ggml, gguf, safetensors};
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};

/// Number of bytes read for detection.
pub(super) const HEAD_BYTES: usize = 512;

/// Detects the format of a file by its content; the file name is ignored.
///
/// # Errors
/// Names the actual type of the file: a directory without a model, an HTML page, a Git LFS pointer,
/// a `PyTorch` checkpoint, or an unsupported format or version.
pub fn detect(path: &Path) -> Result<Kind> {
    let read_head = || {
        if folder::is_model(path) {
            return Ok(Kind::Safetensors);
        }
        let (mut file, _) = regular_file(path)?;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        let limit = u64::try_from(HEAD_BYTES).unwrap_or(u64::MAX);
        file.by_ref()
            .take(limit)
            .read_to_end(&mut head)
            .map_err(|e| io("read failed", e))?;
        sniff(&head)
    };
    read_head().context(path.display())
}

/// Detects the format of a model in memory.
///
/// # Errors
/// As [`detect`], with `name` in place of the path.
pub fn detect_bytes(name: &str, bytes: &[u8]) -> Result<Kind> {
    sniff(bytes.get(..HEAD_BYTES).unwrap_or(bytes)).context(name)
}

const PYTORCH: &str = "a PyTorch checkpoint (pickle), which can execute code; convert it to GGUF";
const COMPRESSED: &str = "a compressed file; decompress it first";
const RETIRED: &str = "a llama.cpp format older than GGUF; convert the model to GGUF";

/// Magic bytes of unsupported file types, with the error for each.
const OTHERS: [(&[u8], ErrorKind, &str); 14] = [
    (
        b"version https://git-lfs",
        ErrorKind::Format,
        "a Git LFS pointer; run `git lfs pull`",
    ),
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
        "a zip archive, possibly a PyTorch checkpoint; convert it to GGUF",
    ),
    (b"\x80\x02", ErrorKind::Unsupported, PYTORCH),
    (b"\x80\x04", ErrorKind::Unsupported, PYTORCH),
    (b"\x1f\x8b", ErrorKind::Format, COMPRESSED),
    (b"\x28\xb5\x2f\xfd", ErrorKind::Format, COMPRESSED),
    (b"\xfd7zXZ\0", ErrorKind::Format, COMPRESSED),
    (b"BZh", ErrorKind::Format, COMPRESSED),
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
        "the file starts with zeros; the download is incomplete",
    ),
];

/// Detects the format from the first bytes of a file.
pub(super) fn sniff(head: &[u8]) -> Result<Kind> {
    if head.is_empty() {
        bail!(Format, "the file is empty");
    }
    if head.starts_with(b"GGUF") || head.starts_with(b"FUGG") {
        gguf::version(head)?;
        return Ok(Kind::Gguf);
    }
    if head.starts_with(ggml::MAGIC) {
        return Ok(Kind::Ggml);
    }
    if b"GGUF".starts_with(head) {
        bail!(
            Format,
            "truncated: the file has {} bytes; download it again",
            head.len()
        );
    }
    if let Some((_, kind, message)) = OTHERS.iter().find(|o| head.starts_with(o.0)) {
        return Err(Error::new(*kind, message));
    }
    if safetensors::sniff(head) {
        return Ok(Kind::Safetensors);
    }
    unknown(head)
}

/// Returns an error for an unknown file: HTML, JSON, text, or the first bytes of anything else.
fn unknown(head: &[u8]) -> Result<Kind> {
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
            "a web page (HTML or XML), not a model; the download may need a login or another URL"
        );
    }
    let printable = |b: &u8| b.is_ascii_graphic() || b.is_ascii_whitespace();
    let begins = head.get(..32).unwrap_or(head).escape_ascii();
    match trimmed.first() {
        Some(b'{' | b'[') => bail!(
            Format,
            "a JSON file, not a model; for safetensors, open the folder that contains them"
        ),
        Some(_) if head.iter().all(printable) => {
            bail!(
                Format,
                "a text file, not a model; it begins with \"{begins}\""
            )
        }
        _ => bail!(Format, "unknown file format; it begins with \"{begins}\""),
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
    fn detects_formats_by_content() {
        assert_eq!(sniff(b"lmgg\x99\xca\0\0").unwrap(), Kind::Ggml);
        assert_eq!(sniff(b"GGUF\x03\0\0\0").unwrap(), Kind::Gguf);
        assert_eq!(sniff(b"GGUF\x02\0\0\0rest").unwrap(), Kind::Gguf);
    }

    #[test]
    fn rejects_unsupported_versions_and_byte_orders() {
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
    fn rejects_incomplete_downloads() {
        check(b"", ErrorKind::Format, "empty");
        check(b"G", ErrorKind::Format, "truncated");
        check(b"GGUF", ErrorKind::Format, "truncated");
        check(b"GGUF\x03\0\0", ErrorKind::Format, "truncated");
        check(&[0; 64], ErrorKind::Format, "zeros");
    }

    #[test]
    fn rejects_text_files() {
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
    fn names_other_formats() {
        assert_eq!(
            sniff(b"\x40\0\0\0\0\0\0\0{\"a\":").unwrap(),
            Kind::Safetensors
        );
        check(b"tjgg\x03\0\0\0", ErrorKind::Unsupported, "older than GGUF");
        check(b"PK\x03\x04....", ErrorKind::Unsupported, "zip");
        check(b"\x80\x02}q\0", ErrorKind::Unsupported, "PyTorch");
        check(b"\x1f\x8b\x08\0", ErrorKind::Format, "decompress");
    }

    #[test]
    fn rejects_missing_files_and_directories() {
        let e = detect(Path::new("/nowhere/model.gguf")).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Io);
        assert_eq!(e.message(), "/nowhere/model.gguf: no such file");
        let e = detect(&std::env::temp_dir()).unwrap_err();
        assert!(e.message().contains("a directory"), "{e}");
    }
}
