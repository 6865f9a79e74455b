//! Parser that splits an answer into reasoning, content and tool calls while it is generated.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer_piece::TABLA_NO_TOKEN;
use super::chat_options::Chat;
use super::exclusive::Exclusive;
use super::guard::{TablaStatus, guard, guard_value};
use super::handles::{self, HandleType, resolve};
use super::options::chat::TablaChatOptions;
use super::pointers::{out_of, slice_of, text_of};
use super::sequence::TablaModel;
use serde_json::{Value as Json, json};
use std::borrow::Cow;
use std::ffi::{CString, c_char};
use tabla::error::bail;
use tabla::text::{ChatParser, MessageDelta};
use tabla::{Model, Result};

/// A streaming parser of answers. Opaque.
pub struct TablaParser {
    model: Model,
    state: Exclusive<ParserState>,
}

/// State that one call at a time accesses.
struct ParserState {
    stream: ChatParser,
    calls: usize,
    /// Number of tool calls after which nothing more is returned.
    calls_max: usize,
    has_ended: bool,
    /// Result of the last call.
    parts: CString,
}

impl HandleType for TablaParser {
    const NAME: &'static str = "parser";
}

/// Creates a parser. Returns NULL on failure; `tabla_last_error` has the reason. `chat` are the
/// options that the conversation was rendered with: the template and the tools determine the format
/// of reasoning and tool calls. `prompt` is the rendered conversation
/// (`tabla_model_apply_chat_template`), which may already start the reasoning, or NULL.
///
/// # Safety
///
/// `chat` is NULL or points to a struct with `struct_size` set, whose pointers are NULL or C
/// strings; `prompt` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_parser_new(
    model: *const TablaModel,
    chat: *const TablaChatOptions,
    prompt: *const c_char,
) -> *mut TablaParser {
    guard_value(|| {
        // SAFETY: guaranteed by the caller.
        let chat = unsafe { Chat::read(chat) }?;
        // SAFETY: guaranteed by the caller.
        let prompt = unsafe { text_of(prompt, "prompt") }?;
        let model = resolve(model)?;
        let model = model.model();
        let stream = chat.format(model)?.parser(prompt);
        let calls_max = if chat.is_parallel { usize::MAX } else { 1 };
        handles::insert(TablaParser {
            model: model.clone(),
            state: Exclusive::new(ParserState {
                stream,
                calls: 0,
                calls_max,
                has_ended: false,
                parts: CString::default(),
            }),
        })
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Parses the next piece of an answer: its token (`TABLA_NO_TOKEN` if there is none) and its text.
/// Sets `parts` to the completed parts, a JSON array that is often empty, of `{"content": "..."}`,
/// `{"reasoning_content": "..."}` and `{"tool_call": {"index", "id", "name", "arguments"}}`. `id`
/// is null if the model wrote none; `arguments` is JSON in a string. A tool call is returned when
/// it is complete. With `TablaChatOptions.no_parallel_tool_calls`, nothing follows the first one:
/// end the answer then. `parts` is valid until the next call on the parser.
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
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { slice_of(text.cast::<u8>(), text_bytes, "text") }?;
        // SAFETY: guaranteed by the caller.
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
        // Fails if the parser was freed during the call: `taken` would point to freed memory.
        resolve(parser)?;
        *out = taken;
        Ok(())
    })
}

/// Ends the answer and sets `parts` to the remaining parts, in the format of `tabla_parser_push`.
/// Further calls of `tabla_parser_push` fail.
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
        // SAFETY: guaranteed by the caller.
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
    /// Stores the parts that `read` returns as JSON, and returns a pointer to them.
    fn take(
        &self,
        read: impl FnOnce(&mut ParserState) -> Vec<MessageDelta>,
    ) -> Result<*const c_char> {
        self.state.enter(Self::NAME, |inner| {
            if inner.has_ended {
                bail!(
                    State,
                    "the answer has ended: create a parser for each answer"
                );
            }
            let mut written = Vec::new();
            for part in read(inner) {
                if inner.calls < inner.calls_max {
                    written.push(inner.json(part));
                }
            }
            let parts = Json::from(written).to_string();
            // JSON writes a NUL as an escape.
            inner.parts = CString::new(parts).unwrap_or_default();
            Ok(inner.parts.as_ptr())
        })
    }
}

impl ParserState {
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
            MessageDelta::ToolCallStart { .. }
            | MessageDelta::ToolCallArguments(_)
            | MessageDelta::ToolCallEnd => unreachable!("the parser does not stream arguments"),
        }
    }
}
