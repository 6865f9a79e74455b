//! Saved sessions: files with a sequence and its KV cache.
//!
//! All numbers are little-endian. `docs/sessions.md` describes compatibility.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | magic number `TABLASES` |
//! | 4 | version, 1 |
//! | 32 | digest of the model |
//! | 4 | number of tokens |
//! | 4 | index of the first page stored for sliding-window layers |
//! | 4 | length of the provenance in bytes |
//! | 4 | number of streams; a stream contains the keys or the values of a layer, a state, or what a drafting head reads |
//! | 8 per stream | bytes per position; 1 if the layer has a sliding window, else 0 |
//! | variable | provenance: everything else that affects the bits of the cache, as text |
//! | 4 per token | token ID; the highest bit marks sampled tokens |
//! | per page | for each stream, the bytes of its positions |
//! | 4 | number of positions stored |
//! | 32 | checksum, see `file.rs` |
//!
//! A page has 64 positions; the last page may be shorter. Only computed positions are written,
//! because the rest of a page may contain data of other sessions.

mod file;
mod header;
mod pages;

use super::model::Model;
use super::sequence::Sequence;
use super::session::Session;
use crate::error::{Context, Result};
use file::{Reader, Writer};
use header::Header;
use pages::{CacheLayout, StoredPages};
use std::path::Path;

impl Session {
    /// Saves the sequence and its cached part of the KV cache to a file.
    ///
    /// Nothing is computed. Other sessions are blocked only while a page is copied. The file
    /// replaces an existing one when it is complete.
    ///
    /// # Errors
    ///
    /// `Io` if the file cannot be written, `State` if a model file has changed since it was opened,
    /// `Poisoned` if the model's thread has ended, `Device` or `DeviceLost`.
    pub fn save(&self, path: &Path) -> Result<()> {
        save(&self.model, &self.sequence, path)
    }

    /// Loads a session saved with [`save`](Self::save). It continues as the saved session would
    /// have.
    ///
    /// The KV cache is restored as far as there is room, if device, precision, cache type and
    /// everything else that affects its bits are the same; the rest is recomputed when needed. The
    /// whole file is checked before it is used. The checksum detects damage, not manipulation: a
    /// manipulated cache also affects other sessions with the same tokens, so load only trusted
    /// files.
    ///
    /// # Errors
    ///
    /// `Io` if the file cannot be read, `Format` if it is damaged or not a saved session,
    /// `Argument` if it belongs to another model, `TooLarge` if it exceeds the context,
    /// `Unsupported` for an unknown version; `State`, `Poisoned`, `Device` or `DeviceLost` as in
    /// `save`.
    pub fn load(model: Model, path: &Path) -> Result<Self> {
        let (sequence, cached) = load(&model, path).context(path.display())?;
        let mut session = Self::new(model);
        session.sequence = sequence;
        session.cached = cached;
        Ok(session)
    }
}

fn save(model: &Model, sequence: &Sequence, path: &Path) -> Result<()> {
    let digest = model.digest()?;
    let cache = CacheLayout::new(model)?;
    let stored = StoredPages::cached(model, &cache, sequence)?;
    let header = Header {
        sequence: sequence.clone(),
        provenance: header::provenance(model).to_vec(),
        rows: cache.rows().collect(),
        first_window_page: stored.first_window_page,
    };
    let mut file = Writer::create(path)?;
    header.write(&mut file, &digest)?;
    let mut positions = 0;
    let mut bytes = Vec::new();
    for page in stored.pages() {
        let end = page.end;
        let Some(read) = stored.read(model, page, bytes)? else {
            break;
        };
        file.write(&read)?;
        (bytes, positions) = (read, end);
    }
    header::write_positions(&mut file, positions)?;
    file.end()
}

/// Returns the sequence of a file, and the number of its tokens that are cached.
fn load(model: &Model, path: &Path) -> Result<(Sequence, usize)> {
    let cache = CacheLayout::new(model)?;
    let mut file = Reader::open(
        path,
        header::file_bytes_max(model, &cache),
        header::check_start,
    )?;
    let (header, mut at) = Header::read(&mut file, model, &cache)?;
    let positions = header.positions(&mut file, at, model.facts().context)?;
    if header.provenance != header::provenance(model) || !cache.rows().eq(header.rows) {
        return Ok((header.sequence, 0));
    }
    let stored = StoredPages::new(
        &cache,
        &header.sequence,
        positions,
        header.first_window_page,
    );
    for page in stored.pages() {
        let mut bytes = vec![0; stored.page_bytes(&page)];
        file.read(at, &mut bytes)?;
        at += bytes.len() as u64;
        if !stored.write(model, page, bytes)? {
            break;
        }
    }
    let cached = stored.cached_len(model)?;
    Ok((header.sequence, cached))
}
