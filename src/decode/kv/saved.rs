//! What of the cache can be saved, and room for what was: both go by the tree of prefixes alone.

use super::pool::PagePair;
use super::prefixes::PrefixTree;
use super::{Kv, POSITIONS, PageKind};

/// Whether pages of layers with a window are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decode) enum WindowPages {
    Required,
    Skipped,
}

impl Kv {
    /// How many of these tokens are known, with what their window needs.
    pub(in crate::decode) fn cached_len(&mut self, token_ids: &[u32]) -> usize {
        let Self {
            prefixes,
            path,
            layout,
            ..
        } = self;
        prefixes.find(token_ids, path);
        let tokens = prefixes.len_with_window(path, layout.window as usize);
        PrefixTree::truncate(path, tokens);
        prefixes.touch_path(path);
        tokens
    }

    /// The first of a sequence's pages that the window of its next token reaches.
    pub(in crate::decode) fn first_window_page(&self, tokens: usize) -> usize {
        match self.ring() {
            0 => 0,
            _ => tokens.saturating_sub(self.layout.window as usize) / POSITIONS,
        }
    }

    /// The pages of the last run of these tokens, where they are known with them.
    pub(in crate::decode) fn last_pages(
        &mut self,
        token_ids: &[u32],
        window: WindowPages,
    ) -> Option<PagePair> {
        let Self { prefixes, path, .. } = self;
        prefixes.find(token_ids, path);
        let last = path.pages().checked_sub(1)?;
        let pages = prefixes.pages(path, last);
        let there = path.tokens() == token_ids.len();
        (there && (pages.windowed.is_some() || window == WindowPages::Skipped)).then_some(pages)
    }

    /// Takes pages for the last run of these tokens, where all in front of it is known. What was
    /// used the longest ago is forgotten for them.
    pub(in crate::decode) fn allocate_pages(
        &mut self,
        token_ids: &[u32],
        window: WindowPages,
    ) -> Option<PagePair> {
        let full = self.try_allocate(PageKind::Full)?;
        let windowed = match window {
            WindowPages::Required => self.try_allocate(PageKind::Windowed),
            WindowPages::Skipped => None,
        };
        let pages = PagePair { full, windowed };
        // What was forgotten may have been what lies in front.
        let Self { prefixes, path, .. } = self;
        prefixes.find(token_ids, path);
        let prefix_len = (token_ids.len() - 1) / POSITIONS * POSITIONS;
        let lacks = windowed.is_none() && window == WindowPages::Required;
        if lacks || path.tokens() < prefix_len {
            self.release_pages(pages);
            return None;
        }
        Some(pages)
    }

    /// A page that nobody holds, or that prefixes alone hold.
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

    /// Gives back pages that were taken.
    pub(in crate::decode) fn release_pages(&mut self, pages: PagePair) {
        self.pools.release(pages);
    }

    /// Keeps what was written to pages that were taken for the last run of these tokens.
    pub(in crate::decode) fn insert_pages(&mut self, token_ids: &[u32], pages: PagePair) {
        let Self {
            prefixes,
            path,
            pools,
            ..
        } = self;
        let prefix_len = (token_ids.len() - 1) / POSITIONS;
        prefixes.find(&token_ids[..prefix_len * POSITIONS], path);
        let known = (0..path.pages()).map(|at| prefixes.pages(path, at));
        let all: Vec<PagePair> = known.chain([pages]).collect();
        prefixes.insert(token_ids, all.into_iter(), pools);
        pools.release(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::pages::Pages;

    /// A cache of so many pages of each kind, and a window of two pages.
    fn kv(pages: u32) -> Kv {
        let layout = Pages {
            whole: pages,
            ringed: 4,
            window: 100,
            whole_pool: pages,
            ringed_pool: pages,
            kept: pages,
        };
        Kv::new(1, layout)
    }

    /// Puts a sequence into the cache, as far as there is room.
    fn put(kv: &mut Kv, token_ids: &[u32]) -> usize {
        let first = kv.first_window_page(token_ids.len());
        let mut done = 0;
        while done < token_ids.len() {
            let end = token_ids.len().min(done + POSITIONS);
            let window = match done / POSITIONS < first {
                true => WindowPages::Skipped,
                false => WindowPages::Required,
            };
            let Some(pages) = kv.allocate_pages(&token_ids[..end], window) else {
                break;
            };
            assert_eq!(pages.windowed.is_some(), window == WindowPages::Required);
            kv.insert_pages(&token_ids[..end], pages);
            done = end;
        }
        done
    }

    #[test]
    fn what_was_put_in_is_known() {
        let mut kv = kv(8);
        let [a, b] = [1, 1000].map(|first| (first..first + 300).collect::<Vec<u32>>());
        assert_eq!(kv.first_window_page(300), 3);
        assert_eq!(put(&mut kv, &a), 300);
        assert_eq!(kv.cached_len(&a), 300);
        // Behind a beginning there is no window.
        assert_eq!(kv.cached_len(&a[..200]), 0);
        let last = kv
            .last_pages(&a, WindowPages::Required)
            .expect("it is there");
        assert_eq!(
            kv.last_pages(&a[..256], WindowPages::Required)
                .map(|p| p.full != last.full),
            Some(true)
        );
        assert_eq!(kv.last_pages(&a[..128], WindowPages::Required), None);
        assert!(kv.last_pages(&a[..128], WindowPages::Skipped).is_some());
        assert_eq!((kv.pools.full.free(), kv.pools.windowed.free()), (3, 6));
        // The other one takes the room of what was there.
        assert_eq!(put(&mut kv, &b), 300);
        assert_eq!((kv.cached_len(&b), kv.cached_len(&a)), (300, 0));
        assert_eq!(kv.pools.full.free(), 0);
    }

    #[test]
    fn where_there_is_no_room_nothing_is_lost() {
        let mut kv = kv(4);
        let token_ids: Vec<u32> = (0..300).collect();
        // Five pages do not fit four, and no page may stand in front of its own beginning.
        assert_eq!(put(&mut kv, &token_ids), 256);
        assert_eq!(kv.prefixes.pages_held() + kv.pools.full.free(), 4);
        kv.clear_prefixes();
        assert_eq!((kv.pools.full.free(), kv.pools.windowed.free()), (4, 4));
    }
}
