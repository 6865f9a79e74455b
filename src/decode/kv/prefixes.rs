//! Prefixes: what sequences that went before have left in the KV cache, as a tree over their tokens.
//!
//! A node is a page of positions with the tokens that it was computed for; its parent is the page in
//! front of it. Nodes stand in a list, the last used ones first and a parent always in front of its
//! children: so the last of the list is a leaf, and what is forgotten first.

use super::pool::{PagePair, Pool, Pools};
use crate::op::pages::PAGE;

/// Positions of a page.
const POSITIONS: usize = PAGE as usize;

/// The number of a node. The first is the root, which has no page.
type Id = u32;
const ROOT: Id = 0;

#[derive(Clone, Debug)]
struct Node {
    /// The tokens, `len` of them.
    token_ids: [u32; POSITIONS],
    len: usize,
    pages: PagePair,
    parent: Id,
    /// Children: the first, and the next one of the same parent.
    child: Option<Id>,
    sibling: Option<Id>,
    /// Neighbours in the list: used later, used earlier.
    newer: Id,
    older: Id,
}

impl Node {
    fn token_ids(&self) -> &[u32] {
        &self.token_ids[..self.len]
    }

    fn fill(&mut self, run: &[u32], pages: PagePair) {
        self.token_ids[..run.len()].copy_from_slice(run);
        self.len = run.len();
        self.pages = pages;
    }
}

/// The tree. It holds the pages of its nodes.
#[derive(Debug)]
pub(super) struct PrefixTree {
    /// Room for all nodes, taken once.
    nodes: Vec<Node>,
    free: Vec<Id>,
}

/// How far a sequence is known, page by page.
#[derive(Debug, Default)]
pub(super) struct PrefixPath {
    nodes: Vec<Id>,
    /// Tokens of the last of them that are the same.
    last: usize,
}

