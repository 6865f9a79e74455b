//! Prefix cache access for saving and loading sessions.

use super::pool::{KeptState, PagePair};
use super::prefixes::{PrefixKey, PrefixTree};
use super::{Kv, POSITIONS, PageKind};

/// What is stored for a range of positions, in addition to the page of full-attention layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decode) struct StoredParts {
    /// The page of the sliding-window layers.
    pub(in crate::decode) windowed: StoredPart,
    /// The state of the recurrent layers after the last position.
    pub(in crate::decode) state: StoredPart,
}

/// Whether a page or a state is stored for a range of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decode) enum StoredPart {
    Required,
    Skipped,
}

impl Kv {
    /// Returns the number of leading tokens that are cached, including the pages of their window.
    pub(in crate::decode) fn cached_len(&mut self, token_ids: &[u32]) -> usize {
        let Self {
            prefixes,
            path,
            layout,
            ..
        } = self;
        prefixes.find(PrefixKey::plain(token_ids), path);
        let mut tokens = prefixes.len_with_window(path, layout.window as usize);
        if layout.states > 0 {
            PrefixTree::truncate(path, tokens);
            tokens = prefixes.len_with_state(path);
        }
        PrefixTree::truncate(path, tokens);
        prefixes.touch_path(path);
        tokens
    }

    /// Returns the index of the first page in the window of the next token.
    pub(in crate::decode) fn first_window_page(&self, tokens: usize) -> usize {
        match self.window_entries() {
            0 => 0,
            _ => tokens.saturating_sub(self.layout.window as usize) / POSITIONS,
        }
    }

    /// Returns the pages of the last page range of these tokens, if all of them are cached.
    pub(in crate::decode) fn last_pages(
        &mut self,
        token_ids: &[u32],
        parts: StoredParts,
    ) -> Option<PagePair> {
        let Self { prefixes, path, .. } = self;
        prefixes.find(PrefixKey::plain(token_ids), path);
        let last = path.pages().checked_sub(1)?;
        let pages = prefixes.pages(path, last);
        let there = path.tokens() == token_ids.len()
            && (pages.windowed.is_some() || parts.windowed == StoredPart::Skipped)
            && (prefixes.len_with_state(path) == token_ids.len()
                || parts.state == StoredPart::Skipped);
        there.then_some(pages)
    }

    /// Allocates pages for the last page range of these tokens, if all tokens before it are cached.
    /// Evicts the least recently used prefixes.
    pub(in crate::decode) fn allocate_pages(
        &mut self,
        token_ids: &[u32],
        parts: StoredParts,
    ) -> Option<PagePair> {
        let prefix_len = (token_ids.len() - 1) / POSITIONS * POSITIONS;
        let full = self.try_allocate(PageKind::Full)?;
        let mut optional = |kind, part| match part {
            StoredPart::Required => self.try_allocate(kind),
            StoredPart::Skipped => None,
        };
        let windowed = optional(PageKind::Windowed, parts.windowed);
        let state = optional(PageKind::State, parts.state).map(|page| KeptState {
            page,
            positions: token_ids.len() - prefix_len,
        });
        let pages = PagePair {
            full,
            windowed,
            state,
            has_head_keys: false,
        };
        // The eviction may have removed the prefix itself.
        let Self { prefixes, path, .. } = self;
        prefixes.find(PrefixKey::plain(token_ids), path);
        let missing = windowed.is_none() && parts.windowed == StoredPart::Required
            || state.is_none() && parts.state == StoredPart::Required;
        if missing || path.tokens() < prefix_len {
            self.release_pages(pages);
            return None;
        }
        Some(pages)
    }

    /// Allocates a page, evicting prefixes if necessary.
    fn try_allocate(&mut self, kind: PageKind) -> Option<u32> {
        loop {
            if let Some(page) = self.pool(kind).allocate() {
                return Some(page);
            }
            if !self.evict(kind) {
                return None;
            }
        }
    }

