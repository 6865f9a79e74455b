//! Fragmented MP4 files whose runs of samples (boxes `trun`) state more samples than a file of their size has.
//!
//! `symphonia` loops over the stated number, also if a run has no values per sample: 20 bytes take seconds.

use std::io::{self, Read, Seek, SeekFrom};
use symphonia::core::io::MediaSource;

/// Number of samples that runs may have before the bytes of their samples were read.
const RUN_MAX: u64 = 1 << 24;
/// Number of times that a part of a file may be read.
const READS: u64 = 4;
/// Flags of values that a run has for each sample: duration, size, flags, composition time.
const PER_SAMPLE: u32 = 0xf00;
/// Bytes of a run from the name of the box to the number of samples.
const BYTES: usize = 12;

/// A source that checks the runs of the bytes that are read from it.
pub(crate) struct CheckedRuns {
    source: Box<dyn MediaSource>,
    /// Bytes that were read.
    read: u64,
    /// Samples of all runs without values per sample.
    samples: u64,
    /// Whether it is an MP4 file; `None` before the first bytes.
    is_mp4: Option<bool>,
    /// The last bytes that were read, fewer than a run has.
    tail: Vec<u8>,
}

impl CheckedRuns {
    pub(crate) fn new(source: Box<dyn MediaSource>) -> Self {
        Self {
            source,
            read: 0,
            samples: 0,
            is_mp4: None,
            tail: Vec::new(),
        }
    }

    /// Checks the runs that end in `bytes`.
    fn check(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.read += bytes.len() as u64;
        self.tail.extend_from_slice(bytes);
        for run in self.tail.windows(BYTES) {
            let [b't', b'r', b'u', b'n', _, f0, f1, f2, c0, c1, c2, c3] = *run else {
                continue;
            };
            let flags = u32::from_be_bytes([0, f0, f1, f2]);
            let count = u64::from(u32::from_be_bytes([c0, c1, c2, c3]));
            if flags & PER_SAMPLE == 0 {
                self.samples += count;
            }
            // Each sample has a byte.
            if self.samples > RUN_MAX + READS * self.read {
                let message = format!(
                    "a run of {count} samples (trun box) is longer than a file of this size can have"
                );
                return Err(io::Error::other(message));
            }
        }
        let complete = self.tail.len().saturating_sub(BYTES - 1);
        self.tail.drain(..complete);
        Ok(())
    }
}

impl Read for CheckedRuns {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(out)?;
        let bytes = &out[..count];
        let is_mp4 = *self
            .is_mp4
            .get_or_insert_with(|| bytes.get(4..8).is_none_or(|name| name == b"ftyp"));
        if is_mp4 {
            self.check(bytes)?;
        }
        Ok(count)
    }
}

impl Seek for CheckedRuns {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.tail.clear();
        self.source.seek(to)
    }
}

impl MediaSource for CheckedRuns {
    fn is_seekable(&self) -> bool {
        self.source.is_seekable()
    }

    fn byte_len(&self) -> Option<u64> {
        self.source.byte_len()
    }
}

#[cfg(test)]
mod tests {
    use super::CheckedRuns;
    use std::io::{Cursor, Read};

    /// An MP4 file of runs without values per sample, which ends with silence.
    fn file(counts: &[u32], silence: usize) -> Vec<u8> {
        let mut file = b"\0\0\0\x10ftypiso6\0\0\0\0".to_vec();
        for count in counts {
            file.extend(b"\0\0\0\x10trun\0\0\0\0");
            file.extend(count.to_be_bytes());
            file.resize(file.len() + silence, 0);
        }
        file
    }

    /// Reads a file in pieces.
    fn read(file: &[u8], piece: usize) -> std::io::Result<()> {
        let mut source = CheckedRuns::new(Box::new(Cursor::new(file.to_vec())));
        let mut out = vec![0; piece];
        while source.read(&mut out)? > 0 {}
        Ok(())
    }

    #[test]
    fn runs_are_limited_by_the_bytes_of_the_file() {
        for piece in [1, 5, 12, 4096] {
            read(&file(&[1 << 24, 1], 0), piece).expect("one long run");
            read(&file(&[5_000_000; 6], 5_000_000), piece.max(5)).expect("one sample per byte");
            let error = read(&file(&[u32::MAX], 0), piece).expect_err("too long");
            assert!(error.to_string().contains("4294967295 samples"), "{error}");
            read(&file(&[10_000_000; 3], 0), piece).expect_err("too many together");
        }
    }
}
