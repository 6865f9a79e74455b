//! Beam search without a model, as `whisper/decoding.py` of OpenAI does it.
//!
//! A step takes the most probable tokens of each beam and returns the beams of the next step: the row
//! that each continues and its new token. The caller runs the model and moves the KV caches.

use std::cmp::Ordering;
use tabla_core::error::{Result, bail};

/// Index of no node: the start of all beams.
const ROOT: u32 = u32::MAX;

/// A token that may follow a beam.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Token id.
    pub token: u32,
    /// Log-probability of the token after the beam.
    pub logprob: f32,
}

/// A beam of the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextBeam {
    /// Index of the beam of this step that it continues.
    pub parent: u32,
    /// Token to append.
    pub token: u32,
}

/// Tokens of a finished search, without `eot`.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Sum of the log-probabilities, `eot` included if the model generated it.
    pub sum_logprob: f32,
}

/// Options of a beam search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeamOptions {
    /// Number of beams. Default 5.
    pub beams: u32,
    /// Search ends when `beams * patience` hypotheses are finished. Default 1.
    pub patience: f32,
    /// Exponent of the length penalty, 0 to 1. `None` divides sums by lengths.
    pub length_penalty: Option<f32>,
    /// End of text.
    pub eot: u32,
}

/// Maximum number of beams.
const BEAMS_MAX: u32 = 64;

/// State of a beam search. Steps do not allocate after construction.
#[derive(Debug)]
pub struct BeamSearch {
    options: BeamOptions,
    finished_max: usize,
    steps_max: usize,
    steps: usize,
    /// Tokens of all beams as a tree.
    nodes: Vec<Node>,
    live: Vec<End>,
    next: Vec<NextBeam>,
    finished: Vec<End>,
    ranked: Vec<Ranked>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: u32,
    token: u32,
}

/// The last node of a beam.
#[derive(Clone, Copy, Debug)]
struct End {
    node: u32,
    sum: f32,
    tokens: u32,
}

/// A candidate of a step.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    row: u32,
    token: u32,
    sum: f32,
    /// Position among all candidates, which orders equal sums.
    at: u32,
}

