//! Generation options of the C API.
#![expect(unsafe_code, reason = "structs come through pointers from C")]

use super::chat_options::{Chat, TablaChatOptions};
use super::grammar::{ConstrainedPart, TablaGrammar};
use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::pointers::{init_options, read_sized, slice_of, texts_of};
use super::sequence::TablaModel;
use std::ffi::c_char;
use tabla::error::{Context, bail};
use tabla::op::sampling::for_each_sampling_parameter;
use tabla::text::ChatFormat;
use tabla::{
    GenerateOptions, GrammarStart, Model, Overflow, ReasoningMarkers, Result, Sampling,
    SpeculateOptions,
};

/// No speculative decoding: `TablaGenerateOptions.speculate`.
pub const TABLA_SPECULATE_OFF: i32 = 0;
/// Prompt lookup: drafts the tokens that followed an earlier occurrence of the last tokens.
pub const TABLA_SPECULATE_LOOKUP: i32 = 1;
/// Draft model: drafts tokens with the model `TablaGenerateOptions.draft_model`.
pub const TABLA_SPECULATE_DRAFT: i32 = 2;
/// Drafting head: drafts tokens with a head of the model, which `TablaLoadOptions.mtp` or
/// `TablaLoadOptions.drafter_path` loads.
pub const TABLA_SPECULATE_HEAD: i32 = 3;

/// A value that is added to the logit of a token.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaLogitBias {
    /// Token id.
    pub token: u32,
    /// Value to add; minus infinity bans the token.
    pub bias: f32,
}

