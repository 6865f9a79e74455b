//! Prefix cache: a tree of pages, keyed by token IDs.
//!
//! A node is a page of positions with the tokens that it was computed for. Its parent is the
//! preceding page. Nodes are in a list in order of last use, with every parent before its children,
//! so the last node of the list is a leaf and is evicted first.

use super::pool::{KeptState, PagePair, Pool, Pools};
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
    /// Time of the last use of the state.
    state_used: u64,
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
    /// Number of uses of states.
    uses: u64,
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
                state: None,
                has_head_keys: false,
            },
            state_used: 0,
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
            uses: 0,
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
                    if self.node(child).len == run.len() {
                        self.add_head_keys(child, pages);
                    }
                    self.add_state(child, pages.state, pools);
                    child
                }
                // The node contains a prefix of these tokens: replace it.
                Some((child, same)) if same == self.node(child).len => {
                    pools.retain(pages);
                    let old = std::mem::replace(&mut self.node_mut(child).pages, pages);
                    self.node_mut(child).fill(run, pages);
                    if pages.state.is_none() {
                        // The tokens that it includes are still a prefix.
                        self.node_mut(child).pages.state = old.state;
                        pools.release(PagePair { state: None, ..old });
                    } else {
                        self.use_state(child);
                        pools.release(old);
                    }
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
                    self.use_state(child);
                    child
                }
            };
        }
        self.touch(at);
    }

    /// Records that the pages of a node have the keys of the drafting head, if these are its pages.
    fn add_head_keys(&mut self, id: Id, pages: PagePair) {
        let own = &mut self.node_mut(id).pages;
        own.has_head_keys |= own.full == pages.full && pages.has_head_keys;
    }

    /// Returns the number of leading tokens of a path whose pages have the keys of the drafting head.
    pub(super) fn len_with_head_keys(&self, path: &PrefixPath) -> usize {
        let lacks = |id: &Id| !self.node(*id).pages.has_head_keys;
        match path.nodes.iter().position(lacks) {
            Some(at) => at * POSITIONS,
            None => path.tokens(),
        }
    }

    /// Keeps a state in a node, unless the node has one that includes more positions.
    fn add_state(&mut self, id: Id, state: Option<KeptState>, pools: &mut Pools) {
        let Some(state) = state else { return };
        let old = self.node(id).pages.state;
        if old.is_some_and(|old| old.positions > state.positions) {
            return;
        }
        pools.states.retain(state.page);
        if let Some(old) = old {
            pools.states.release(old.page);
        }
        self.node_mut(id).pages.state = Some(state);
        self.use_state(id);
    }

    /// Marks the state of a node as used.
    fn use_state(&mut self, id: Id) {
        self.uses += 1;
        self.node_mut(id).state_used = self.uses;
    }

    /// Returns the state at the end of a path, and marks it as used.
    pub(super) fn state_of(&mut self, path: &PrefixPath) -> Option<KeptState> {
        let last = *path.nodes.last()?;
        self.use_state(last);
        self.node(last).pages.state
    }

    /// Returns the length of the longest prefix of a path after which a sequence can continue with a
    /// state that is kept.
    pub(super) fn len_with_state(&self, path: &PrefixPath) -> usize {
        let tokens = path.tokens();
        let nodes = path.nodes.iter().enumerate().rev();
        let mut lengths = nodes.filter_map(|(at, id)| {
            let own = (tokens - at * POSITIONS).min(POSITIONS);
            let usable = self.node(*id).pages.state?.usable(own)?;
            Some(at * POSITIONS + usable)
        });
        lengths.next().unwrap_or(0)
    }

    /// Evicts the state that was not used for the longest time. Returns whether there was one.
    pub(super) fn evict_state(&mut self, states: &mut Pool) -> bool {
        let with_state = self
            .nodes
            .iter_mut()
            .filter(|node| node.pages.state.is_some());
        let oldest = with_state.min_by_key(|node| node.state_used);
        let state = oldest.and_then(|node| node.pages.state.take());
        if let Some(state) = state {
            states.release(state.page);
        }
        state.is_some()
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
        self.node_mut(last).pages.state = None;
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
mod tests;
