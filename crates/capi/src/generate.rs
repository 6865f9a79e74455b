//! What is wanted of an answer, as C says it.
#![expect(unsafe_code, reason = "structs come through pointers from C")]

use super::grammar::TablaGrammar;
use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::pointers::{STRUCT_BYTES_MAX, read_sized, slice_of, texts_of, write_sized};
use super::sequence::TablaModel;
use std::ffi::c_char;
use tabla::error::{Context, Result, bail};
use tabla::op::sampling::for_each_sampling_parameter;
use tabla::{GenerateOptions, Overflow, Sampling, SpeculateOptions};

/// No guesses are made at the next tokens: `TablaGenerateOptions.speculate`.
pub const TABLA_SPECULATE_OFF: i32 = 0;
/// What followed the last tokens when they stood in the sequence before (prompt lookup).
pub const TABLA_SPECULATE_LOOKUP: i32 = 1;
/// What the model of `TablaGenerateOptions.draft` picks.
pub const TABLA_SPECULATE_DRAFT: i32 = 2;

/// A number that is added to the logit of a token.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaLogitBias {
    /// The token.
    pub token: u32,
    /// The number; minus infinity bans the token.
    pub bias: f32,
}

/// How tokens are picked, and how many. Zeros are not the defaults: `tabla_generate_options_init` fills
/// these in, `struct_size` too; pointers are NULL then. What is out of its range is
/// `TABLA_ERROR_ARGUMENT`, which names field and range. docs/sampling.md has the formulas and their order.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaGenerateOptions {
    /// `sizeof(TablaGenerateOptions)`.
    pub struct_size: u32,
    /// Tokens at most; 0 goes on until a stop token or a full context. Default 0.
    pub max_tokens: u32,
    /// Logits are divided by it; 0 takes the likeliest token. Default 0.8.
    pub temperature: f32,
    /// Only the `top_k` likeliest tokens; 0: off. Default 40.
    pub top_k: u32,
    /// Only the likeliest tokens that hold `top_p` of the probability; 1: off. Default 0.95.
    pub top_p: f32,
    /// Only tokens at least `min_p` times as likely as the likeliest; 0: off. Default 0.05.
    pub min_p: f32,
    /// Weakens tokens among the last `repeat_last`; 1: off. Default 1.
    pub repeat_penalty: f32,
    /// How many tokens back the penalties reach, 1024 at most. Default 64.
    pub repeat_last: u32,
    /// The same seed draws the same tokens. Default 0.
    pub seed: u64,
    /// Tokens of one submission to the device; 0 adapts. Default 0.
    pub chain: u32,
    /// Not 0: stop tokens are ordinary. Default 0.
    pub ignore_stops: u32,
    /// Not 0: a full context does not end the generation; the older half of the sequence is
    /// forgotten, and the rest computed anew. Default 0.
    pub context_shift: u32,
    /// Tokens at the front that a context shift keeps, half of the context at most. Default 0.
    pub keep: u32,
    /// So many tokens come before a stop token may. Default 0.
    pub min_tokens: u32,
    /// How likely each token was is told, and so many of the likeliest in its place, 20 at most; 0: the
    /// token's own alone; less than 0: nothing. Default -1.
    pub log_probs: i32,
    /// Taken off a token's logit as often as it stands among the last `repeat_last`. Default 0: off.
    pub frequency_penalty: f32,
    /// Taken off a token's logit once if it stands there. Default 0: off.
    pub presence_penalty: f32,
    /// Only tokens of the most typical surprise that hold so much of the probability. Default 1: off.
    pub typical_p: f32,
    /// Only logits within so many standard deviations of the largest. Default 0: off.
    pub top_n_sigma: f32,
    /// How far the temperature goes down and up with the entropy. Default 0: it stays.
    pub dynatemp_range: f32,
    /// The power of the entropy that it goes by. Default 1.
    pub dynatemp_exponent: f32,
    /// How likely all but the last of the top choices are taken away (XTC). Default 0: off.
    pub xtc_probability: f32,
    /// The probability from which on a token is a top choice. Default 0.1.
    pub xtc_threshold: f32,
    /// What a token loses that goes on with a repetition (DRY). Default 0: off.
    pub dry_multiplier: f32,
    /// By how much the loss grows with each token. Default 1.75.
    pub dry_base: f32,
    /// Tokens of a repetition that cost nothing yet. Default 2.
    pub dry_allowed_length: u32,
    /// How many tokens back DRY looks. Default: all.
    pub dry_last: u32,
    /// The surprise that tokens are held to, in bits (Mirostat 2). Default 0: off.
    pub mirostat_tau: f32,
    /// How fast Mirostat learns. Default 0.1.
    pub mirostat_eta: f32,
    /// `TABLA_SPECULATE_OFF`, `_LOOKUP` or `_DRAFT`. Default off.
    pub speculate: i32,
    /// Keep 0.
    pub reserved: u32,
    /// A smaller model with the same vocabulary, for `TABLA_SPECULATE_DRAFT`; else NULL.
    pub draft: *const TablaModel,
    /// What the answer follows, or NULL.
    pub grammar: *const TablaGrammar,
    /// Texts that end the answer, 64 at most of 1024 bytes each. No part of one comes out as text; its
    /// tokens stay in the sequence.
    pub stop: *const *const c_char,
    /// How many there are.
    pub stop_count: usize,
    /// Further tokens that end it, 32 at most with the model's own.
    pub stop_tokens: *const u32,
    /// How many there are.
    pub stop_tokens_count: usize,
    /// What is added to logits, of 512 tokens at most.
    pub logit_bias: *const TablaLogitBias,
    /// How many there are.
    pub logit_bias_count: usize,
    /// What repetitions end at for DRY; NULL takes the usual: line break, `:`, `"` and `*`.
    pub dry_breakers: *const *const c_char,
    /// How many there are.
    pub dry_breakers_count: usize,
}