    /// Releases allocated pages.
    pub(in crate::decode) fn release_pages(&mut self, pages: PagePair) {
        self.pools.release(pages);
    }

    /// Adds pages for the last page range of these tokens to the prefix cache.
    pub(in crate::decode) fn insert_pages(&mut self, token_ids: &[u32], pages: PagePair) {
        let Self {
            prefixes,
            path,
            pools,
            ..
        } = self;
        let prefix_len = (token_ids.len() - 1) / POSITIONS;
        prefixes.find(PrefixKey::plain(&token_ids[..prefix_len * POSITIONS]), path);
        let cached = (0..path.pages()).map(|at| prefixes.pages(path, at));
        let all: Vec<PagePair> = cached.chain([pages]).collect();
        prefixes.insert(PrefixKey::plain(token_ids), all.into_iter(), pools);
        pools.release(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::pages::Pages;

    const WINDOWED: StoredParts = StoredParts {
        windowed: StoredPart::Required,
        state: StoredPart::Skipped,
    };
    const FULL_ONLY: StoredParts = StoredParts {
        windowed: StoredPart::Skipped,
        ..WINDOWED
    };

    /// Creates a cache with `pages` pages of each kind and a window of two pages.
    fn kv(pages: u32) -> Kv {
        let layout = Pages {
            whole: pages,
            ringed: 4,
            window: 100,
            whole_pool: pages,
            ringed_pool: pages,
            states: 0,
            states_pool: 0,
            kept: pages,
        };
        Kv::new(1, layout)
    }

    /// Inserts a sequence until the cache is full, and returns the number of inserted tokens.
    fn insert(kv: &mut Kv, token_ids: &[u32]) -> usize {
        let first = kv.first_window_page(token_ids.len());
        let mut done = 0;
        while done < token_ids.len() {
            let end = token_ids.len().min(done + POSITIONS);
            let parts = match done / POSITIONS < first {
                true => FULL_ONLY,
                false => WINDOWED,
            };
            let Some(pages) = kv.allocate_pages(&token_ids[..end], parts) else {
                break;
            };
            assert_eq!(pages.windowed.is_some(), parts == WINDOWED);
            kv.insert_pages(&token_ids[..end], pages);
            done = end;
        }
        done
    }

    #[test]
    fn inserted_sequence_is_cached() {
        let mut kv = kv(8);
        let [a, b] = [1, 1000].map(|first| (first..first + 300).collect::<Vec<u32>>());
        assert_eq!(kv.first_window_page(300), 3);
        assert_eq!(insert(&mut kv, &a), 300);
        assert_eq!(kv.cached_len(&a), 300);
        // The window pages of the prefix were not inserted.
        assert_eq!(kv.cached_len(&a[..200]), 0);
        let last = kv.last_pages(&a, WINDOWED).expect("cached");
        assert_eq!(
            kv.last_pages(&a[..256], WINDOWED)
                .map(|p| p.full != last.full),
            Some(true)
        );
        assert_eq!(kv.last_pages(&a[..128], WINDOWED), None);
        assert!(kv.last_pages(&a[..128], FULL_ONLY).is_some());
        assert_eq!((kv.pools.full.free(), kv.pools.windowed.free()), (3, 6));
        // The second sequence evicts the first.
        assert_eq!(insert(&mut kv, &b), 300);
        assert_eq!((kv.cached_len(&b), kv.cached_len(&a)), (300, 0));
        assert_eq!(kv.pools.full.free(), 0);
    }

    #[test]
    fn full_cache_releases_all_pages() {
        let mut kv = kv(4);
        let token_ids: Vec<u32> = (0..300).collect();
        // Five pages do not fit into four, and a prefix is never evicted for its own continuation.
        assert_eq!(insert(&mut kv, &token_ids), 256);
        assert_eq!(kv.prefixes.pages_held() + kv.pools.full.free(), 4);
        kv.clear_prefixes();
        assert_eq!((kv.pools.full.free(), kv.pools.windowed.free()), (4, 4));
    }
}