impl BeamSearch {
    /// Creates a search of at most `steps_max` tokens.
    ///
    /// # Errors
    ///
    /// `Argument` if an option is out of its range.
    pub fn new(options: BeamOptions, steps_max: usize) -> Result<Self> {
        let BeamOptions {
            beams, patience, ..
        } = options;
        if !(1..=BEAMS_MAX).contains(&beams) {
            bail!(Argument, "{beams} beams: expected 1 to {BEAMS_MAX}");
        }
        let finished_max = (f64::from(beams) * f64::from(patience)).round_ties_even();
        if !(1.0..=1024.0).contains(&finished_max) {
            bail!(
                Argument,
                "patience {patience}: {beams} beams times patience must be 1 to 1024"
            );
        }
        if let Some(alpha) = options.length_penalty
            && !(0.0..=1.0).contains(&alpha)
        {
            bail!(Argument, "length penalty {alpha}: expected 0 to 1");
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 1 to 1024"
        )]
        let finished_max = finished_max as usize;
        let count = beams as usize;
        let mut search = Self {
            options,
            finished_max,
            steps_max,
            steps: 0,
            nodes: Vec::with_capacity(count * steps_max),
            live: Vec::with_capacity(count),
            next: Vec::with_capacity(count),
            finished: Vec::with_capacity(finished_max.max(count)),
            ranked: Vec::with_capacity(count * (count + 1)),
        };
        search.reset();
        Ok(search)
    }

    /// Starts a new search.
    pub fn reset(&mut self) {
        self.steps = 0;
        self.nodes.clear();
        self.finished.clear();
        self.next.clear();
        self.live.clear();
        self.live.push(End {
            node: ROOT,
            sum: 0.0,
            tokens: 0,
        });
    }

    /// Number of beams that the next step continues: 1 at first, since all are equal.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Number of candidates per beam: one more than beams, since one may be `eot`.
    pub fn candidates(&self) -> usize {
        self.options.beams as usize + 1
    }

    /// Processes the candidates of all beams, `[live, candidates]`, of each beam the most probable
    /// first. Returns the beams of the next step: fewer than all if fewer candidates are possible, that
    /// is, have a log-probability above negative infinity.
    ///
    /// # Errors
    ///
    /// `Argument` if the number of candidates is wrong, or if the search is at its last step.
    pub fn step(&mut self, candidates: &[Candidate]) -> Result<&[NextBeam]> {
        let width = self.candidates();
        if candidates.len() != self.live.len() * width {
            bail!(
                Argument,
                "{} candidates: expected {} for each of {} beams",
                candidates.len(),
                width,
                self.live.len()
            );
        }
        if self.steps == self.steps_max {
            bail!(
                Argument,
                "beam search is at its limit of {} tokens",
                self.steps_max
            );
        }
        self.steps += 1;
        self.rank(candidates);
        self.select();
        Ok(&self.next)
    }

    /// Sorts candidates by the sums of their beams. Impossible candidates are left out.
    fn rank(&mut self, candidates: &[Candidate]) {
        self.ranked.clear();
        let rows = candidates.chunks_exact(self.options.beams as usize + 1);
        let mut at = 0;
        for (row, (beam, candidates)) in (0..).zip(self.live.iter().zip(rows)) {
            for candidate in candidates {
                let sum = beam.sum + candidate.logprob;
                if sum > f32::NEG_INFINITY {
                    self.ranked.push(Ranked {
                        row,
                        token: candidate.token,
                        sum,
                        at,
                    });
                }
                at += 1;
            }
        }
        self.ranked
            .sort_unstable_by(|a, b| descending(a.sum, b.sum).then(a.at.cmp(&b.at)));
    }

    /// Makes the best candidates the next beams. Those of `eot` that rank before the last of them are
    /// finished.
    fn select(&mut self) {
        let beams = self.options.beams as usize;
        self.next.clear();
        let first = self.nodes.len();
        for ranked in &self.ranked {
            let parent = self.live[ranked.row as usize];
            if ranked.token == self.options.eot {
                if self.finished.len() < self.finished_max {
                    self.finished.push(End {
                        sum: ranked.sum,
                        ..parent
                    });
                }
                continue;
            }
            self.nodes.push(Node {
                parent: parent.node,
                token: ranked.token,
            });
            self.next.push(NextBeam {
                parent: ranked.row,
                token: ranked.token,
            });
            if self.next.len() == beams {
                break;
            }
        }
        if self.next.is_empty() && self.finished.is_empty() {
            // No token may follow: the beams so far are the result.
            return;
        }
        let tokens = self.live.first().map_or(0, |beam| beam.tokens) + 1;
        self.live.clear();
        let kept = self.ranked.iter().filter(|r| r.token != self.options.eot);
        let nodes = first..self.nodes.len();
        self.live.extend(nodes.zip(kept).map(|(node, ranked)| End {
            node: u32::try_from(node).unwrap_or(ROOT),
            sum: ranked.sum,
            tokens,
        }));
    }

    /// Whether enough hypotheses are finished, or no beam can continue.
    pub fn is_complete(&self) -> bool {
        let is_stuck = self.steps > 0 && self.next.is_empty();
        is_stuck || self.finished.len() >= self.finished_max
    }

    /// Returns the best hypothesis. If fewer are finished than there are beams, the best unfinished
    /// beams count too.
    pub fn best(&self) -> Hypothesis {
        let mut all = self.finished.clone();
        let mut live: Vec<(usize, End)> = self.live.iter().copied().enumerate().collect();
        // Equal sums: the later beam first, as OpenAI's reversed sort does it.
        live.sort_by(|(i, a), (j, b)| descending(a.sum, b.sum).then(j.cmp(i)));
        let missing = (self.options.beams as usize).saturating_sub(all.len());
        all.extend(live.into_iter().take(missing).map(|(_, end)| end));
        let ranks = all.iter().map(|end| (end.sum, end.tokens as usize));
        let best = best_hypothesis(ranks, self.options.length_penalty);
        let start = End {
            node: ROOT,
            sum: 0.0,
            tokens: 0,
        };
        let end = best.and_then(|at| all.get(at).copied()).unwrap_or(start);
        Hypothesis {
            tokens: self.tokens_of(end),
            sum_logprob: end.sum,
        }
    }

    fn tokens_of(&self, end: End) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(end.tokens as usize);
        let mut at = end.node;
        while let Some(node) = self.nodes.get(at as usize) {
            tokens.push(node.token);
            at = node.parent;
        }
        tokens.reverse();
        tokens
    }
}

