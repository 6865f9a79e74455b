//! File with a checksum at its end. A file is checked completely before it is read.
//!
//! The file is divided into blocks of [`BLOCK`] bytes; the last one may be shorter. The checksum is
//! the BLAKE3 hash of the BLAKE3 hashes of all blocks in order. Block hashes are kept, so that a
//! later change of the file is detected when a block is read.

use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::output::Output;
use blake3::Hasher;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Block size in bytes.
const BLOCK: usize = 1 << 20;

/// Size of magic number and version in bytes.
pub(super) const START: usize = 12;

/// Size of the checksum in bytes.
pub(super) const CHECKSUM: usize = 32;

/// Writer of a file that appears when it is finished.
pub(super) struct Writer {
    output: Output,
    path: PathBuf,
    block: Vec<u8>,
    sum: Hasher,
}

impl Writer {
    /// Creates a temporary file. An existing file is replaced at the end.
    pub(super) fn create(path: &Path) -> Result<Self> {
        Ok(Self {
            output: Output::create(path, std::iter::empty())?,
            path: path.to_path_buf(),
            block: Vec::with_capacity(BLOCK),
            sum: Hasher::new(),
        })
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (some, rest) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(some);
            if self.block.len() == BLOCK {
                self.flush()?;
            }
            bytes = rest;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.sum.update(blake3::hash(&self.block).as_bytes());
        let mut output = &mut self.output;
        let written = output.write_all(&self.block);
        self.block.clear();
        written
            .map_err(|e| io("cannot write the file", e))
            .context(self.path.display())
    }

    /// Writes the checksum and renames the file to its final name.
    pub(super) fn end(mut self) -> Result<()> {
        if !self.block.is_empty() {
            self.flush()?;
        }
        // The checksum is not part of a block.
        self.block.extend_from_slice(self.sum.finalize().as_bytes());
        self.flush()?;
        self.output.commit()
    }
}

fn io(what: &str, cause: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format_args!("{what}: {cause}")).caused_by(cause)
}

/// Reader of a file with a verified checksum.
#[derive(Debug)]
pub(super) struct Reader {
    file: File,
    /// Number of bytes before the checksum.
    len: u64,
    /// Hashes of the blocks at the time of the check.
    hashes: Vec<blake3::Hash>,
    block: Vec<u8>,
    /// Index of the block in `block`.
    loaded: Option<usize>,
}

impl Reader {
    /// Opens a file of at most `max` bytes and checks it, first its start.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be read, `Format` if it is damaged, `TooLarge`; those of `check_start`.
    pub(super) fn open(
        path: &Path,
        max: u64,
        check_start: fn(&[u8; START]) -> Result<()>,
    ) -> Result<Self> {
        let file = File::open(path).map_err(|e| io("cannot open the file", e))?;
        let facts = file.metadata().map_err(|e| io("cannot read the file", e))?;
        if !facts.is_file() {
            bail!(Io, "not a regular file");
        }
        let all = facts.len();
        let mut reader = Self {
            file,
            len: all.saturating_sub(CHECKSUM as u64),
            hashes: Vec::new(),
            block: Vec::new(),
            loaded: None,
        };
        if reader.len < START as u64 {
            bail!(
                Format,
                "truncated: expected at least {} bytes, the file has {all}",
                START + CHECKSUM
            );
        }
        let mut start = [0; START];
        reader.fill(0, &mut start)?;
        check_start(&start)?;
        if all > max {
            bail!(
                TooLarge,
                "the file has {all} bytes, expected at most {max} for this model and context"
            );
        }
        reader.check()?;
        Ok(reader)
    }

    /// Reads bytes without a check.
    fn fill(&mut self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.file.seek(SeekFrom::Start(offset));
        let read = read.and_then(|_| self.file.read_exact(bytes));
        let (from, len) = (offset, bytes.len());
        read.map_err(|e| io(&format!("byte {from}: cannot read {len} bytes"), e))
    }

    fn blocks(&self) -> u64 {
        self.len.div_ceil(BLOCK as u64)
    }

    /// Loads a block without a check.
    fn load_block(&mut self, at: usize) -> Result<()> {
        self.loaded = None;
        let from = at as u64 * BLOCK as u64;
        let len = (self.len - from).min(BLOCK as u64);
        let mut block = std::mem::take(&mut self.block);
        block.resize(usize::try_from(len).expect("at most a block"), 0);
        self.fill(from, &mut block)?;
        self.block = block;
        Ok(())
    }

