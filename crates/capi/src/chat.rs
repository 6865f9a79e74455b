//! Conversations: as text, as ids, and answered.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer::{self, Caller, Prompt};
use super::answer_piece::{TablaStats, TablaTokenCallback};
use super::chat_options::{TablaChatOptions, read};
use super::generate::TablaGenerateOptions;
use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::pointers::{copy_out, out_of};
use super::sequence::{TablaModel, TablaSession};
use std::ffi::{c_char, c_void};

/// Renders a conversation with the model's chat template. `messages` is a JSON array of messages
/// in the form of OpenAI's chat completions; NULL options are the defaults. No NUL is added. With
/// `text` NULL only `count` is written. To feed the model take `tabla_encode_chat`: in the text
/// nobody can tell the template's special tokens from those that a message spells.
///
/// # Safety
///
/// `messages` is a C string, `options` NULL or a struct that begins with its size and whose
/// pointers are NULL or C strings, `text` NULL or room for `capacity` bytes, `count` points to a
/// size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_apply_chat_template(
    model: *const TablaModel,
    messages: *const c_char,
    options: *const TablaChatOptions,
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let count = unsafe { out_of(count, "count") }?;
        // SAFETY: the caller's promise.
        let (chat, messages) = unsafe { read(messages, options) }?;
        let rendered = chat.render(&messages, resolve(model)?.model())?;
        // SAFETY: the caller's promise.
        unsafe { copy_out(rendered.as_bytes(), text.cast(), capacity) }?;
        *count = rendered.len();
        Ok(())
    })
}

/// Encodes a conversation with the model's chat template. Special tokens come from the template
/// alone: where a message spells one, it is text. The rest is as in `tabla_apply_chat_template`.
///
/// # Safety
///
/// As for `tabla_apply_chat_template`, with `tokens` NULL or room for `capacity` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_encode_chat(
    model: *const TablaModel,
    messages: *const c_char,
    options: *const TablaChatOptions,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let count = unsafe { out_of(count, "count") }?;
        // SAFETY: the caller's promise.
        let (chat, messages) = unsafe { read(messages, options) }?;
        let ids = chat.encode(&messages, resolve(model)?.model())?;
        // SAFETY: the caller's promise.
        unsafe { copy_out(&ids, tokens, capacity) }?;
        *count = ids.len();
        Ok(())
    })
}

/// Answers a conversation: the model's own sequence becomes the conversation, as `tabla_encode_chat`
/// makes it, and the model goes on behind it. What the sequence has of it is not computed again; where the
/// call fails, the sequence may be a beginning of the conversation. What a model writes around reasoning and
/// calls of tools comes as it is: `tabla_parser_new` takes it apart. The rest is as in `tabla_generate`.
///
/// # Safety
///
/// `messages` is a C string; `chat` is NULL or points to a struct that begins with its size and whose
/// pointers are NULL or C strings; the rest as of `tabla_generate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_chat(
    model: *mut TablaModel,
    messages: *const c_char,
    chat: *const TablaChatOptions,
    options: *const TablaGenerateOptions,
    callback: TablaTokenCallback,
    user_data: *mut c_void,
    stats: *mut TablaStats,
) -> TablaStatus {
    guard(|| {
        let caller = Caller::new(callback, user_data);
        // SAFETY: the caller's promise.
        let (chat, messages) = unsafe { read(messages, chat) }?;
        let prompt = Prompt::Chat(&chat, &messages);
        // SAFETY: the caller's promise.
        unsafe { answer::generate(model, &prompt, options, caller, stats) }
    })
}

/// `tabla_chat` of a session.
///
/// # Safety
///
/// As of `tabla_chat`.
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
        // SAFETY: the caller's promise.
        let (chat, messages) = unsafe { read(messages, chat) }?;
        let prompt = Prompt::Chat(&chat, &messages);
        // SAFETY: the caller's promise.
        unsafe { answer::generate(session, &prompt, options, caller, stats) }
    })
}

/// Begins to answer a conversation as `tabla_session_chat` does; `tabla_session_next` takes the answer
/// piece by piece, as that of `tabla_session_begin`.
///
/// # Safety
///
/// As of `tabla_chat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_begin_chat(
    session: *mut TablaSession,
    messages: *const c_char,
    chat: *const TablaChatOptions,
    options: *const TablaGenerateOptions,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let (chat, messages) = unsafe { read(messages, chat) }?;
        // SAFETY: the caller's promise.
        unsafe { answer::begin_pieces(session, &Prompt::Chat(&chat, &messages), options) }
    })
}
