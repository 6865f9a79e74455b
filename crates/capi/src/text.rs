//! Functions of the tokenizer.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::pointers::{copy_out, out_of, slice_of};
use super::sequence::TablaModel;
use std::ffi::c_char;
use tabla::error::bail;
use tabla::text::{DecodeOptions, EncodeOptions, SpecialTokens};

/// Adds the special tokens at the start or end of a text, such as BOS: `tabla_model_tokenize`.
pub const TABLA_TOKENIZE_ADD_SPECIAL: u32 = 1;
/// Parses names of special tokens in the text as those tokens. Do not use it for text from users.
pub const TABLA_TOKENIZE_PARSE_SPECIAL: u32 = 2;

/// Encodes UTF-8 text to token ids. `flags` is a combination of `TABLA_TOKENIZE_*`. If `tokens` is
/// NULL, only `count` is written.
///
/// # Safety
///
/// `text` points to `text_bytes` bytes; `tokens` is NULL or points to space for `capacity` ids;
/// `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_tokenize(
    model: *const TablaModel,
    text: *const c_char,
    text_bytes: usize,
    flags: u32,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { slice_of(text.cast::<u8>(), text_bytes, "text") }?;
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        let Ok(text) = std::str::from_utf8(bytes) else {
            bail!(Argument, "text is not UTF-8");
        };
        if flags & !(TABLA_TOKENIZE_ADD_SPECIAL | TABLA_TOKENIZE_PARSE_SPECIAL) != 0 {
            bail!(Argument, "unknown bits in flags {flags:#x}");
        }
        let encode = EncodeOptions::default()
            .add_special(flags & TABLA_TOKENIZE_ADD_SPECIAL != 0)
            .specials(match flags & TABLA_TOKENIZE_PARSE_SPECIAL {
                0 => SpecialTokens::Text,
                _ => SpecialTokens::Tokens,
            });
        let ids = resolve(model)?.model().tokenizer().encode(text, encode)?;
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(&ids, tokens, capacity) }?;
        *count = ids.len();
        Ok(())
    })
}

/// Decodes token ids to bytes, which are UTF-8 if the tokens end at character boundaries. No NUL is
/// added. If `text` is NULL, only `count` is written.
///
/// # Safety
///
/// `tokens` points to `tokens_count` ids; `text` is NULL or points to space for `capacity` bytes;
/// `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_detokenize(
    model: *const TablaModel,
    tokens: *const u32,
    tokens_count: usize,
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let tokens = unsafe { slice_of(tokens, tokens_count, "tokens") }?;
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        let model = resolve(model)?;
        let bytes = model
            .model()
            .tokenizer()
            .decode(tokens, DecodeOptions::default())?;
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(&bytes, text.cast(), capacity) }?;
        *count = bytes.len();
        Ok(())
    })
}

/// Writes the bytes of one token as they appear in a text; for a special token, its name. No NUL is
/// added. If `text` is NULL, only `count` is written.
///
/// # Safety
///
/// `text` is NULL or points to space for `capacity` bytes; `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_token_bytes(
    model: *const TablaModel,
    token: u32,
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        let model = resolve(model)?;
        let tokenizer = model.model().tokenizer();
        let vocab = model.model().facts().vocab;
        if token >= vocab {
            bail!(
                Argument,
                "token {token} is out of range: vocabulary size is {vocab}"
            );
        }
        let bytes = tokenizer.token_bytes_with_special(token);
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(bytes, text.cast(), capacity) }?;
        *count = bytes.len();
        Ok(())
    })
}

/// Writes the stop tokens of this model, which end an answer. If `tokens` is NULL, only `count` is
/// written.
///
/// # Safety
///
/// `tokens` is NULL or points to space for `capacity` ids; `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_stop_token_ids(
    model: *const TablaModel,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        let model = resolve(model)?;
        let stops = model.model().tokenizer().stops();
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(stops, tokens, capacity) }?;
        *count = stops.len();
        Ok(())
    })
}
