//! Chat options of the C API, and rendering of conversations.
#![expect(unsafe_code, reason = "structs come through pointers from C")]

use super::pointers::{read_sized, text_of};
use serde_json::{Map, Value as Json};
use std::ffi::c_char;
use tabla::error::bail;
use tabla::text::{ChatFormat, ChatTemplate, Conversation, TemplateChoice};
use tabla::{Model, Result};

/// Options of rendering a conversation. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaChatOptions {
    /// `sizeof(TablaChatOptions)`.
    pub struct_size: u32,
    /// Not 0: does not append the start of the assistant's answer (generation prompt).
    pub no_generation_prompt: u32,
    /// Name or source of a chat template. NULL: the model's own, or one that its special tokens
    /// identify.
    pub chat_template: *const c_char,
    /// JSON array of tools, or NULL.
    pub tools: *const c_char,
    /// JSON array of documents, or NULL.
    pub documents: *const c_char,
    /// JSON object of additional template variables, for example `{"enable_thinking": false}`, or
    /// NULL.
    pub chat_template_kwargs: *const c_char,
}

impl TablaChatOptions {
    #[expect(clippy::cast_possible_truncation, reason = "a small struct")]
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u32,
        no_generation_prompt: 0,
        chat_template: std::ptr::null(),
        tools: std::ptr::null(),
        documents: std::ptr::null(),
        chat_template_kwargs: std::ptr::null(),
    };
}

/// Parsed chat options.
pub(super) struct Chat {
    tools: Vec<Json>,
    documents: Vec<Json>,
    variables: Option<Map<String, Json>>,
    template: Option<String>,
    add_generation_prompt: bool,
}

impl Chat {
    /// # Safety
    ///
    /// `options` is NULL or points to a struct with `struct_size` set, whose pointers are NULL or C
    /// strings.
    pub(super) unsafe fn read(options: *const TablaChatOptions) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        let options = unsafe { read_sized(options, TablaChatOptions::DEFAULT) }?;
        // SAFETY: guaranteed by the caller.
        let tools = unsafe { text_of(options.tools, "tools") }?;
        // SAFETY: guaranteed by the caller.
        let documents = unsafe { text_of(options.documents, "documents") }?;
        // SAFETY: guaranteed by the caller.
        let variables = unsafe { text_of(options.chat_template_kwargs, "chat_template_kwargs") }?;
        // SAFETY: guaranteed by the caller.
        let template = unsafe { text_of(options.chat_template, "chat_template") }?;
        Ok(Self {
            tools: list(tools, "tools")?,
            documents: list(documents, "documents")?,
            variables: map(variables, "chat_template_kwargs")?,
            template: Some(template.to_string()).filter(|template| !template.is_empty()),
            add_generation_prompt: options.no_generation_prompt == 0,
        })
    }

    /// Selects the chat template.
    fn template(&self, model: &Model) -> Result<ChatTemplate> {
        let choice = TemplateChoice::default()
            .template(self.template.as_deref())
            .tools(!self.tools.is_empty());
        model.chat_templates().choose(&choice, model.tokenizer())
    }

    fn conversation<'a>(&'a self, messages: &'a [Json]) -> Conversation<'a> {
        Conversation::new(messages)
            .tools(&self.tools)
            .documents(&self.documents)
            .add_generation_prompt(self.add_generation_prompt)
            .variables(self.variables.as_ref())
    }

    pub(super) fn render(&self, messages: &[Json], model: &Model) -> Result<String> {
        self.template(model)?.render(&self.conversation(messages))
    }

    pub(super) fn encode(&self, messages: &[Json], model: &Model) -> Result<Vec<u32>> {
        let conversation = self.conversation(messages);
        self.template(model)?
            .encode(&conversation, model.tokenizer())
    }

    /// The format of answers.
    pub(super) fn format(&self, model: &Model) -> Result<ChatFormat> {
        Ok(ChatFormat::detect(&self.template(model)?, &self.tools))
    }
}

/// Parses messages and chat options.
///
/// # Safety
///
/// `messages` is NULL or a C string; `options` as for [`Chat::read`].
pub(super) unsafe fn read(
    messages: *const c_char,
    options: *const TablaChatOptions,
) -> Result<(Chat, Vec<Json>)> {
    if messages.is_null() {
        bail!(Argument, "messages is NULL");
    }
    // SAFETY: guaranteed by the caller.
    let chat = unsafe { Chat::read(options) }?;
    // SAFETY: guaranteed by the caller.
    let messages = unsafe { text_of(messages, "messages") }?;
    Ok((chat, list(messages, "messages")?))
}

/// Parses JSON; an empty text is null.
fn json(text: &str, name: &str) -> Result<Json> {
    if text.is_empty() {
        return Ok(Json::Null);
    }
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) => bail!(Argument, "{name} is not valid JSON: {error}"),
    }
}

fn list(text: &str, name: &str) -> Result<Vec<Json>> {
    match json(text, name)? {
        Json::Null => Ok(Vec::new()),
        Json::Array(items) => Ok(items),
        _ => bail!(Argument, "{name} is not a JSON array"),
    }
}

fn map(text: &str, name: &str) -> Result<Option<Map<String, Json>>> {
    match json(text, name)? {
        Json::Null => Ok(None),
        Json::Object(fields) => Ok(Some(fields)),
        _ => bail!(Argument, "{name} is not a JSON object"),
    }
}
