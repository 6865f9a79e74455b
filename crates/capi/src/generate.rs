//! Generation options of the C API.
#![expect(unsafe_code, reason = "structs come through pointers from C")]

use super::chat_options::Chat;
use super::grammar::ConstrainedPart;
use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::options::generate::TablaGenerateOptions;
use super::pointers::{init_options, read_sized, slice_of, texts_of};
use std::ffi::c_char;
use tabla::error::{Context, bail};
use tabla::text::ChatFormat;
use tabla::{
    GenerateOptions, GrammarStart, Model, Overflow, ReasoningMarkers, Result, SpeculateOptions,
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

impl TablaGenerateOptions {
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
        // SAFETY: guaranteed by the caller.
        let options = unsafe { self.plain_options() }?;
        Ok(options
            .sampling(self.sampling())
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
        let defaults = TablaGenerateOptions::DEFAULT;
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
    unsafe { read_sized(options, TablaGenerateOptions::DEFAULT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_library() {
        // SAFETY: the pointers are NULL.
        let options = unsafe { TablaGenerateOptions::DEFAULT.answer() }.expect("valid");
        let expected = GenerateOptions::default();
        assert_eq!(format!("{:?}", options.options), format!("{expected:?}"));
    }
}
