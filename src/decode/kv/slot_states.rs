//! States of running sequences: which page of the pool a pass writes, and which are released.

use super::pool::{KeptState, Page};
use super::prefixes::PrefixPath;
use super::states::{PromptBorders, SequenceStates};
use super::{Edits, Kv, POSITIONS, PageCopy};
use crate::op::pages::PageKind;
use crate::op::params::STATE_BLOCK;
use std::ops::Range;

/// Positions of a block.
const BLOCK: usize = STATE_BLOCK as usize;

/// What a state is kept for.
#[derive(Clone, Copy)]
enum Spare {
    /// To continue after a part of the prompt. Older states of the prompt give way.
    OfPrompt,
    /// To continue after the last page.
    OfLastPage,
}

impl Kv {
    /// Sets where the states of the prompt of a slot are kept.
    pub(in crate::decode) fn set_prompt(&mut self, slot: usize, prompt: PromptBorders) {
        self.slots[slot].states.prompt = prompt;
    }

    /// Attaches the state at the end of a cached prefix to an empty slot.
    pub(super) fn attach_state(&mut self, slot: usize, path: &PrefixPath, edits: &mut Edits) {
        if self.layout.states == 0 || path.pages() == 0 {
            return;
        }
        let state = self.prefixes.state_of(path);
        let KeptState { page, .. } = state.expect("the prefix ends in the block of a state");
        self.pools.states.retain(page);
        let at = path.pages() - 1;
        let states = &mut self.slots[slot].states;
        states.pages.push((at, page));
        states.written = path.tokens();
        self.set(slot, self.state_entry(at), page, edits);
    }

    /// Records that the passes of a slot have written `positions` positions and no others.
    pub(in crate::decode) fn settle_state(&mut self, slot: usize, positions: usize) {
        let states = &mut self.slots[slot].states;
        states.written = states.written.min(positions);
    }

    /// Makes the state of a slot writable for a pass over these positions.
    pub(super) fn make_state_writable(
        &mut self,
        slot: usize,
        positions: Range<usize>,
        edits: &mut Edits,
    ) {
        let states = &mut self.slots[slot].states;
        debug_assert!(
            states.written == 0 && positions.start == 0
                || positions.start <= states.written
                    && positions.start > (states.written - 1) / BLOCK * BLOCK,
            "slot {slot} has a state after position {}, not before {}",
            states.written,
            positions.start
        );
        states.written = positions.end;
        self.drop_passed(slot);
        let end = positions.end.div_ceil(POSITIONS);
        for page in positions.start / POSITIONS..end {
            let current = self.slots[slot].states.pages.last().copied();
            match current {
                Some((at, old)) if at == page => {
                    if self.must_copy(PageKind::State, old) {
                        let new = self.allocate_state(slot);
                        edits.copies.push(PageCopy {
                            kind: PageKind::State,
                            from: old,
                            to: new,
                        });
                        self.replace_state(slot, (page, new));
                    }
                }
                Some((_, old)) => {
                    let of_prompt = self.slots[slot].states.prompt.keeps(page);
                    let keeps = of_prompt && self.release_for(slot, Spare::OfPrompt)
                        || page + 1 == end && self.release_for(slot, Spare::OfLastPage);
                    if self.pools.states.is_shared(old) || keeps {
                        let new = self.allocate_state(slot);
                        self.slots[slot].states.pages.push((page, new));
                    } else if let Some(last) = self.slots[slot].states.pages.last_mut() {
                        last.0 = page;
                    }
                }
                None => {
                    let new = self.allocate_state(slot);
                    self.slots[slot].states.pages.push((page, new));
                }
            }
            let (_, state) = *self.slots[slot].states.pages.last().expect("just added");
            self.set(slot, self.state_entry(page), state, edits);
        }
    }

    /// Index of the entry of a page of positions in a row of the page table.
    fn state_entry(&self, page: usize) -> usize {
        self.entries() + self.window_entries() + page
    }

    /// Releases the states of a slot that are not kept.
    fn drop_passed(&mut self, slot: usize) {
        let Self { pools, slots, .. } = self;
        let SequenceStates { pages, prompt, .. } = &mut slots[slot].states;
        let last_two = pages.len().saturating_sub(2);
        let mut index = 0;
        pages.retain(|(at, page)| {
            let retained = index >= last_two || prompt.keeps(at + 1);
            index += 1;
            if !retained {
                pools.states.release(*page);
            }
            retained
        });
    }

