//! Prefixes: what sequences that went before have left in the KV cache, as a tree over their tokens.
//!
//! A node is a page of positions with the tokens that it was computed for; its parent is the page in
//! front of it. Nodes stand in a list, the last used ones first and a parent always in front of its
//! children: so the last of the list is a leaf, and what is forgotten first.

use super::pool::{Pair, Pool, Pools};
use crate::op::pages::PAGE;

/// Positions of a page.
const POSITIONS: usize = PAGE as usize;

/// The number of a node. The first is the root, which has no page.
type Id = u32;
const ROOT: Id = 0;

#[derive(Clone, Debug)]
struct Node {
    /// The tokens, `len` of them.
    keys: [u32; POSITIONS],
    len: usize,
    pages: Pair,
    parent: Id,
    /// Children: the first, and the next one of the same parent.
    child: Option<Id>,
    sibling: Option<Id>,
    /// Neighbours in the list: used later, used earlier.
    later: Id,
    earlier: Id,
}

impl Node {
    fn keys(&self) -> &[u32] {
        &self.keys[..self.len]
    }

    fn fill(&mut self, run: &[u32], pages: Pair) {
        self.keys[..run.len()].copy_from_slice(run);
        self.len = run.len();
        self.pages = pages;
    }
}

/// The tree. It holds the pages of its nodes.
#[derive(Debug)]
pub(super) struct Prefixes {
    /// Room for all nodes, taken once.
    nodes: Vec<Node>,
    free: Vec<Id>,
}

/// How far a sequence is known, page by page.
#[derive(Debug, Default)]
pub(super) struct Path {
    nodes: Vec<Id>,
    /// Tokens of the last of them that are the same.
    last: usize,
}

