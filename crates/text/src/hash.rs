//! Hash tables as flat arrays, which can be stored in a file and used in place.
//!
//! A table finds a number, such as an id, by the hash of its key. It has a power of two of slots with linear
//! probing, at most 60 % of which are used. A slot has the number in its low bits and other bits of the hash in its
//! high bits, so that few keys are compared. A lookup reads at most `PROBES_MAX` slots, whatever the keys, a stored
//! table and its seed are; a table that would need more is built again with another seed. The seeds are constants, so that a
//! model always compiles to the same bytes. A vocabulary whose author made its entries collide is rejected.

use super::array::{Array, Section};
use serde::{Deserialize, Serialize};
use tabla_core::error::{Result, bail};

/// Limit of the numbers in a table. The largest number with this many bits is not used, so that no slot is `EMPTY`.
pub(super) const NUMBERS_MAX: usize = NUMBER_MASK as usize;

const NUMBER_BITS: u32 = 22;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
/// Maximum number of slots that a lookup reads. The longest search in a random table of four million entries has about
/// 130 slots.
const PROBES_MAX: usize = 256;
/// Maximum number of seeds that are tried. The first one nearly always succeeds.
const SEEDS_MAX: usize = 16;

/// The seed of a hash function.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Seed([u64; 2]);

impl Seed {
    /// Returns one of the seeds of new tables: numbers of the Weyl sequence of the golden ratio, mixed.
    fn nth(n: usize) -> Self {
        /// 2^64 divided by the golden ratio.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        /// The multiplier of `MurmurHash2`.
        const MIX: u64 = 0xc6a4_a793_5bd1_e995;
        Self([2 * n as u64 + 1, 2 * n as u64 + 2].map(|n| fold(n.wrapping_mul(STEP), MIX)))
    }

    /// Returns the hash of bytes, which is part of the format of compiled files.
    #[inline]
    pub(super) fn hash(self, bytes: &[u8]) -> u64 {
        let Self([start, factor]) = self;
        let length = bytes.len() as u64;
        let (words, last) = words(bytes);
        // Different texts must not have the same hash with every seed: a short one is in the word with its length.
        if length < 8 {
            return fold(start ^ last ^ length << 56, factor);
        }
        let hash = words.fold(fold(start ^ length, factor), |hash, word| {
            fold(hash ^ word, factor)
        });
        fold(hash ^ last, factor)
    }

    /// Returns the hash of a pair of numbers, which is part of the format of compiled files.
    #[inline]
    pub(super) fn hash_pair(self, [a, b]: [u32; 2]) -> u64 {
        let Self([start, factor]) = self;
        fold(start ^ (u64::from(a) << 32 | u64::from(b)), factor)
    }
}

/// Returns the bytes as words, of which the last one overlaps the one before, or ends with zeros. One to three bytes
/// are the first, the middle and the last one. Most token texts have one word, which is faster than loops over bytes.
#[inline]
fn words(bytes: &[u8]) -> (impl Iterator<Item = u64>, u64) {
    let half = |at: usize| {
        let half = bytes.get(at..).and_then(<[u8]>::first_chunk);
        u64::from(u32::from_le_bytes(*half.unwrap_or(&[0; 4])))
    };
    let word = |at: usize| {
        let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
        u64::from_le_bytes(*word.unwrap_or(&[0; 8]))
    };
    let last = match *bytes {
        [] => 0,
        [first, ..] if bytes.len() < 4 => {
            let byte = |at: usize| u64::from(bytes[at]);
            u64::from(first) | byte(bytes.len() / 2) << 8 | byte(bytes.len() - 1) << 16
        }
        _ if bytes.len() < 8 => half(0) | half(bytes.len() - 4) << (8 * (bytes.len() - 4)),
        _ => word(bytes.len() - 8),
    };
    let others = (0..bytes.len().saturating_sub(8)).step_by(8);
    (others.map(word), last)
}

