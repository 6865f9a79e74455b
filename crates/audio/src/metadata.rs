//! Metadata of files: tags, comments, pictures and chapters. Decoding needs none of it, and what is
//! damaged must not keep a decoder from the audio.

use std::io::{Cursor, Read, Seek, SeekFrom};

/// Start of a Matroska or `WebM` file.
pub(crate) const EBML: [u8; 4] = [0x1a, 0x45, 0xdf, 0xa3];

/// Bytes that are read instead of those of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Patch {
    at: u64,
    bytes: Vec<u8>,
}

/// A file without its metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plain {
    /// Position at which the file begins.
    pub(crate) start: u64,
    patches: Vec<Patch>,
}

impl Plain {
    /// Replaces bytes that were read from a position.
    pub(crate) fn apply(&self, at: u64, bytes: &mut [u8]) {
        let end = at.saturating_add(bytes.len() as u64);
        for patch in &self.patches {
            for (place, byte) in (patch.at..).zip(&patch.bytes) {
                if (at..end).contains(&place) {
                    bytes[usize::try_from(place - at).expect("within the bytes")] = *byte;
                }
            }
        }
    }
}

/// Maximum number of boxes, elements and pages to examine.
const MAX_PARTS: usize = 1000;
/// Bytes of the blocks of FLAC files before the first other one: the magic number and the block of facts.
const FLAC_FACTS: u64 = 42;
/// Largest size of a FLAC block.
const MAX_FLAC_BLOCK: u64 = 0xff_ffff;
/// Header of an `ID3v2` tag.
const ID3_HEADER: u64 = 10;
/// Elements of Matroska that are metadata: tags, attachments, chapters, cues, and the list of places.
const MATROSKA_METADATA: [u32; 5] = [
    0x1254_c367,
    0x1941_a469,
    0x1043_a770,
    0x1c53_bb6b,
    0x114d_9b74,
];
const MATROSKA_SEGMENT: u32 = 0x1853_8067;
/// An element that no file has.
const MATROSKA_UNKNOWN: [u8; 4] = [0x1f, 0xff, 0xff, 0xfe];

/// Returns whether a file is a FLAC file whose blocks end after `head`, the start of the file.
pub(crate) fn has_more_flac_blocks(head: &[u8]) -> bool {
    let mut parts = Parts {
        source: &mut Cursor::new(head),
    };
    let len = head.len() as u64;
    parts.is_flac() && parts.flac_blocks_end().is_some_and(|end| end + 2 > len)
}

/// Returns how a FLAC file is read without metadata. `None` if it is no such file.
pub(crate) fn plain_flac(source: &mut (impl Read + Seek)) -> Option<Plain> {
    let mut parts = Parts { source };
    if !parts.is_flac() {
        return None;
    }
    // Other blocks become padding up to the first frame. If there is none at the end of the blocks, a
    // size is wrong, and the decoder searches.
    let frame = parts.flac_frame().unwrap_or(FLAC_FACTS);
    let mut patches = Vec::new();
    let mut at = FLAC_FACTS;
    while at + 4 <= frame {
        let size = (frame - at - 4).min(MAX_FLAC_BLOCK);
        let next = at + 4 + size;
        let is_last = next + 4 > frame;
        let [.., a, b, c] = size.to_be_bytes();
        let kind = if is_last { 0x81 } else { 0x01 };
        patches.push(Patch {
            at,
            bytes: vec![kind, a, b, c],
        });
        at = next;
    }
    if patches.is_empty() {
        patches.push(Patch {
            at: 4,
            bytes: vec![0x80],
        });
    }
    Some(Plain { start: 0, patches })
}

