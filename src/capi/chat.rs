//! The functions of a model's chat templates: a conversation as text, and as ids.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::model::TablaModel;
use super::pointers::{copy_out, out_of, read_sized, text_of};
use crate::error::{Result, bail};
use crate::text::{ChatTemplate, Choice, Conversation, Tokenizer};
use serde_json::{Map, Value};
use std::ffi::c_char;

/// How a conversation is rendered. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaChatOptions {
    /// `sizeof(TablaChatOptions)`.
    pub struct_size: u32,
    /// Not 0: the text does not end with what begins the assistant's answer.
    pub no_generation_prompt: u32,
    /// The name of a template or the source of one; NULL takes the model's own, or what the
    /// special tokens of its vocabulary leave no doubt about.
    pub chat_template: *const c_char,
    /// A JSON array of tools, or NULL.
    pub tools: *const c_char,
    /// A JSON array of documents, or NULL.
    pub documents: *const c_char,
    /// A JSON object of further variables, like `{"enable_thinking": false}`, or NULL.
    pub variables: *const c_char,
}

impl TablaChatOptions {
    #[expect(clippy::cast_possible_truncation, reason = "a small struct")]
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u32,
        no_generation_prompt: 0,
        chat_template: std::ptr::null(),
        tools: std::ptr::null(),
        documents: std::ptr::null(),
        variables: std::ptr::null(),
    };
}

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
        let render =
            |template: &ChatTemplate, chat: &Conversation<'_>, _: &Tokenizer| template.render(chat);
        // SAFETY: the caller's promise.
        let rendered = unsafe { with_chat(model, messages, options, render) }?;
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
        let ids = unsafe { with_chat(model, messages, options, ChatTemplate::encode) }?;
        // SAFETY: the caller's promise.
        unsafe { copy_out(&ids, tokens, capacity) }?;
        *count = ids.len();
        Ok(())
    })
}

/// Runs `call` on the template and the conversation that C asks for.
///
/// # Safety
///
/// The pointers are as [`tabla_apply_chat_template`] wants them.
unsafe fn with_chat<T>(
    model: *const TablaModel,
    messages: *const c_char,
    options: *const TablaChatOptions,
    call: impl FnOnce(&ChatTemplate, &Conversation<'_>, &Tokenizer) -> Result<T>,
) -> Result<T> {
    // SAFETY: the caller's promise.
    let options = unsafe { read_sized(options, TablaChatOptions::DEFAULT) }?;
    if messages.is_null() {
        bail!(Argument, "messages is NULL");
    }
    // SAFETY: the caller's promise.
    let messages = json(unsafe { text_of(messages) }?, "messages")?;
    // SAFETY: the caller's promise.
    let tools = json(unsafe { text_of(options.tools) }?, "tools")?;
    // SAFETY: the caller's promise.
    let documents = json(unsafe { text_of(options.documents) }?, "documents")?;
    // SAFETY: the caller's promise.
    let variables = json(unsafe { text_of(options.variables) }?, "variables")?;
    // SAFETY: the caller's promise.
    let template = unsafe { text_of(options.chat_template) }?;
    let conversation = Conversation {
        tools: list(&tools, "tools")?,
        documents: list(&documents, "documents")?,
        add_generation_prompt: options.no_generation_prompt == 0,
        variables: map(&variables, "variables")?,
        ..Conversation::new(list(&messages, "messages")?)
    };
    let choice = Choice {
        template: Some(template).filter(|template| !template.is_empty()),
        tools: !conversation.tools.is_empty(),
    };
    let model = resolve(model)?;
    let tokenizer = model.model().tokenizer();
    let template = model.model().chat_templates().choose(&choice, tokenizer)?;
    call(&template, &conversation, tokenizer)
}

/// JSON of C; null for an empty text.
fn json(text: &str, name: &str) -> Result<Value> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) => bail!(Argument, "{name} is no JSON: {error}"),
    }
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value]> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => bail!(Argument, "{name} is no JSON array"),
    }
}

fn map<'a>(value: &'a Value, name: &str) -> Result<Option<&'a Map<String, Value>>> {
    match value {
        Value::Null => Ok(None),
        Value::Object(fields) => Ok(Some(fields)),
        _ => bail!(Argument, "{name} is no JSON object"),
    }
}
