//! Header of a saved session.

use super::file::{CHECKSUM, Reader, START, Writer};
use super::pages::{self, CacheLayout, Rows, Stream};
use crate::decode::model::Model;
use crate::decode::sequence::{Sequence, StepBits};
use crate::error::{Result, bail};
use crate::model::Facts;
use crate::op::pages::PageKind;
use crate::op::params::PAGE;

/// Magic number.
const MAGIC: &[u8; 8] = b"TABLASES";
/// Version of the format.
const VERSION: u32 = 1;

/// Maximum length of the provenance in bytes.
const PROVENANCE_MAX: usize = 4096;

/// Size of the number of positions after the pages, in bytes.
const END: usize = size_of::<u32>();

/// Header of a file.
#[derive(Debug)]
pub(super) struct Header {
    /// Tokens.
    pub(super) sequence: Sequence,
    /// Everything except the model files that affects the bits of the KV cache.
    pub(super) provenance: Vec<u8>,
    /// Layout of each stream.
    pub(super) rows: Vec<Rows>,
    /// Index of the first page stored for sliding-window layers.
    pub(super) first_window_page: usize,
}

/// Returns the provenance of a model, truncated to the maximum length.
pub(super) fn provenance(model: &Model) -> &[u8] {
    let stored = model.provenance().as_bytes();
    &stored[..stored.len().min(PROVENANCE_MAX)]
}

/// Returns the maximum size of a saved session of a model in bytes.
pub(super) fn file_bytes_max(model: &Model, cache: &CacheLayout) -> u64 {
    let context = u64::from(model.facts().context);
    let header = START + 32 + 4 * size_of::<u32>() + PROVENANCE_MAX + END + CHECKSUM;
    let streams = cache.streams.iter();
    let each = streams.map(|stream| {
        let rows = match stream.rows.kind {
            PageKind::Full | PageKind::Windowed => context,
            PageKind::State => 1,
        };
        8 + rows * stream.bytes_max as u64
    });
    header as u64 + size_of::<u32>() as u64 * (context + 1) + each.sum::<u64>()
}

/// Checks magic number and version.
///
/// # Errors
///
/// `Format` for another kind of file, `Unsupported` for another version.
pub(super) fn check_start(start: &[u8; START]) -> Result<()> {
    let (magic, version) = start.split_at(MAGIC.len());
    if magic != MAGIC {
        bail!(Format, "byte 0: invalid magic number: not a saved session");
    }
    let version = version.first_chunk().map_or(0, |v| u32::from_le_bytes(*v));
    if version != VERSION {
        let at = MAGIC.len();
        bail!(
            Unsupported,
            "byte {at}: unsupported version {version}, expected {VERSION}"
        );
    }
    Ok(())
}

impl Header {
    /// Writes the header.
    pub(super) fn write(&self, file: &mut Writer, digest: &[u8; 32]) -> Result<()> {
        let mut words = Vec::new();
        self.sequence
            .token_ids(self.sequence.len(), StepBits::Distinct, &mut words);
        file.write(MAGIC)?;
        file.write(&VERSION.to_le_bytes())?;
        file.write(digest)?;
        let counts = [
            words.len(),
            self.first_window_page,
            self.provenance.len(),
            self.rows.len(),
        ];
        counts.into_iter().try_for_each(|n| write_count(file, n))?;
        for rows in &self.rows {
            write_count(file, rows.bytes)?;
            write_count(file, rows.kind as usize)?;
        }
        file.write(&self.provenance)?;
        let mut words = words.into_iter();
        words.try_for_each(|word| file.write(&word.to_le_bytes()))
    }

    /// Reads the header and checks it against the model. Returns the header and the offset of its
    /// end.
    ///
    /// # Errors
    ///
    /// `Argument` if the file belongs to another model, `TooLarge` if it exceeds the context,
    /// `Format` for invalid values.
    pub(super) fn read(
        file: &mut Reader,
        model: &Model,
        cache: &CacheLayout,
    ) -> Result<(Self, u64)> {
        let mut at = Cursor {
            file,
            at: START as u64,
        };
        let digest: [u8; 32] = at.array()?;
        let own = model.digest()?;
        if digest != own {
            let [theirs, own] = [digest, own].map(|digest| short(&digest));
            bail!(
                Argument,
                "byte {START}: model mismatch: the file belongs to model {theirs}..., this model is {own}..."
            );
        }
        let facts = model.facts();
        let (from, tokens) = (at.at, at.count()?);
        let context = facts.context as usize;
        if tokens > context + 1 {
            bail!(
                TooLarge,
                "byte {from}: {tokens} tokens exceed the context of {context} positions"
            );
        }
        let (from, first_window_page) = (at.at, at.count()?);
        if first_window_page * PAGE as usize > tokens {
            bail!(
                Format,
                "byte {from}: first window page {first_window_page} is out of range for {tokens} tokens"
            );
        }
        let (from, stored) = (at.at, at.count()?);
        if stored > PROVENANCE_MAX {
            bail!(
                Format,
                "byte {from}: provenance must be at most {PROVENANCE_MAX} bytes, got {stored}"
            );
        }
        let rows = read_rows(&mut at, cache)?;
        let mut provenance = vec![0; stored];
        at.fill(&mut provenance)?;
        let header = Self {
            sequence: read_sequence(&mut at, tokens, facts)?,
            provenance,
            rows,
            first_window_page,
        };
        let end = at.at;
        Ok((header, end))
    }

