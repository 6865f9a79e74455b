//! The functions of a model's tokenizer: encode, decode, and what it says of tokens.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::pointers::{copy_out, out_of, slice_of};
use super::sequence::TablaModel;
use std::ffi::c_char;
use tabla::error::bail;
use tabla::text::{DecodeOptions, EncodeOptions, SpecialTokens};

/// Adds the tokens that begin or end a text of this model: `tabla_encode`.
pub const TABLA_ENCODE_ADD_SPECIAL: u32 = 1;
/// Reads names of special tokens in the text as those tokens. Never for text from users.
pub const TABLA_ENCODE_PARSE_SPECIAL: u32 = 2;

/// Encodes UTF-8 text to token ids. `flags` are `TABLA_ENCODE_*`, added up. With `tokens` NULL
/// only `count` is written.
///
/// # Safety
///
/// `text` points to `text_bytes` bytes, `tokens` is NULL or to room for `capacity` ids, `count` to
/// a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_encode(
    model: *const TablaModel,
    text: *const c_char,
    text_bytes: usize,
    flags: u32,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { slice_of(text.cast::<u8>(), text_bytes, "text") }?;
        // SAFETY: the caller's promise.
        let count = unsafe { out_of(count, "count") }?;
        let Ok(text) = std::str::from_utf8(bytes) else {
            bail!(Argument, "the text is not UTF-8");
        };
        if flags & !(TABLA_ENCODE_ADD_SPECIAL | TABLA_ENCODE_PARSE_SPECIAL) != 0 {
            bail!(
                Argument,
                "flags {flags:#x} has bits that this library does not know"
            );
        }
        let encode = EncodeOptions {
            add_special: flags & TABLA_ENCODE_ADD_SPECIAL != 0,
            specials: match flags & TABLA_ENCODE_PARSE_SPECIAL {
                0 => SpecialTokens::Text,
                _ => SpecialTokens::Tokens,
            },
        };
        let ids = resolve(model)?.model().tokenizer().encode(text, encode)?;
        // SAFETY: the caller's promise.
        unsafe { copy_out(&ids, tokens, capacity) }?;
        *count = ids.len();
        Ok(())
    })
}

/// Decodes token ids to bytes, which are UTF-8 where the tokens are whole characters. No NUL is
/// added. With `text` NULL only `count` is written.
///
/// # Safety
///
/// `tokens` points to `tokens_count` ids, `text` is NULL or to room for `capacity` bytes, `count`
/// to a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_decode(
    model: *const TablaModel,
    tokens: *const u32,
    tokens_count: usize,
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let tokens = unsafe { slice_of(tokens, tokens_count, "tokens") }?;
        // SAFETY: the caller's promise.
        let count = unsafe { out_of(count, "count") }?;
        let model = resolve(model)?;
        let bytes = model
            .model()
            .tokenizer()
            .decode(tokens, DecodeOptions::default())?;
        // SAFETY: the caller's promise.
        unsafe { copy_out(&bytes, text.cast(), capacity) }?;
        *count = bytes.len();
        Ok(())
    })
}

/// Writes the bytes of one token as it stands in a text; of a special token, its name. No NUL is added.
/// With `text` NULL only `count` is written.
///
/// # Safety
///
/// `text` is NULL or points to room for `capacity` bytes; `count` points to a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_token_bytes(
    model: *const TablaModel,
    token: u32,
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let count = unsafe { out_of(count, "count") }?;
        let model = resolve(model)?;
        let tokenizer = model.model().tokenizer();
        let vocab = model.model().facts().vocab;
        if token >= vocab {
            bail!(
                Argument,
                "token {token} is outside the vocabulary of {vocab}"
            );
        }
        let bytes = tokenizer.token_bytes_with_special(token);
        // SAFETY: the caller's promise.
        unsafe { copy_out(bytes, text.cast(), capacity) }?;
        *count = bytes.len();
        Ok(())
    })
}

/// Writes the tokens that end an answer of this model. With `tokens` NULL only `count` is written.
///
/// # Safety
///
/// `tokens` is NULL or points to room for `capacity` ids; `count` points to a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_stop_tokens(
    model: *const TablaModel,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let count = unsafe { out_of(count, "count") }?;
        let model = resolve(model)?;
        let stops = model.model().tokenizer().stops();
        // SAFETY: the caller's promise.
        unsafe { copy_out(stops, tokens, capacity) }?;
        *count = stops.len();
        Ok(())
    })
}
