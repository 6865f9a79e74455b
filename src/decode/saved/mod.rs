//! Sessions in files: a sequence, and what was computed for it.
//!
//! All numbers are little-endian. `docs/sessions.md` says what is promised of such a file.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `TABLASES` |
//! | 4 | the version, 1 |
//! | 32 | the digest of the model |
//! | 4 | tokens |
//! | 4 | the first page that layers with a window have |
//! | 4 | bytes of the provenance |
//! | 4 | streams of the cache: the keys or the values of a layer |
//! | 8 for each stream | bytes of a position; 1 where the layer keeps its window alone, else 0 |
//! | as said | the provenance: what else the cache's bits depend on, in words |
//! | 4 for each token | its key: the highest bit says that it was picked |
//! | for each page | stream by stream the bytes of its positions |
//! | 4 | positions of the cache that are there |
//! | 32 | the checksum, see `file.rs` |
//!
//! A page has 64 positions, the last one those that are left. Nothing behind the positions that were
//! computed is written: it may be another session's.

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
    /// Writes the sequence into a file, with what the model's cache still holds of it.
    ///
    /// Nothing is computed, and other sessions are held up for no longer than a page takes. The file
    /// is there when it is whole; until then what stood under its name stays.
    ///
    /// # Errors
    ///
    /// `Io` where the file cannot be written, `State` where a file of the model has changed since it
    /// was opened, `Poisoned` where the model's thread has ended, `Device` or `DeviceLost`.
    pub fn save(&self, path: &Path) -> Result<()> {
        save(&self.model, &self.sequence, path)
    }

    /// Reads what [`save`](Self::save) has written: a session that goes on as that one would have.
    ///
    /// What was computed comes back as far as there is room, where device, precision, type of the
    /// cache and all else are the same that its bits depend on; the rest is computed anew when it is
    /// needed. All of the file is checked before anything is taken from it. The checksum finds damage
    /// and no malice: who can write the file can say what was computed, and other sessions with the
    /// same tokens go on from that, too.
    ///
    /// # Errors
    ///
    /// `Io` where the file cannot be read, `Format` where it is something else or damaged, `Argument`
    /// where it is of another model, `TooLarge` where it does not fit the context, `Unsupported` for a
    /// version that this build does not know; `State`, `Poisoned`, `Device` or `DeviceLost` as of `save`.
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

/// The sequence of a file, and how much of it the model knows.
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
