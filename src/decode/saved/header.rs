//! What stands in front of the pages of a saved session.

use super::file::{CHECKSUM, Reader, START, Writer};
use super::pages::{CacheLayout, Rows, Stream};
use crate::decode::model::Model;
use crate::decode::sequence::{Sequence, StepBits};
use crate::error::{Result, bail};
use crate::model::Facts;
use crate::op::pages::PAGE;

/// What files are.
const MAGIC: &[u8; 8] = b"TABLASES";
/// The version of those that are written here.
const VERSION: u32 = 1;

/// Bytes of a provenance at most.
const PROVENANCE_MAX: usize = 4096;

/// Bytes of the number of positions behind the pages.
const END: usize = size_of::<u32>();

/// What a file says of itself.
#[derive(Debug)]
pub(super) struct Header {
    /// The tokens.
    pub(super) sequence: Sequence,
    /// What the bits of the cache depend on beside the model's files.
    pub(super) provenance: Vec<u8>,
    /// The streams of each page.
    pub(super) rows: Vec<Rows>,
    /// The first page that those of layers with a window are in.
    pub(super) first_window_page: usize,
}

/// What a model says of the bits of its cache, as files have it.
pub(super) fn provenance(model: &Model) -> &[u8] {
    let stored = model.provenance().as_bytes();
    &stored[..stored.len().min(PROVENANCE_MAX)]
}

/// Bytes of a file at most, of sessions of a model with this cache.
pub(super) fn file_bytes_max(model: &Model, cache: &CacheLayout) -> u64 {
    let context = u64::from(model.facts().context);
    let header = START + 32 + 4 * size_of::<u32>() + PROVENANCE_MAX + END + CHECKSUM;
    let streams = cache.streams.iter();
    let each = streams.map(|stream| 8 + context * stream.bytes_max as u64);
    header as u64 + size_of::<u32>() as u64 * (context + 1) + each.sum::<u64>()
}

/// Checks how a file begins.
///
/// # Errors
///
/// `Format` for another kind of file, `Unsupported` for another version.
pub(super) fn check_start(start: &[u8; START]) -> Result<()> {
    let (magic, version) = start.split_at(MAGIC.len());
    if magic != MAGIC {
        bail!(Format, "byte 0: it does not begin as a saved session does");
    }
    let version = version.first_chunk().map_or(0, |v| u32::from_le_bytes(*v));
    if version != VERSION {
        let at = MAGIC.len();
        bail!(
            Unsupported,
            "byte {at}: version {version}, known is {VERSION}"
        );
    }
    Ok(())
}

impl Header {
    /// Writes it.
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
            write_count(file, usize::from(rows.windowed))?;
        }
        file.write(&self.provenance)?;
        let mut words = words.into_iter();
        words.try_for_each(|word| file.write(&word.to_le_bytes()))
    }

    /// Reads it, and where it ends. All that it says is held against the model.
    ///
    /// # Errors
    ///
    /// `Argument` where the file is of another model, `TooLarge` where it does not fit the context,
    /// `Format` for numbers that cannot be.
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
                "byte {START}: it is of another model, {theirs}..., and this one is {own}..."
            );
        }
        let facts = model.facts();
        let (from, tokens) = (at.at, at.count()?);
        let context = facts.context as usize;
        if tokens > context + 1 {
            bail!(
                TooLarge,
                "byte {from}: {tokens} tokens do not fit the context of {context} positions"
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

    /// Reads how many positions are there, whose pages begin at `from`.
    ///
    /// # Errors
    ///
    /// `Format` where the pages are not as long as they have to be.
    pub(super) fn positions(&self, file: &mut Reader, from: u64, context: u32) -> Result<usize> {
        let end = file.len().saturating_sub(END as u64);
        let mut at = Cursor { file, at: end };
        let positions = at.count()?;
        if positions > self.sequence.len().min(context as usize) {
            let tokens = self.sequence.len();
            bail!(
                Format,
                "byte {end}: {positions} positions of {tokens} tokens in a context of {context}"
            );
        }
        let wanted = CacheLayout::bytes(&self.rows, positions, self.first_window_page);
        let found = end.checked_sub(from);
        if found != Some(wanted) {
            bail!(
                Format,
                "byte {from}: the pages of {positions} positions are {wanted} bytes and end at byte {end}"
            );
        }
        Ok(positions)
    }
}

fn write_count(file: &mut Writer, count: usize) -> Result<()> {
    let count = u32::try_from(count).expect("contexts and rows have 32 bits");
    file.write(&count.to_le_bytes())
}

/// Writes how many positions are there of the cache.
pub(super) fn write_positions(file: &mut Writer, positions: usize) -> Result<()> {
    write_count(file, positions)
}

/// The streams of each page, as many as the model has.
fn read_rows(at: &mut Cursor<'_>, cache: &CacheLayout) -> Result<Vec<Rows>> {
    let (from, streams) = (at.at, at.count()?);
    let own = cache.streams.len();
    if streams != own {
        bail!(
            Format,
            "byte {from}: a cache of {streams} keys and values, the model has {own}"
        );
    }
    let read = |stream: &Stream| {
        let from = at.at;
        let [bytes, windowed] = [at.count()?, at.count()?];
        if bytes > stream.bytes_max || windowed > 1 {
            bail!(
                Format,
                "byte {from}: {bytes} bytes per position and window flag {windowed}, expected at most {} and 1",
                stream.bytes_max
            );
        }
        let windowed = windowed == 1;
        Ok(Rows { bytes, windowed })
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

/// The first digits of a digest.
fn short(digest: &[u8; 32]) -> String {
    digest[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A place in a file that only moves forward.
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
