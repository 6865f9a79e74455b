//! Copies pages of the KV cache to and from files, one page per scheduler iteration.

use crate::decode::engine::Engine;
use crate::decode::kv::PagePair;
use crate::decode::kv::saved::{StoredPart, StoredParts};
use crate::decode::model::Model;
use crate::decode::sequence::{Sequence, StepBits};
use crate::error::Result;
use crate::model::paged_slots;
use crate::op::pages::PageKind;
use crate::op::params::PAGE;
use crate::op::table::BufferId;
use std::ops::Range;
use std::sync::Arc;

/// Number of positions of a page.
const POSITIONS: usize = PAGE as usize;

/// Element size of the widest cache type, in bytes.
const ELEMENT_MAX: usize = 4;

/// Layout of the keys or the values of a layer, or of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// Bytes per position, or of a state.
    pub(super) bytes: usize,
    /// Kind of the layer.
    pub(super) kind: PageKind,
}

/// Keys or values of a layer, or a state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    buffer: BufferId,
    pub(super) rows: Rows,
    /// Maximum bytes per position of all cache types, or of a state.
    pub(super) bytes_max: usize,
}

/// Layout of the KV cache of a model.
#[derive(Clone, Debug)]
pub(super) struct CacheLayout {
    pub(super) streams: Arc<[Stream]>,
    step_bits: StepBits,
}

/// Pages of a sequence that are or were cached.
#[derive(Clone, Debug)]
pub(super) struct StoredPages {
    cache: CacheLayout,
    /// Token IDs of the stored positions.
    token_ids: Arc<[u32]>,
    /// Index of the first page stored for sliding-window layers.
    pub(super) first_window_page: usize,
}

impl CacheLayout {
    /// Reads the layout from a model.
    pub(super) fn new(model: &Model) -> Result<Self> {
        model.call(|engine| {
            // Keys of the drafting head may be missing; they are recomputed from the rows that the first table stores.
            let slots = paged_slots(&engine.linked.tables[..1], engine.linked.pages);
            let streams = slots.map(|(slot, bytes, kind)| {
                let bytes = match kind {
                    PageKind::Full | PageKind::Windowed => bytes / POSITIONS,
                    PageKind::State => bytes,
                };
                Stream {
                    buffer: slot.buffer,
                    rows: Rows { bytes, kind },
                    bytes_max: slot.cols as usize * ELEMENT_MAX,
                }
            });
            Ok(Self {
                streams: streams.collect(),
                step_bits: engine.step_bits(),
            })
        })
    }

    /// Returns the layout of each stream.
    pub(super) fn rows(&self) -> impl Iterator<Item = Rows> {
        self.streams.iter().map(|stream| stream.rows)
    }

    /// Returns the size of the pages of `positions` positions in bytes. Sliding-window layers store
    /// pages from `first_window_page` on; without the states of recurrent layers.
    pub(super) fn bytes(rows: &[Rows], positions: usize, first_window_page: usize) -> u64 {
        let windowed = positions.saturating_sub(first_window_page.saturating_mul(POSITIONS));
        let bytes_of = |rows: &Rows| {
            let count = match rows.kind {
                PageKind::Full => positions,
                PageKind::Windowed => windowed,
                PageKind::State => 0,
            };
            (count as u64).saturating_mul(rows.bytes as u64)
        };
        rows.iter().map(bytes_of).fold(0, u64::saturating_add)
    }
}

/// Returns the size of the states of recurrent layers in bytes.
pub(super) fn state_bytes(rows: &[Rows]) -> u64 {
    let states = rows.iter().filter(|rows| rows.kind == PageKind::State);
    states.map(|rows| rows.bytes as u64).sum()
}

impl StoredPages {
    /// Creates the pages of the first `positions` positions of a sequence.
    pub(super) fn new(
        cache: &CacheLayout,
        sequence: &Sequence,
        positions: usize,
        first_window_page: usize,
    ) -> Self {
        let mut token_ids = Vec::new();
        sequence.token_ids(positions, cache.step_bits, &mut token_ids);
        Self {
            cache: cache.clone(),
            token_ids: token_ids.into(),
            first_window_page,
        }
    }

    /// Creates the pages of a sequence that the model has cached.
    pub(super) fn cached(model: &Model, cache: &CacheLayout, sequence: &Sequence) -> Result<Self> {
        let all = Self::new(cache, sequence, sequence.len(), 0);
        model.call(move |engine| {
            let context = engine.linked.facts.context as usize;
            let token_ids = &all.token_ids[..all.token_ids.len().min(context)];
            let cached = engine.kv.cached_len(token_ids);
            Ok(Self {
                first_window_page: engine.kv.first_window_page(cached),
                token_ids: token_ids[..cached].into(),
                cache: all.cache,
            })
        })
    }

