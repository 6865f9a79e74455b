//! Decoding of a window: attempts at rising temperatures, as in OpenAI's `decode_with_fallback`.

use super::options::TranscribeOptions;
use super::passes::{Passes, Selection};
use crate::error::{Result, bail};
use crate::model::LinkedTables;
use crate::op::table::SamplingStage;
use crate::speech::{
    Attempt, Attention, AttentionKind, BeamSearch, Candidate, Language, NEW_TOKENS_MAX, Prompt,
    SpecialTokens, TIMESTAMP_SECONDS, TimedWord, Timestamps, Verdict, Window, WindowSegments,
    align, best_hypothesis, compression_ratio, language_probabilities, probability, sot_sequence,
    split_window, split_words, temperatures, time_words,
};
use crate::text::{DecodeOptions, Tokenizer};

/// A window of a recording.
#[derive(Debug)]
pub(super) struct WindowRequest {
    /// Normalized spectrogram, `[frames, mels]`.
    pub(super) mel: Vec<f32>,
    /// Tokens of the text before.
    pub(super) previous: Vec<u32>,
    /// Language; `None`: to be detected.
    pub(super) language: Option<&'static Language>,
    /// Place of the window in the recording.
    pub(super) window: Window,
}

/// Text of a window.
#[derive(Debug)]
pub(super) struct WindowText {
    /// Tokens, timestamps included, without `eot`.
    pub(super) tokens: Vec<u32>,
    pub(super) temperature: f64,
    pub(super) attempt: Attempt,
    pub(super) verdict: Verdict,
    pub(super) language: &'static Language,
    /// Segments of the tokens.
    pub(super) split: WindowSegments,
    /// Words of all segments, if they were requested.
    pub(super) words: Vec<TimedWord>,
}

/// Tokens without `eot`, and the sum of their log-probabilities with `eot`.
struct Decoded {
    tokens: Vec<u32>,
    sum_logprob: f64,
}

/// Decodes windows on the model's thread.
#[derive(Debug)]
pub(super) struct WindowDecoder {
    passes: Passes,
    options: TranscribeOptions,
    special: SpecialTokens,
    beam_search: BeamSearch,
    candidates: Vec<Candidate>,
    temperatures: Vec<f64>,
    /// Whether the masks were written to the device.
    has_masks: bool,
}

impl WindowDecoder {
    pub(super) fn new(passes: Passes, options: &TranscribeOptions) -> Result<Self> {
        let special = passes.speech.tokens;
        Ok(Self {
            beam_search: BeamSearch::new(options.beams(special.eot), NEW_TOKENS_MAX)?,
            candidates: Vec::new(),
            temperatures: temperatures(options.temperature, options.temperature_increment),
            options: options.clone(),
            has_masks: false,
            passes,
            special,
        })
    }

    /// Computes the text of a window.
    ///
    /// # Errors
    ///
    /// `Cancelled`, and errors of the device.
    pub(super) fn decode(
        &mut self,
        linked: &mut LinkedTables,
        request: &WindowRequest,
    ) -> Result<WindowText> {
        if !self.has_masks {
            let suppressed = crate::speech::suppressed(&self.special);
            self.passes.write_masks(linked, &suppressed)?;
            self.has_masks = true;
        }
        self.passes.encode(linked, &request.mel)?;
        let language = match request.language {
            Some(language) => language,
            None => self.detect_language(linked)?,
        };
        let sequence = sot_sequence(&self.special, language, self.options.task)?;
        let timestamps = if self.options.timestamps {
            Timestamps::On
        } else {
            Timestamps::Off
        };
        // Half of the context, as for new tokens; files may have a shorter one than 448.
        let most = (linked.facts.context / 2) as usize - 1;
        let previous = &request.previous[request.previous.len().saturating_sub(most)..];
        let prompt = Prompt::new(previous, &sequence, timestamps, &self.special);
        let last = self.temperatures.len() - 1;
        for at in 0..=last {
            let temperature = self.temperatures[at];
            let (tokens, attempt) = self.attempt(linked, &prompt, temperature)?;
            let verdict = if at == last {
                self.options.thresholds.judge_last(&attempt)
            } else {
                self.options.thresholds.judge(&attempt)
            };
            if verdict != Verdict::Retry {
                let split = split_window(&tokens, &request.window, &self.special);
                let words = if self.options.word_timestamps && verdict == Verdict::Accept {
                    let spans = split
                        .spans
                        .iter()
                        .flat_map(|span| &tokens[span.tokens.clone()]);
                    let text = spans.copied().filter(|token| *token < self.special.eot);
                    let text: Vec<u32> = text.collect();
                    self.words(linked, &sequence, &text, (request.window, language))?
                } else {
                    Vec::new()
                };
                return Ok(WindowText {
                    tokens,
                    temperature,
                    attempt,
                    verdict,
                    language,
                    split,
                    words,
                });
            }
        }
        unreachable!("the last attempt is not repeated")
    }