/// Returns whether both texts are the same; faster than `==` for short ones.
#[inline]
pub(super) fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let ((a, last_a), (b, last_b)) = (words(a), words(b));
    last_a == last_b && a.eq(b)
}

/// Multiplies and adds the halves of the product without carry.
#[expect(clippy::cast_possible_truncation, reason = "the halves of the product")]
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// A slot: a number, and high bits of the hash of its key.
trait Slot: Copy + PartialEq {
    const EMPTY: Self;
    /// Whether slots of different keys may have the same bits of the hash.
    const MAY_COLLIDE: bool;
    fn new(hash: u64, number: u32) -> Self;
    fn has_hash(self, hash: u64) -> bool;
    fn number(self) -> u32;
}

impl Slot for u32 {
    const EMPTY: Self = Self::MAX;
    const MAY_COLLIDE: bool = true;

    fn new(hash: u64, number: u32) -> Self {
        high_half(hash) & !NUMBER_MASK | number
    }

    fn has_hash(self, hash: u64) -> bool {
        (self ^ high_half(hash)) & !NUMBER_MASK == 0
    }

    fn number(self) -> u32 {
        self & NUMBER_MASK
    }
}

impl Slot for u64 {
    const EMPTY: Self = Self::MAX;
    const MAY_COLLIDE: bool = false;

    fn new(hash: u64, number: u32) -> Self {
        hash & !Self::from(NUMBER_MASK) | Self::from(number)
    }

    fn has_hash(self, hash: u64) -> bool {
        (self ^ hash) & !Self::from(NUMBER_MASK) == 0
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low bits")]
    fn number(self) -> u32 {
        self as u32 & NUMBER_MASK
    }
}

fn high_half(hash: u64) -> u32 {
    (hash >> u32::BITS) as u32
}

/// The numbers and keys of a table that is built.
pub(super) struct Entries<N, H, S> {
    /// Maximum count of numbers.
    pub(super) count: usize,
    /// Returns the numbers.
    pub(super) numbers: N,
    /// Returns the hash of the key of a number.
    pub(super) hash: H,
    /// Returns whether two numbers have the same key. The first one is kept.
    pub(super) is_same: S,
}

impl<I, N, H, S> Entries<N, H, S>
where
    I: Iterator<Item = u32>,
    N: Fn() -> I,
    H: Fn(Seed, u32) -> u64,
    S: Fn(u32, u32) -> bool,
{
    /// Builds a table.
    ///
    /// # Errors
    /// `TooLarge` for numbers over the limit, `Format` for keys that collide with every seed.
    pub(super) fn table(&self) -> Result<NumberTable> {
        let (seed, slots) = self.slots::<u32>()?;
        let slots = slots.into();
        Ok(NumberTable { seed, slots })
    }

    /// Builds a table with 42 bits of each hash, which are unique.
    ///
    /// # Errors
    /// Those of [`table`](Self::table).
    pub(super) fn wide_table(&self) -> Result<WideTable> {
        let (seed, slots) = self.slots()?;
        Ok(WideTable { seed, slots })
    }

    /// Fills the slots with a seed for which every number is found.
    fn slots<T: Slot>(&self) -> Result<(Seed, Vec<T>)> {
        if self.count > NUMBERS_MAX {
            let count = self.count;
            bail!(
                TooLarge,
                "{count} entries exceed the limit of {NUMBERS_MAX}"
            );
        }
        for seed in (0..SEEDS_MAX).map(Seed::nth) {
            let mut slots = vec![T::EMPTY; (self.count * 5 / 3 + 1).next_power_of_two()];
            let mut insert = |number| {
                let hash = (self.hash)(seed, number);
                for at in places(hash, slots.len()) {
                    let slot = &mut slots[at];
                    if *slot == T::EMPTY {
                        *slot = T::new(hash, number);
                        return true;
                    }
                    if slot.has_hash(hash) {
                        if (self.is_same)(slot.number(), number) {
                            return true;
                        }
                        if !T::MAY_COLLIDE {
                            return false;
                        }
                    }
                }
                false
            };
            if (self.numbers)().all(&mut insert) {
                return Ok((seed, slots));
            }
        }
        bail!(Format, "the entries of a hash table collide");
    }
}

/// A hash table of numbers that compares 42 bits of hashes instead of keys, which are in other places of memory. A key
/// that is not in the table, and was not made for its seed, is taken for another one with a probability of about 1 to 4
/// trillion.
#[derive(Debug)]
pub(super) struct WideTable {
    seed: Seed,
    slots: Vec<u64>,
}

impl WideTable {
    /// Returns the number of a text.
    #[inline]
    pub(super) fn get(&self, text: &[u8]) -> Option<u32> {
        find(&self.slots, self.seed.hash(text), |_| true)
    }

