//! How likely a text is, and how well documents answer a query.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{TablaStatus, guard};
use super::pointers::{Floats, slice_of, text_of, texts_of};
use super::sequence::{TablaSession, with};
use std::ffi::c_char;
use tabla::RerankOptions;
use tabla::error::bail;

/// Writes the natural logarithm of how likely each token from the `from`th on is, given all in front of
/// it: `tokens_count - from` numbers. The first token has nothing in front of it, so that `from` is 1 at
/// least. The session's own sequence stays as it is. With `out` NULL only `count` is written.
///
/// # Safety
///
/// `tokens` points to `tokens_count` ids; `out` is NULL or points to room for `capacity` floats; `count`
/// points to a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_score(
    session: *mut TablaSession,
    tokens: *const u32,
    tokens_count: usize,
    from: usize,
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let tokens = unsafe { slice_of(tokens, tokens_count, "tokens") }?;
        let floats = Floats::new(out, capacity, count);
        if from == 0 || from >= tokens_count {
            bail!(
                Argument,
                "from is {from}: it is from 1 to the last of {tokens_count} tokens"
            );
        }
        with(session, |session| {
            let fill = |room: &mut [f32]| {
                room.copy_from_slice(&session.score(tokens, from, &mut |_, _| {})?);
                Ok(())
            };
            // SAFETY: the caller's promise.
            unsafe { floats.write(tokens_count - from, fill) }
        })
    })
}

/// Writes how well each document answers a query, from 0 to 1, for models that were trained to rank by
/// "yes" and "no". `instruction` says what answers it; NULL takes the usual one. The session's own
/// sequence stays as it is. With `out` NULL only `count` is written.
///
/// # Safety
///
/// `query` is a C string, `instruction` NULL or one; `documents` points to `documents_count` C strings;
/// `out` is NULL or points to room for `capacity` floats; `count` points to a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_rerank(
    session: *mut TablaSession,
    query: *const c_char,
    instruction: *const c_char,
    documents: *const *const c_char,
    documents_count: usize,
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        if query.is_null() {
            bail!(Argument, "query is NULL");
        }
        // SAFETY: the caller's promise.
        let query = unsafe { text_of(query, "query") }?;
        // SAFETY: the caller's promise.
        let instruction = unsafe { text_of(instruction, "instruction") }?;
        // SAFETY: the caller's promise.
        let documents = unsafe { slice_of(documents, documents_count, "documents") }?;
        let floats = Floats::new(out, capacity, count);
        let by = RerankOptions {
            query,
            instruction: Some(instruction).filter(|text| !text.is_empty()),
        };
        with(session, |session| {
            let fill = |room: &mut [f32]| {
                // SAFETY: the caller's promise.
                let texts = unsafe { texts_of(documents, "documents") }?;
                room.copy_from_slice(&session.rerank(&by, &texts, &mut |_, _| {})?);
                Ok(())
            };
            // SAFETY: the caller's promise.
            unsafe { floats.write(documents.len(), fill) }
        })
    })
}
