//! Log-likelihood of texts, and reranking of documents.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{TablaStatus, guard};
use super::pointers::{FloatBuffer, slice_of, text_of, texts_of};
use super::sequence::{TablaSession, with_session};
use std::ffi::c_char;
use tabla::embed::RerankOptions;
use tabla::error::bail;

/// Writes the log-probability (natural logarithm) of each token from index `from` on, given all
/// tokens before it: `tokens_count - from` values. The first token has no context, so `from` is at
/// least 1. The sequence of the session does not change. If `out` is NULL, only `count` is written.
///
/// # Safety
///
/// `tokens` points to `tokens_count` ids; `out` is NULL or points to space for `capacity` floats;
/// `count` points to a `size_t`.
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
        // SAFETY: guaranteed by the caller.
        let tokens = unsafe { slice_of(tokens, tokens_count, "tokens") }?;
        let floats = FloatBuffer::new(out, capacity, count);
        if from == 0 || from >= tokens_count {
            bail!(
                Argument,
                "from {from} is out of range: expected 1 to {}",
                tokens_count.saturating_sub(1)
            );
        }
        with_session(session, |session| {
            let fill = |buffer: &mut [f32]| {
                buffer.copy_from_slice(&session.score(tokens, from, &mut |_, _| {})?);
                Ok(())
            };
            // SAFETY: guaranteed by the caller.
            unsafe { floats.write(tokens_count - from, fill) }
        })
    })
}

/// Writes a relevance score for each document. A cross-encoder, an encoder with a classification head of
/// one label, gives the sigmoid of its logit, or the logit if its files set the identity as activation
/// function; `tabla_session_classify` with pairs returns logits of any cross-encoder, and truncates
/// documents. Generative rerankers, which answer "yes" or "no", give a score from 0 to 1. `instruction`
/// describes the relevance criterion to them; NULL: the default. Other models are
/// `TABLA_ERROR_UNSUPPORTED`. The sequence of the session does not change. If `out` is NULL, only
/// `count` is written.
///
/// # Safety
///
/// `query` is a C string, `instruction` NULL or one; `documents` points to `documents_count` C
/// strings; `out` is NULL or points to space for `capacity` floats; `count` points to a `size_t`.
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
        // SAFETY: guaranteed by the caller.
        let query = unsafe { text_of(query, "query") }?;
        // SAFETY: guaranteed by the caller.
        let instruction = unsafe { text_of(instruction, "instruction") }?;
        // SAFETY: guaranteed by the caller.
        let documents = unsafe { slice_of(documents, documents_count, "documents") }?;
        let floats = FloatBuffer::new(out, capacity, count);
        let options = RerankOptions::default()
            .query(query)
            .instruction(Some(instruction).filter(|text| !text.is_empty()));
        with_session(session, |session| {
            let fill = |buffer: &mut [f32]| {
                // SAFETY: guaranteed by the caller.
                let texts = unsafe { texts_of(documents, "documents") }?;
                buffer.copy_from_slice(&session.rerank(&options, &texts, &mut |_, _| {})?);
                Ok(())
            };
            // SAFETY: guaranteed by the caller.
            unsafe { floats.write(documents.len(), fill) }
        })
    })
}
