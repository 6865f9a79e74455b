//! Headers of WAV files, of which only the format and the place of the samples are used: sizes may be
//! wrong, and other chunks may be damaged. Also RF64 and BW64, whose sizes have 64 bits.

use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;

/// Bytes in which a chunk is searched after one of a wrong size.
const SEARCHED: u64 = 1 << 20;
/// Bytes before the first chunk.
const FIRST_CHUNK: u64 = 12;
/// Bytes of the name and the size of a chunk.
const CHUNK_HEADER: usize = 8;
/// Bytes of the common part of a format.
const FORMAT_BYTES: usize = 16;
/// Code of a format whose actual code is the start of a GUID.
const EXTENSIBLE: u16 = 0xfffe;
/// Rests of the GUIDs of formats: of Windows, and of ambisonics.
const GUID_RESTS: [[u8; 14]; 2] = [
    [0, 0, 0, 0, 16, 0, 128, 0, 0, 170, 0, 56, 155, 113],
    [0, 0, 33, 7, 211, 17, 134, 68, 200, 193, 202, 0, 0, 0],
];
/// Names of chunks that programs write before or after the samples.
const NAMES: [&[u8; 4]; 30] = [
    b"fmt ", b"data", b"LIST", b"fact", b"ds64", b"bext", b"JUNK", b"junk", b"FLLR", b"PAD ",
    b"PEAK", b"cue ", b"smpl", b"inst", b"plst", b"acid", b"id3 ", b"ID3 ", b"iXML", b"axml",
    b"chna", b"_PMX", b"afsp", b"DISP", b"cart", b"levl", b"umid", b"minf", b"slnt", b"RIFF",
];
/// Starts of tags that programs append to any file.
const TAGS: [&[u8]; 4] = [b"TAG", b"ID3", b"APETAGEX", b"LYRICSBEGIN"];

/// A WAV file.
#[derive(Debug, PartialEq)]
pub(crate) struct Wave {
    /// Format in its shortest form.
    format: Vec<u8>,
    /// Position of the first sample.
    pub(crate) start: u64,
    /// Number of bytes of samples that the header states; `None` if it states none.
    pub(crate) stated: Option<u64>,
}

impl Wave {
    /// Reads the header of a file of `end` bytes. Returns `None` if it has no format or no samples.
    pub(crate) fn read(source: &mut (impl Read + Seek), end: u64) -> Option<Self> {
        let available = end;
        Self::of(Chunks {
            source,
            end,
            available,
        })
    }

    /// Reads the header of a stream from its first bytes. Returns `None` also if there are too few.
    pub(crate) fn read_stream(head: &[u8]) -> Option<Self> {
        Self::of(Chunks {
            source: &mut Cursor::new(head),
            end: u64::MAX,
            available: head.len() as u64,
        })
    }

    fn of(mut chunks: Chunks<'_, impl Read + Seek>) -> Option<Self> {
        let [magic @ .., _, _, _, _, w, a, v, e] = chunks.bytes::<12>(0)?;
        if !matches!(&magic, b"RIFF" | b"RF64" | b"BW64") || [w, a, v, e] != *b"WAVE" {
            return None;
        }
        chunks.wave()
    }

    /// Returns a header of `size` bytes of samples, `None` if the number is unknown.
    pub(crate) fn header(&self, size: Option<u64>) -> Vec<u8> {
        // The largest size means up to the end.
        let size = size.and_then(|size| u32::try_from(size).ok());
        let size = size.unwrap_or(u32::MAX).to_le_bytes();
        let format = u32::try_from(self.format.len()).unwrap_or(u32::MAX);
        let format = [&format.to_le_bytes()[..], &self.format].concat();
        let parts = [
            &b"RIFF\xff\xff\xff\xffWAVEfmt "[..],
            &format,
            b"data",
            &size,
        ];
        parts.concat()
    }

    /// Returns the number of bytes of padding after the stated samples: 1 if theirs is odd. Where they
    /// end within a frame, the number is wrong.
    fn padding(&self) -> usize {
        let frame = u64::from(u16::from_le_bytes([self.format[12], self.format[13]]));
        let is_odd = |stated: u64| stated % 2 == 1 && stated.is_multiple_of(frame.max(1));
        usize::from(self.stated.is_some_and(is_odd))
    }

