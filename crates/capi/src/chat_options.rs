//! Conversations as C passes them, and how they are rendered.
#![expect(unsafe_code, reason = "structs come through pointers from C")]

use super::pointers::{read_sized, text_of};
use serde_json::{Map, Value as Json};
use std::ffi::c_char;
use tabla::Model;
use tabla::error::{Result, bail};
use tabla::text::{ChatFormat, ChatTemplate, Conversation, TemplateChoice};

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

/// How C wants a conversation rendered.
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
    /// `options` is NULL or points to a struct that begins with its size, and whose pointers are NULL or C
    /// strings.
    pub(super) unsafe fn read(options: *const TablaChatOptions) -> Result<Self> {
        // SAFETY: the caller's promise.
        let options = unsafe { read_sized(options, TablaChatOptions::DEFAULT) }?;
        // SAFETY: the caller's promise.
        let tools = unsafe { text_of(options.tools, "tools") }?;
        // SAFETY: the caller's promise.
        let documents = unsafe { text_of(options.documents, "documents") }?;
        // SAFETY: the caller's promise.
        let variables = unsafe { text_of(options.variables, "variables") }?;
        // SAFETY: the caller's promise.
        let template = unsafe { text_of(options.chat_template, "chat_template") }?;
        Ok(Self {
            tools: list(tools, "tools")?,
            documents: list(documents, "documents")?,
            variables: map(variables, "variables")?,
            template: Some(template.to_string()).filter(|template| !template.is_empty()),
            add_generation_prompt: options.no_generation_prompt == 0,
        })
    }

    /// The model's template for it.
    fn template(&self, model: &Model) -> Result<ChatTemplate> {
        let choice = TemplateChoice {
            template: self.template.as_deref(),
            tools: !self.tools.is_empty(),
        };
        model.chat_templates().choose(&choice, model.tokenizer())
    }

    fn conversation<'a>(&'a self, messages: &'a [Json]) -> Conversation<'a> {
        Conversation {
            tools: &self.tools,
            documents: &self.documents,
            add_generation_prompt: self.add_generation_prompt,
            variables: self.variables.as_ref(),
            ..Conversation::new(messages)
        }
    }

    pub(super) fn render(&self, messages: &[Json], model: &Model) -> Result<String> {
        self.template(model)?.render(&self.conversation(messages))
    }

    pub(super) fn encode(&self, messages: &[Json], model: &Model) -> Result<Vec<u32>> {
        let conversation = self.conversation(messages);
        self.template(model)?
            .encode(&conversation, model.tokenizer())
    }

    /// How the answers are written.
    pub(super) fn format(&self, model: &Model) -> Result<ChatFormat> {
        Ok(ChatFormat::detect(&self.template(model)?, &self.tools))
    }
}

/// A conversation of C, and how it is rendered.
///
/// # Safety
///
/// `messages` is NULL or a C string; `options` as [`Chat::read`] wants them.
pub(super) unsafe fn read(
    messages: *const c_char,
    options: *const TablaChatOptions,
) -> Result<(Chat, Vec<Json>)> {
    if messages.is_null() {
        bail!(Argument, "messages is NULL");
    }
    // SAFETY: the caller's promise.
    let chat = unsafe { Chat::read(options) }?;
    // SAFETY: the caller's promise.
    let messages = unsafe { text_of(messages, "messages") }?;
    Ok((chat, list(messages, "messages")?))
}

/// JSON of C; null for an empty text.
fn json(text: &str, name: &str) -> Result<Json> {
    if text.is_empty() {
        return Ok(Json::Null);
    }
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) => bail!(Argument, "{name} is no JSON: {error}"),
    }
}

fn list(text: &str, name: &str) -> Result<Vec<Json>> {
    match json(text, name)? {
        Json::Null => Ok(Vec::new()),
        Json::Array(items) => Ok(items),
        _ => bail!(Argument, "{name} is no JSON array"),
    }
}

fn map(text: &str, name: &str) -> Result<Option<Map<String, Json>>> {
    match json(text, name)? {
        Json::Null => Ok(None),
        Json::Object(fields) => Ok(Some(fields)),
        _ => bail!(Argument, "{name} is no JSON object"),
    }
}