    /// Verifies the checksum and stores the hash of each block.
    fn check(&mut self) -> Result<()> {
        let mut sum = Hasher::new();
        for at in 0..usize::try_from(self.blocks()).unwrap_or(usize::MAX) {
            self.load_block(at)?;
            let hash = blake3::hash(&self.block);
            sum.update(hash.as_bytes());
            self.hashes.push(hash);
        }
        let mut stored = [0; CHECKSUM];
        self.fill(self.len, &mut stored)?;
        if sum.finalize() != stored {
            let at = self.len;
            bail!(
                Format,
                "byte {at}: checksum mismatch over the first {at} bytes: the file is damaged or \
                 truncated"
            );
        }
        Ok(())
    }

    /// Returns the number of bytes before the checksum.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Reads bytes and checks that they have not changed since the file was opened.
    ///
    /// # Errors
    ///
    /// `Io` if they cannot be read, `Format` if they have changed or are past the end.
    pub(super) fn read(&mut self, offset: u64, mut bytes: &mut [u8]) -> Result<()> {
        let expected = bytes.len() as u64;
        let end = offset.checked_add(expected);
        if end.is_none_or(|end| end > self.len) {
            let len = self.len;
            bail!(
                Format,
                "truncated: byte {offset}: expected {expected} bytes, the data ends at {len}"
            );
        }
        let mut offset = usize::try_from(offset).map_err(|e| {
            Error::new(ErrorKind::TooLarge, format_args!("byte {offset}")).caused_by(e)
        })?;
        while !bytes.is_empty() {
            let (at, skip) = (offset / BLOCK, offset % BLOCK);
            if self.loaded != Some(at) {
                self.load_block(at)?;
                if blake3::hash(&self.block) != self.hashes[at] {
                    bail!(
                        Format,
                        "byte {}: the file changed while it was read",
                        at * BLOCK
                    );
                }
                self.loaded = Some(at);
            }
            let there = &self.block[skip..];
            let count = there.len().min(bytes.len());
            let (some, rest) = bytes.split_at_mut(count);
            some.copy_from_slice(&there[..count]);
            bytes = rest;
            offset += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn check_start(start: &[u8; START]) -> Result<()> {
        match start {
            b"startstartst" => Ok(()),
            _ => bail!(Format, "another start"),
        }
    }

    const FILE: &str = "saved";

    /// Writes a file of `len` bytes.
    fn written(len: usize) -> (TempDir, Vec<u8>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(FILE);
        let bytes: Vec<u8> = b"start".iter().copied().cycle().take(len).collect();
        let mut writer = Writer::create(&path).expect("file can be created");
        for some in bytes.chunks(300_007) {
            writer.write(some).expect("file can be written");
        }
        writer.end().expect("file can be written");
        (folder, bytes)
    }

    #[test]
    fn reads_written_blocks() {
        for len in [START, BLOCK, 2 * BLOCK + 77] {
            let (folder, bytes) = written(len);
            let path = folder.path().join(FILE);
            let mut reader = Reader::open(&path, u64::MAX, check_start).expect("file is valid");
            assert_eq!(reader.len(), len as u64);
            let mut actual = vec![0; len.min(BLOCK + 2)];
            let from = len - actual.len();
            reader
                .read(from as u64, &mut actual)
                .expect("bytes are readable");
            assert_eq!(actual, bytes[from..], "{len} bytes");
            let error = reader
                .read(from as u64 + 1, &mut actual)
                .expect_err("past the end");
            assert!(error.message().contains("truncated"), "{error}");
            let error = Reader::open(&path, len as u64, check_start).expect_err("too long");
            assert_eq!(error.kind(), ErrorKind::TooLarge);
            let wrong = |_: &[u8; START]| bail!(Unsupported, "another one");
            let error = Reader::open(&path, 1, wrong).expect_err("wrong start");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    }

    #[test]
    fn detects_changes_after_the_check() {
        let (folder, bytes) = written(2 * BLOCK);
        let path = folder.path().join(FILE);
        let mut reader = Reader::open(&path, u64::MAX, check_start).expect("file is valid");
        let mut other = bytes;
        other[BLOCK + 3] ^= 1;
        std::fs::write(&path, other).expect("file can be written");
        let mut actual = [0; 8];
        reader.read(0, &mut actual).expect("block is unchanged");
        let error = reader
            .read(BLOCK as u64, &mut actual)
            .expect_err("block has changed");
        assert!(
            error.message().contains("byte 1048576: the file changed"),
            "{error}"
        );
    }
}