    /// Returns the table with fewer bits of the hashes.
    pub(super) fn narrow(&self) -> NumberTable {
        let narrow = |slot: &u64| match *slot {
            u64::EMPTY => u32::EMPTY,
            slot => u32::new(slot, slot.number()),
        };
        NumberTable {
            seed: self.seed,
            slots: self.slots.iter().map(narrow).collect::<Vec<u32>>().into(),
        }
    }
}

/// A hash table of numbers.
#[derive(Debug)]
pub(super) struct NumberTable {
    pub(super) seed: Seed,
    /// A power of two.
    pub(super) slots: Array<u32>,
}

impl NumberTable {
    /// Uses the table in a section, of numbers below `limit`.
    ///
    /// # Errors
    /// `Format` for other numbers, or a number of slots that is not a power of two.
    pub(super) fn stored(seed: Seed, section: Section, limit: usize) -> Result<Self> {
        let slots = Array::<u32>::shared(section)?;
        if !slots.len().is_power_of_two() {
            let slots = slots.len();
            bail!(
                Format,
                "{slots} slots of a hash table are not a power of two"
            );
        }
        // Without branches, so that several slots are checked at a time.
        let next = |slot: &u32| match *slot {
            u32::EMPTY => 0,
            slot => slot.number() + 1,
        };
        let largest = slots.iter().map(next).fold(0, u32::max) as usize;
        if largest > limit {
            let number = largest - 1;
            bail!(
                Format,
                "a hash table of {limit} numbers has number {number}"
            );
        }
        Ok(Self { seed, slots })
    }

    /// Returns the number of a key with this hash that `is_same` accepts.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_same: impl Fn(u32) -> bool) -> Option<u32> {
        find(&self.slots, hash, is_same)
    }

    /// The numbers, in arbitrary order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        let used = self.slots.iter().filter(|slot| **slot != u32::EMPTY);
        used.map(|slot| slot.number())
    }
}

#[inline]
fn find<T: Slot>(slots: &[T], hash: u64, is_same: impl Fn(u32) -> bool) -> Option<u32> {
    for at in places(hash, slots.len()) {
        let slot = *slots.get(at)?;
        if slot == T::EMPTY {
            return None;
        }
        if slot.has_hash(hash) && is_same(slot.number()) {
            return Some(slot.number());
        }
    }
    None
}