    /// Replaces the current state of a slot.
    fn replace_state(&mut self, slot: usize, state: (usize, Page)) {
        let pages = &mut self.slots[slot].states.pages;
        if let Some((_, old)) = pages.pop() {
            self.pools.states.release(old);
        }
        pages.push(state);
    }

    /// Releases states until the slot can have one more, while every other slot can have two. Returns
    /// whether it can.
    fn release_for(&mut self, slot: usize, spare: Spare) -> bool {
        let others = self
            .slots
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != slot);
        let missing = others.map(|(_, other)| 2usize.saturating_sub(other.states.pages.len()));
        let reserved = missing.sum::<usize>();
        while self.pools.states.free() <= reserved && self.evict(PageKind::State) {}
        self.pools.states.free() > reserved
            || matches!(spare, Spare::OfPrompt) && self.release_oldest(slot)
    }

    /// Releases the oldest state of a slot except the last two, which a pass may read. Returns whether there
    /// was one.
    fn release_oldest(&mut self, slot: usize) -> bool {
        let pages = &mut self.slots[slot].states.pages;
        let oldest = (pages.len() > 2).then(|| pages.remove(0));
        if let Some((_, page)) = oldest {
            self.pools.states.release(page);
        }
        oldest.is_some()
    }

    /// Allocates a state. There are two for every slot, so releasing those that are kept always succeeds.
    fn allocate_state(&mut self, slot: usize) -> Page {
        loop {
            if let Some(page) = self.pools.states.allocate() {
                return page;
            }
            let released = self.evict(PageKind::State)
                || self.release_oldest(slot)
                || (0..self.slots.len()).any(|other| self.release_oldest(other));
            assert!(released, "slots use more states than there are");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::kv::PrefixKey;
    use crate::op::pages::Pages;
    use crate::op::params::PAGE;

    /// A cache with the tokens that each state includes.
    struct TestCache {
        kv: Kv,
        states: Vec<Vec<u32>>,
    }

    impl TestCache {
        fn new(slots: u32, pool: u32) -> Self {
            let layout = Pages::new(slots, 40 * PAGE, &[0], 1).keeping(100);
            let layout = layout.with_states(pool);
            Self {
                kv: Kv::new(slots as usize, layout),
                states: vec![Vec::new(); pool as usize],
            }
        }

        fn state(&self, slot: usize, position: usize) -> usize {
            let entry = self.kv.state_entry(position / POSITIONS);
            self.kv.row(slot)[entry] as usize
        }

        fn copy(&mut self, edits: &mut Edits) {
            for copy in edits.copies.drain(..) {
                if copy.kind == PageKind::State {
                    self.states[copy.to as usize] = self.states[copy.from as usize].clone();
                }
            }
        }

        /// Attaches the cached prefix of a prompt to a slot; returns its length.
        fn attach(&mut self, slot: usize, tokens: &[u32]) -> usize {
            let prompt = PromptBorders {
                end: tokens.len(),
                unit: 1,
            };
            self.kv.set_prompt(slot, prompt);
            let mut edits = Edits::new();
            let key = PrefixKey::plain(tokens);
            let cached = self.kv.attach_prefix(slot, key, |n| n, &mut edits).tokens;
            self.copy(&mut edits);
            if cached > 0 {
                let state = &self.states[self.state(slot, cached - 1)];
                assert_eq!(state[..cached], tokens[..cached]);
                assert!(cached > (state.len() - 1) / BLOCK * BLOCK);
            }
            cached
        }

        /// Makes the positions of a pass writable.
        fn begin(&mut self, slot: usize, positions: &Range<usize>) {
            let mut edits = Edits::new();
            self.kv.make_writable(slot, positions.clone(), &mut edits);
            self.copy(&mut edits);
        }

        /// Computes a pass, as kernels do.
        fn compute(&mut self, slot: usize, positions: Range<usize>, tokens: &[u32]) {
            for position in positions {
                let mut state = match position {
                    0 => Vec::new(),
                    _ => self.states[self.state(slot, position - 1)].clone(),
                };
                assert!(position == 0 || position > (state.len() - 1) / BLOCK * BLOCK);
                state.truncate(position);
                assert_eq!(
                    state,
                    tokens[..position],
                    "state before position {position}"
                );
                state.push(tokens[position]);
                let own = self.state(slot, position);
                self.states[own] = state;
            }
        }

        fn pass(&mut self, slot: usize, positions: Range<usize>, tokens: &[u32]) {
            self.begin(slot, &positions);
            self.compute(slot, positions, tokens);
        }

        fn release(&mut self, slot: usize, tokens: &[u32]) {
            self.kv.settle_state(slot, tokens.len());
            self.kv.insert_prefix(slot, PrefixKey::plain(tokens), 0);
            self.kv.release_pages_after(slot, 0);
        }
    }

    fn tokens(seed: u32, len: u32) -> Vec<u32> {
        (0..len).map(|i| seed * 10_000 + i).collect()
    }

    /// Computes a prompt in chunks of 100 and then single tokens.
    fn run(cache: &mut TestCache, slot: usize, prompt: usize, tokens: &[u32]) -> usize {
        let cached = cache.attach(slot, &tokens[..prompt]);
        let mut at = cached;
        while at < tokens.len() {
            let end = match at < prompt {
                true => prompt.min(at + 100),
                false => at + 1,
            };
            cache.pass(slot, at..end, tokens);
            at = end;
        }
        cache.release(slot, tokens);
        cached
    }

    #[test]
    fn sequences_continue_after_their_last_block_and_after_their_prompt() {
        let mut cache = TestCache::new(1, 6);
        let mut all = tokens(1, 400);
        assert_eq!(run(&mut cache, 0, 200, &all[..230]), 0);
        // The whole sequence, and positions of its last block, which begins at 224.
        assert_eq!(run(&mut cache, 0, 231, &all[..240]), 230);
        assert_eq!(cache.attach(0, &all[..234]), 234);
        cache.kv.release_pages_after(0, 0);
        // An earlier position continues at the last page of the prompt.
        all.truncate(220);
        all.extend(tokens(2, 100));
        assert_eq!(run(&mut cache, 0, 300, &all[..310]), 192);
        assert_eq!(cache.attach(0, &all[..309]), 309);
        cache.kv.release_pages_after(0, 0);
        assert_eq!(cache.attach(0, &all[..300]), 256);
    }

    #[test]
    fn long_prompts_keep_their_latest_states() {
        let mut cache = TestCache::new(2, 6);
        let all = tokens(1, 2400);
        run(&mut cache, 0, 2390, &all);
        for (len, cached) in [(2400, 2400), (2380, 2368), (2100, 2048)] {
            assert_eq!(cache.attach(0, &all[..len]), cached);
            cache.kv.release_pages_after(0, 0);
        }
        // Other sequences evict the states that were not used for the longest time.
        for (sequences, cached) in [(2..6, 2368), (6..20, 0)] {
            for seed in sequences {
                run(&mut cache, 1, 50, &tokens(seed, 60));
            }
            assert_eq!(cache.attach(0, &all), cached);
            cache.kv.release_pages_after(0, 0);
        }
    }

    #[test]
    fn random_sequences_have_their_own_states() {
        for (slots, pool) in [(1, 4), (3, 8), (4, 20)] {
            let mut cache = TestCache::new(slots, pool);
            let mut seed = 1u64;
            let mut random = |max: usize| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 33) as usize % max
            };
            let mut running: Vec<Option<(Vec<u32>, usize)>> = vec![None; slots as usize];
            for _ in 0..3000 {
                // All slots begin a pass before any computes one.
                let mut passes = Vec::new();
                for (slot, sequence) in running.iter_mut().enumerate() {
                    match sequence {
                        Some((tokens, at)) if random(40) > 0 && *at < tokens.len() => {
                            let longest = 1 + random(200);
                            let count = 1 + random(longest);
                            let positions = *at..tokens.len().min(*at + count);
                            *at = positions.end;
                            let mut computed = tokens.clone();
                            // Draft tokens do not leave a block. Some are rejected.
                            if positions.start / BLOCK == (positions.end - 1) / BLOCK {
                                *at = positions.start + 1 + random(positions.len());
                                computed[*at..positions.end].fill(9);
                            }
                            passes.push((slot, positions, computed));
                        }
                        Some((tokens, at)) => {
                            let end = *at;
                            if end > 0 {
                                cache.release(slot, &tokens[..end]);
                            } else {
                                cache.kv.release_pages_after(slot, 0);
                            }
                            *sequence = None;
                        }
                        None => {
                            // Few different sequences, which share prefixes.
                            let mut tokens = tokens([1, 2, 3][random(3)], 700);
                            tokens.truncate(1 + random(700));
                            tokens.extend((0..random(300)).map(|_| 5));
                            let at = cache.attach(slot, &tokens);
                            *sequence = Some((tokens, at));
                        }
                    }
                }
                for (slot, positions, _) in &passes {
                    cache.begin(*slot, positions);
                }
                for (slot, positions, tokens) in passes {
                    cache.compute(slot, positions, &tokens);
                }
            }
        }
    }
}