/// Options of sampling and generation. Zeros are not the defaults: initialize the struct with
/// `tabla_generate_options_init`, which also sets `struct_size` and sets pointers to NULL. A value
/// outside its range is `TABLA_ERROR_ARGUMENT`; the message names the field and the range.
/// docs/sampling.md has the formulas and the order of samplers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaGenerateOptions {
    /// `sizeof(TablaGenerateOptions)`.
    pub struct_size: u32,
    /// Maximum number of tokens to generate; 0: until a stop token or a full context. Default 0.
    pub max_tokens: u32,
    /// Divisor of the logits; 0: always the likeliest token. Default 0.8.
    pub temperature: f32,
    /// Number of likeliest tokens that are kept; 0: off. Default 40.
    pub top_k: u32,
    /// Probability mass of the likeliest tokens that are kept; 1: off. Default 0.95.
    pub top_p: f32,
    /// Minimum probability of a token relative to the likeliest one; 0: off. Default 0.05.
    pub min_p: f32,
    /// Penalty of tokens among the last `repeat_last_n`; 1: off. Default 1.
    pub repetition_penalty: f32,
    /// Number of recent tokens that the penalties apply to, at most 1024. Default 64.
    pub repeat_last_n: u32,
    /// Seed of the random numbers; the same seed gives the same tokens. Default 0.
    pub seed: u64,
    /// Number of tokens in one submission to the device; 0: adaptive. Default 0.
    pub burst: u32,
    /// Not 0: stop tokens do not end the answer. Default 0.
    pub ignore_eos: u32,
    /// Not 0: when the context is full, discards the older half of the sequence, recomputes the
    /// rest and continues. Default 0.
    pub context_shift: u32,
    /// Number of tokens at the start of the sequence that a context shift keeps, at most half of
    /// the context. Default 0.
    pub n_keep: u32,
    /// Minimum number of tokens before a stop token is allowed. Default 0.
    pub min_tokens: u32,
    /// Number of likeliest tokens to return with log-probabilities for each position, at most 20;
    /// 0: only the sampled token; less than 0: none. Default -1.
    pub logprobs: i32,
    /// Amount subtracted from the logit of a token for each occurrence among the last
    /// `repeat_last_n`. Default 0: off.
    pub frequency_penalty: f32,
    /// Amount subtracted once from the logit of a token that occurs among the last `repeat_last_n`.
    /// Default 0: off.
    pub presence_penalty: f32,
    /// Probability mass of the most typical tokens that are kept (locally typical sampling).
    /// Default 1: off.
    pub typical_p: f32,
    /// Maximum distance of a logit from the largest one, in standard deviations. Default 0: off.
    pub top_n_sigma: f32,
    /// Maximum change of the temperature with the entropy, in both directions (dynamic
    /// temperature). Default 0: off.
    pub dynatemp_range: f32,
    /// Exponent of the entropy in the dynamic temperature. Default 1.
    pub dynatemp_exponent: f32,
    /// Probability of removing all tokens above `xtc_threshold` except the least likely of them
    /// (XTC). Default 0: off.
    pub xtc_probability: f32,
    /// Minimum probability of the tokens that XTC removes. Default 0.1.
    pub xtc_threshold: f32,
    /// Penalty of a token that extends a repetition (DRY). Default 0: off.
    pub dry_multiplier: f32,
    /// Growth of the DRY penalty with each repeated token. Default 1.75.
    pub dry_base: f32,
    /// Length of the longest repetition without a DRY penalty, in tokens. Default 2.
    pub dry_allowed_length: u32,
    /// Number of recent tokens that DRY searches for repetitions. Default: all.
    pub dry_penalty_last_n: u32,
    /// Target surprise of a token in bits (Mirostat 2). Default 0: off.
    pub mirostat_tau: f32,
    /// Learning rate of Mirostat. Default 0.1.
    pub mirostat_eta: f32,
    /// Speculative decoding: `TABLA_SPECULATE_OFF`, `_LOOKUP`, `_DRAFT` or `_HEAD`. Default
    /// off.
    pub speculate: i32,
    /// Must be 0.
    pub reserved: u32,
    /// Draft model with the same vocabulary, for `TABLA_SPECULATE_DRAFT`; otherwise NULL.
    pub draft_model: *const TablaModel,
    /// Grammar that constrains the answer, or NULL. With `chat`, the reasoning before it is free, and
    /// a stop token within the reasoning closes the reasoning.
    pub grammar: *const TablaGrammar,
    /// Stop strings, which end the answer: at most 64, of at most 1024 bytes each. A stop string is
    /// not part of the returned text; its tokens stay in the sequence. With `chat`, they do not apply
    /// to the reasoning.
    pub stop: *const *const c_char,
    /// Number of stop strings.
    pub stop_count: usize,
    /// Additional stop tokens, at most 32 together with the model's own.
    pub stop_token_ids: *const u32,
    /// Number of additional stop tokens.
    pub stop_token_ids_count: usize,
    /// Logit biases, at most 512.
    pub logit_bias: *const TablaLogitBias,
    /// Number of logit biases.
    pub logit_bias_count: usize,
    /// Strings that end a repetition for DRY. NULL: line break, `:`, `"` and `*`.
    pub dry_sequence_breakers: *const *const c_char,
    /// Number of DRY breakers.
    pub dry_sequence_breakers_count: usize,
    /// Options that the prompt was encoded with by `tabla_model_tokenize_chat`: the answer may have
    /// reasoning in the format of their chat template. NULL: the prompt is no conversation.
    /// `tabla_session_chat` and `tabla_session_begin_chat` use their own.
    pub chat: *const TablaChatOptions,
    /// Maximum number of tokens of the reasoning, with `chat`; then it is closed. Less than 0: no
    /// maximum. Default -1.
    pub reasoning_budget: i64,
}

/// Options of an answer whose prompt is not known yet.
pub(super) struct AnswerOptions {
    options: GenerateOptions,
    part: ConstrainedPart,
    chat: Option<Chat>,
}

impl AnswerOptions {
    /// Returns the options without those that depend on the prompt.
    pub(super) fn independent(&self) -> &GenerateOptions {
        &self.options
    }