    /// Returns the words of text tokens and their times in the window.
    fn words(
        &mut self,
        linked: &mut LinkedTables,
        sequence: &[u32],
        text: &[u32],
        (window, language): (Window, &Language),
    ) -> Result<Vec<TimedWord>> {
        if text.is_empty() || window.frames < 2 {
            return Ok(Vec::new());
        }
        let ends = [self.special.notimestamps, self.special.eot];
        let tokens = [sequence, &ends[..1], text, &ends[1..]].concat();
        let context = self.passes.speech.context as usize;
        let columns = context.min(window.frames as usize / 2);
        let (values, probabilities) = self.passes.align(linked, &tokens, columns)?;
        let attention = Attention {
            values: &values,
            kind: AttentionKind::Scores,
            rows: tokens.len(),
            columns,
        };
        let starts = align(&attention, window.frames, sequence.len()..tokens.len() - 1)?;
        let tokenizer = &linked.tokenizer;
        let decode = |ids: &[u32]| {
            ids.iter()
                .flat_map(|id| tokenizer.token_bytes(*id))
                .copied()
                .collect()
        };
        let words = split_words(text, &decode, language);
        time_words(
            words,
            &starts,
            &probabilities[sequence.len()..][..text.len()],
        )
    }

    /// Returns the most likely language of the window.
    fn detect_language(&mut self, linked: &mut LinkedTables) -> Result<&'static Language> {
        let special = self.special;
        let english = Language::find("en")?;
        if !special.is_multilingual() {
            return Ok(english);
        }
        let logits = self.passes.prompt(linked, &[special.sot], 0)?;
        let probabilities = language_probabilities(logits, &special);
        let indices = (0..).zip(&probabilities);
        let best = indices.max_by(|(_, a), (_, b)| a.total_cmp(b));
        let best = best.and_then(|(index, _)| special.language(index));
        Ok(best.unwrap_or(english))
    }

    /// Returns tokens and their assessment.
    fn attempt(
        &mut self,
        linked: &mut LinkedTables,
        prompt: &Prompt,
        temperature: f64,
    ) -> Result<(Vec<u32>, Attempt)> {
        let logits = self.passes.prompt(linked, &prompt.tokens, prompt.sot)?;
        let no_speech_prob = f64::from(probability(logits, self.special.nospeech));
        self.passes.select(linked, self.selection(temperature))?;
        let context = linked.facts.context as usize;
        let rest = (context + 1).saturating_sub(prompt.tokens.len());
        let limit = NEW_TOKENS_MAX.min(context / 2).min(rest);
        let decoded = if temperature > 0.0 {
            self.sample(linked, limit)?
        } else if self.options.beam_size > 1 {
            self.search(linked, limit)?
        } else {
            self.sample_beams(linked, 1, limit, SamplingStage::Greedy)?
        };
        let Decoded {
            tokens,
            sum_logprob,
        } = decoded;
        if !sum_logprob.is_finite() || !no_speech_prob.is_finite() {
            bail!(
                Format,
                "the logits of the model are not finite: its weights are damaged"
            );
        }
        let text = text_of(&linked.tokenizer, &self.special, &tokens)?;
        let attempt = Attempt {
            avg_logprob: sum_logprob / (tokens.len() + 1) as f64,
            no_speech_prob,
            compression_ratio: compression_ratio(text.trim()),
        };
        Ok((tokens, attempt))
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "options are checked: at most 1500 timestamps"
    )]
    fn selection(&self, temperature: f64) -> Selection {
        let latest = self.options.max_initial_timestamp / TIMESTAMP_SECONDS;
        Selection {
            temperature: temperature as f32,
            seed: self.options.seed,
            initial_timestamps: match self.options.timestamps {
                true => latest.round() as u32 + 1,
                false => 0,
            },
        }
    }

    /// Returns the best of several samples.
    fn sample(&mut self, linked: &mut LinkedTables, limit: usize) -> Result<Decoded> {
        let count = self.options.best_of as usize;
        self.sample_beams(linked, count, limit, SamplingStage::Sampled)
    }

    /// Samples `count` texts and returns the best one.
    fn sample_beams(
        &mut self,
        linked: &mut LinkedTables,
        count: usize,
        limit: usize,
        stage: SamplingStage,
    ) -> Result<Decoded> {
        let passes = &mut self.passes;
        let prompt = passes.beams[0].len();
        passes.fork(linked, count)?;
        passes.sample_first(linked, count, stage)?;
        let mut live: Vec<usize> = (0..count).collect();
        let mut sums = vec![0.0f32; count];
        loop {
            let mut at = 0;
            while let Some(&beam) = live.get(at) {
                let result = passes.logprobs[beam];
                sums[beam] += result.logprob;
                let done = result.token == self.special.eot;
                if !done {
                    passes.push(linked, beam, result.token)?;
                }
                if done || passes.beams[beam].len() - prompt == limit {
                    live.remove(at);
                } else {
                    at += 1;
                }
            }
            if live.is_empty() {
                break;
            }
            passes.step(linked, &live, stage)?;
        }
        let lengths = passes.beams[..count].iter().map(|beam| beam.len() - prompt);
        let ranks = sums.iter().copied().zip(lengths);
        let best = best_hypothesis(ranks, self.options.length_penalty).unwrap_or(0);
        Ok(Decoded {
            tokens: passes.beams[best][prompt..].to_vec(),
            sum_logprob: f64::from(sums[best]),
        })
    }

    /// Returns the result of a beam search.
    fn search(&mut self, linked: &mut LinkedTables, limit: usize) -> Result<Decoded> {
        let (passes, search) = (&mut self.passes, &mut self.beam_search);
        search.reset();
        let width = search.candidates();
        passes.sample_first(linked, 1, SamplingStage::Greedy)?;
        let mut parents = [0; 8];
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        for steps in 1..=limit {
            self.candidates.clear();
            for result in &passes.logprobs[..search.live()] {
                let found = (result.count as usize).min(width);
                let pairs = result.tokens.iter().zip(&result.logprobs).take(found);
                let candidates = pairs.map(|(&token, &logprob)| Candidate { token, logprob });
                self.candidates.extend(candidates);
                let missing = Candidate {
                    token: self.special.eot,
                    logprob: f32::NEG_INFINITY,
                };
                self.candidates.extend((found..width).map(|_| missing));
            }
            let next = search.step(&self.candidates)?;
            let count = next.len();
            for (parent, beam) in parents.iter_mut().zip(next) {
                *parent = beam.parent as usize;
            }
            passes.reorder(linked, &parents[..count])?;
            for (beam, next) in next.iter().enumerate() {
                passes.push(linked, beam, next.token)?;
            }
            if search.is_complete() || count == 0 || steps == limit {
                break;
            }
            passes.step(linked, &all[..count], SamplingStage::Greedy)?;
        }
        let best = search.best();
        Ok(Decoded {
            tokens: best.tokens,
            sum_logprob: f64::from(best.sum_logprob),
        })
    }
}

/// Returns the text of tokens without special tokens, which may be ordinary tokens of a
/// `tokenizer.json`. U+FFFD replaces an incomplete character.
pub(super) fn text_of(
    tokenizer: &Tokenizer,
    special: &SpecialTokens,
    tokens: &[u32],
) -> Result<String> {
    let text = tokens.iter().copied().filter(|token| *token < special.eot);
    let text: Vec<u32> = text.collect();
    tokenizer.decode_lossy(&text, DecodeOptions::default())
}
