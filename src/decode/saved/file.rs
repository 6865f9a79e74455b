//! A file with a checksum at its end: written in one go, and read only where every byte was found to
//! be what was written.
//!
//! The file is cut into blocks of [`BLOCK`] bytes, the last one shorter. The checksum is the BLAKE3
//! of the BLAKE3s of all blocks, in their order, so that a block can be held against what was found
//! when the file was checked, whatever became of the file since.

use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::output::Output;
use blake3::Hasher;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes of a block.
const BLOCK: usize = 1 << 20;

/// Bytes that say what a file is.
pub(super) const START: usize = 12;

/// Bytes of the checksum.
pub(super) const CHECKSUM: usize = 32;

/// Writes a file, which is there once it is ended.
pub(super) struct Writer {
    output: Output,
    path: PathBuf,
    block: Vec<u8>,
    sum: Hasher,
}

impl Writer {
    /// Begins a file; what stands under its name stays until the end.
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
            .map_err(|e| io("it cannot be written", e))
            .context(self.path.display())
    }

    /// Writes the checksum, and puts the file where it belongs.
    pub(super) fn end(mut self) -> Result<()> {
        if !self.block.is_empty() {
            self.flush()?;
        }
        // It is part of no block.
        self.block.extend_from_slice(self.sum.finalize().as_bytes());
        self.flush()?;
        self.output.commit()
    }
}

fn io(what: &str, cause: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format_args!("{what}: {cause}")).caused_by(cause)
}

/// Reads a file whose checksum is right.
#[derive(Debug)]
pub(super) struct Reader {
    file: File,
    /// Bytes in front of the checksum.
    len: u64,
    /// What each block was when the file was checked.
    hashes: Vec<blake3::Hash>,
    block: Vec<u8>,
    /// Which block that is.
    loaded: Option<usize>,
}

impl Reader {
    /// Opens a file of `max` bytes at most, and checks all of it: first how it begins.
    ///
    /// # Errors
    ///
    /// `Io` where it cannot be read, `Format` where it is damaged, `TooLarge`; as of `begins`.
    pub(super) fn open(
        path: &Path,
        max: u64,
        check_start: fn(&[u8; START]) -> Result<()>,
    ) -> Result<Self> {
        let file = File::open(path).map_err(|e| io("it cannot be opened", e))?;
        let facts = file.metadata().map_err(|e| io("it cannot be read", e))?;
        if !facts.is_file() {
            bail!(Io, "it is no regular file");
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
                "truncated: its beginning and its checksum are {} bytes, the file has {all}",
                START + CHECKSUM
            );
        }
        let mut start = [0; START];
        reader.fill(0, &mut start)?;
        check_start(&start)?;
        if all > max {
            bail!(
                TooLarge,
                "it has {all} bytes, a session of this model and context {max} at most"
            );
        }
        reader.check()?;
        Ok(reader)
    }

    /// Reads bytes of the file, unchecked.
    fn fill(&mut self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.file.seek(SeekFrom::Start(offset));
        let read = read.and_then(|_| self.file.read_exact(bytes));
        let (from, len) = (offset, bytes.len());
        read.map_err(|e| io(&format!("byte {from}: {len} bytes cannot be read"), e))
    }

    fn blocks(&self) -> u64 {
        self.len.div_ceil(BLOCK as u64)
    }

    /// Holds a block, unchecked.
    fn load_block(&mut self, at: usize) -> Result<()> {
        self.loaded = None;
        let from = at as u64 * BLOCK as u64;
        let len = (self.len - from).min(BLOCK as u64);
        let mut block = std::mem::take(&mut self.block);
        block.resize(usize::try_from(len).expect("it is a block at most"), 0);
        self.fill(from, &mut block)?;
        self.block = block;
        Ok(())
    }

    /// Holds all bytes against the checksum.
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
                "byte {at}: the checksum is not that of the {at} bytes in front of it; the file is \
                 damaged, or was cut"
            );
        }
        Ok(())
    }

    /// Bytes in front of the checksum.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Reads bytes as they were when the file was checked.
    ///
    /// # Errors
    ///
    /// `Io` where they cannot be read, `Format` where they have changed or there are fewer.
    pub(super) fn read(&mut self, offset: u64, mut bytes: &mut [u8]) -> Result<()> {
        let wanted = bytes.len() as u64;
        let end = offset.checked_add(wanted);
        if end.is_none_or(|end| end > self.len) {
            let len = self.len;
            bail!(
                Format,
                "truncated: byte {offset}: {wanted} bytes are wanted, they end at {len}"
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
                        "byte {}: the file changes while it is read",
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

    fn check_start(start: &[u8; START]) -> Result<()> {
        match start {
            b"startstartst" => Ok(()),
            _ => bail!(Format, "another start"),
        }
    }

    /// A file of so many bytes.
    fn written(name: &str, len: usize) -> (PathBuf, Vec<u8>) {
        let path = std::env::temp_dir().join(format!("tabla-saved-{}-{name}", std::process::id()));
        let bytes: Vec<u8> = b"start".iter().copied().cycle().take(len).collect();
        let mut writer = Writer::create(&path).expect("it can be made");
        for some in bytes.chunks(300_007) {
            writer.write(some).expect("it can be written");
        }
        writer.end().expect("it can be written");
        (path, bytes)
    }

    #[test]
    fn blocks_are_read_as_they_were_written() {
        for (name, len) in [("short", START), ("block", BLOCK), ("long", 2 * BLOCK + 77)] {
            let (path, bytes) = written(name, len);
            let mut reader = Reader::open(&path, u64::MAX, check_start).expect("it is whole");
            assert_eq!(reader.len(), len as u64);
            let mut found = vec![0; len.min(BLOCK + 2)];
            let from = len - found.len();
            reader.read(from as u64, &mut found).expect("it is there");
            assert_eq!(found, bytes[from..], "{name}");
            let error = reader
                .read(from as u64 + 1, &mut found)
                .expect_err("its end");
            assert!(error.message().contains("truncated"), "{error}");
            let error = Reader::open(&path, len as u64, check_start).expect_err("too long");
            assert_eq!(error.kind(), ErrorKind::TooLarge);
            let wrong = |_: &[u8; START]| bail!(Unsupported, "another one");
            let error = Reader::open(&path, 1, wrong).expect_err("it begins otherwise");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            std::fs::remove_file(path).expect("it was made here");
        }
    }

    #[test]
    fn bytes_that_change_behind_the_check_are_found() {
        let (path, bytes) = written("changed", 2 * BLOCK);
        let mut reader = Reader::open(&path, u64::MAX, check_start).expect("it is whole");
        let mut other = bytes;
        other[BLOCK + 3] ^= 1;
        std::fs::write(&path, other).expect("it can be written");
        let mut found = [0; 8];
        reader.read(0, &mut found).expect("it is as it was");
        let error = reader
            .read(BLOCK as u64, &mut found)
            .expect_err("it has changed");
        assert!(
            error.message().contains("byte 1048576: the file changes"),
            "{error}"
        );
        std::fs::remove_file(path).expect("it was made here");
    }
}