    /// Returns the options of the answer to a prompt. `chat` are the options of its conversation, if
    /// the call has them.
    pub(super) fn after(
        &self,
        prompt: &[u32],
        chat: Option<&Chat>,
        model: &Model,
    ) -> Result<GenerateOptions> {
        let options = self.options.clone();
        let Some(chat) = chat.or(self.chat.as_ref()) else {
            return Ok(options);
        };
        let format = chat.format(model)?;
        let end = ChatFormat::prompt_end(model.tokenizer(), prompt);
        let options = options.reasoning(ReasoningMarkers::of_format(&format, &end));
        Ok(match (self.part, &options.grammar) {
            (ConstrainedPart::Content, Some(_)) => {
                options.grammar_start(GrammarStart::of_content(&format))
            }
            _ => options,
        })
    }
}

macro_rules! sampling_options {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ident {
        off: $off:expr, default: $default:expr, range: [$min:expr, $max:expr],
        role: $role:ident, stage: $stage:ident, option: $option:literal, sampler: $sampler:ident
    })+) => {
        impl TablaGenerateOptions {
            pub(super) fn sampling(&self) -> Sampling {
                Sampling::default()$(.$name(self.$name))+.seed(self.seed)
            }

            pub(super) fn defaults() -> Self {
                let defaults = GenerateOptions::default();
                Self {
                    $($name: defaults.sampling.$name,)+
                    seed: defaults.sampling.seed,
                    struct_size: Self::SIZE,
                    max_tokens: defaults.max_tokens,
                    burst: defaults.burst,
                    ignore_eos: u32::from(defaults.ignore_eos),
                    context_shift: 0,
                    n_keep: 0,
                    min_tokens: defaults.min_tokens,
                    logprobs: -1,
                    speculate: TABLA_SPECULATE_OFF,
                    reserved: 0,
                    draft_model: std::ptr::null(),
                    grammar: std::ptr::null(),
                    stop: std::ptr::null(),
                    stop_count: 0,
                    stop_token_ids: std::ptr::null(),
                    stop_token_ids_count: 0,
                    logit_bias: std::ptr::null(),
                    logit_bias_count: 0,
                    dry_sequence_breakers: std::ptr::null(),
                    dry_sequence_breakers_count: 0,
                    chat: std::ptr::null(),
                    reasoning_budget: -1,
                }
            }
        }
    };
}
for_each_sampling_parameter!(sampling_options);

impl TablaGenerateOptions {
    #[expect(clippy::cast_possible_truncation, reason = "a small struct")]
    const SIZE: u32 = size_of::<Self>() as u32;

    /// Converts the options.
    ///
    /// # Safety
    ///
    /// The pointers are NULL, handles, or point to as many values as the counts.
    pub(super) unsafe fn answer(&self) -> Result<AnswerOptions> {
        let grammar = match self.grammar.is_null() {
            true => None,
            false => Some(resolve(self.grammar).context("grammar")?),
        };
        // SAFETY: guaranteed by the caller.
        let options = unsafe { self.generate() }?;
        let budget = u32::try_from(self.reasoning_budget.min(u32::MAX.into()));
        Ok(AnswerOptions {
            options: options
                .grammar(grammar.as_ref().map(|grammar| grammar.compiled()))
                .reasoning_budget(budget.ok()),
            part: grammar.map_or(ConstrainedPart::Content, |grammar| grammar.part()),
            chat: match self.chat.is_null() {
                true => None,
                // SAFETY: guaranteed by the caller.
                false => Some(unsafe { Chat::read(self.chat) }.context("chat")?),
            },
        })
    }

