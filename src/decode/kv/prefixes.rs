//! Prefix cache: a tree of pages, keyed by token IDs.
//!
//! A node is a page of positions with the tokens that it was computed for. Its parent is the
//! preceding page. Nodes are in a list in order of last use, with every parent before its children,
//! so the last node of the list is a leaf and is evicted first.

use super::pool::{PagePair, Pool, Pools};
use crate::op::params::PAGE;

/// Number of positions of a page.
const POSITIONS: usize = PAGE as usize;

/// Index of a node. The first node is the root, which has no page.
type Id = u32;
const ROOT: Id = 0;

#[derive(Clone, Debug)]
struct Node {
    /// Hooks that the page was computed with; 0: none.
    hooks: u32,
    /// Token IDs, of which `len` are used.
    token_ids: [u32; POSITIONS],
    len: usize,
    pages: PagePair,
    parent: Id,
    /// First child, and next sibling.
    child: Option<Id>,
    sibling: Option<Id>,
    /// Neighbors in the list: next more recently used, next less recently used.
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

/// Prefix tree, which holds a reference to the pages of its nodes.
#[derive(Debug)]
pub(super) struct PrefixTree {
    /// All nodes, allocated once.
    nodes: Vec<Node>,
    free: Vec<Id>,
}

/// What a prefix was computed from.
#[derive(Clone, Copy, Debug)]
pub(in crate::decode) struct PrefixKey<'a> {
    /// Number of the hooks; 0: none.
    pub(in crate::decode) hooks: u32,
    pub(in crate::decode) token_ids: &'a [u32],
}

impl<'a> PrefixKey<'a> {
    /// Returns the key of a prefix that was computed without hooks.
    pub(in crate::decode) fn plain(token_ids: &'a [u32]) -> Self {
        Self {
            hooks: 0,
            token_ids,
        }
    }

    /// Returns the keys of the pages.
    fn pages(self) -> impl Iterator<Item = Self> {
        let pages = self.token_ids.chunks(POSITIONS);
        pages.map(move |token_ids| Self { token_ids, ..self })
    }
}

/// Cached prefix of a sequence: path of nodes from the root.
#[derive(Debug, Default)]
pub(super) struct PrefixPath {
    nodes: Vec<Id>,
    /// Number of matching tokens in the last node.
    last: usize,
}