/// The places of a hash among `slots` slots, in the order of probing.
#[expect(clippy::cast_possible_truncation, reason = "the low bits of the hash")]
#[inline]
fn places(hash: u64, slots: usize) -> impl Iterator<Item = usize> {
    let start = hash as usize;
    (0..PROBES_MAX).map(move |n| start.wrapping_add(n) & slots.wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Hashes of other programs' format: computed by a few lines of Python.
    #[test]
    fn hashes_are_those_of_the_format() {
        let seed = Seed([0x0123_4567_89ab_cdef, 0x9e37_79b9_7f4a_7c15]);
        for (text, hash) in [
            ("", 0x0c27_a443_d5ff_218e),
            ("a", 0x9b41_c570_59e6_bd09),
            ("ab", 0x06f7_c4d9_ed83_bb61),
            ("abc", 0x791c_0d9d_bb28_83b5),
            ("▁the", 0x5f79_bb05_8a90_0716),
            ("Ġsomething", 0xa246_c4ea_e93e_6d18),
            ("0123456789abcdef0", 0xa858_0cad_f3af_f294),
        ] {
            assert_eq!(seed.hash(text.as_bytes()), hash, "{text}");
        }
        assert_eq!(seed.hash_pair([7, 9]), 0x0122_f870_dac1_7f23);
    }

    #[test]
    fn short_texts_have_different_hashes() {
        let text = |length: u32, bits: u32| {
            (0..length).map(move |at| b'`' | u8::from(bits >> at & 1 == 1))
        };
        let texts = (0..10).flat_map(|length| (0..1 << length).map(move |bits| (length, bits)));
        let seed = Seed([5, 0x9e37_79b9_7f4a_7c15]);
        let hash = |(length, bits)| seed.hash(&text(length, bits).collect::<Vec<u8>>());
        let hashes: HashSet<u64> = texts.map(hash).collect();
        assert_eq!(hashes.len(), 1023);
    }

    #[test]
    fn every_prefix_has_its_own_hash() {
        let bytes: Vec<u8> = (0..100_u8).map(|n| n % 13 * 7 % 13).collect();
        let seed = Seed([3, 0x9e37_79b9_7f4a_7c15]);
        let mut all: HashSet<u64> = (0..100).map(|end| seed.hash(&bytes[..end])).collect();
        // Each byte counts.
        for at in 0..99 {
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            all.insert(seed.hash(&other[..99]));
        }
        assert_eq!(all.len(), 199);
    }

    #[test]
    fn finds_what_was_inserted() {
        // 500 keys, each of two numbers.
        let key = |number: u32| (number % 500).to_le_bytes();
        let entries = Entries {
            count: 1000,
            numbers: || (0..1000).chain([7, 8]),
            hash: |seed: Seed, number| seed.hash(&key(number)),
            is_same: |a, b| key(a) == key(b),
        };
        let (table, wide) = (entries.table().unwrap(), entries.wide_table().unwrap());
        let narrow = wide.narrow();
        for n in 0..600_u32 {
            let first = (n < 500).then_some(n);
            let bytes = n.to_le_bytes();
            assert_eq!(wide.get(&bytes), first);
            for table in [&table, &narrow] {
                let found = table.find(table.seed.hash(&bytes), |other| key(other) == bytes);
                assert_eq!(found, first);
            }
        }
        assert_eq!(
            (table.numbers().count(), narrow.numbers().count()),
            (500, 500)
        );
    }

    #[test]
    fn colliding_keys_are_an_error() {
        let entries = |count| Entries {
            count: 1000,
            numbers: move || 0..count,
            hash: |_, _| 7,
            is_same: |a, b| a == b,
        };
        assert!(entries(256).table().is_ok() && entries(1).wide_table().is_ok());
        let errors = [
            entries(257).table().map(drop),
            entries(2).wide_table().map(drop),
        ];
        for error in errors {
            let error = error.unwrap_err();
            assert_eq!(error.message(), "the entries of a hash table collide");
        }
    }

    #[test]
    fn stored_tables_are_checked_and_searches_end() {
        let seed = Seed([1, 3]);
        let stored = |slots: &[u32]| {
            let bytes = slots.iter().flat_map(|slot| slot.to_le_bytes());
            let section = Section::aligned_copy(&bytes.collect::<Vec<u8>>());
            NumberTable::stored(seed, section, 9)
        };
        // A full table without the key.
        let full = stored(&[8; 4]).unwrap();
        assert_eq!(full.find(0, |_| false), None);
        for invalid in [&[][..], &[0; 3], &[0, 9], &[0, 1, 2, 1 << 22 | 9]] {
            assert!(stored(invalid).is_err(), "{invalid:?}");
        }
    }
}