impl Path {
    /// Room for as many pages as a sequence has.
    pub(super) fn with_room(pages: usize) -> Self {
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

impl Prefixes {
    /// An empty tree, of so many pages at most.
    pub(super) fn new(pages: usize) -> Self {
        let mut nodes = Vec::with_capacity(pages + 1);
        let empty = Node {
            keys: [0; POSITIONS],
            len: 0,
            pages: Pair {
                whole: 0,
                ringed: None,
            },
            parent: ROOT,
            child: None,
            sibling: None,
            later: ROOT,
            earlier: ROOT,
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
    fn best_child(&self, id: Id, keys: &[u32]) -> Option<(Id, usize)> {
        let children = self.children(id);
        let known = children.map(|child| (child, common(self.node(child).keys(), keys)));
        known
            .max_by_key(|(_, same)| *same)
            .filter(|(_, same)| *same > 0)
    }

    /// How far these tokens are known.
    pub(super) fn find(&self, keys: &[u32], path: &mut Path) {
        path.nodes.clear();
        path.last = 0;
        let mut at = ROOT;
        for run in keys.chunks(POSITIONS) {
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
    pub(super) fn cut(path: &mut Path, tokens: usize) {
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
    pub(super) fn touch_path(&mut self, path: &Path) {
        if let Some(last) = path.nodes.last() {
            self.touch(*last);
        }
    }

    /// The pages of a path's `at`th.
    pub(super) fn pages(&self, path: &Path, at: usize) -> Pair {
        self.node(path.nodes[at]).pages
    }

    /// The longest beginning of a path whose window of this many positions has its pages too; a
    /// window of 0 needs none.
    pub(super) fn with_window(&self, path: &Path, window: usize) -> usize {
        let mut tokens = path.tokens();
        while window > 0 && tokens > 0 {
            let seen = tokens.saturating_sub(window) / POSITIONS..tokens.div_ceil(POSITIONS);
            let lacks = |page: &usize| self.node(path.nodes[*page]).pages.ringed.is_none();
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
        keys: &[u32],
        pages: impl Iterator<Item = Pair>,
        pools: &mut Pools,
    ) {
        let mut at = ROOT;
        for (run, pages) in keys.chunks(POSITIONS).zip(pages) {
            let known = self.best_child(at, run);
            at = match known {
                Some((child, same)) if same == run.len() => {
                    if let (None, Some(page)) = (self.node(child).pages.ringed, pages.ringed)
                        && self.node(child).len == run.len()
                    {
                        pools.ringed.hold(page);
                        self.node_mut(child).pages.ringed = Some(page);
                    }
                    child
                }
                // A beginning of these: they take its place.
                Some((child, same)) if same == self.node(child).len => {
                    pools.leave(self.node(child).pages);
                    pools.hold(pages);
                    self.node_mut(child).fill(run, pages);
                    child
                }
                _ => {
                    let Some(child) = self.room(at, pools) else {
                        break;
                    };
                    let sibling = self.node(at).child;
                    let node = self.node_mut(child);
                    (node.parent, node.child, node.sibling) = (at, None, sibling);
                    (node.later, node.earlier) = (child, child);
                    self.node_mut(at).child = Some(child);
                    pools.hold(pages);
                    self.node_mut(child).fill(run, pages);
                    child
                }
            };
        }
        self.touch(at);
    }

    /// A free node, or that of the page that was used the longest ago, which is none of those in front
    /// of `at`.
    fn room(&mut self, at: Id, pools: &mut Pools) -> Option<Id> {
        if self.free.is_empty() {
            self.touch(at);
            if self.node(ROOT).later != at {
                self.forget_one(pools);
            }
        }
        self.free.pop()
    }

    /// Puts a node and those in front of it to the front of the list, a parent before its child.
    fn touch(&mut self, mut id: Id) {
        while id != ROOT {
            self.unlink(id);
            let first = self.node(ROOT).earlier;
            let node = self.node_mut(id);
            (node.later, node.earlier) = (ROOT, first);
            self.node_mut(ROOT).earlier = id;
            self.node_mut(first).later = id;
            id = self.node(id).parent;
        }
    }

    fn unlink(&mut self, id: Id) {
        let Node { later, earlier, .. } = *self.node(id);
        self.node_mut(later).earlier = earlier;
        self.node_mut(earlier).later = later;
    }

    /// Forgets the page that was used the longest ago. Returns whether there was one.
    pub(super) fn forget_one(&mut self, pools: &mut Pools) -> bool {
        let last = self.node(ROOT).later;
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
        pools.leave(self.node(last).pages);
        self.free.push(last);
        true
    }

    /// Forgets the page for layers with a window of the node that was used the longest ago and has
    /// one. Returns whether there was one.
    pub(super) fn forget_ringed(&mut self, ringed: &mut Pool) -> bool {
        let mut at = self.node(ROOT).later;
        while at != ROOT {
            if let Some(page) = self.node_mut(at).pages.ringed.take() {
                ringed.leave(page);
                return true;
            }
            at = self.node(at).later;
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

    struct Rig {
        tree: Prefixes,
        pools: Pools,
        path: Path,
    }

    impl Rig {
        fn new(pages: u32) -> Self {
            Self {
                tree: Prefixes::new(pages as usize),
                pools: Pools::new(pages, pages),
                path: Path::with_room(100),
            }
        }

        /// A sequence that was computed on pages of its own, and has gone.
        fn leave_behind(&mut self, keys: &[u32]) {
            let Self { tree, pools, .. } = self;
            let pages: Vec<Pair> = keys
                .chunks(POSITIONS)
                .map(|_| Pair {
                    whole: pools.whole.take().expect("enough"),
                    ringed: pools.ringed.take(),
                })
                .collect();
            tree.insert(keys, pages.iter().copied(), pools);
            pages.into_iter().for_each(|pair| pools.leave(pair));
        }

        fn known(&mut self, keys: &[u32]) -> usize {
            self.tree.find(keys, &mut self.path);
            self.path.tokens()
        }
    }

    fn keys(seed: u32, len: usize) -> Vec<u32> {
        (0..len)
            .map(|i| seed + 7 * u32::try_from(i).expect("small"))
            .collect()
    }

    #[test]
    fn the_longest_prefix_is_found() {
        let mut rig = Rig::new(16);
        let long = keys(1, 200);
        rig.leave_behind(&long);
        assert_eq!(rig.known(&long), 200);
        assert_eq!(rig.known(&long[..150]), 150);
        let mut other = long[..130].to_vec();
        other.extend(keys(5000, 100));
        assert_eq!(rig.known(&other), 130);
        rig.leave_behind(&other);
        assert_eq!(rig.known(&other), 230);
        assert_eq!(rig.known(&long), 200);
        assert_eq!(rig.known(&keys(9, 10)), 0);
        // Pages of the common prefix are there once: 200 tokens are 4 pages, and two of the other's
        // four are the same.
        assert_eq!(rig.pools.whole.free(), 16 - 6);
        // A beginning takes no page of its own, and its continuation takes its place.
        rig.leave_behind(&long[..140]);
        assert_eq!(rig.pools.whole.free(), 16 - 6);
        let mut more = long.clone();
        more.extend(keys(7000, 30));
        rig.leave_behind(&more);
        assert_eq!(rig.known(&more), 230);
        assert_eq!(rig.pools.whole.free(), 16 - 6);
    }

    #[test]
    fn what_was_used_the_longest_ago_is_forgotten_first() {
        let mut rig = Rig::new(16);
        let [a, b, c] = [1, 1000, 2000].map(|seed| keys(seed, 128));
        for keys in [&a, &b, &c] {
            rig.leave_behind(keys);
        }
        assert_eq!(rig.known(&a), 128);
        let Rig { tree, path, .. } = &mut rig;
        assert_eq!(path.pages(), 2);
        tree.touch_path(path);
        let forget = |rig: &mut Rig| {
            let Rig { tree, pools, .. } = rig;
            assert!(tree.forget_one(pools));
        };
        forget(&mut rig);
        assert_eq!([&a, &b, &c].map(|keys| rig.known(keys)), [128, 64, 128]);
        forget(&mut rig);
        forget(&mut rig);
        assert_eq!([&a, &b, &c].map(|keys| rig.known(keys)), [128, 0, 64]);
        forget(&mut rig);
        forget(&mut rig);
        forget(&mut rig);
        let Rig { tree, pools, .. } = &mut rig;
        assert!(!tree.forget_one(pools), "nothing is left");
        assert_eq!((pools.whole.free(), pools.ringed.free()), (16, 16));
    }

    #[test]
    fn a_full_tree_forgets_for_whoever_comes() {
        let mut rig = Rig::new(16);
        rig.tree = Prefixes::new(3);
        let [a, b] = [1, 1000].map(|seed| keys(seed, 128));
        rig.leave_behind(&a);
        rig.leave_behind(&b);
        assert_eq!([&a, &b].map(|keys| rig.known(keys)), [64, 128]);
        // Of one that has no room whole, the beginning stays.
        let long = keys(2000, 300);
        rig.leave_behind(&long);
        assert_eq!([&a, &b, &long].map(|keys| rig.known(keys)), [0, 0, 192]);
        rig.leave_behind(&long);
        assert_eq!((rig.known(&long), rig.tree.pages_held()), (192, 3));
        assert_eq!(rig.pools.whole.free(), 16 - 3);
        rig.tree = Prefixes::new(0);
        rig.pools = Pools::new(16, 16);
        rig.leave_behind(&a);
        assert_eq!((rig.known(&a), rig.pools.whole.free()), (0, 16));
    }

    #[test]
    fn windows_need_their_pages() {
        let mut rig = Rig::new(16);
        let long = keys(1, 300);
        rig.leave_behind(&long);
        assert_eq!(rig.known(&long), 300);
        assert_eq!(rig.tree.with_window(&rig.path, 100), 300);
        // The page that is forgotten first is the last one: whoever ends there lacks its window.
        let Rig { tree, pools, .. } = &mut rig;
        assert!(tree.forget_ringed(&mut pools.ringed));
        assert_eq!(rig.tree.with_window(&rig.path, 100), 256);
        assert_eq!(rig.tree.with_window(&rig.path, 0), 300);
        for _ in 0..4 {
            let Rig { tree, pools, .. } = &mut rig;
            assert!(tree.forget_ringed(&mut pools.ringed));
        }
        assert_eq!(rig.tree.with_window(&rig.path, 100), 0);
        Prefixes::cut(&mut rig.path, 128);
        assert_eq!(rig.path.tokens(), 128);
        Prefixes::cut(&mut rig.path, 0);
        assert_eq!(rig.path.tokens(), 0);
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
        let mut rig = Rig::new(400);
        let mut known: BTreeMap<Vec<u32>, ()> = BTreeMap::new();
        for _ in 0..300 {
            let len = usize::try_from(1 + word(300)).expect("small");
            let mut keys: Vec<u32> = match known.len() {
                0 => Vec::new(),
                n => {
                    let at = usize::try_from(word(n as u64)).expect("small");
                    let other = known.keys().nth(at).expect("it is there");
                    let keep = usize::try_from(word(other.len() as u64 + 1)).expect("small");
                    other[..keep].to_vec()
                }
            };
            while keys.len() < len {
                keys.push(u32::try_from(word(2)).expect("small"));
            }
            let longest = known.keys().map(|k| common(k, &keys)).max().unwrap_or(0);
            assert_eq!(rig.known(&keys), longest);
            if rig.pools.whole.free() < 8 {
                break;
            }
            rig.leave_behind(&keys);
            known.insert(keys, ());
            let held = rig.pools.whole.pages() - rig.pools.whole.free();
            assert_eq!(held, rig.tree.pages_held());
        }
        let Rig { tree, pools, .. } = &mut rig;
        while tree.forget_one(pools) {}
        assert_eq!((pools.whole.free(), pools.ringed.free()), (400, 400));
    }
}