    /// Returns the range of the samples of a file of `end` bytes: as stated if the file ends there or
    /// other chunks follow, otherwise up to its end.
    pub(crate) fn samples(&self, source: &mut (impl Read + Seek), end: u64) -> Range<u64> {
        let stated = self.stated.unwrap_or(u64::MAX);
        let stated_end = self.start.saturating_add(stated).min(end);
        let mut next = Vec::new();
        let found = source.seek(SeekFrom::Start(stated_end));
        let found = found.and_then(|_| source.take(TRAILER_BYTES as u64).read_to_end(&mut next));
        let rest = end - stated_end;
        let stated_ends = found.is_err() || is_trailer(&next, self.padding(), rest);
        self.start..if stated_ends { stated_end } else { end }
    }
}

/// Bytes that [`is_trailer`] examines: padding, and the name and size of a chunk.
const TRAILER_BYTES: usize = 1 + CHUNK_HEADER;

/// Returns whether bytes are no samples, but the end of the file, a chunk or a tag; `next` are the first
/// of the `rest` bytes after the stated end of samples and begin with `padding` bytes.
fn is_trailer(next: &[u8], padding: usize, rest: u64) -> bool {
    let is_chunk = |at: usize| {
        let bytes = next.get(at..).unwrap_or_default();
        bytes.first_chunk().is_some_and(|header| {
            let chunk = Chunk::new(*header, at as u64);
            chunk.is_known() || (chunk.is_named() && chunk.end() <= rest)
        }) || TAGS.iter().any(|tag| {
            let examined = tag.len().min(CHUNK_HEADER);
            bytes.starts_with(&tag[..examined])
        })
    };
    next.len() <= padding || is_chunk(0) || is_chunk(padding)
}

/// Samples of a stream: up to its end, unless chunks follow the stated end of samples.
pub(crate) struct WaveStream<R> {
    source: R,
    /// Bytes up to the stated end.
    left: u64,
    padding: usize,
    /// Bytes after the stated end that were read.
    next: Cursor<Vec<u8>>,
    state: StreamState,
}

#[derive(Clone, Copy, PartialEq)]
enum StreamState {
    Stated,
    AfterStated,
    Ended,
}

impl<R: Read> WaveStream<R> {
    /// `source` begins with the samples.
    pub(crate) fn new(source: R, wave: &Wave) -> Self {
        Self {
            source,
            left: wave.stated.unwrap_or(u64::MAX),
            padding: wave.padding(),
            next: Cursor::default(),
            state: StreamState::Stated,
        }
    }
}

impl<R: Read> Read for WaveStream<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.state == StreamState::Stated {
            let read = (&mut self.source).take(self.left).read(out)?;
            self.left -= read as u64;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            let next = self.next.get_mut();
            let most = TRAILER_BYTES as u64;
            (&mut self.source).take(most).read_to_end(next)?;
            self.state = match is_trailer(next, self.padding, SEARCHED) {
                true => StreamState::Ended,
                false => StreamState::AfterStated,
            };
        }
        match self.state {
            StreamState::Ended => Ok(0),
            _ => (&mut self.next).chain(&mut self.source).read(out),
        }
    }
}

/// Name and place of a chunk.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    name: [u8; 4],
    /// Position of its content.
    body: u64,
    size: u32,
}

impl Chunk {
    /// A chunk at a position.
    fn new(header: [u8; 8], at: u64) -> Self {
        let [a, b, c, d, size @ ..] = header;
        Self {
            name: [a, b, c, d],
            body: at.saturating_add(CHUNK_HEADER as u64),
            size: u32::from_le_bytes(size),
        }
    }

    fn end(&self) -> u64 {
        self.body.saturating_add(u64::from(self.size))
    }

    fn is_known(&self) -> bool {
        NAMES.contains(&&self.name)
    }

    fn is_named(&self) -> bool {
        self.name.iter().all(|c| (b' '..=b'~').contains(c))
    }
}

/// Chunks of a file.
struct Chunks<'a, R> {
    source: &'a mut R,
    /// Bytes of the file, `u64::MAX` if that is unknown.
    end: u64,
    /// Bytes of `source`, fewer than `end` for the first bytes of a stream.
    available: u64,
}