/// Returns how other files are read without metadata. `None` if that is as the files are.
pub(crate) fn plain(source: &mut (impl Read + Seek)) -> Option<Plain> {
    let mut parts = Parts { source };
    let magic: [u8; 4] = parts.bytes(0)?;
    let (start, patches) = match &magic {
        [b'I', b'D', b'3', _] => (parts.id3_end()?, Vec::new()),
        b"OggS" => (0, parts.ogg_comments()),
        magic if *magic == EBML => (0, parts.matroska_metadata().unwrap_or_default()),
        _ => (0, parts.mp4_metadata(0, u64::MAX, 0)),
    };
    let plain = Plain { start, patches };
    (plain != Plain::default()).then_some(plain)
}

/// Returns the end of a Matroska file according to the size in its header.
pub(crate) fn matroska_end(source: &mut (impl Read + Seek)) -> Option<u64> {
    let mut parts = Parts { source };
    if parts.bytes(0)? != EBML {
        return None;
    }
    let (_, body, size) = parts.element(0)?;
    let (_, body, size) = parts.element(body.checked_add(size?)?)?;
    body.checked_add(size?)
}

struct Parts<'a, R> {
    source: &'a mut R,
}

impl<R: Read + Seek> Parts<'_, R> {
    /// Returns whether the file starts as FLAC files do: with the block of facts.
    fn is_flac(&mut self) -> bool {
        let starts = [*b"fLaC\0\0\0\x22", *b"fLaC\x80\0\0\x22"];
        self.bytes(0).is_some_and(|start| starts.contains(&start))
    }

    /// Returns the position of the first frame of a FLAC file, if one follows the blocks.
    fn flac_frame(&mut self) -> Option<u64> {
        let end = self.flac_blocks_end()?;
        let [first, second] = self.bytes(end)?;
        (first == 0xff && second & 0xfe == 0xf8).then_some(end)
    }

    /// Returns the end of the blocks of a FLAC file. If it is after the end of the file, that of the block that
    /// exceeds the file.
    fn flac_blocks_end(&mut self) -> Option<u64> {
        let mut at = 4;
        for _ in 0..MAX_PARTS {
            let Some([kind, size @ ..]) = self.bytes::<4>(at) else {
                return Some(at);
            };
            at += 4 + u64::from(u32::from_be_bytes([0, size[0], size[1], size[2]]));
            if kind & 0x80 != 0 {
                return Some(at);
            }
        }
        None
    }

    /// Returns the end of an `ID3v2` tag at the start, or that of its header if its size is wrong.
    fn id3_end(&mut self) -> Option<u64> {
        let size: [u8; 4] = self.bytes(6)?;
        let size = size
            .iter()
            .fold(0, |size, byte| size << 7 | u64::from(byte & 0x7f));
        let len = self.source.seek(SeekFrom::End(0)).ok()?;
        let end = ID3_HEADER + size;
        Some(if end < len { end } else { ID3_HEADER })
    }

    /// Replaces the comments in the first pages by none.
    fn ogg_comments(&mut self) -> Vec<Patch> {
        let mut patches = Vec::new();
        let mut at = 0;
        for _ in 0..MAX_PARTS {
            let Some(mut page) = self.ogg_page(at) else {
                break;
            };
            let body = 27 + usize::from(page[26]);
            let signature = [&b"OpusTags"[..], b"\x03vorbis"];
            let signature = signature.iter().find(|s| page[body..].starts_with(s));
            if let Some(signature) = signature {
                let start = body + signature.len();
                let end = (start + 8).min(page.len());
                page[start..end].fill(0);
                page[22..26].fill(0);
                let sum = ogg_sum(&page).to_le_bytes();
                let comments = page[start..end].to_vec();
                for (place, bytes) in [(start, comments), (22, sum.to_vec())] {
                    let at = at + place as u64;
                    patches.push(Patch { at, bytes });
                }
            }
            at += page.len() as u64;
        }
        patches
    }

    /// Reads a page of an Ogg file.
    fn ogg_page(&mut self, at: u64) -> Option<Vec<u8>> {
        let header: [u8; 27] = self.bytes(at)?;
        let mut page = header.to_vec();
        (&mut *self.source)
            .take(u64::from(header[26]))
            .read_to_end(&mut page)
            .ok()?;
        let sizes = &page[27..];
        if sizes.len() < usize::from(header[26]) {
            return None;
        }
        let size: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
        let read = (&mut *self.source).take(size).read_to_end(&mut page).ok()?;
        (header.starts_with(b"OggS") && read as u64 == size).then_some(page)
    }

    /// Replaces the names of metadata elements before the first cluster.
    fn matroska_metadata(&mut self) -> Option<Vec<Patch>> {
        let mut patches = Vec::new();
        let (_, body, size) = self.element(0)?;
        let (segment, mut at, _) = self.element(body.checked_add(size?)?)?;
        if segment != MATROSKA_SEGMENT {
            return None;
        }
        for _ in 0..MAX_PARTS {
            let Some((name, body, size)) = self.element(at) else {
                break;
            };
            if MATROSKA_METADATA.contains(&name) {
                let bytes = MATROSKA_UNKNOWN.to_vec();
                patches.push(Patch { at, bytes });
            }
            let Some(size) = size else {
                break;
            };
            at = body.saturating_add(size);
        }
        Some(patches)
    }

    /// Reads the header of an element: its name, the position of its content, and its size if it is known.
    fn element(&mut self, at: u64) -> Option<(u32, u64, Option<u64>)> {
        let number = |parts: &mut Self, at: u64| {
            let [first] = parts.bytes(at)?;
            let width = first.leading_zeros() + 1;
            let mut value = u64::from(first);
            for i in 1..u64::from(width) {
                let [byte] = parts.bytes(at + i)?;
                value = value << 8 | u64::from(byte);
            }
            (width <= 8).then_some((value, width))
        };
        let (name, width) = number(self, at)?;
        let (size, size_width) = number(self, at + u64::from(width))?;
        let mask = (1 << (7 * size_width)) - 1;
        let body = at + u64::from(width) + u64::from(size_width);
        let size = Some(size & mask).filter(|size| *size != mask);
        Some((u32::try_from(name).ok()?, body, size))
    }

    /// Replaces the names of metadata boxes between two positions of an MP4 file, and of those in `moov`
    /// and `trak`. One that exceeds the box around it also gets another size.
    fn mp4_metadata(&mut self, mut at: u64, end: u64, depth: usize) -> Vec<Patch> {
        let mut patches = Vec::new();
        for _ in 0..MAX_PARTS {
            let Some([a, b, c, d, kind @ ..]) = self.bytes::<8>(at).filter(|_| at < end) else {
                break;
            };
            let (header, size) = match u32::from_be_bytes([a, b, c, d]) {
                1 => match self.bytes(at + 8) {
                    Some(size) => (16, u64::from_be_bytes(size)),
                    None => break,
                },
                0 => (8, end - at),
                size => (8, u64::from(size)),
            };
            let stated = at.saturating_add(size.max(header));
            if matches!(&kind, b"udta" | b"meta") {
                let rest = u32::try_from(end - at);
                let size = rest.ok().filter(|_| stated > end).map(u32::to_be_bytes);
                let bytes = [size.unwrap_or([a, b, c, d]), *b"free"].concat();
                patches.push(Patch { at, bytes });
            } else if matches!((&kind, depth), (b"moov", 0) | (b"trak", 1)) {
                patches.extend(self.mp4_metadata(at + header, stated.min(end), depth + 1));
            }
            at = stated;
        }
        patches
    }

    /// Reads bytes at a position.
    fn bytes<const N: usize>(&mut self, at: u64) -> Option<[u8; N]> {
        self.source.seek(SeekFrom::Start(at)).ok()?;
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
}

/// Checksum of an Ogg page whose own checksum is 0.
fn ogg_sum(page: &[u8]) -> u32 {
    page.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte) << 24, |sum, _| {
            sum << 1 ^ if sum >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    })
}
