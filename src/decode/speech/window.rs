//! Decoding of a window: attempts at rising temperatures, as in OpenAI's `decode_with_fallback`.

use super::hypotheses::{Decoded, Hypotheses, Method};
use super::options::TranscribeOptions;
use super::passes::{Passes, Selection};
use crate::error::{Result, bail};
use crate::model::{BEAMS_MAX, LinkedTables};
use crate::speech::{
    Attempt, Attention, AttentionKind, Language, NEW_TOKENS_MAX, Prompt, SpecialTokens,
    TIMESTAMP_SECONDS, TimedWord, Timestamps, Verdict, Window, WindowSegments, align,
    compression_ratio, language_probabilities, probability, sot_sequence, split_window,
    split_words, temperatures, time_words,
};
use crate::text::{DecodeOptions, Tokenizer};

/// Upper bound of the attempts at a window: temperatures from 0 to 1 by at least 0.01.
const ATTEMPTS_MAX: u64 = 128;

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

/// A window that is being decoded.
#[derive(Debug)]
struct Current {
    window: Window,
    language: &'static Language,
    /// Tokens between the previous text and the text of the window.
    sequence: Vec<u32>,
    prompt: Prompt,
    /// Number of attempts before this one.
    attempts: usize,
    /// Probability of the no-speech token in this attempt.
    no_speech_prob: f64,
}

/// Decodes windows on the model's thread, a token of each hypothesis at a time.
#[derive(Debug)]
pub(super) struct WindowDecoder {
    pub(super) passes: Passes,
    pub(super) hypotheses: Hypotheses,
    options: TranscribeOptions,
    special: SpecialTokens,
    temperatures: Vec<f64>,
    current: Option<Current>,
}

impl WindowDecoder {
    pub(super) fn new(passes: Passes, options: &TranscribeOptions) -> Result<Self> {
        let special = passes.speech.tokens;
        Ok(Self {
            hypotheses: Hypotheses::new(options, special.eot)?,
            temperatures: temperatures(options.temperature, options.temperature_increment),
            options: options.clone(),
            current: None,
            passes,
            special,
        })
    }

    /// Encodes a window in window `slot` of the KV cache and samples its first tokens. Then
    /// [`Self::advance`] follows.
    ///
    /// # Errors
    ///
    /// `Cancelled`, and errors of the device.
    pub(super) fn start(
        &mut self,
        linked: &mut LinkedTables,
        slot: u32,
        request: WindowRequest,
    ) -> Result<()> {
        self.passes.enter(slot);
        let suppressed = crate::speech::suppressed(&self.special);
        self.passes.write_masks(linked, &suppressed)?;
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
        self.begin(
            linked,
            Current {
                prompt: Prompt::new(previous, &sequence, timestamps, &self.special),
                window: request.window,
                language,
                sequence,
                attempts: 0,
                no_speech_prob: 0.0,
            },
        )
    }

    /// Adds the tokens that were sampled last, and prepares the next step. Returns the text of the
    /// window if it is complete.
    ///
    /// # Errors
    ///
    /// `Cancelled`, and errors of the device.
    pub(super) fn advance(&mut self, linked: &mut LinkedTables) -> Result<Option<WindowText>> {
        loop {
            let Some(decoded) = self.hypotheses.extend(&mut self.passes, linked)? else {
                self.passes.prepare(linked, self.hypotheses.live())?;
                return Ok(None);
            };
            let Some(current) = self.current.take() else {
                bail!(Internal, "no window is being decoded");
            };
            let attempt = self.assess(linked, &current, &decoded)?;
            let is_last = current.attempts + 1 == self.temperatures.len();
            let verdict = if is_last {
                self.options.thresholds.judge_last(&attempt)
            } else {
                self.options.thresholds.judge(&attempt)
            };
            if verdict != Verdict::Retry {
                let text = self.text(linked, &current, decoded.tokens, attempt, verdict)?;
                return Ok(Some(text));
            }
            let attempts = current.attempts + 1;
            self.begin(
                linked,
                Current {
                    attempts,
                    ..current
                },
            )?;
        }
    }

    /// Computes the prompt and samples the first tokens of an attempt.
    fn begin(&mut self, linked: &mut LinkedTables, mut current: Current) -> Result<()> {
        let temperature = self.temperatures[current.attempts];
        let prompt = &current.prompt;
        let logits = self.passes.prompt(linked, &prompt.tokens, prompt.sot)?;
        current.no_speech_prob = f64::from(probability(logits, self.special.nospeech));
        self.passes.select(linked, self.selection(&current))?;
        let context = linked.facts.context as usize;
        let rest = (context + 1).saturating_sub(prompt.tokens.len());
        let limit = NEW_TOKENS_MAX.min(context / 2).min(rest);
        let method = if temperature > 0.0 {
            Method::Samples
        } else if self.options.beam_size > 1 {
            Method::Beams
        } else {
            Method::Greedy
        };
        self.current = Some(current);
        self.hypotheses
            .begin(&mut self.passes, linked, method, limit)
    }

    /// Assesses the text of an attempt.
    fn assess(
        &self,
        linked: &LinkedTables,
        current: &Current,
        decoded: &Decoded,
    ) -> Result<Attempt> {
        let Decoded {
            tokens,
            sum_logprob,
        } = decoded;
        if !sum_logprob.is_finite() || !current.no_speech_prob.is_finite() {
            return Err(linked.not_finite("the logits of a window are not finite"));
        }
        let text = text_of(&linked.tokenizer, &self.special, tokens)?;
        Ok(Attempt {
            avg_logprob: sum_logprob / (tokens.len() + 1) as f64,
            no_speech_prob: current.no_speech_prob,
            compression_ratio: compression_ratio(text.trim()),
        })
    }

    /// Returns the text of the last attempt.
    fn text(
        &mut self,
        linked: &mut LinkedTables,
        current: &Current,
        tokens: Vec<u32>,
        attempt: Attempt,
        verdict: Verdict,
    ) -> Result<WindowText> {
        let split = split_window(&tokens, &current.window, &self.special);
        let words = if self.options.word_timestamps && verdict == Verdict::Accept {
            let spans = split.spans.iter();
            let spans = spans.flat_map(|span| &tokens[span.tokens.clone()]);
            let text = spans.copied().filter(|token| *token < self.special.eot);
            let text: Vec<u32> = text.collect();
            self.words(linked, current, &text)?
        } else {
            Vec::new()
        };
        Ok(WindowText {
            tokens,
            temperature: self.temperatures[current.attempts],
            attempt,
            verdict,
            language: current.language,
            split,
            words,
        })
    }

    /// Returns the words of text tokens and their times in the window.
    fn words(
        &mut self,
        linked: &mut LinkedTables,
        current: &Current,
        text: &[u32],
    ) -> Result<Vec<TimedWord>> {
        let (window, sequence) = (&current.window, &current.sequence[..]);
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
        let words = split_words(text, &decode, current.language);
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

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "options are checked: at most 1500 timestamps"
    )]
    fn selection(&self, current: &Current) -> Selection {
        let latest = self.options.max_initial_timestamp / TIMESTAMP_SECONDS;
        // Every window and attempt has its own noise.
        let attempt = u64::from(current.window.seek) * ATTEMPTS_MAX + current.attempts as u64;
        let seed = attempt.wrapping_mul(u64::from(BEAMS_MAX));
        Selection {
            temperature: self.temperatures[current.attempts] as f32,
            seed: self.options.seed.wrapping_add(seed),
            initial_timestamps: match self.options.timestamps {
                true => latest.round() as u32 + 1,
                false => 0,
            },
        }
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