macro_rules! sampling_options {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ident {
        off: $off:expr, default: $default:expr, range: [$min:expr, $max:expr],
        role: $role:ident, stage: $stage:ident, option: $option:literal, sampler: $sampler:ident
    })+) => {
        impl TablaGenerateOptions {
            pub(super) fn sampling(&self) -> Sampling {
                Sampling { $($name: self.$name,)+ seed: self.seed }
            }

            pub(super) fn defaults() -> Self {
                let how = GenerateOptions::default();
                Self {
                    $($name: how.sampling.$name,)+
                    seed: how.sampling.seed,
                    struct_size: Self::SIZE,
                    max_tokens: how.max_tokens,
                    chain: how.burst,
                    ignore_stops: u32::from(how.ignore_stops),
                    context_shift: 0,
                    keep: 0,
                    min_tokens: how.min_tokens,
                    log_probs: -1,
                    speculate: TABLA_SPECULATE_OFF,
                    reserved: 0,
                    draft: std::ptr::null(),
                    grammar: std::ptr::null(),
                    stop: std::ptr::null(),
                    stop_count: 0,
                    stop_tokens: std::ptr::null(),
                    stop_tokens_count: 0,
                    logit_bias: std::ptr::null(),
                    logit_bias_count: 0,
                    dry_breakers: std::ptr::null(),
                    dry_breakers_count: 0,
                }
            }
        }
    };
}
for_each_sampling_parameter!(sampling_options);

impl TablaGenerateOptions {
    #[expect(clippy::cast_possible_truncation, reason = "a small struct")]
    const SIZE: u32 = size_of::<Self>() as u32;