impl PrefixPath {
    /// Room for as many pages as a sequence has.
    pub(super) fn with_capacity(pages: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(pages),
            last: 0,
        }
    }

    /// Pages that it has.
    pub(super) fn pages(&self) -> usize {
        self.nodes.len()
    }

    /// Tokens that are known.
    pub(super) fn tokens(&self) -> usize {
        match self.nodes.len() {
            0 => 0,
            pages => (pages - 1) * POSITIONS + self.last,
        }
    }
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl PrefixTree {
    /// An empty tree, of so many pages at most.
    pub(super) fn new(pages: usize) -> Self {
        let mut nodes = Vec::with_capacity(pages + 1);
        let empty = Node {
            token_ids: [0; POSITIONS],
            len: 0,
            pages: PagePair {
                full: 0,
                windowed: None,
            },
            parent: ROOT,
            child: None,
            sibling: None,
            newer: ROOT,
            older: ROOT,
        };
        nodes.resize(pages + 1, empty);
        let ids = 1..=u32::try_from(pages).expect("pages have 32 bits");
        Self {
            nodes,
            free: ids.rev().collect(),
        }
    }

    fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    fn node_mut(&mut self, id: Id) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    fn children(&self, id: Id) -> impl Iterator<Item = Id> {
        std::iter::successors(self.node(id).child, |id| self.node(*id).sibling)
    }

    /// The child that has most of these tokens, and how many it has.
    fn best_child(&self, id: Id, token_ids: &[u32]) -> Option<(Id, usize)> {
        let children = self.children(id);
        let known = children.map(|child| (child, common(self.node(child).token_ids(), token_ids)));
        known
            .max_by_key(|(_, same)| *same)
            .filter(|(_, same)| *same > 0)
    }

    /// How far these tokens are known.
    pub(super) fn find(&self, token_ids: &[u32], path: &mut PrefixPath) {
        path.nodes.clear();
        path.last = 0;
        let mut at = ROOT;
        for run in token_ids.chunks(POSITIONS) {
            let Some((child, same)) = self.best_child(at, run) else {
                return;
            };
            path.nodes.push(child);
            path.last = same;
            if same < POSITIONS {
                return;
            }
            at = child;
        }
    }

    /// Shortens a path to so many tokens.
    pub(super) fn truncate(path: &mut PrefixPath, tokens: usize) {
        if tokens < path.tokens() {
            path.nodes.truncate(tokens.div_ceil(POSITIONS));
            path.last = match tokens % POSITIONS {
                0 if tokens == 0 => 0,
                0 => POSITIONS,
                rest => rest,
            };
        }
    }

    /// Says that a path was used now.
    pub(super) fn touch_path(&mut self, path: &PrefixPath) {
        if let Some(last) = path.nodes.last() {
            self.touch(*last);
        }
    }

    /// The pages of a path's `at`th.
    pub(super) fn pages(&self, path: &PrefixPath, at: usize) -> PagePair {
        self.node(path.nodes[at]).pages
    }

    /// The longest beginning of a path whose window of this many positions has its pages too; a
    /// window of 0 needs none.
    pub(super) fn len_with_window(&self, path: &PrefixPath, window: usize) -> usize {
        let mut tokens = path.tokens();
        while window > 0 && tokens > 0 {
            let seen = tokens.saturating_sub(window) / POSITIONS..tokens.div_ceil(POSITIONS);
            let lacks = |page: &usize| self.node(path.nodes[*page]).pages.windowed.is_none();
            match seen.rev().find(lacks) {
                None => break,
                // Whatever ends behind this page needs it, unless the window has left it.
                Some(page) => tokens = page * POSITIONS,
            }
        }
        tokens
    }

    /// Keeps what was computed for these tokens, on these pages, one for each [`PAGE`] of them. What
    /// is known already stays where it is.
    pub(super) fn insert(
        &mut self,
        token_ids: &[u32],
        pages: impl Iterator<Item = PagePair>,
        pools: &mut Pools,
    ) {
        let mut at = ROOT;
        for (run, pages) in token_ids.chunks(POSITIONS).zip(pages) {
            let known = self.best_child(at, run);
            at = match known {
                Some((child, same)) if same == run.len() => {
                    if let (None, Some(page)) = (self.node(child).pages.windowed, pages.windowed)
                        && self.node(child).len == run.len()
                    {
                        pools.windowed.retain(page);
                        self.node_mut(child).pages.windowed = Some(page);
                    }
                    child
                }
                // A beginning of these: they take its place.
                Some((child, same)) if same == self.node(child).len => {
                    pools.release(self.node(child).pages);
                    pools.retain(pages);
                    self.node_mut(child).fill(run, pages);
                    child
                }
                _ => {
                    let Some(child) = self.allocate_node(at, pools) else {
                        break;
                    };
                    let sibling = self.node(at).child;
                    let node = self.node_mut(child);
                    (node.parent, node.child, node.sibling) = (at, None, sibling);
                    (node.newer, node.older) = (child, child);
                    self.node_mut(at).child = Some(child);
                    pools.retain(pages);
                    self.node_mut(child).fill(run, pages);
                    child
                }
            };
        }
        self.touch(at);
    }

    /// A free node, or that of the page that was used the longest ago, which is none of those in front
    /// of `at`.
    fn allocate_node(&mut self, at: Id, pools: &mut Pools) -> Option<Id> {
        if self.free.is_empty() {
            self.touch(at);
            if self.node(ROOT).newer != at {
                self.evict_lru(pools);
            }
        }
        self.free.pop()
    }

    /// Puts a node and those in front of it to the front of the list, a parent before its child.
    fn touch(&mut self, mut id: Id) {
        while id != ROOT {
            self.unlink(id);
            let first = self.node(ROOT).older;
            let node = self.node_mut(id);
            (node.newer, node.older) = (ROOT, first);
            self.node_mut(ROOT).older = id;
            self.node_mut(first).newer = id;
            id = self.node(id).parent;
        }
    }

    fn unlink(&mut self, id: Id) {
        let Node { newer, older, .. } = *self.node(id);
        self.node_mut(newer).older = older;
        self.node_mut(older).newer = newer;
    }

    /// Forgets the page that was used the longest ago. Returns whether there was one.
    pub(super) fn evict_lru(&mut self, pools: &mut Pools) -> bool {
        let last = self.node(ROOT).newer;
        if last == ROOT {
            return false;
        }
        debug_assert!(
            self.node(last).child.is_none(),
            "a parent stands before its children"
        );
        self.unlink(last);
        let Node {
            parent, sibling, ..
        } = *self.node(last);
        if self.node(parent).child == Some(last) {
            self.node_mut(parent).child = sibling;
        } else {
            let before = self
                .children(parent)
                .find(|id| self.node(*id).sibling == Some(last));
            self.node_mut(before.expect("it is a child")).sibling = sibling;
        }
        pools.release(self.node(last).pages);
        self.free.push(last);
        true
    }

    /// Forgets the page for layers with a window of the node that was used the longest ago and has
    /// one. Returns whether there was one.
    pub(super) fn evict_windowed(&mut self, windowed: &mut Pool) -> bool {
        let mut at = self.node(ROOT).newer;
        while at != ROOT {
            if let Some(page) = self.node_mut(at).pages.windowed.take() {
                windowed.release(page);
                return true;
            }
            at = self.node(at).newer;
        }
        false
    }

    /// Pages that it holds.
    #[cfg(test)]
    pub(super) fn pages_held(&self) -> usize {
        self.nodes.len() - 1 - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct TestCache {
        tree: PrefixTree,
        pools: Pools,
        path: PrefixPath,
    }

    impl TestCache {
        fn new(pages: u32) -> Self {
            Self {
                tree: PrefixTree::new(pages as usize),
                pools: Pools::new(pages, pages),
                path: PrefixPath::with_capacity(100),
            }
        }

        /// A sequence that was computed on pages of its own, and has gone.
        fn insert_sequence(&mut self, token_ids: &[u32]) {
            let Self { tree, pools, .. } = self;
            let pages: Vec<PagePair> = token_ids
                .chunks(POSITIONS)
                .map(|_| PagePair {
                    full: pools.full.allocate().expect("enough"),
                    windowed: pools.windowed.allocate(),
                })
                .collect();
            tree.insert(token_ids, pages.iter().copied(), pools);
            pages.into_iter().for_each(|pair| pools.release(pair));
        }

        fn matched_len(&mut self, token_ids: &[u32]) -> usize {
            self.tree.find(token_ids, &mut self.path);
            self.path.tokens()
        }
    }

    fn token_ids(seed: u32, len: usize) -> Vec<u32> {
        (0..len)
            .map(|i| seed + 7 * u32::try_from(i).expect("small"))
            .collect()
    }

    #[test]
    fn the_longest_prefix_is_found() {
        let mut cache = TestCache::new(16);
        let long = token_ids(1, 200);
        cache.insert_sequence(&long);
        assert_eq!(cache.matched_len(&long), 200);
        assert_eq!(cache.matched_len(&long[..150]), 150);
        let mut other = long[..130].to_vec();
        other.extend(token_ids(5000, 100));
        assert_eq!(cache.matched_len(&other), 130);
        cache.insert_sequence(&other);
        assert_eq!(cache.matched_len(&other), 230);
        assert_eq!(cache.matched_len(&long), 200);
        assert_eq!(cache.matched_len(&token_ids(9, 10)), 0);
        // Pages of the common prefix are there once: 200 tokens are 4 pages, and two of the other's
        // four are the same.
        assert_eq!(cache.pools.full.free(), 16 - 6);
        // A beginning takes no page of its own, and its continuation takes its place.
        cache.insert_sequence(&long[..140]);
        assert_eq!(cache.pools.full.free(), 16 - 6);
        let mut more = long.clone();
        more.extend(token_ids(7000, 30));
        cache.insert_sequence(&more);
        assert_eq!(cache.matched_len(&more), 230);
        assert_eq!(cache.pools.full.free(), 16 - 6);
    }

    #[test]
    fn what_was_used_the_longest_ago_is_forgotten_first() {
        let mut cache = TestCache::new(16);
        let [a, b, c] = [1, 1000, 2000].map(|seed| token_ids(seed, 128));
        for token_ids in [&a, &b, &c] {
            cache.insert_sequence(token_ids);
        }
        assert_eq!(cache.matched_len(&a), 128);
        let TestCache { tree, path, .. } = &mut cache;
        assert_eq!(path.pages(), 2);
        tree.touch_path(path);
        let evict = |cache: &mut TestCache| {
            let TestCache { tree, pools, .. } = cache;
            assert!(tree.evict_lru(pools));
        };
        evict(&mut cache);
        assert_eq!(
            [&a, &b, &c].map(|token_ids| cache.matched_len(token_ids)),
            [128, 64, 128]
        );
        evict(&mut cache);
        evict(&mut cache);
        assert_eq!(
            [&a, &b, &c].map(|token_ids| cache.matched_len(token_ids)),
            [128, 0, 64]
        );
        evict(&mut cache);
        evict(&mut cache);
        evict(&mut cache);
        let TestCache { tree, pools, .. } = &mut cache;
        assert!(!tree.evict_lru(pools), "nothing is left");
        assert_eq!((pools.full.free(), pools.windowed.free()), (16, 16));
    }

    #[test]
    fn a_full_tree_forgets_for_whoever_comes() {
        let mut cache = TestCache::new(16);
        cache.tree = PrefixTree::new(3);
        let [a, b] = [1, 1000].map(|seed| token_ids(seed, 128));
        cache.insert_sequence(&a);
        cache.insert_sequence(&b);
        assert_eq!(
            [&a, &b].map(|token_ids| cache.matched_len(token_ids)),
            [64, 128]
        );
        // Of one that has no room whole, the beginning stays.
        let long = token_ids(2000, 300);
        cache.insert_sequence(&long);
        assert_eq!(
            [&a, &b, &long].map(|token_ids| cache.matched_len(token_ids)),
            [0, 0, 192]
        );
        cache.insert_sequence(&long);
        assert_eq!(
            (cache.matched_len(&long), cache.tree.pages_held()),
            (192, 3)
        );
        assert_eq!(cache.pools.full.free(), 16 - 3);
        cache.tree = PrefixTree::new(0);
        cache.pools = Pools::new(16, 16);
        cache.insert_sequence(&a);
        assert_eq!((cache.matched_len(&a), cache.pools.full.free()), (0, 16));
    }

    #[test]
    fn windows_need_their_pages() {
        let mut cache = TestCache::new(16);
        let long = token_ids(1, 300);
        cache.insert_sequence(&long);
        assert_eq!(cache.matched_len(&long), 300);
        assert_eq!(cache.tree.len_with_window(&cache.path, 100), 300);
        // The page that is forgotten first is the last one: whoever ends there lacks its window.
        let TestCache { tree, pools, .. } = &mut cache;
        assert!(tree.evict_windowed(&mut pools.windowed));
        assert_eq!(cache.tree.len_with_window(&cache.path, 100), 256);
        assert_eq!(cache.tree.len_with_window(&cache.path, 0), 300);
        for _ in 0..4 {
            let TestCache { tree, pools, .. } = &mut cache;
            assert!(tree.evict_windowed(&mut pools.windowed));
        }
        assert_eq!(cache.tree.len_with_window(&cache.path, 100), 0);
        PrefixTree::truncate(&mut cache.path, 128);
        assert_eq!(cache.path.tokens(), 128);
        PrefixTree::truncate(&mut cache.path, 0);
        assert_eq!(cache.path.tokens(), 0);
    }

    /// Random sequences over few tokens, held against a plain set of prefixes.
    #[test]
    fn random_sequences() {
        let mut state = 1u64;
        let mut word = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let mut cache = TestCache::new(400);
        let mut known: BTreeMap<Vec<u32>, ()> = BTreeMap::new();
        for _ in 0..300 {
            let len = usize::try_from(1 + word(300)).expect("small");
            let mut token_ids: Vec<u32> = match known.len() {
                0 => Vec::new(),
                n => {
                    let at = usize::try_from(word(n as u64)).expect("small");
                    let other = known.token_ids().nth(at).expect("it is there");
                    let keep = usize::try_from(word(other.len() as u64 + 1)).expect("small");
                    other[..keep].to_vec()
                }
            };
            while token_ids.len() < len {
                token_ids.push(u32::try_from(word(2)).expect("small"));
            }
            let longest = known
                .token_ids()
                .map(|k| common(k, &token_ids))
                .max()
                .unwrap_or(0);
            assert_eq!(cache.matched_len(&token_ids), longest);
            if cache.pools.full.free() < 8 {
                break;
            }
            cache.insert_sequence(&token_ids);
            known.insert(token_ids, ());
            let held = cache.pools.full.pages() - cache.pools.full.free();
            assert_eq!(held, cache.tree.pages_held());
        }
        let TestCache { tree, pools, .. } = &mut cache;
        while tree.evict_lru(pools) {}
        assert_eq!((pools.full.free(), pools.windowed.free()), (400, 400));
    }
}
