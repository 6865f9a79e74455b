//! Functions of conversations: rendering, encoding and answering.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer::{self, Caller, Prompt};
use super::answer_piece::{TablaStats, TablaTokenCallback};
use super::chat_options::read;
use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::options::chat::TablaChatOptions;
use super::options::generate::TablaGenerateOptions;
use super::pointers::{copy_out, out_of};
use super::sequence::{TablaModel, TablaSession};
use std::ffi::{c_char, c_void};

/// Renders a conversation with the model's chat template. `messages` is a JSON array of messages in
/// the format of OpenAI chat completions; NULL options are the defaults. No NUL is added. If `text`
/// is NULL, only `count` is written. Use `tabla_model_tokenize_chat` for input of the model: the
/// rendered text does not distinguish special tokens of the template from the same names in a
/// message.
///
/// # Safety
///
/// `messages` is a C string; `options` is NULL or points to a struct with `struct_size` set, whose
/// pointers are NULL or C strings; `text` is NULL or points to space for `capacity` bytes; `count`
/// points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_apply_chat_template(
    model: *const TablaModel,
    messages: *const c_char,
    options: *const TablaChatOptions,
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        // SAFETY: guaranteed by the caller.
        let (chat, messages) = unsafe { read(messages, options) }?;
        let rendered = chat.render(&messages, resolve(model)?.model())?;
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(rendered.as_bytes(), text.cast(), capacity) }?;
        *count = rendered.len();
        Ok(())
    })
}

/// Encodes a conversation with the model's chat template. Only the template produces special
/// tokens; their names in a message are encoded as text. Otherwise the same as
/// `tabla_model_apply_chat_template`.
///
/// # Safety
///
/// Arguments as for `tabla_model_apply_chat_template`; `tokens` is NULL or points to space for
/// `capacity` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_tokenize_chat(
    model: *const TablaModel,
    messages: *const c_char,
    options: *const TablaChatOptions,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        // SAFETY: guaranteed by the caller.
        let (chat, messages) = unsafe { read(messages, options) }?;
        let ids = chat.encode(&messages, resolve(model)?.model())?;
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(&ids, tokens, capacity) }?;
        *count = ids.len();
        Ok(())
    })
}

/// Answers a conversation. Replaces the sequence with the encoded conversation
/// (`tabla_model_tokenize_chat`) and generates the next message. The common prefix with the
/// previous sequence is not recomputed. If the call fails, the sequence may contain a part of the
/// conversation. The text includes the markup of reasoning and tool calls, which `tabla_parser_new`
/// parses. Otherwise the same as `tabla_session_generate`.
///
/// # Safety
///
/// `messages` is a C string; `chat` is NULL or points to a struct with `struct_size` set, whose
/// pointers are NULL or C strings; the rest as for `tabla_session_generate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_chat(
    session: *mut TablaSession,
    messages: *const c_char,
    chat: *const TablaChatOptions,
    options: *const TablaGenerateOptions,
    callback: TablaTokenCallback,
    user_data: *mut c_void,
    stats: *mut TablaStats,
) -> TablaStatus {
    guard(|| {
        let caller = Caller::new(callback, user_data);
        // SAFETY: guaranteed by the caller.
        let (chat, messages) = unsafe { read(messages, chat) }?;
        let prompt = Prompt::Chat(&chat, &messages);
        // SAFETY: guaranteed by the caller.
        unsafe { answer::generate(session, &prompt, options, caller, stats) }
    })
}

/// Starts an answer to a conversation, as `tabla_session_chat` does. `tabla_session_next` returns
/// it piece by piece, as after `tabla_session_begin`.
///
/// # Safety
///
/// Arguments as for `tabla_session_chat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_begin_chat(
    session: *mut TablaSession,
    messages: *const c_char,
    chat: *const TablaChatOptions,
    options: *const TablaGenerateOptions,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (chat, messages) = unsafe { read(messages, chat) }?;
        // SAFETY: guaranteed by the caller.
        unsafe { answer::begin_pieces(session, &Prompt::Chat(&chat, &messages), options) }
    })
}
