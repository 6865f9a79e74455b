//! Hash tables as flat arrays, which can be stored in a file and used in place.
//!
//! A table finds a number, such as an id, by the hash of its key. It has a power of two of slots with linear
//! probing, at most 60 % of which are used. A slot has the number in its low bits and other bits of the hash in its
//! high bits, so that few keys are compared. A randomly chosen seed prevents a vocabulary from causing collisions.
//! Whatever a stored table and its seed are, a lookup reads at most `PROBES_MAX` slots; a table that would need more
//! is built again with another seed.

use super::array::{Array, Section};
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher as _, RandomState};
use tabla_core::error::{Result, bail};

/// Limit of the numbers in a table.
pub(super) const NUMBERS_MAX: usize = 1 << NUMBER_BITS;

const NUMBER_BITS: u32 = 22;
/// Number of different tags, the bits of the hash in a slot. One less than the bits allow distinguishes `EMPTY`.
const TAGS: u64 = (1 << (u32::BITS - NUMBER_BITS)) - 1;
const EMPTY: u32 = u32::MAX;
/// Maximum number of slots that a lookup reads. The longest search in a random table of four million entries has about
/// 130 slots.
const PROBES_MAX: usize = 256;
/// Maximum number of seeds that are tried. The first one nearly always succeeds.
const SEEDS_MAX: usize = 16;

/// The seed of a hash function.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Seed([u64; 2]);

impl Seed {
    fn random() -> Self {
        let state = RandomState::new();
        Self([0, 1].map(|n| state.hash_one(n)))
    }

    /// Returns the hash of bytes, which is part of the format of compiled files.
    #[inline]
    pub(super) fn hash(self, bytes: &[u8]) -> u64 {
        let Self([start, factor]) = self;
        let mut hash = start ^ bytes.len() as u64;
        let word = |at: usize| {
            let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
            u64::from_le_bytes(*word.unwrap_or(&[0; 8]))
        };
        let half = |at: usize| {
            let half = bytes.get(at..).and_then(<[u8]>::first_chunk);
            u64::from(u32::from_le_bytes(*half.unwrap_or(&[0; 4])))
        };
        // The last word overlaps the one before.
        let last = match *bytes {
            [] => 0,
            [a] => u64::from(a),
            [a, .., c] if bytes.len() < 4 => {
                let b = bytes[bytes.len() / 2];
                u64::from(a) << 16 | u64::from(b) << 8 | u64::from(c)
            }
            _ if bytes.len() < 8 => half(0) << 32 | half(bytes.len() - 4),
            _ => {
                for at in (0..bytes.len() - 8).step_by(8) {
                    hash = fold(hash ^ word(at), factor);
                }
                word(bytes.len() - 8)
            }
        };
        fold(hash ^ last, factor)
    }

    /// Returns the hash of a pair of numbers, which is part of the format of compiled files.
    #[inline]
    pub(super) fn hash_pair(self, [a, b]: [u32; 2]) -> u64 {
        let Self([start, factor]) = self;
        fold(start ^ (u64::from(a) << 32 | u64::from(b)), factor)
    }
}

/// Multiplies and adds the halves of the product without carry.
#[expect(clippy::cast_possible_truncation, reason = "the halves of the product")]
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// A hash table of numbers.
#[derive(Debug)]
pub(super) struct NumberTable {
    pub(super) seed: Seed,
    /// A power of two.
    pub(super) slots: Array<u32>,
}

impl NumberTable {
    /// Builds a table of at most `count` numbers. `hash` returns the hash of the key of a number, and `same` whether
    /// two numbers have the same key; the first one wins.
    ///
    /// # Errors
    /// `TooLarge` for numbers over the limit, `Format` for keys that collide with every seed.
    pub(super) fn build<I: Iterator<Item = u32>>(
        count: usize,
        numbers: impl Fn() -> I,
        hash: impl Fn(Seed, u32) -> u64,
        same: impl Fn(u32, u32) -> bool,
    ) -> Result<Self> {
        if count > NUMBERS_MAX {
            bail!(
                TooLarge,
                "{count} entries exceed the limit of {NUMBERS_MAX}"
            );
        }
        for _ in 0..SEEDS_MAX {
            let seed = Seed::random();
            let mut slots = vec![EMPTY; (count * 5 / 3 + 1).next_power_of_two()];
            let mut insert = |number| insert(&mut slots, hash(seed, number), number, &same);
            if numbers().all(&mut insert) {
                let slots = slots.into();
                return Ok(Self { seed, slots });
            }
        }
        bail!(Format, "the entries of a hash table collide");
    }