/// Returns the position of the best hypothesis, given sums of log-probabilities and numbers of tokens
/// without `eot`: the largest sum divided by the length, or by `((5 + length) / 6)^alpha` with a
/// length penalty alpha. Of equal ones it is the first. `None` if there are none.
pub fn best_hypothesis(
    hypotheses: impl IntoIterator<Item = (f32, usize)>,
    length_penalty: Option<f32>,
) -> Option<usize> {
    let score = |(sum, length): (f32, usize)| {
        let length = length.max(1) as f64;
        let penalty = match length_penalty {
            Some(alpha) => ((5.0 + length) / 6.0).powf(f64::from(alpha)),
            None => length,
        };
        f64::from(sum) / penalty
    };
    let scores = hypotheses.into_iter().map(score).enumerate();
    let best = scores.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(at, _)| at)
}

/// Orders numbers that are not NaN, the largest first.
fn descending(a: f32, b: f32) -> Ordering {
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: BeamOptions = BeamOptions {
        beams: 2,
        patience: 1.0,
        length_penalty: None,
        eot: 9,
    };

    fn candidates(list: &[(u32, f32)]) -> Vec<Candidate> {
        let candidate = |&(token, logprob)| Candidate { token, logprob };
        list.iter().map(candidate).collect()
    }

    /// Runs a step and returns parents and tokens.
    fn step(search: &mut BeamSearch, list: &[(u32, f32)]) -> Vec<(u32, u32)> {
        let next = search.step(&candidates(list)).unwrap();
        next.iter().map(|b| (b.parent, b.token)).collect()
    }

    #[test]
    fn follows_best_sums() {
        let mut search = BeamSearch::new(OPTIONS, 4).unwrap();
        assert_eq!((search.live(), search.candidates()), (1, 3));
        let first = [(1, -0.5), (2, -1.0), (9, -3.0)];
        assert_eq!(step(&mut search, &first), [(0, 1), (0, 2)]);
        // -0.7 finished, -0.9, -1.2; the eot of the second beam ranks after the second beam.
        let second = [
            (9, -0.2),
            (3, -0.4),
            (4, -9.0),
            (5, -0.2),
            (9, -0.9),
            (6, -9.0),
        ];
        assert_eq!(step(&mut search, &second), [(0, 3), (1, 5)]);
        assert!(!search.is_complete());
        // One is finished, so the better of the unfinished counts: -0.9 / 2 is above -0.7 / 1.
        assert_eq!(search.best().tokens, [1, 3]);
        let third = [
            (9, -8.0),
            (3, -9.0),
            (4, -9.5),
            (9, -8.0),
            (3, -9.0),
            (4, -9.0),
        ];
        step(&mut search, &third);
        assert!(search.is_complete());
        assert_eq!(
            search.best(),
            Hypothesis {
                tokens: vec![1],
                sum_logprob: -0.5 - 0.2
            }
        );
        search.reset();
        assert_eq!(search.live(), 1);
        assert!(search.best().tokens.is_empty());
    }

    #[test]
    fn later_beam_of_equal_ones_is_first() {
        let mut search = BeamSearch::new(OPTIONS, 4).unwrap();
        step(&mut search, &[(1, -1.0), (2, -1.0), (9, -5.0)]);
        assert_eq!(search.best().tokens, [2]);
    }

    #[test]
    fn rejects_bad_arguments() {
        for options in [
            BeamOptions {
                beams: 0,
                ..OPTIONS
            },
            BeamOptions {
                beams: 65,
                ..OPTIONS
            },
            BeamOptions {
                patience: 0.1,
                ..OPTIONS
            },
            BeamOptions {
                patience: f32::NAN,
                ..OPTIONS
            },
            BeamOptions {
                length_penalty: Some(1.5),
                ..OPTIONS
            },
        ] {
            BeamSearch::new(options, 1).unwrap_err();
        }
        let mut search = BeamSearch::new(OPTIONS, 1).unwrap();
        search.step(&candidates(&[(1, -1.0)])).unwrap_err();
        let row = [(1, f32::NAN), (9, f32::NEG_INFINITY), (2, -1.0)];
        assert_eq!(step(&mut search, &row), [(0, 2)]);
        search.step(&candidates(&row)).unwrap_err();
    }

    #[test]
    fn impossible_candidates_are_ignored() {
        let mut search = BeamSearch::new(OPTIONS, 4).unwrap();
        let none = [
            (9, f32::NEG_INFINITY),
            (1, f32::NAN),
            (2, f32::NEG_INFINITY),
        ];
        assert_eq!(step(&mut search, &none), []);
        assert!(search.is_complete());
        assert!(search.best().tokens.is_empty());
        search.reset();
        assert!(!search.is_complete());
        let one = [(3, -0.5), (9, f32::NEG_INFINITY), (1, f32::NEG_INFINITY)];
        assert_eq!(step(&mut search, &one), [(0, 3)]);
        assert_eq!((search.live(), search.is_complete()), (1, false));
        assert_eq!(step(&mut search, &none), []);
        assert!(search.is_complete());
        assert_eq!(search.best().tokens, [3]);
        search.reset();
        step(&mut search, &one);
        // `eot` is the only token that may follow.
        let end = [(9, -0.25), (1, f32::NEG_INFINITY), (2, f32::NEG_INFINITY)];
        assert_eq!(step(&mut search, &end), []);
        assert!(search.is_complete());
        assert_eq!(search.best().sum_logprob, -0.75);
    }

    #[test]
    fn steps_do_not_allocate() {
        let options = BeamOptions {
            beams: 5,
            ..OPTIONS
        };
        let mut search = BeamSearch::new(options, 20).unwrap();
        let sizes = |s: &BeamSearch| {
            [
                s.nodes.capacity(),
                s.live.capacity(),
                s.next.capacity(),
                s.finished.capacity(),
                s.ranked.capacity(),
            ]
        };
        let before = sizes(&search);
        for at in 0..20 {
            let row: Vec<(u32, f32)> = (4..10).rev().map(|token| (token, -1.0)).collect();
            let rows = row.repeat(search.live());
            assert_eq!(step(&mut search, &rows).len(), 5, "{at}");
        }
        assert_eq!(sizes(&search), before);
        assert!(search.is_complete());
    }

    #[test]
    fn longer_hypotheses_need_larger_sums() {
        let all = [(-1.0, 2), (-1.8, 4), (-1.8, 4)];
        assert_eq!(best_hypothesis(all, None), Some(1));
        assert_eq!(best_hypothesis(all, Some(0.0)), Some(0));
        // 1.0 / 1 against 1.3 / (8 / 6).
        assert_eq!(best_hypothesis([(-1.0, 1), (-1.3, 3)], Some(1.0)), Some(1));
        assert_eq!(best_hypothesis([], None), None);
        assert_eq!(best_hypothesis([(-1.0, 0), (-0.5, 1)], None), Some(1));
    }
}
