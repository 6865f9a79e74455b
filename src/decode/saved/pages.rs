//! Pages of the cache on their way to a file and back, one at a time, between two rounds of the
//! scheduler.

use crate::decode::engine::Engine;
use crate::decode::kv::Pair;
use crate::decode::kv::saved::Window;
use crate::decode::model::Model;
use crate::decode::sequence::{Apart, Sequence};
use crate::error::Result;
use crate::op::pages::PAGE;
use crate::op::table::BufferId;
use std::ops::Range;
use std::sync::Arc;

/// Positions of a page.
const POSITIONS: usize = PAGE as usize;

/// Bytes of an element of the widest cache.
const ELEMENT_MAX: usize = 4;

/// How the keys or the values of a layer lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// Bytes of a position.
    pub(super) bytes: usize,
    /// Whether the layer has a window, and keeps no more than that.
    pub(super) ringed: bool,
}

/// The keys or the values of a layer of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    place: BufferId,
    pub(super) rows: Rows,
    /// Bytes of a position at most, whatever the type of the cache.
    pub(super) bytes_max: usize,
}

/// What the cache of a model looks like.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    pub(super) streams: Arc<[Stream]>,
    apart: Apart,
}

/// The pages of a sequence, as far as they are or were in the cache.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    cache: Cache,
    /// Those of the positions that are stored.
    keys: Arc<[u32]>,
    /// The first page that layers with a window have.
    pub(super) first_seen: usize,
}

impl Cache {
    /// That of a model.
    pub(super) fn of(model: &Model) -> Result<Self> {
        model.call(|engine| {
            let slots = engine.linked.tables[0].slots.iter();
            let streams = slots.filter_map(|slot| {
                let (bytes, ringed) = engine.linked.page_of(slot)?;
                let bytes = bytes / POSITIONS;
                Some(Stream {
                    place: slot.place,
                    rows: Rows { bytes, ringed },
                    bytes_max: slot.cols as usize * ELEMENT_MAX,
                })
            });
            Ok(Self {
                streams: streams.collect(),
                apart: engine.apart(),
            })
        })
    }

    /// How its keys and values lie.
    pub(super) fn rows(&self) -> impl Iterator<Item = Rows> {
        self.streams.iter().map(|stream| stream.rows)
    }

    /// Bytes of the pages of so many positions, of which layers with a window have those from
    /// `first_seen` on.
    pub(super) fn bytes(rows: &[Rows], positions: usize, first_seen: usize) -> u64 {
        let ringed = positions.saturating_sub(first_seen.saturating_mul(POSITIONS));
        let of = |rows: &Rows| {
            let positions = if rows.ringed { ringed } else { positions };
            (positions as u64).saturating_mul(rows.bytes as u64)
        };
        rows.iter().map(of).fold(0, u64::saturating_add)
    }
}

impl Stored {
    /// So many positions of a sequence.
    pub(super) fn new(
        cache: &Cache,
        sequence: &Sequence,
        positions: usize,
        first_seen: usize,
    ) -> Self {
        let mut keys = Vec::new();
        sequence.keys(positions, cache.apart, &mut keys);
        Self {
            cache: cache.clone(),
            keys: keys.into(),
            first_seen,
        }
    }

    /// What the model knows of a sequence.
    pub(super) fn find(model: &Model, cache: &Cache, sequence: &Sequence) -> Result<Self> {
        let all = Self::new(cache, sequence, sequence.len(), 0);
        model.call(move |engine| {
            let context = engine.linked.facts.context as usize;
            let keys = &all.keys[..all.keys.len().min(context)];
            let known = engine.kv.known(keys);
            Ok(Self {
                first_seen: engine.kv.first_seen(known),
                keys: keys[..known].into(),
                cache: all.cache,
            })
        })
    }

    /// How many of the positions the model knows.
    pub(super) fn known(&self, model: &Model) -> Result<usize> {
        let keys = Arc::clone(&self.keys);
        model.call(move |engine| Ok(engine.kv.known(&keys)))
    }

    /// The positions of each page.
    pub(super) fn pages(&self) -> impl Iterator<Item = Range<usize>> {
        let all = self.keys.len();
        let starts = (0..all).step_by(POSITIONS);
        starts.map(move |start| start..all.min(start + POSITIONS))
    }

    /// The streams that a page of these positions has, and the bytes of each.
    fn parts(&self, page: &Range<usize>) -> impl Iterator<Item = (Stream, usize)> {
        let (rows, seen) = (page.len(), page.start / POSITIONS >= self.first_seen);
        let streams = self.cache.streams.iter().copied();
        let streams = streams.filter(move |stream| seen || !stream.rows.ringed);
        streams.map(move |stream| (stream, rows * stream.rows.bytes))
    }

    /// Bytes of a page of these positions.
    pub(super) fn page_bytes(&self, page: &Range<usize>) -> usize {
        self.parts(page).map(|(_, bytes)| bytes).sum()
    }

    fn window(&self, page: &Range<usize>) -> Window {
        match self.parts(page).any(|(stream, _)| stream.rows.ringed) {
            true => Window::OutputRequest,
            false => Window::Left,
        }
    }

    /// Reads a page of these positions; `None` where it was forgotten. `bytes` is room for it.
    pub(super) fn read(
        &self,
        model: &Model,
        page: Range<usize>,
        mut bytes: Vec<u8>,
    ) -> Result<Option<Vec<u8>>> {
        let this = self.clone();
        model.call(move |engine| {
            let keys = &this.keys[..page.end];
            let Some(pages) = engine.kv.last_pages(keys, this.window(&page)) else {
                return Ok(None);
            };
            bytes.resize(this.page_bytes(&page), 0);
            let mut rest = &mut bytes[..];
            for (stream, count) in this.parts(&page) {
                let (own, behind) = rest.split_at_mut(count);
                let offset = offset(&stream, pages);
                engine.linked.executor.read(stream.place, offset, own)?;
                rest = behind;
            }
            Ok(Some(bytes))
        })
    }

    /// Puts a page of these positions into the cache, unless it is there. Returns whether there was
    /// room for it.
    pub(super) fn write(&self, model: &Model, page: Range<usize>, bytes: Vec<u8>) -> Result<bool> {
        let this = self.clone();
        model.call(move |engine| {
            let (keys, window) = (&this.keys[..page.end], this.window(&page));
            if engine.kv.last_pages(keys, window).is_some() {
                return Ok(true);
            }
            let Some(pages) = engine.kv.take_pages(keys, window) else {
                return Ok(false);
            };
            let written = this.fill(engine, &page, pages, &bytes);
            match written {
                Ok(()) => engine.kv.keep_pages(keys, pages),
                Err(_) => engine.kv.leave_pages(pages),
            }
            written.map(|()| true)
        })
    }

    /// Writes what a file has of a page.
    fn fill(
        &self,
        engine: &mut Engine,
        page: &Range<usize>,
        pages: Pair,
        bytes: &[u8],
    ) -> Result<()> {
        let mut rest = bytes;
        for (stream, count) in self.parts(page) {
            let (own, behind) = rest.split_at(count);
            let offset = offset(&stream, pages);
            engine.linked.executor.write(stream.place, offset, own)?;
            rest = behind;
        }
        Ok(())
    }
}

/// Where a page begins in a stream.
fn offset(stream: &Stream, pages: Pair) -> usize {
    let page = match pages.ringed {
        Some(ringed) if stream.rows.ringed => ringed,
        _ => pages.whole,
    };
    page as usize * POSITIONS * stream.rows.bytes
}
