//! Hypotheses of an attempt at a window: samples of which the best is kept, or beams.

use super::options::TranscribeOptions;
use super::passes::Passes;
use crate::error::Result;
use crate::exec::state::NO_TOKEN;
use crate::model::{BEAMS_MAX, LinkedTables};
use crate::op::table::SamplingStage;
use crate::speech::{BeamSearch, Candidate, NEW_TOKENS_MAX, best_hypothesis};

/// How an attempt finds its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// The most likely tokens.
    Greedy,
    /// Several random texts.
    Samples,
    Beams,
}

/// Tokens without `eot`, and the sum of their log-probabilities with `eot`.
pub(super) struct Decoded {
    pub(super) tokens: Vec<u32>,
    pub(super) sum_logprob: f64,
}

/// The hypotheses of an attempt.
#[derive(Debug)]
pub(super) struct Hypotheses {
    method: Method,
    best_of: usize,
    length_penalty: Option<f32>,
    eot: u32,
    search: BeamSearch,
    candidates: Vec<Candidate>,
    /// Beams that the next step computes, in ascending order.
    live: Vec<usize>,
    /// Sum of the log-probabilities of each sample.
    sums: Vec<f32>,
    /// Tokens of the prompt.
    prompt: usize,
    /// Number of new tokens, and its maximum.
    steps: usize,
    limit: usize,
}

impl Hypotheses {
    /// Prepares attempts.
    ///
    /// # Errors
    ///
    /// `Argument` for options of beam search that are out of range.
    pub(super) fn new(options: &TranscribeOptions, eot: u32) -> Result<Self> {
        let beams = BEAMS_MAX as usize;
        Ok(Self {
            method: Method::Greedy,
            best_of: options.best_of as usize,
            length_penalty: options.length_penalty,
            eot,
            search: BeamSearch::new(options.beams(eot), NEW_TOKENS_MAX)?,
            candidates: Vec::new(),
            live: Vec::with_capacity(beams),
            sums: Vec::with_capacity(beams),
            prompt: 0,
            steps: 0,
            limit: 0,
        })
    }

    /// Samples the first tokens after the prompt, whose logits are on the device. At most `limit` tokens
    /// follow it.
    pub(super) fn begin(
        &mut self,
        passes: &mut Passes,
        linked: &mut LinkedTables,
        method: Method,
        limit: usize,
    ) -> Result<()> {
        let count = match method {
            Method::Samples => self.best_of,
            Method::Greedy | Method::Beams => 1,
        };
        self.method = method;
        self.prompt = passes.beams[0].len();
        (self.steps, self.limit) = (0, limit);
        self.search.reset();
        self.sums.clear();
        self.sums.resize(count, 0.0);
        self.live.clear();
        self.live.extend(0..count);
        passes.fork(linked, count)?;
        passes.sample_first(linked, count, self.stage())
    }

    /// Beams that the next step computes, in ascending order.
    pub(super) fn live(&self) -> &[usize] {
        &self.live
    }

    /// Number of beams whose results are read after a step.
    pub(super) fn results(&self) -> usize {
        self.live.last().map_or(0, |last| last + 1)
    }

    /// Returns the stage that samples the next tokens.
    pub(super) fn stage(&self) -> SamplingStage {
        match self.method {
            Method::Samples => SamplingStage::Sampled,
            Method::Greedy | Method::Beams => SamplingStage::Greedy,
        }
    }

    /// Adds the tokens that were sampled last. Returns the best text if the attempt has ended.
    pub(super) fn extend(
        &mut self,
        passes: &mut Passes,
        linked: &mut LinkedTables,
    ) -> Result<Option<Decoded>> {
        self.steps += 1;
        match self.method {
            Method::Greedy | Method::Samples => self.extend_samples(passes, linked),
            Method::Beams => self.extend_beams(passes, linked),
        }
    }

    fn extend_samples(
        &mut self,
        passes: &mut Passes,
        linked: &mut LinkedTables,
    ) -> Result<Option<Decoded>> {
        let mut at = 0;
        while let Some(&beam) = self.live.get(at) {
            let result = passes.logprobs[beam];
            check_token(result.token, linked)?;
            self.sums[beam] += result.logprob;
            let done = result.token == self.eot;
            if !done {
                passes.push(linked, beam, result.token)?;
            }
            if done || self.steps >= self.limit {
                self.live.remove(at);
            } else {
                at += 1;
            }
        }
        if !self.live.is_empty() {
            return Ok(None);
        }
        let prompt = self.prompt;
        let beams = &passes.beams[..self.sums.len()];
        let lengths = beams.iter().map(|beam| beam.len() - prompt);
        let ranks = self.sums.iter().copied().zip(lengths);
        let best = best_hypothesis(ranks, self.length_penalty).unwrap_or(0);
        Ok(Some(Decoded {
            tokens: beams[best][prompt..].to_vec(),
            sum_logprob: f64::from(self.sums[best]),
        }))
    }

    fn extend_beams(
        &mut self,
        passes: &mut Passes,
        linked: &mut LinkedTables,
    ) -> Result<Option<Decoded>> {
        let search = &mut self.search;
        let width = search.candidates();
        self.candidates.clear();
        for result in &passes.logprobs[..search.live()] {
            check_token(result.token, linked)?;
            let found = (result.count as usize).min(width);
            let pairs = result.tokens.iter().zip(&result.logprobs).take(found);
            let candidates = pairs.map(|(&token, &logprob)| Candidate { token, logprob });
            self.candidates.extend(candidates);
            let missing = Candidate {
                token: self.eot,
                logprob: f32::NEG_INFINITY,
            };
            self.candidates.extend((found..width).map(|_| missing));
        }
        let next = search.step(&self.candidates)?;
        let count = next.len();
        let mut parents = [0; BEAMS_MAX as usize];
        for (parent, beam) in parents.iter_mut().zip(next) {
            *parent = beam.parent as usize;
        }
        passes.reorder(linked, &parents[..count])?;
        for (beam, next) in next.iter().enumerate() {
            passes.push(linked, beam, next.token)?;
        }
        self.live.clear();
        self.live.extend(0..count);
        if !(search.is_complete() || count == 0 || self.steps >= self.limit) {
            return Ok(None);
        }
        let best = search.best();
        Ok(Some(Decoded {
            tokens: best.tokens,
            sum_logprob: f64::from(best.sum_logprob),
        }))
    }
}

/// Checks that a token was sampled.
fn check_token(token: u32, linked: &LinkedTables) -> Result<()> {
    if token == NO_TOKEN {
        return Err(linked.not_finite("no logit of a window is finite"));
    }
    Ok(())
}