impl PrefixPath {
    /// Reserves space for `pages` pages.
    pub(super) fn with_capacity(pages: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(pages),
            last: 0,
        }
    }

    /// Returns the number of pages.
    pub(super) fn pages(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of matching tokens.
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
    /// Creates an empty tree of at most `pages` pages.
    pub(super) fn new(pages: usize) -> Self {
        let mut nodes = Vec::with_capacity(pages + 1);
        let empty = Node {
            hooks: 0,
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
        let ids = 1..=u32::try_from(pages).expect("page numbers fit 32 bits");
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

    /// Returns the child with the longest common prefix, and the length of the prefix.
    fn best_child(
        &self,
        id: Id,
        PrefixKey { hooks, token_ids }: PrefixKey<'_>,
    ) -> Option<(Id, usize)> {
        let children = self.children(id);
        let children = children.filter(|child| self.node(*child).hooks == hooks);
        let matches =
            children.map(|child| (child, common(self.node(child).token_ids(), token_ids)));
        matches
            .max_by_key(|(_, same)| *same)
            .filter(|(_, same)| *same > 0)
    }

    /// Finds the longest cached prefix.
    pub(super) fn find(&self, key: PrefixKey<'_>, path: &mut PrefixPath) {
        path.nodes.clear();
        path.last = 0;
        let mut at = ROOT;
        for run in key.pages() {
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

    /// Truncates a path to `tokens` tokens.
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

    /// Marks a path as used.
    pub(super) fn touch_path(&mut self, path: &PrefixPath) {
        if let Some(last) = path.nodes.last() {
            self.touch(*last);
        }
    }

    /// Returns the pages of the `at`th node of a path.
    pub(super) fn pages(&self, path: &PrefixPath, at: usize) -> PagePair {
        self.node(path.nodes[at]).pages
    }

    /// Returns the length of the longest prefix of a path whose window of `window` positions is
    /// cached. A window of 0 is always cached.
    pub(super) fn len_with_window(&self, path: &PrefixPath, window: usize) -> usize {
        let mut tokens = path.tokens();
        while window > 0 && tokens > 0 {
            let seen = tokens.saturating_sub(window) / POSITIONS..tokens.div_ceil(POSITIONS);
            let lacks = |page: &usize| self.node(path.nodes[*page]).pages.windowed.is_none();
            match seen.rev().find(lacks) {
                None => break,
                // Prefixes that end after this page need it, until it leaves the window.
                Some(page) => tokens = page * POSITIONS,
            }
        }
        tokens
    }

    /// Adds tokens and their pages, one for each [`PAGE`] tokens. Existing nodes keep their pages.
    pub(super) fn insert(
        &mut self,
        key: PrefixKey<'_>,
        pages: impl Iterator<Item = PagePair>,
        pools: &mut Pools,
    ) {
        let mut at = ROOT;
        for (key, pages) in key.pages().zip(pages) {
            let best = self.best_child(at, key);
            let run = key.token_ids;
            at = match best {
                Some((child, same)) if same == run.len() => {
                    if let (None, Some(page)) = (self.node(child).pages.windowed, pages.windowed)
                        && self.node(child).len == run.len()
                    {
                        pools.windowed.retain(page);
                        self.node_mut(child).pages.windowed = Some(page);
                    }
                    child
                }
                // The node contains a prefix of these tokens: replace it.
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
                    node.hooks = key.hooks;
                    self.node_mut(at).child = Some(child);
                    pools.retain(pages);
                    self.node_mut(child).fill(run, pages);
                    child
                }
            };
        }
        self.touch(at);
    }

    /// Returns a free node. Evicts the least recently used page if necessary, but no ancestor of
    /// `at`.
    fn allocate_node(&mut self, at: Id, pools: &mut Pools) -> Option<Id> {
        if self.free.is_empty() {
            self.touch(at);
            if self.node(ROOT).newer != at {
                self.evict_lru(pools);
            }
        }
        self.free.pop()
    }

    /// Moves a node and its ancestors to the start of the list, each parent before its child.
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

    /// Evicts the least recently used page. Returns whether there was one.
    pub(super) fn evict_lru(&mut self, pools: &mut Pools) -> bool {
        let last = self.node(ROOT).newer;
        if last == ROOT {
            return false;
        }
        debug_assert!(
            self.node(last).child.is_none(),
            "a parent precedes its children"
        );
        self.unlink(last);
        let Node {
            parent, sibling, ..
        } = *self.node(last);
        if self.node(parent).child == Some(last) {
            self.node_mut(parent).child = sibling;
        } else {
            let previous = self
                .children(parent)
                .find(|id| self.node(*id).sibling == Some(last));
            self.node_mut(previous.expect("node is a child of its parent"))
                .sibling = sibling;
        }
        pools.release(self.node(last).pages);
        self.free.push(last);
        true
    }

    /// Evicts the least recently used page of the sliding-window layers. Returns whether there was
    /// one.
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

    /// Returns the number of cached pages.
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

        /// Inserts a sequence with newly allocated pages, and releases it.
        fn insert_sequence(&mut self, token_ids: &[u32]) {
            let Self { tree, pools, .. } = self;
            let pages: Vec<PagePair> = token_ids
                .chunks(POSITIONS)
                .map(|_| PagePair {
                    full: pools.full.allocate().expect("enough"),
                    windowed: pools.windowed.allocate(),
                })
                .collect();
            tree.insert(PrefixKey::plain(token_ids), pages.iter().copied(), pools);
            pages.into_iter().for_each(|pair| pools.release(pair));
        }

        fn matched_len(&mut self, token_ids: &[u32]) -> usize {
            self.tree.find(PrefixKey::plain(token_ids), &mut self.path);
            self.path.tokens()
        }
    }

    fn token_ids(seed: u32, len: usize) -> Vec<u32> {
        (0..len)
            .map(|i| seed + 7 * u32::try_from(i).expect("small"))
            .collect()
    }

    #[test]
    fn finds_longest_prefix() {
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
        // Pages of the common prefix are shared: 200 tokens have 4 pages, two of which the other
        // sequence shares.
        assert_eq!(cache.pools.full.free(), 16 - 6);
        // A prefix needs no page of its own, and a continuation replaces the last page.
        cache.insert_sequence(&long[..140]);
        assert_eq!(cache.pools.full.free(), 16 - 6);
        let mut more = long.clone();
        more.extend(token_ids(7000, 30));
        cache.insert_sequence(&more);
        assert_eq!(cache.matched_len(&more), 230);
        assert_eq!(cache.pools.full.free(), 16 - 6);
    }

    #[test]
    fn evicts_least_recently_used_first() {
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
        assert!(!tree.evict_lru(pools), "tree is empty");
        assert_eq!((pools.full.free(), pools.windowed.free()), (16, 16));
    }

    #[test]
    fn full_tree_evicts_for_new_sequences() {
        let mut cache = TestCache::new(16);
        cache.tree = PrefixTree::new(3);
        let [a, b] = [1, 1000].map(|seed| token_ids(seed, 128));
        cache.insert_sequence(&a);
        cache.insert_sequence(&b);
        assert_eq!(
            [&a, &b].map(|token_ids| cache.matched_len(token_ids)),
            [64, 128]
        );
        // A sequence that does not fit is inserted partially.
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
    fn prefix_requires_its_window_pages() {
        let mut cache = TestCache::new(16);
        let long = token_ids(1, 300);
        cache.insert_sequence(&long);
        assert_eq!(cache.matched_len(&long), 300);
        assert_eq!(cache.tree.len_with_window(&cache.path, 100), 300);
        // The last page is evicted first, so prefixes that end in it lack their window.
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

    /// Compares random sequences over a small alphabet with a set of prefixes.
    #[test]
    fn random_sequences_match_reference() {
        let mut state = 1u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let mut cache = TestCache::new(400);
        let mut reference: BTreeMap<Vec<u32>, ()> = BTreeMap::new();
        for _ in 0..300 {
            let len = usize::try_from(1 + random(300)).expect("small");
            let mut token_ids: Vec<u32> = match reference.len() {
                0 => Vec::new(),
                n => {
                    let at = usize::try_from(random(n as u64)).expect("small");
                    let other = reference.keys().nth(at).expect("it is there");
                    let keep = usize::try_from(random(other.len() as u64 + 1)).expect("small");
                    other[..keep].to_vec()
                }
            };
            while token_ids.len() < len {
                token_ids.push(u32::try_from(random(2)).expect("small"));
            }
            let longest = reference
                .keys()
                .map(|k| common(k, &token_ids))
                .max()
                .unwrap_or(0);
            assert_eq!(cache.matched_len(&token_ids), longest);
            if cache.pools.full.free() < 8 {
                break;
            }
            cache.insert_sequence(&token_ids);
            reference.insert(token_ids, ());
            let held = cache.pools.full.pages() - cache.pools.full.free();
            assert_eq!(held, cache.tree.pages_held());
        }
        let TestCache { tree, pools, .. } = &mut cache;
        while tree.evict_lru(pools) {}
        assert_eq!((pools.full.free(), pools.windowed.free()), (400, 400));
    }
}
