//! Rotary position embedding (RoPE): rotation of pairs of elements by position.

use std::ops::Range;

/// Pairs rotated at once.
pub(crate) const PAIRS: usize = 64;

/// Rotation of consecutive heads.
#[derive(Clone, Copy)]
pub(crate) struct Rotation<'a> {
    /// Elements of a head.
    pub(crate) head: usize,
    /// Radians per position for each rotated pair.
    pub(crate) freqs: &'a [f32],
    /// Whether pairs are `(i, i + half)` rather than `(2 i, 2 i + 1)`.
    pub(crate) half_split: bool,
    /// Factor of cosine and sine.
    pub(crate) magnitude: f32,
}

/// Cosines and sines of some pairs at a position.
pub(crate) struct Angles {
    pairs: Range<usize>,
    cos: [f32; PAIRS],
    sin: [f32; PAIRS],
}

/// Rotated elements of a head.
pub(crate) struct Rotated {
    elements: [[f32; PAIRS]; 2],
    /// Range in the head and range in `elements` of each run.
    places: [[Range<usize>; 2]; 2],
}

impl Rotated {
    /// Two runs of elements, each with its range in the head.
    #[inline(always)]
    pub(crate) fn runs(&self) -> [(Range<usize>, &[f32]); 2] {
        let [a, b] = &self.places;
        let run = |[to, from]: &[Range<usize>; 2]| {
            (to.clone(), &self.elements.as_flattened()[from.clone()])
        };
        [run(a), run(b)]
    }
}

impl Rotation<'_> {
    /// The angles of all pairs at a position, in batches.
    #[inline(always)]
    pub(super) fn angles(&self, position: u32) -> impl Iterator<Item = Angles> {
        #[expect(clippy::cast_precision_loss, reason = "positions are below 2^24")]
        let position = position as f32;
        let parts = self.freqs.chunks(PAIRS).enumerate();
        parts.map(move |(part, freqs)| {
            let mut angles = Angles {
                pairs: part * PAIRS..part * PAIRS + freqs.len(),
                cos: [0.0; PAIRS],
                sin: [0.0; PAIRS],
            };
            let cos_sin = angles.cos.iter_mut().zip(&mut angles.sin);
            for ((cos, sin), freq) in cos_sin.zip(freqs) {
                (*sin, *cos) = (position * freq).sin_cos();
                (*sin, *cos) = (*sin * self.magnitude, *cos * self.magnitude);
            }
            angles
        })
    }

    /// Returns the pairs of these angles, rotated.
    #[inline(always)]
    pub(super) fn rotated(&self, angles: &Angles, head: &[f32]) -> Rotated {
        let mut elements = [[0.0; PAIRS]; 2];
        let Range { start, end } = angles.pairs;
        let count = end - start;
        let cos_sin = angles.cos.iter().zip(&angles.sin);
        if self.half_split {
            let half = self.freqs.len();
            let pairs = head[start..end].iter().zip(&head[half + start..half + end]);
            let [a, b] = &mut elements;
            for (((a, b), (cos, sin)), (x, y)) in a.iter_mut().zip(b).zip(cos_sin).zip(pairs) {
                (*a, *b) = (x * cos - y * sin, x * sin + y * cos);
            }
            let places = [start, half + start].map(|at| at..at + count);
            let [low, high] = places;
            return Rotated {
                elements,
                places: [[low, 0..count], [high, PAIRS..PAIRS + count]],
            };
        }
        let (pairs, _) = head[2 * start..2 * end].as_chunks::<2>();
        let (to, _) = elements.as_flattened_mut().as_chunks_mut::<2>();
        for ((to, (cos, sin)), [x, y]) in to.iter_mut().zip(cos_sin).zip(pairs) {
            *to = [x * cos - y * sin, x * sin + y * cos];
        }
        let places = [0, count].map(|from| {
            [
                2 * start + from..2 * start + from + count,
                from..from + count,
            ]
        });
        Rotated { elements, places }
    }

    /// Rotates heads in place.
    #[inline(always)]
    pub(super) fn rotate(&self, angles: &Angles, heads: &mut [f32]) {
        for head in heads.chunks_exact_mut(self.head) {
            for (at, rotated) in self.rotated(angles, head).runs() {
                head[at].copy_from_slice(rotated);
            }
        }
    }
}