impl<R: Read + Seek> Chunks<'_, R> {
    /// Finds the format and the samples.
    fn wave(&mut self) -> Option<Wave> {
        let (mut format, mut data, mut size64) = (None, None, None);
        let mut last = FIRST_CHUNK;
        let mut next = self.chunk_at(FIRST_CHUNK);
        loop {
            let chunk = match next {
                Some(chunk) => chunk,
                None if format.is_none() => self.search(last, &[b"fmt ", b"data"])?,
                None => self.search(last, &[b"data"])?,
            };
            match &chunk.name {
                b"fmt " => format = format.or_else(|| self.format(chunk)),
                b"data" => data = data.or(Some(chunk)),
                b"ds64" => size64 = self.bytes(chunk.body + 8).map(u64::from_le_bytes),
                _ => (),
            }
            if let (Some(format), Some(data)) = (&format, data) {
                let stated = match data.size {
                    u32::MAX => size64,
                    size => Some(u64::from(size)),
                };
                return Some(Wave {
                    format: format.clone(),
                    start: data.body,
                    stated,
                });
            }
            if self.available < self.end && chunk.end() + CHUNK_HEADER as u64 >= self.available {
                return None;
            }
            last = chunk.body;
            next = self.chunk_after(chunk);
        }
    }

    /// Returns the chunk after another one. Some programs leave out the padding of an odd size.
    fn chunk_after(&mut self, chunk: Chunk) -> Option<Chunk> {
        let end = chunk.end();
        let padded = self.chunk_at(end + end % 2);
        if end.is_multiple_of(2) || padded.is_some_and(|next| next.is_known()) {
            return padded;
        }
        self.chunk_at(end).or(padded)
    }

    /// Returns the chunk at a position if it can be one: it fits into the file, and another one follows if
    /// its name is not known.
    fn chunk_at(&mut self, at: u64) -> Option<Chunk> {
        let chunk = Chunk::new(self.bytes(at)?, at);
        if chunk.name == *b"data" {
            return Some(chunk);
        }
        let end = chunk.end();
        let is_followed = |chunks: &mut Self, at: u64| {
            let next = chunks.bytes(at).map(|header| Chunk::new(header, at));
            next.map_or(at >= chunks.available, |next| next.is_named())
        };
        let is_chunk = chunk.is_known()
            || (chunk.is_named()
                && (is_followed(self, end) || (end % 2 == 1 && is_followed(self, end + 1))));
        (is_chunk && end <= self.end).then_some(chunk)
    }

    /// Searches the first chunk of a name from a position on. A size that fits is preferred, because texts
    /// may contain the name.
    fn search(&mut self, from: u64, names: &[&[u8; 4]]) -> Option<Chunk> {
        self.source.seek(SeekFrom::Start(from)).ok()?;
        let mut bytes = Vec::new();
        let read = (&mut *self.source).take(SEARCHED).read_to_end(&mut bytes);
        read.ok()?;
        let places = (from..).zip(bytes.windows(CHUNK_HEADER));
        let chunks = places.filter_map(|(at, header)| {
            let chunk = Chunk::new(*header.first_chunk()?, at);
            names.contains(&&chunk.name).then_some(chunk)
        });
        let fits = |chunk: &Chunk| chunk.size == u32::MAX || chunk.end() <= self.end;
        let (fitting, others): (Vec<_>, Vec<_>) = chunks.partition(fits);
        fitting.into_iter().chain(others).next()
    }

    /// Reads a format: in its shortest form, if its samples are not compressed.
    fn format(&mut self, chunk: Chunk) -> Option<Vec<u8>> {
        let common = self.bytes::<FORMAT_BYTES>(chunk.body)?;
        let number = |at: usize| u16::from_le_bytes([common[at], common[at + 1]]);
        let (code, channels, frame, bits) = (number(0), number(2), number(12), number(14));
        let code = match code {
            EXTENSIBLE => self.extensible(chunk).unwrap_or(code),
            code => code,
        };
        let mut format = common.to_vec();
        format[..2].copy_from_slice(&code.to_le_bytes());
        match code {
            1 | 3 => {
                // Samples have whole bytes.
                let bits = match bits {
                    0 => (frame / channels.max(1)).saturating_mul(8),
                    bits => bits.checked_next_multiple_of(8).unwrap_or(bits),
                };
                format[14..].copy_from_slice(&bits.to_le_bytes());
            }
            6 | 7 => format.extend([0, 0]),
            _ => {
                let at = chunk.body + FORMAT_BYTES as u64;
                let size = self.bytes(at)?;
                format.extend(size);
                self.source.seek(SeekFrom::Start(at + 2)).ok()?;
                let size = u64::from(u16::from_le_bytes(size));
                let read = (&mut *self.source).take(size).read_to_end(&mut format);
                read.ok()?;
            }
        }
        Some(format)
    }

    /// Returns the code in the GUID of an extensible format.
    fn extensible(&mut self, chunk: Chunk) -> Option<u16> {
        let guid = self.bytes::<16>(chunk.body + 24)?;
        let (code, rest) = guid.split_first_chunk::<2>()?;
        let is_known = GUID_RESTS.iter().any(|known| known == rest);
        is_known.then(|| u16::from_le_bytes(*code))
    }

    /// Reads bytes at a position.
    fn bytes<const N: usize>(&mut self, at: u64) -> Option<[u8; N]> {
        self.source.seek(SeekFrom::Start(at)).ok()?;
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
}
