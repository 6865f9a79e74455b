//! Chat options of the C API, and rendering of conversations.
#![expect(unsafe_code, reason = "structs come through pointers from C")]

use super::options::chat::TablaChatOptions;
use super::pointers::{read_sized, text_of};
use serde_json::{Map, Value as Json};
use std::ffi::c_char;
use tabla::error::bail;
use tabla::text::{ChatFormat, ChatTemplate, Conversation, TemplateChoice};
use tabla::{Model, Result};

/// Parsed chat options.
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
pub(super) struct Chat {
    tools: Vec<Json>,
    documents: Vec<Json>,
    variables: Option<Map<String, Json>>,
    template: Option<String>,
    effort: Option<String>,
    add_generation_prompt: bool,
    /// Whether an answer may have several tool calls.
    pub(super) is_parallel: bool,
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
        // SAFETY: guaranteed by the caller.
        let effort = unsafe { text_of(options.reasoning_effort, "reasoning_effort") }?;
        if options.reserved != 0 {
            bail!(
                Argument,
                "expected reserved to be 0, got {}",
                options.reserved
            );
        }
        let given = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
        Ok(Self {
            tools: list(tools, "tools")?,
            documents: list(documents, "documents")?,
            variables: map(variables, "chat_template_kwargs")?,
            template: given(template),
            effort: given(effort),
            add_generation_prompt: options.no_generation_prompt == 0,
            is_parallel: options.no_parallel_tool_calls == 0,
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
        let template = self.template(model)?;
        let adapted = template.adapt(&self.conversation(messages), self.effort.as_deref());
        template.render(&adapted.conversation())
    }

    pub(super) fn encode(&self, messages: &[Json], model: &Model) -> Result<Vec<u32>> {
        let template = self.template(model)?;
        let adapted = template.adapt(&self.conversation(messages), self.effort.as_deref());
        for warning in &adapted.warnings {
            tracing::warn!("{warning}");
        }
        template.encode(&adapted.conversation(), model.tokenizer())
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