    /// What they say.
    ///
    /// # Safety
    ///
    /// Its pointers are NULL, handles, or point to as many values as the counts say.
    pub(super) unsafe fn generate(&self) -> Result<GenerateOptions> {
        if self.reserved != 0 {
            bail!(Argument, "reserved is {}, not 0", self.reserved);
        }
        // SAFETY: the caller's promise.
        let stop_tokens =
            unsafe { slice_of(self.stop_tokens, self.stop_tokens_count, "stop_tokens") }?;
        // SAFETY: the caller's promise.
        let logit_bias = unsafe { slice_of(self.logit_bias, self.logit_bias_count, "logit_bias") }?;
        let logit_bias = few(
            logit_bias,
            GenerateOptions::BIASES_MAX as usize,
            "logit_bias",
        )?;
        Ok(GenerateOptions {
            sampling: self.sampling(),
            max_tokens: self.max_tokens,
            burst: self.chain,
            ignore_stops: self.ignore_stops != 0,
            stop_tokens: few(stop_tokens, GenerateOptions::STOPS_MAX, "stop_tokens")?.to_vec(),
            // SAFETY: the caller's promise.
            stop: unsafe { few_texts(self.stop, self.stop_count, "stop") }?,
            overflow: match self.context_shift {
                0 => Overflow::Stop,
                _ => Overflow::Shift { keep: self.keep },
            },
            speculate: self.speculate()?,
            grammar: match self.grammar.is_null() {
                true => None,
                false => Some(resolve(self.grammar).context("grammar")?.compiled()),
            },
            logit_bias: logit_bias.iter().map(|b| (b.token, b.bias)).collect(),
            min_tokens: self.min_tokens,
            dry_breakers: match self.dry_breakers.is_null() {
                true => None,
                false => {
                    let (from, count) = (self.dry_breakers, self.dry_breakers_count);
                    // SAFETY: the caller's promise.
                    Some(unsafe { few_texts(from, count, "dry_breakers") }?)
                }
            },
            log_probs: u32::try_from(self.log_probs).ok(),
        })
    }

    fn speculate(&self) -> Result<SpeculateOptions> {
        Ok(match self.speculate {
            TABLA_SPECULATE_OFF => SpeculateOptions::Off,
            TABLA_SPECULATE_LOOKUP => SpeculateOptions::Lookup,
            TABLA_SPECULATE_DRAFT => {
                SpeculateOptions::Draft(resolve(self.draft).context("draft")?.model().clone())
            }
            other => bail!(
                Argument,
                "speculate {other} is none of 0 (off), 1 (lookup), 2 (draft)"
            ),
        })
    }
}

/// Holds a span to a number, before anything is copied of it.
fn few<'a, T>(values: &'a [T], most: usize, name: &str) -> Result<&'a [T]> {
    let count = values.len();
    if count > most {
        bail!(Argument, "{name}: {count} are over the limit of {most}");
    }
    Ok(values)
}

/// A few texts of C.
///
/// # Safety
///
/// `from` is NULL or points to `count` C strings.
unsafe fn few_texts(from: *const *const c_char, count: usize, name: &str) -> Result<Vec<String>> {
    // SAFETY: the caller's promise.
    let texts = unsafe { slice_of(from, count, name) }?;
    let texts = few(texts, GenerateOptions::STOP_STRINGS_MAX, name)?;
    // SAFETY: the caller's promise.
    let texts = unsafe { texts_of(texts, name) }?;
    Ok(texts.into_iter().map(str::to_string).collect())
}

/// Fills options with the defaults. `size` is `sizeof(TablaGenerateOptions)`.
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
        if options.is_null() {
            bail!(Argument, "options is NULL");
        }
        if size < size_of::<u32>() || size > STRUCT_BYTES_MAX {
            bail!(
                Argument,
                "size is {size}: pass sizeof(TablaGenerateOptions)"
            );
        }
        // SAFETY: the caller's room holds `size` bytes.
        unsafe { write_sized(&TablaGenerateOptions::defaults(), options, size) };
        Ok(())
    })
}

/// The options that a caller gives, or the defaults.
///
/// # Safety
///
/// `options` is NULL or points to a struct that begins with its size.
pub(super) unsafe fn options_of(
    options: *const TablaGenerateOptions,
) -> Result<TablaGenerateOptions> {
    // SAFETY: the caller's promise.
    unsafe { read_sized(options, TablaGenerateOptions::defaults()) }
}
