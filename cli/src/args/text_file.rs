//! Text files of users and standard input: UTF-8, with or without a byte order mark, of limited size.

use crate::output::Failure;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use tabla::error::Context;
use tabla::utf8;

/// Maximum size of a text.
const BYTES_MAX: u64 = 64 << 20;

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let fail = |cause| Failure::file("read", path, cause);
    let bytes = bytes(File::open(path).map_err(fail)?).map_err(fail)?;
    decode(bytes, path.display())
}

/// Reads bytes to the end.
pub(super) fn bytes(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        let message = format!("size exceeds {} MiB", BYTES_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Decodes the bytes of `name`.
pub(super) fn decode(bytes: Vec<u8>, name: impl std::fmt::Display) -> Result<String, Failure> {
    Ok(utf8::decode(bytes).context(name)?)
}
