//! Fragmented MP4 files whose runs of samples (boxes `trun`) state more samples than a file of their size has.
//!
//! `symphonia` loops over the stated number, even if a run has no values per sample: 20 bytes take seconds.

use std::io::{self, Read, Seek, SeekFrom};
use symphonia::core::io::MediaSource;

/// Number of samples that runs may have before the bytes of their samples were read.
const RUN_MAX: u64 = 1 << 24;
/// Number of times that a part of a file may be read.
const READS: u64 = 4;
/// Flags of values that a run has for each sample: duration, size, flags, composition time.
const PER_SAMPLE: u32 = 0xf00;
/// Bytes of a run from its size to the number of samples, with a size of 32 and of 64 bits.
const BYTES: [usize; 2] = [16, 24];

/// A source that checks the runs of the bytes that are read from it, wherever a demuxer may find them: in a box `moof`.
pub(crate) struct CheckedRuns {
    source: Box<dyn MediaSource>,
    /// Position of the next byte.
    position: u64,
    /// Bytes that were read.
    read: u64,
    /// End of the boxes `moof` so far.
    moof_end: u64,
    /// Samples of all runs without values per sample.
    samples: u64,
    /// The last bytes that were read: those that may begin a run which is not complete.
    tail: Vec<u8>,
}

impl CheckedRuns {
    pub(crate) fn new(source: Box<dyn MediaSource>) -> Self {
        Self {
            source,
            position: 0,
            read: 0,
            moof_end: 0,
            samples: 0,
            tail: Vec::new(),
        }
    }

    /// Checks the runs that end in `bytes`.
    fn check(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.read += bytes.len() as u64;
        self.tail.extend_from_slice(bytes);
        let start = self.position - self.tail.len() as u64;
        let mut complete = 0;
        while let Some(window) = self.tail.get(complete..).filter(|w| w.len() >= BYTES[0]) {
            let at = start + complete as u64;
            let is_long = window.starts_with(&[0, 0, 0, 1]);
            let is_box = matches!(&window[4..8], b"moof" | b"trun");
            if is_box && is_long && window.len() < BYTES[1] {
                break;
            }
            complete += 1;
            let [s0, s1, s2, s3, b't' | b'm', ..] = *window else {
                continue;
            };
            let size = u32::from_be_bytes([s0, s1, s2, s3]);
            let number = |at: usize| {
                let bytes = window
                    .get(at..at + 4)
                    .and_then(|bytes| bytes.try_into().ok());
                u32::from_be_bytes(bytes.unwrap_or_default())
            };
            match &window[4..8] {
                b"moof" => {
                    let size = match size {
                        0 => u64::MAX,
                        1 => u64::from(number(8)) << 32 | u64::from(number(12)),
                        size => size.into(),
                    };
                    self.moof_end = self.moof_end.max(at.saturating_add(size));
                }
                b"trun" if at < self.moof_end => {
                    let body = if size == 1 { 16 } else { 8 };
                    if number(body) & PER_SAMPLE == 0 {
                        self.samples += u64::from(number(body + 4));
                    }
                }
                _ => {}
            }
        }
        self.tail.drain(..complete);
        // Each sample has a byte.
        if self.samples > RUN_MAX + READS * self.read {
            let message = format!(
                "runs (trun boxes) of {} samples: a file of this size has fewer",
                self.samples
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(())
    }
}

impl Read for CheckedRuns {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(out)?;
        self.check(&out[..count])?;
        Ok(count)
    }
}

impl Seek for CheckedRuns {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.tail.clear();
        self.position = self.source.seek(to)?;
        Ok(self.position)
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
    use std::io::{Cursor, ErrorKind, Read};

    /// A box.
    fn boxed(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let size = 8 + u32::try_from(content.len()).expect("small");
        [&size.to_be_bytes(), &name[..], content].concat()
    }

    /// The same with a size of 64 bits.
    fn long(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let size = 16 + content.len() as u64;
        [&[0, 0, 0, 1], &name[..], &size.to_be_bytes(), content].concat()
    }

    type Boxed = fn(&[u8; 4], &[u8]) -> Vec<u8>;

    /// An MP4 file of a fragment per run without values per sample, each followed by silence.
    fn file(boxed: Boxed, counts: &[u32], silence: usize) -> Vec<u8> {
        let mut file = super::tests::boxed(b"ftyp", b"iso6\0\0\0\0");
        for count in counts {
            let run = boxed(b"trun", &[[0; 4], count.to_be_bytes()].concat());
            file.extend(boxed(b"moof", &boxed(b"traf", &run)));
            file.extend(super::tests::boxed(b"mdat", &vec![0; silence]));
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
        for (boxed, piece) in [(boxed as Boxed, 1), (boxed, 5), (long, 12), (long, 4096)] {
            read(&file(boxed, &[1 << 24, 1], 0), piece).expect("one long run");
            let error = read(&file(boxed, &[u32::MAX], 0), piece).expect_err("too long");
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert!(error.to_string().contains("4294967295 samples"), "{error}");
            read(&file(boxed, &[10_000_000; 3], 0), piece).expect_err("too many together");
            let mut ends_with_run = file(boxed, &[u32::MAX], 0);
            ends_with_run.truncate(ends_with_run.len() - 8);
            read(&ends_with_run, piece).expect_err("the last bytes");
        }
        let forged = [&[0; 1000], &*file(boxed, &[u32::MAX], 32)].concat();
        read(&forged, 4096).expect_err("too long, after other bytes");
        let long_file = file(boxed, &[5_000_000; 6], 5_000_000);
        read(&long_file, 4096).expect("one sample per byte");
        let text = [
            &*file(boxed, &[7], 32),
            b"between the tree trunks and the river, and the trunk packed with",
        ];
        read(&text.concat(), 4096).expect("a text");
    }
}