    /// Returns the number of positions that the model has cached.
    pub(super) fn cached_len(&self, model: &Model) -> Result<usize> {
        let token_ids = Arc::clone(&self.token_ids);
        model.call(move |engine| Ok(engine.kv.cached_len(&token_ids)))
    }

    /// Returns the range of positions of each page.
    pub(super) fn pages(&self) -> impl Iterator<Item = Range<usize>> {
        let all = self.token_ids.len();
        let starts = (0..all).step_by(POSITIONS);
        starts.map(move |start| start..all.min(start + POSITIONS))
    }

    /// Returns the streams stored in a page and the size of each in bytes.
    fn parts(&self, page: &Range<usize>) -> impl Iterator<Item = (Stream, usize)> {
        let in_window = page.start / POSITIONS >= self.first_window_page;
        let is_last = page.end == self.token_ids.len();
        let rows = page.len();
        let streams = self.cache.streams.iter().copied();
        streams.filter_map(move |stream| {
            let count = match stream.rows.kind {
                PageKind::Full => rows,
                PageKind::Windowed => in_window.then_some(rows)?,
                PageKind::State => is_last.then_some(1)?,
            };
            Some((stream, count * stream.rows.bytes))
        })
    }

    /// Returns the size of a page in bytes.
    pub(super) fn page_bytes(&self, page: &Range<usize>) -> usize {
        self.parts(page).map(|(_, bytes)| bytes).sum()
    }

    /// Returns the kinds of layers with a part of a page.
    fn stored_parts(&self, page: &Range<usize>) -> StoredParts {
        let part = |kind| match self.parts(page).any(|(stream, _)| stream.rows.kind == kind) {
            true => StoredPart::Required,
            false => StoredPart::Skipped,
        };
        StoredParts {
            windowed: part(PageKind::Windowed),
            state: part(PageKind::State),
        }
    }

    /// Reads a page; `None` if it was evicted. `bytes` is reused as buffer.
    pub(super) fn read(
        &self,
        model: &Model,
        page: Range<usize>,
        mut bytes: Vec<u8>,
    ) -> Result<Option<Vec<u8>>> {
        let this = self.clone();
        model.call(move |engine| {
            let token_ids = &this.token_ids[..page.end];
            let Some(pages) = engine.kv.last_pages(token_ids, this.stored_parts(&page)) else {
                return Ok(None);
            };
            bytes.resize(this.page_bytes(&page), 0);
            let mut rest = &mut bytes[..];
            for (stream, count) in this.parts(&page) {
                let (own, remaining) = rest.split_at_mut(count);
                let offset = offset(&stream, pages);
                engine.linked.executor.read(stream.buffer, offset, own)?;
                rest = remaining;
            }
            Ok(Some(bytes))
        })
    }

    /// Inserts a page into the cache, unless it is cached. Returns whether there was room.
    pub(super) fn write(&self, model: &Model, page: Range<usize>, bytes: Vec<u8>) -> Result<bool> {
        let this = self.clone();
        model.call(move |engine| {
            let (token_ids, parts) = (&this.token_ids[..page.end], this.stored_parts(&page));
            if engine.kv.last_pages(token_ids, parts).is_some() {
                return Ok(true);
            }
            let Some(pages) = engine.kv.allocate_pages(token_ids, parts) else {
                return Ok(false);
            };
            let written = this.fill(engine, &page, pages, &bytes);
            match written {
                Ok(()) => engine.kv.insert_pages(token_ids, pages),
                Err(_) => engine.kv.release_pages(pages),
            }
            written.map(|()| true)
        })
    }

    /// Writes the content of a page to the device.
    fn fill(
        &self,
        engine: &mut Engine,
        page: &Range<usize>,
        pages: PagePair,
        bytes: &[u8],
    ) -> Result<()> {
        let mut rest = bytes;
        for (stream, count) in self.parts(page) {
            let (own, remaining) = rest.split_at(count);
            let offset = offset(&stream, pages);
            engine.linked.executor.write(stream.buffer, offset, own)?;
            rest = remaining;
        }
        Ok(())
    }
}

/// Returns the offset of a page in a stream.
fn offset(stream: &Stream, pages: PagePair) -> usize {
    let windowed = pages.windowed.unwrap_or(pages.full);
    let state = pages.state.map_or(0, |state| state.page);
    let row = match stream.rows.kind {
        PageKind::Full => pages.full as usize * POSITIONS,
        PageKind::Windowed => windowed as usize * POSITIONS,
        PageKind::State => state as usize,
    };
    row * stream.rows.bytes
}