    /// Reads the number of stored positions that can be restored, whose pages start at `from`. None of a
    /// model with recurrent layers can if the states were evicted while the pages were written.
    ///
    /// # Errors
    ///
    /// `Format` if the size of the pages does not match.
    pub(super) fn positions(&self, file: &mut Reader, from: u64, context: u32) -> Result<usize> {
        let end = file.len().saturating_sub(END as u64);
        let mut at = Cursor { file, at: end };
        let positions = at.count()?;
        if positions > self.sequence.len().min(context as usize) {
            let tokens = self.sequence.len();
            bail!(
                Format,
                "byte {end}: {positions} stored positions exceed {tokens} tokens or the context of {context}"
            );
        }
        let pages = CacheLayout::bytes(&self.rows, positions, self.first_window_page);
        let states = pages::state_bytes(&self.rows);
        let expected = match positions {
            0 => pages,
            _ => pages.saturating_add(states),
        };
        let actual = end.checked_sub(from);
        if states > 0 && actual == Some(pages) {
            return Ok(0);
        }
        if actual != Some(expected) {
            bail!(
                Format,
                "byte {from}: expected {expected} bytes of pages for {positions} positions, they end at byte {end}"
            );
        }
        Ok(positions)
    }
}

fn write_count(file: &mut Writer, count: usize) -> Result<()> {
    let count = u32::try_from(count).expect("contexts and rows fit 32 bits");
    file.write(&count.to_le_bytes())
}

/// Writes the number of stored positions.
pub(super) fn write_positions(file: &mut Writer, positions: usize) -> Result<()> {
    write_count(file, positions)
}

/// Reads the layout of each stream, and checks the number of streams.
fn read_rows(at: &mut Cursor<'_>, cache: &CacheLayout) -> Result<Vec<Rows>> {
    let (from, streams) = (at.at, at.count()?);
    let own = cache.streams.len();
    if streams != own {
        bail!(
            Format,
            "byte {from}: expected {own} streams of keys and values, got {streams}: the layers or drafting heads differ"
        );
    }
    let read = |stream: &Stream| {
        let from = at.at;
        let [bytes, number] = [at.count()?, at.count()?];
        let kinds = [PageKind::Full, PageKind::Windowed, PageKind::State];
        let kind = kinds.into_iter().find(|kind| *kind as usize == number);
        let is_state = |kind: PageKind| kind == PageKind::State;
        let kind = kind.filter(|kind| is_state(*kind) == is_state(stream.rows.kind));
        let Some(kind) = kind.filter(|_| bytes <= stream.bytes_max) else {
            bail!(
                Format,
                "byte {from}: {bytes} bytes per position and kind {number} of layer, expected at most {} and {}",
                stream.bytes_max,
                stream.rows.kind as usize
            );
        };
        Ok(Rows { bytes, kind })
    };
    cache.streams.iter().map(read).collect()
}

fn read_sequence(at: &mut Cursor<'_>, tokens: usize, facts: &Facts) -> Result<Sequence> {
    let mut sequence = Sequence::default();
    sequence.reserve(facts.context as usize + 1)?;
    for _ in 0..tokens {
        let from = at.at;
        sequence.push_token_id(u32::from_le_bytes(at.array()?));
        let token = sequence.tokens().last().copied().unwrap_or_default();
        if token >= facts.vocab {
            let vocab = facts.vocab;
            bail!(
                Format,
                "byte {from}: token {token} is outside the vocabulary of {vocab}"
            );
        }
    }
    Ok(sequence)
}

/// Returns the first hex digits of a digest.
fn short(digest: &[u8; 32]) -> String {
    digest[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Sequential reader of a file.
struct Cursor<'a> {
    file: &'a mut Reader,
    at: u64,
}

impl Cursor<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.file.read(self.at, bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn count(&mut self) -> Result<usize> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }
}
