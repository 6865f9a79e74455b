//! Edit lists of MP4 files. An encoder delays the audio; the edit list of a track says which part of
//! it is to be played.

use std::io::{Read, Seek, SeekFrom};

/// Maximum number of boxes to read.
const MAX_BOXES: usize = 10_000;

/// Part of a track that is played.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Edit {
    /// Identifier of the track.
    pub(crate) track: u32,
    /// Start, in units of `timescale`.
    start: u64,
    /// Units per second of the track.
    timescale: u32,
    /// Length, in units of `movie_timescale`; 0 if it is unknown.
    length: u64,
    /// Units per second of the movie.
    movie_timescale: u32,
}

impl Edit {
    /// Returns the first frame that is played, and the end if it is known.
    pub(crate) fn frames(&self, rate: u32) -> (u64, Option<u64>) {
        let scale = |units: u64, timescale: u32, round: u128| {
            let timescale = u128::from(timescale.max(1));
            let frames =
                (u128::from(units) * u128::from(rate) + round * (timescale - 1)) / timescale;
            u64::try_from(frames).unwrap_or(u64::MAX)
        };
        let start = scale(self.start, self.timescale, 0);
        // Often in milliseconds, so that the end of the last packet is more precise.
        let length = scale(self.length, self.movie_timescale, 1);
        (start, (length > 0).then(|| start.saturating_add(length)))
    }
}

/// Returns the edits of all tracks that have exactly one, or nothing if this is no MP4 file. Ignores
/// damaged boxes. Returns to the start of `source`.
pub(crate) fn edits(source: &mut (impl Read + Seek)) -> Vec<Edit> {
    let mut reader = BoxReader { source, boxes: 0 };
    let edits = reader.edits().unwrap_or_default();
    match source.rewind() {
        Ok(()) => edits,
        Err(_) => Vec::new(),
    }
}

/// Returns where the boxes of a file end according to their sizes, which is after its end if it is
/// truncated. `None` if this is no MP4 file.
pub(crate) fn stated_end(source: &mut (impl Read + Seek)) -> Option<u64> {
    let end = source.seek(SeekFrom::End(0)).ok()?;
    let mut reader = BoxReader { source, boxes: 0 };
    let mut body = reader.read_box(0, u64::MAX)?;
    if body.kind != *b"ftyp" {
        return None;
    }
    // A size of 0 means the end of the file.
    while body.end < end {
        match reader.read_box(body.end, u64::MAX) {
            Some(next) if next.end < u64::MAX => body = next,
            _ => return Some(end),
        }
    }
    Some(body.end)
}

/// Content of a box: its first byte and its end.
#[derive(Clone, Copy)]
struct Body {
    kind: [u8; 4],
    start: u64,
    end: u64,
}

struct BoxReader<'a, R> {
    source: &'a mut R,
    boxes: usize,
}

impl<R: Read + Seek> BoxReader<'_, R> {
    fn edits(&mut self) -> Option<Vec<Edit>> {
        let end = self.source.seek(SeekFrom::End(0)).ok()?;
        let first = self.read_box(0, end)?;
        if first.kind != *b"ftyp" {
            return None;
        }
        let file = Body { start: 0, ..first };
        let movie = self.find(Body { end, ..file }, *b"moov")?;
        let header = self.find(movie, *b"mvhd")?;
        let movie_timescale = self.versioned(header, 12, 20)?;
        let mut edits = Vec::new();
        let mut at = movie.start;
        while let Some(body) = self.read_box(at, movie.end) {
            at = body.end;
            if body.kind == *b"trak"
                && let Some(edit) = self.edit(body)
            {
                edits.push(Edit {
                    movie_timescale,
                    ..edit
                });
            }
        }
        Some(edits)
    }

    fn edit(&mut self, track: Body) -> Option<Edit> {
        let header = self.find(track, *b"tkhd")?;
        let media = self.find(track, *b"mdia")?;
        let media_header = self.find(media, *b"mdhd")?;
        let list = self.find(track, *b"edts")?;
        let list = self.find(list, *b"elst")?;
        let (start, length) = self.edit_list(list)?;
        Some(Edit {
            track: self.versioned(header, 12, 20)?,
            start,
            timescale: self.versioned(media_header, 12, 20)?,
            length,
            movie_timescale: 0,
        })
    }

    /// Start and length of the only edit that is not empty.
    fn edit_list(&mut self, list: Body) -> Option<(u64, u64)> {
        let [version, ..] = self.bytes::<1>(list, 0)?;
        let count = u32::from_be_bytes(self.bytes(list, 4)?);
        let mut found = None;
        for i in 0..u64::from(count.min(16)) {
            let (length, start) = if version == 1 {
                let length = u64::from_be_bytes(self.bytes(list, 8 + 20 * i)?);
                (length, i64::from_be_bytes(self.bytes(list, 16 + 20 * i)?))
            } else {
                let length = u32::from_be_bytes(self.bytes(list, 8 + 12 * i)?);
                let start = i32::from_be_bytes(self.bytes(list, 12 + 12 * i)?);
                (u64::from(length), i64::from(start))
            };
            // A negative start is a pause.
            let Ok(start) = u64::try_from(start) else {
                continue;
            };
            if found.replace((start, length)).is_some() {
                return None;
            }
        }
        found
    }

    /// Number of 32 bits at an offset that depends on the version of the box, 0 or 1.
    fn versioned(&mut self, body: Body, first: u64, second: u64) -> Option<u32> {
        let [version] = self.bytes(body, 0)?;
        let at = if version == 1 { second } else { first };
        Some(u32::from_be_bytes(self.bytes(body, at)?))
    }

    fn find(&mut self, parent: Body, kind: [u8; 4]) -> Option<Body> {
        let mut at = parent.start;
        loop {
            let body = self.read_box(at, parent.end)?;
            if body.kind == kind {
                return Some(body);
            }
            at = body.end;
        }
    }

    /// Reads the header of a box.
    fn read_box(&mut self, at: u64, end: u64) -> Option<Body> {
        self.boxes += 1;
        if self.boxes > MAX_BOXES {
            return None;
        }
        let parent = Body {
            kind: [0; 4],
            start: at,
            end,
        };
        let size = u32::from_be_bytes(self.bytes(parent, 0)?);
        let kind = self.bytes(parent, 4)?;
        let (header, size) = match size {
            0 => (8, end - at),
            1 => (16, u64::from_be_bytes(self.bytes(parent, 8)?)),
            _ => (8, u64::from(size)),
        };
        let box_end = at.checked_add(size)?;
        (size >= header && box_end <= end).then_some(Body {
            kind,
            start: at + header,
            end: box_end,
        })
    }

    /// Reads bytes at an offset within a box.
    fn bytes<const N: usize>(&mut self, body: Body, at: u64) -> Option<[u8; N]> {
        let at = body.start.checked_add(at)?;
        if at.checked_add(N as u64)? > body.end {
            return None;
        }
        self.source.seek(SeekFrom::Start(at)).ok()?;
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
}
