//! How positions turn the pairs of heads (RoPE).

/// The turns of heads that lie one behind the other.
pub(super) struct Turns<'a> {
    /// Elements of a head.
    pub(super) head: usize,
    /// Radians per position for each pair that is turned.
    pub(super) freqs: &'a [f32],
    /// Whether pairs are `(i, i + half)` rather than `(2 i, 2 i + 1)`.
    pub(super) half_split: bool,
    /// What cosine and sine are multiplied by.
    pub(super) magnitude: f32,
}

/// Cosine and sine of an angle.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    cos: f32,
    sin: f32,
}

impl Turn {
    /// The pair, turned.
    #[inline(always)]
    pub(super) fn of(self, [x, y]: [f32; 2]) -> [f32; 2] {
        let Self { cos, sin } = self;
        [x * cos - y * sin, x * sin + y * cos]
    }
}

impl Turns<'_> {
    /// The pairs of a head that are turned at a position, by their elements.
    pub(super) fn at(&self, position: u32) -> impl Iterator<Item = (usize, usize, Turn)> {
        #[expect(clippy::cast_precision_loss, reason = "positions are below 2^24")]
        let position = position as f32;
        let half = self.freqs.len();
        self.freqs.iter().enumerate().map(move |(i, freq)| {
            let (sin, cos) = (position * freq).sin_cos();
            let (sin, cos) = (sin * self.magnitude, cos * self.magnitude);
            let (a, b) = if self.half_split {
                (i, i + half)
            } else {
                (2 * i, 2 * i + 1)
            };
            (a, b, Turn { cos, sin })
        })
    }

    /// Turns heads in place.
    #[inline(always)]
    pub(super) fn turn(&self, position: u32, heads: &mut [f32]) {
        for (a, b, turn) in self.at(position) {
            for x in heads.chunks_exact_mut(self.head) {
                [x[a], x[b]] = turn.of([x[a], x[b]]);
            }
        }
    }
}
