//! Tests of the prefix cache.

use super::*;
use crate::op::pages::Pages;
use std::collections::BTreeMap;

fn pools(pages: u32) -> Pools {
    let layout = Pages::new(1, pages * PAGE, &[0], 1);
    Pools::new(&Pages {
        ringed_pool: pages,
        states_pool: pages,
        ..layout
    })
}

struct TestCache {
    tree: PrefixTree,
    pools: Pools,
    path: PrefixPath,
}

impl TestCache {
    fn new(pages: u32) -> Self {
        Self {
            tree: PrefixTree::new(pages as usize),
            pools: pools(pages),
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
                state: None,
                has_head_keys: false,
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
    cache.pools = pools(16);
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

#[test]
fn pages_get_head_keys_later() {
    let mut cache = TestCache::new(8);
    let tokens = token_ids(0, 3 * POSITIONS - 8);
    cache.insert_sequence(&tokens);
    let mut with_head_keys = |pages: usize| {
        let TestCache { tree, pools, path } = &mut cache;
        tree.find(PrefixKey::plain(&tokens), path);
        let same = (0..path.pages()).map(|at| PagePair {
            has_head_keys: at < pages,
            ..tree.pages(path, at)
        });
        let same: Vec<PagePair> = same.collect();
        tree.insert(PrefixKey::plain(&tokens), same.into_iter(), pools);
        tree.len_with_head_keys(path)
    };
    assert_eq!(with_head_keys(0), 0);
    assert_eq!(with_head_keys(2), 2 * POSITIONS);
    // They remain, also if a later request computes fewer.
    assert_eq!(with_head_keys(1), 2 * POSITIONS);
    assert_eq!(with_head_keys(3), tokens.len());
    // New pages of the same tokens do not replace the cached ones.
    cache.insert_sequence(&tokens);
    cache.matched_len(&tokens[..POSITIONS + 1]);
    assert_eq!(cache.tree.len_with_head_keys(&cache.path), POSITIONS + 1);
    // A longer sequence replaces the last page.
    cache.insert_sequence(&token_ids(0, 3 * POSITIONS));
    cache.matched_len(&tokens);
    assert_eq!(cache.tree.len_with_head_keys(&cache.path), 2 * POSITIONS);
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
