//! An answer taken apart: reasoning, content and calls of tools, while it comes.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer_piece::TABLA_NO_TOKEN;
use super::chat_options::{Chat, TablaChatOptions};
use super::guard::{TablaStatus, guard, guard_value};
use super::handles::{self, Handled, resolve};
use super::pointers::{out_of, slice_of, text_of};
use super::sequence::TablaModel;
use super::turn::Turn;
use serde_json::{Value as Json, json};
use std::borrow::Cow;
use std::ffi::{CString, c_char};
use tabla::Model;
use tabla::error::{Result, bail};
use tabla::text::{ChatParser, MessageDelta};

/// What takes an answer apart while it comes. Opaque.
pub struct TablaParser {
    model: Model,
    turn: Turn<Inner>,
}

/// What a call has to itself.
struct Inner {
    stream: ChatParser,
    calls: usize,
    has_ended: bool,
    /// What the last call returned.
    parts: CString,
}

impl Handled for TablaParser {
    const NAME: &'static str = "parser";
}

/// What takes an answer apart, or NULL with the reason in `tabla_last_error`. `chat` are the options by
/// which the conversation was rendered: its template and its tools say how reasoning and calls are written.
/// `prompt` is the text of the conversation, in which reasoning may have begun (`tabla_apply_chat_template`),
/// or NULL.
///
/// # Safety
///
/// `chat` is NULL or points to a struct that begins with its size and whose pointers are NULL or C strings;
/// `prompt` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_parser_new(
    model: *const TablaModel,
    chat: *const TablaChatOptions,
    prompt: *const c_char,
) -> *mut TablaParser {
    guard_value(|| {
        // SAFETY: the caller's promise.
        let chat = unsafe { Chat::read(chat) }?;
        // SAFETY: the caller's promise.
        let prompt = unsafe { text_of(prompt, "prompt") }?;
        let model = resolve(model)?;
        let model = model.model();
        let stream = chat.format(model)?.parser(prompt);
        handles::insert(TablaParser {
            model: model.clone(),
            turn: Turn::new(Inner {
                stream,
                calls: 0,
                has_ended: false,
                parts: CString::default(),
            }),
        })
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Takes the next piece of an answer, its token (`TABLA_NO_TOKEN` where there is none) and its text, and
/// has `parts` point to what that completes: a JSON array, often an empty one, of `{"content": "..."}`,
/// `{"reasoning_content": "..."}` and `{"tool_call": {"index", "id", "name", "arguments"}}`, where `id` is
/// null if the model gave none and `arguments` are JSON as text. Calls come whole. What `parts` points to
/// is valid until the next call on the parser.
///
/// # Safety
///
/// `text` points to `text_bytes` bytes; `parts` points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_parser_push(
    parser: *mut TablaParser,
    token: u32,
    text: *const c_char,
    text_bytes: usize,
    parts: *mut *const c_char,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { slice_of(text.cast::<u8>(), text_bytes, "text") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { out_of(parts, "parts") }?;
        let Ok(text) = str::from_utf8(bytes) else {
            bail!(Argument, "text is not UTF-8");
        };
        let object = resolve(parser)?;
        let taken = object.take(|inner| {
            let stream = &mut inner.stream;
            let text = match token {
                TABLA_NO_TOKEN => Cow::Borrowed(text),
                token => {
                    let tokenizer = object.model.tokenizer();
                    stream.format().token_text(tokenizer, token, text)
                }
            };
            stream.push(&text)
        })?;
        // Nothing is handed out that a free took away.
        resolve(parser)?;
        *out = taken;
        Ok(())
    })
}

/// Ends the answer: has `parts` point to what was held back, as `tabla_parser_push` does. From then on
/// there is nothing to push.
///
/// # Safety
///
/// `parts` points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_parser_finish(
    parser: *mut TablaParser,
    parts: *mut *const c_char,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { out_of(parts, "parts") }?;
        let taken = resolve(parser)?.take(|inner| {
            inner.has_ended = true;
            inner.stream.finish()
        })?;
        resolve(parser)?;
        *out = taken;
        Ok(())
    })
}

/// Frees a parser.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_parser_free(parser: *mut TablaParser) -> TablaStatus {
    guard(|| handles::remove(parser))
}

impl TablaParser {
    /// Keeps what `read` completes, as JSON.
    fn take(&self, read: impl FnOnce(&mut Inner) -> Vec<MessageDelta>) -> Result<*const c_char> {
        self.turn.enter(Self::NAME, |inner| {
            if inner.has_ended {
                bail!(
                    State,
                    "the answer has ended: another one has another parser"
                );
            }
            let parts = read(inner);
            let parts = parts.into_iter().map(|part| inner.json(part));
            let parts = parts.collect::<Json>().to_string();
            // JSON writes a NUL as an escape.
            inner.parts = CString::new(parts).unwrap_or_default();
            Ok(inner.parts.as_ptr())
        })
    }
}

impl Inner {
    fn json(&mut self, part: MessageDelta) -> Json {
        match part {
            MessageDelta::Content(text) => json!({ "content": text }),
            MessageDelta::Reasoning(text) => json!({ "reasoning_content": text }),
            MessageDelta::ToolCall(call) => {
                let index = self.calls;
                self.calls += 1;
                json!({ "tool_call": {
                    "index": index,
                    "id": call.id,
                    "name": call.name,
                    "arguments": call.arguments,
                } })
            }
        }
    }
}