    /// Uses the table in a section.
    ///
    /// # Errors
    /// `Format` for a number of slots that is not a power of two, or a number that `is_valid` rejects.
    pub(super) fn stored(
        seed: Seed,
        section: Section,
        is_valid: impl Fn(u32) -> bool,
    ) -> Result<Self> {
        let slots = Array::<u32>::shared(section)?;
        if !slots.len().is_power_of_two() {
            let slots = slots.len();
            bail!(
                Format,
                "{slots} slots of a hash table are not a power of two"
            );
        }
        let table = Self { seed, slots };
        if let Some(number) = table.numbers().find(|number| !is_valid(*number)) {
            bail!(Format, "a hash table has the invalid entry {number}");
        }
        Ok(table)
    }

    /// Returns the number of a key with this hash that `is_same` accepts.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_same: impl Fn(u32) -> bool) -> Option<u32> {
        let slots = &*self.slots;
        for at in places(hash, slots.len()) {
            let slot = *slots.get(at)?;
            if slot == EMPTY {
                return None;
            }
            if tag(slot) == tag_of(hash) && is_same(number(slot)) {
                return Some(number(slot));
            }
        }
        None
    }

    /// The numbers, in arbitrary order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        let used = self.slots.iter().filter(|slot| **slot != EMPTY);
        used.map(|slot| number(*slot))
    }
}

/// Inserts a number. Returns whether a lookup will find it or the number with the same key before it.
fn insert(slots: &mut [u32], hash: u64, new: u32, same: impl Fn(u32, u32) -> bool) -> bool {
    for at in places(hash, slots.len()) {
        let slot = &mut slots[at];
        if *slot == EMPTY {
            *slot = tag_of(hash) << NUMBER_BITS | new;
            return true;
        }
        if tag(*slot) == tag_of(hash) && same(number(*slot), new) {
            return true;
        }
    }
    false
}

/// The places of a hash among `slots` slots, in the order of probing.
#[expect(clippy::cast_possible_truncation, reason = "the low bits of the hash")]
#[inline]
fn places(hash: u64, slots: usize) -> impl Iterator<Item = usize> {
    let start = hash as usize;
    (0..PROBES_MAX).map(move |n| start.wrapping_add(n) & slots.wrapping_sub(1))
}

/// The tag of a hash: its high bits, of which [`places`] uses the low ones.
#[expect(
    clippy::cast_possible_truncation,
    reason = "less than the number of tags"
)]
#[inline]
fn tag_of(hash: u64) -> u32 {
    ((hash >> u32::BITS) * TAGS >> u32::BITS) as u32
}

fn tag(slot: u32) -> u32 {
    slot >> NUMBER_BITS
}

fn number(slot: u32) -> u32 {
    slot & ((1 << NUMBER_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_has_its_own_hash() {
        let bytes: Vec<u8> = (0..100).map(|n| n * 7 % 13).collect();
        let seed = Seed([3, 0x9e37_79b9_7f4a_7c15]);
        let mut all: Vec<u64> = (0..100).map(|end| seed.hash(&bytes[..end])).collect();
        // Each byte counts.
        for at in 0..99 {
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            all.push(seed.hash(&other[..99]));
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 199);
    }

    #[test]
    fn finds_what_was_inserted() {
        let numbers = || (0..1000).chain([7, 8]);
        // 500 keys, each of two numbers.
        let key = |number: u32| number % 500;
        let hash = |seed: Seed, number| seed.hash_pair([key(number), 1]);
        let same = |a, b| key(a) == key(b);
        let table = NumberTable::build(1000, numbers, hash, same).unwrap();
        for n in 0..500 {
            let found = table.find(hash(table.seed, n), |other| same(n, other));
            assert_eq!(found, Some(n), "the first of two");
        }
        let absent = table.seed.hash_pair([500, 1]);
        assert_eq!(table.find(absent, |n| key(n) == 500), None);
        assert_eq!(table.numbers().count(), 500);
    }

    #[test]
    fn colliding_keys_are_an_error() {
        let count = PROBES_MAX as u32 + 1;
        let build = |count| {
            let hash = |_, _| 7;
            NumberTable::build(1000, || 0..count, hash, |a, b| a == b)
        };
        assert!(build(count - 1).is_ok());
        let error = build(count).unwrap_err();
        assert_eq!(error.message(), "the entries of a hash table collide");
    }

    #[test]
    fn stored_tables_are_checked_and_searches_end() {
        let seed = Seed([1, 3]);
        let stored = |slots: &[u32]| {
            let bytes = slots.iter().flat_map(|slot| slot.to_le_bytes());
            let section = Section::aligned_copy(&bytes.collect::<Vec<u8>>());
            NumberTable::stored(seed, section, |number| number < 9)
        };
        // A full table without the key.
        let full = stored(&[8; 4]).unwrap();
        assert_eq!(full.find(0, |_| false), None);
        for invalid in [&[][..], &[0; 3], &[0, 9], &[0, 1, 2, 1 << 22 | 9]] {
            assert!(stored(invalid).is_err(), "{invalid:?}");
        }
    }
}
