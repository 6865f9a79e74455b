//! Decisions of a generator.

/// Decisions, read from the input of the fuzzer. After its end every number is 0, so that generators end.
pub(crate) struct Choices<'a> {
    input: &'a [u8],
}

/// Lengths and counts at the limits of their types.
const EXTREMES: [u64; 12] = [
    0,
    1,
    2,
    31,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    1 << 60,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 31,
    u64::MAX,
];

impl<'a> Choices<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self { input }
    }

    /// Whether the input has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let (first, rest) = self.input.split_first().unwrap_or((&0, &[]));
        self.input = rest;
        *first
    }

    /// Returns a number of three bytes, enough for every position in a golden file.
    pub(crate) fn position(&mut self) -> usize {
        [self.byte(), self.byte(), self.byte()]
            .into_iter()
            .fold(0, |n, byte| n << 8 | usize::from(byte))
    }

    /// Returns a number less than `end`, which is at most 256.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    /// Returns whether something unusual happens, at a rate of one in `n`, never after the end of the input.
    pub(crate) fn rarely(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    pub(crate) fn pick<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.below(items.len())]
    }

    /// Returns a number at a limit, or any.
    pub(crate) fn extreme(&mut self) -> u64 {
        match self.below(EXTREMES.len() + 4) {
            at if at < EXTREMES.len() => EXTREMES[at],
            _ => self.position() as u64,
        }
    }

    /// Returns `usual`, rarely a number at a limit or next to it.
    pub(crate) fn number(&mut self, usual: u64) -> u64 {
        match self.rarely(12) {
            false => usual,
            true if self.rarely(3) => usual.wrapping_add(1),
            true if self.rarely(3) => usual.wrapping_sub(1),
            true => self.extreme(),
        }
    }

    /// Returns the next bytes, at most `most`.
    pub(crate) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (some, rest) = self.input.split_at(most.min(self.input.len()));
        self.input = rest;
        some
    }

    /// Returns the bytes that are left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }
}