    /// Converts the options that need no handle of a grammar.
    ///
    /// # Safety
    ///
    /// As for [`Self::answer`].
    unsafe fn generate(&self) -> Result<GenerateOptions> {
        if self.reserved != 0 {
            bail!(Argument, "expected reserved to be 0, got {}", self.reserved);
        }
        // SAFETY: guaranteed by the caller.
        let stop_token_ids = unsafe {
            slice_of(
                self.stop_token_ids,
                self.stop_token_ids_count,
                "stop_token_ids",
            )
        }?;
        // SAFETY: guaranteed by the caller.
        let stop = unsafe { strings_of(self.stop, self.stop_count, "stop") }?;
        // SAFETY: guaranteed by the caller.
        let logit_bias = unsafe { slice_of(self.logit_bias, self.logit_bias_count, "logit_bias") }?;
        let logit_bias = check_count(
            logit_bias,
            GenerateOptions::BIASES_MAX as usize,
            "logit_bias",
        )?;
        Ok(GenerateOptions::default()
            .sampling(self.sampling())
            .max_tokens(self.max_tokens)
            .burst(self.burst)
            .ignore_eos(self.ignore_eos != 0)
            .stop_token_ids(
                check_count(stop_token_ids, GenerateOptions::STOPS_MAX, "stop_token_ids")?.to_vec(),
            )
            .stop(stop)
            .overflow(match self.context_shift {
                0 => Overflow::Stop,
                _ => Overflow::Shift {
                    n_keep: self.n_keep,
                },
            })
            .speculate(self.speculate()?)
            .logit_bias(logit_bias.iter().map(|b| (b.token, b.bias)).collect())
            .min_tokens(self.min_tokens)
            .dry_sequence_breakers(match self.dry_sequence_breakers.is_null() {
                true => None,
                false => {
                    let (from, count) =
                        (self.dry_sequence_breakers, self.dry_sequence_breakers_count);
                    // SAFETY: guaranteed by the caller.
                    Some(unsafe { strings_of(from, count, "dry_sequence_breakers") }?)
                }
            })
            .logprobs(u32::try_from(self.logprobs).ok()))
    }

    fn speculate(&self) -> Result<SpeculateOptions> {
        Ok(match self.speculate {
            TABLA_SPECULATE_OFF => SpeculateOptions::Off,
            TABLA_SPECULATE_LOOKUP => SpeculateOptions::Lookup,
            TABLA_SPECULATE_HEAD => SpeculateOptions::Head,
            TABLA_SPECULATE_DRAFT => SpeculateOptions::Draft(
                resolve(self.draft_model)
                    .context("draft_model")?
                    .model()
                    .clone(),
            ),
            other => bail!(
                Argument,
                "invalid speculate {other}: expected one of 0 (off), 1 (lookup), 2 (draft), 3 (head)"
            ),
        })
    }
}

/// Checks the number of values before they are copied.
fn check_count<'a, T>(values: &'a [T], max: usize, name: &str) -> Result<&'a [T]> {
    let count = values.len();
    if count > max {
        bail!(Argument, "too many values in {name}: {count}, limit {max}");
    }
    Ok(values)
}

/// Converts C strings to owned strings, at most [`GenerateOptions::STOP_STRINGS_MAX`].
///
/// # Safety
///
/// `from` is NULL or points to `count` C strings.
unsafe fn strings_of(from: *const *const c_char, count: usize, name: &str) -> Result<Vec<String>> {
    // SAFETY: guaranteed by the caller.
    let texts = unsafe { slice_of(from, count, name) }?;
    let texts = check_count(texts, GenerateOptions::STOP_STRINGS_MAX, name)?;
    // SAFETY: guaranteed by the caller.
    let texts = unsafe { texts_of(texts, name) }?;
    Ok(texts.into_iter().map(str::to_string).collect())
}

/// Sets options to the defaults. `size` is `sizeof(TablaGenerateOptions)`.
///
/// # Safety
///
/// `options` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_generate_options_init(
    options: *mut TablaGenerateOptions,
    size: usize,
) -> TablaStatus {
    guard(|| {
        let defaults = TablaGenerateOptions::defaults();
        // SAFETY: guaranteed by the caller.
        unsafe { init_options(options, size, "TablaGenerateOptions", &defaults) }
    })
}

/// Reads the caller's options, or the defaults for NULL.
///
/// # Safety
///
/// `options` is NULL or points to a struct with `struct_size` set.
pub(super) unsafe fn options_of(
    options: *const TablaGenerateOptions,
) -> Result<TablaGenerateOptions> {
    // SAFETY: guaranteed by the caller.
    unsafe { read_sized(options, TablaGenerateOptions::defaults()) }
}
