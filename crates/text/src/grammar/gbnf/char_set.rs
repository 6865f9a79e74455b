//! Sets of characters.

use std::fmt;

/// The ranges of Unicode scalar values: all code points except surrogates.
const CHARACTERS: [(u32, u32); 2] = [(0, 0xd7ff), (0xe000, 0x10_ffff)];

/// A set of characters, as sorted ranges that are neither overlapping nor adjacent.
#[derive(Clone, Default, PartialEq)]
pub(super) struct CharSet(Vec<(u32, u32)>);

impl CharSet {
    pub(super) fn of(c: char) -> Self {
        Self::range(c, c)
    }

    /// The characters from `first` to `last`.
    pub(super) fn range(first: char, last: char) -> Self {
        let (first, last) = (u32::from(first), u32::from(last));
        let ranges = CHARACTERS.map(|(low, high)| (first.max(low), last.min(high)));
        Self(
            ranges
                .into_iter()
                .filter(|(low, high)| low <= high)
                .collect(),
        )
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the characters of another set. Returns whether the set changed.
    pub(super) fn add(&mut self, other: &Self) -> bool {
        let mut all: Vec<_> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(all.len());
        for (low, high) in all {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        let is_new = merged != self.0;
        self.0 = merged;
        is_new
    }

    /// Whether the sets have a common character.
    pub(super) fn intersects(&self, other: &Self) -> bool {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            if x.0 <= y.1 && y.0 <= x.1 {
                return true;
            }
            if x.1 < y.1 {
                a.next();
            } else {
                b.next();
            }
        }
        false
    }

    /// Returns the set of all other characters.
    pub(super) fn complement(&self) -> Self {
        let mut out = Vec::new();
        for (low, high) in CHARACTERS {
            let mut next = low;
            for &(first, last) in self.0.iter().filter(|r| r.0 <= high && r.1 >= low) {
                if next < first {
                    out.push((next, first - 1));
                }
                next = last + 1;
            }
            if next <= high {
                out.push((next, high));
            }
        }
        Self(out)
    }
}

/// The set as a regex character class.
impl fmt::Display for CharSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (first, last) in &self.0 {
            write!(f, "\\x{{{first:x}}}")?;
            if first < last {
                write!(f, "-\\x{{{last:x}}}")?;
            }
        }
        f.write_str("]")
    }
}

impl fmt::Debug for CharSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(set: &CharSet, expected: &str) {
        assert_eq!(set.to_string(), expected);
    }

    #[test]
    fn ranges_are_sorted_and_merged() {
        let mut set = CharSet::range('c', 'e');
        assert!(set.add(&CharSet::of('a')) && set.add(&CharSet::of('b')));
        assert!(!set.add(&CharSet::range('a', 'e')));
        check(&set, "[\\x{61}-\\x{65}]");
        check(
            &set.complement(),
            "[\\x{0}-\\x{60}\\x{66}-\\x{d7ff}\\x{e000}-\\x{10ffff}]",
        );
        assert_eq!(set.complement().complement(), set);
        assert!(CharSet::default().complement().complement().is_empty());
        let across = CharSet::range('\u{d000}', '\u{f000}');
        check(&across, "[\\x{d000}-\\x{d7ff}\\x{e000}-\\x{f000}]");
        assert_eq!(across.complement().complement(), across);
    }

    #[test]
    fn sets_with_common_character_intersect() {
        let mut set = CharSet::range('a', 'c');
        set.add(&CharSet::range('x', 'z'));
        assert!(set.intersects(&CharSet::range('c', 'd')) && set.intersects(&CharSet::of('y')));
        assert!(!set.intersects(&CharSet::range('d', 'w')) && !set.intersects(&CharSet::default()));
    }
}
