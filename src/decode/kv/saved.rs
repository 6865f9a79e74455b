//! What of the cache can be saved, and room for what was: both go by the tree of prefixes alone.

use super::pool::Pair;
use super::prefixes::Prefixes;
use super::{Kind, Kv, POSITIONS};

/// Whether pages of layers with a window are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decode) enum Window {
    OutputRequest,
    Left,
}

impl Kv {
    /// How many of these tokens are known, with what their window needs.
    pub(in crate::decode) fn known(&mut self, keys: &[u32]) -> usize {
        let Self {
            prefixes,
            path,
            layout,
            ..
        } = self;
        prefixes.find(keys, path);
        let tokens = prefixes.with_window(path, layout.window as usize);
        Prefixes::cut(path, tokens);
        prefixes.touch_path(path);
        tokens
    }

    /// The first of a sequence's pages that the window of its next token reaches.
    pub(in crate::decode) fn first_seen(&self, tokens: usize) -> usize {
        match self.ring() {
            0 => 0,
            _ => tokens.saturating_sub(self.layout.window as usize) / POSITIONS,
        }
    }

    /// The pages of the last run of these tokens, where they are known with them.
    pub(in crate::decode) fn last_pages(&mut self, keys: &[u32], window: Window) -> Option<Pair> {
        let Self { prefixes, path, .. } = self;
        prefixes.find(keys, path);
        let last = path.pages().checked_sub(1)?;
        let pages = prefixes.pages(path, last);
        let there = path.tokens() == keys.len();
        (there && (pages.ringed.is_some() || window == Window::Left)).then_some(pages)
    }

    /// Takes pages for the last run of these tokens, where all in front of it is known. What was
    /// used the longest ago is forgotten for them.
    pub(in crate::decode) fn take_pages(&mut self, keys: &[u32], window: Window) -> Option<Pair> {
        let whole = self.spare(Kind::Whole)?;
        let ringed = match window {
            Window::OutputRequest => self.spare(Kind::Ringed),
            Window::Left => None,
        };
        let pages = Pair { whole, ringed };
        // What was forgotten may have been what lies in front.
        let Self { prefixes, path, .. } = self;
        prefixes.find(keys, path);
        let front = (keys.len() - 1) / POSITIONS * POSITIONS;
        let lacks = ringed.is_none() && window == Window::OutputRequest;
        if lacks || path.tokens() < front {
            self.leave_pages(pages);
            return None;
        }
        Some(pages)
    }

    /// A page that nobody holds, or that prefixes alone hold.
    fn spare(&mut self, kind: Kind) -> Option<u32> {
        loop {
            if let Some(page) = self.pool(kind).take() {
                return Some(page);
            }
            if !self.forget(kind) {
                return None;
            }
        }
    }

    /// Gives back pages that were taken.
    pub(in crate::decode) fn leave_pages(&mut self, pages: Pair) {
        self.pools.leave(pages);
    }

    /// Keeps what was written to pages that were taken for the last run of these tokens.
    pub(in crate::decode) fn keep_pages(&mut self, keys: &[u32], pages: Pair) {
        let Self {
            prefixes,
            path,
            pools,
            ..
        } = self;
        let front = (keys.len() - 1) / POSITIONS;
        prefixes.find(&keys[..front * POSITIONS], path);
        let known = (0..path.pages()).map(|at| prefixes.pages(path, at));
        let all: Vec<Pair> = known.chain([pages]).collect();
        prefixes.insert(keys, all.into_iter(), pools);
        pools.leave(pages);
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
    fn put(kv: &mut Kv, keys: &[u32]) -> usize {
        let first = kv.first_seen(keys.len());
        let mut done = 0;
        while done < keys.len() {
            let end = keys.len().min(done + POSITIONS);
            let window = match done / POSITIONS < first {
                true => Window::Left,
                false => Window::OutputRequest,
            };
            let Some(pages) = kv.take_pages(&keys[..end], window) else {
                break;
            };
            assert_eq!(pages.ringed.is_some(), window == Window::OutputRequest);
            kv.keep_pages(&keys[..end], pages);
            done = end;
        }
        done
    }

    #[test]
    fn what_was_put_in_is_known() {
        let mut kv = kv(8);
        let [a, b] = [1, 1000].map(|first| (first..first + 300).collect::<Vec<u32>>());
        assert_eq!(kv.first_seen(300), 3);
        assert_eq!(put(&mut kv, &a), 300);
        assert_eq!(kv.known(&a), 300);
        // Behind a beginning there is no window.
        assert_eq!(kv.known(&a[..200]), 0);
        let last = kv
            .last_pages(&a, Window::OutputRequest)
            .expect("it is there");
        assert_eq!(
            kv.last_pages(&a[..256], Window::OutputRequest)
                .map(|p| p.whole != last.whole),
            Some(true)
        );
        assert_eq!(kv.last_pages(&a[..128], Window::OutputRequest), None);
        assert!(kv.last_pages(&a[..128], Window::Left).is_some());
        assert_eq!((kv.pools.whole.free(), kv.pools.ringed.free()), (3, 6));
        // The other one takes the room of what was there.
        assert_eq!(put(&mut kv, &b), 300);
        assert_eq!((kv.known(&b), kv.known(&a)), (300, 0));
        assert_eq!(kv.pools.whole.free(), 0);
    }

    #[test]
    fn where_there_is_no_room_nothing_is_lost() {
        let mut kv = kv(4);
        let keys: Vec<u32> = (0..300).collect();
        // Five pages do not fit four, and no page may stand in front of its own beginning.
        assert_eq!(put(&mut kv, &keys), 256);
        assert_eq!(kv.prefixes.pages_held() + kv.pools.whole.free(), 4);
        kv.forget_prefixes();
        assert_eq!((kv.pools.whole.free(), kv.pools.ringed.free()), (4, 4));
    }
}
