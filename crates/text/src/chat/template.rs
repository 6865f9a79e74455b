//! A chat template and its rendering with the variables of a conversation.

use super::jinja::{self, Input, TextFunction};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Maximum template length in bytes. The longest known template has a fifth of it.
pub(super) const TEMPLATE_BYTES_MAX: usize = 128 << 10;

/// Variable names that an application cannot set: the runtime sets them.
const RESERVED: &[&str] = &[
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "raise_exception",
    "strftime_now",
    "namespace",
    "range",
    "dict",
    "cycler",
    "joiner",
    "self",
];

tabla_core::options! {
    /// Input of a chat template.
    #[derive(Clone, Copy, Debug)]
    pub struct Conversation<'a> {
        /// Messages in the format of OpenAI's chat completions: `role`, `content`, `tool_calls` etc.
        pub messages: &'a [Json],
        /// Tool definitions in the same format. If empty, the template variable is `none`.
        pub tools: &'a [Json],
        /// Documents for retrieval-augmented generation, each with `title` and `text`.
        pub documents: &'a [Json],
        /// Whether the text ends with the start of an assistant message. Default true.
        pub add_generation_prompt: bool,
        /// Additional template variables, for example `enable_thinking`.
        pub variables: Option<&'a Map<String, Json>>,
        /// Time for `strftime_now`, in UTC.
        pub now: SystemTime,
    }
}

impl<'a> Conversation<'a> {
    /// Creates a conversation of `messages` with a generation prompt and the current time.
    pub fn new(messages: &'a [Json]) -> Self {
        Self {
            messages,
            tools: &[],
            documents: &[],
            add_generation_prompt: true,
            variables: None,
            now: SystemTime::now(),
        }
    }
}

/// Text of the BOS and EOS tokens, for the template variables.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateTokens<'a> {
    /// `bos_token`.
    pub bos: Option<&'a str>,
    /// `eos_token`.
    pub eos: Option<&'a str>,
}

/// A chat template that compiles.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: String,
    program: Arc<jinja::Program>,
    bos: Option<String>,
    eos: Option<String>,
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// `TooLarge` over 128 KiB, `Format` with the line for a syntax error.
    pub fn new(source: &str, tokens: TemplateTokens<'_>) -> Result<Self> {
        if source.len() > TEMPLATE_BYTES_MAX {
            bail!(
                TooLarge,
                "chat template: {} bytes exceed the limit of {TEMPLATE_BYTES_MAX}",
                source.len()
            );
        }
        Ok(Self {
            source: source.to_string(),
            program: Arc::new(jinja::parse(source)?),
            bos: tokens.bos.map(str::to_string),
            eos: tokens.eos.map(str::to_string),
        })
    }

    /// The source of the template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation to text. Special tokens in messages are not escaped, so use
    /// [`encode`](Self::encode) to get the input of a model.
    ///
    /// # Errors
    /// `Argument` if the template raises an exception or a variable has a reserved name, `TooLarge`
    /// over the limits on time and size, `Format` for an error in the template.
    pub fn render(&self, conversation: &Conversation<'_>) -> Result<String> {
        self.render_with(conversation, &str::to_string)
    }

    /// Renders a conversation after applying `text` to each string of it.
    pub(super) fn render_with(
        &self,
        conversation: &Conversation<'_>,
        text: TextFunction<'_>,
    ) -> Result<String> {
        let variables = self.variables(conversation)?;
        let rendered = jinja::render(&self.program, &variables, text, conversation.now);
        rendered.map_err(|error| self.explain(error, conversation))
    }

    /// Returns the error of a rendering, or that of the arguments of a tool call if those have caused it.
    fn explain(&self, error: Error, conversation: &Conversation<'_>) -> Error {
        let mut messages = conversation.messages.to_vec();
        let Some(name) = replace_text_arguments(&mut messages) else {
            return error;
        };
        if self.render(&conversation.messages(&messages)).is_err() {
            return error;
        }
        let message = format_args!(
            "the chat template requires a JSON object as the arguments of the call of {name:?}, got other text: {error}"
        );
        Error::new(ErrorKind::Argument, message).caused_by(TextArguments)
    }

    /// The template variables.
    fn variables<'v>(
        &'v self,
        conversation: &Conversation<'v>,
    ) -> Result<Vec<(&'v str, Input<'v>)>> {
        let mut variables: Vec<(&str, Input<'_>)> = Vec::new();
        for (name, value) in conversation.variables.into_iter().flatten() {
            if RESERVED.contains(&name.as_str()) || !is_identifier(name) {
                bail!(
                    Argument,
                    "invalid variable name {name:?}: reserved or not an identifier"
                );
            }
            variables.push((name, Input::Json(value)));
        }
        let messages = conversation.messages.iter();
        let messages = messages.map(|message| normalize(message, &self.source));
        let messages: Result<Vec<_>> = messages.collect();
        variables.push(("messages", Input::List(messages?)));
        for (name, list) in [
            ("tools", conversation.tools),
            ("documents", conversation.documents),
        ] {
            // `transformers` passes None for an empty list.
            variables.push((
                name,
                match list.is_empty() {
                    true => Input::None,
                    false => Input::List(list.iter().map(Cow::Borrowed).collect()),
                },
            ));
        }
        let prompt = conversation.add_generation_prompt;
        variables.push(("add_generation_prompt", Input::Bool(prompt)));
        for (name, token) in [("bos_token", &self.bos), ("eos_token", &self.eos)] {
            if let Some(token) = token {
                variables.push((name, Input::Token(token)));
            }
        }
        Ok(variables)
    }
}

/// The arguments of a tool call in a message are text that is no JSON object, for example because the answer
/// with the call was cut, and the template requires an object: the cause of an error of
/// [`ChatTemplate::render`].
#[derive(Clone, Copy, Debug)]
pub struct TextArguments;

impl std::fmt::Display for TextArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("requires a JSON object as the arguments")
    }
}

impl std::error::Error for TextArguments {}

/// Replaces arguments that are text and no JSON object by an empty object. Returns the name of the first
/// called tool.
fn replace_text_arguments(messages: &mut [Json]) -> Option<String> {
    let mut first = None;
    let calls = messages
        .iter_mut()
        .filter_map(|message| message.get_mut("tool_calls")?.as_array_mut());
    for call in calls.flatten() {
        let name = call.pointer("/function/name").and_then(Json::as_str);
        let name = name.unwrap_or_default().to_string();
        if let Some(arguments @ Json::String(_)) = call.pointer_mut("/function/arguments")
            && parsed(arguments).is_none()
        {
            *arguments = Json::Object(Map::new());
            first.get_or_insert(name);
        }
    }
    first
}

/// Parses arguments that are the text of a JSON object.
fn parsed(arguments: &Json) -> Option<Json> {
    let parsed: Json = serde_json::from_str(arguments.as_str()?).ok()?;
    parsed.is_object().then_some(parsed)
}

fn is_identifier(name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() && name.chars().all(word)
}

/// Message fields for reasoning text; the first is the one that most templates read.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Exception of the template of gpt-oss for an assistant message with tool calls.
const EXCLUSIVE: &str = "Cannot pass both content and thinking";

/// Normalizes a message for a template: copies the reasoning to each field that templates read, and
/// parses tool-call arguments, which are a JSON string in OpenAI's API.
fn normalize<'m>(message: &'m Json, template: &str) -> Result<Cow<'m, Json>> {
    let Json::Object(fields) = message else {
        bail!(Argument, "a message is not a JSON object");
    };
    let reasoning = REASONING
        .iter()
        .find_map(|name| fields.get(*name).filter(|v| !v.is_null()));
    let tool_calls = fields.get("tool_calls").and_then(Json::as_array);
    let has_string = |call: &Json| {
        call.pointer("/function/arguments")
            .is_some_and(Json::is_string)
    };
    let has_strings = tool_calls.is_some_and(|calls| calls.iter().any(has_string));
    if reasoning.is_none() && !has_strings {
        return Ok(Cow::Borrowed(message));
    }
    let mut fields = fields.clone();
    if let Some(reasoning) = reasoning {
        fields.insert(REASONING[0].into(), reasoning.clone());
        fields
            .entry(REASONING[1])
            .or_insert_with(|| reasoning.clone());
        if tool_calls.is_some_and(|calls| !calls.is_empty()) && template.contains(EXCLUSIVE) {
            move_content_to_reasoning(&mut fields);
        }
    }
    let tool_calls = fields.get_mut("tool_calls").and_then(Json::as_array_mut);
    for arguments in tool_calls
        .into_iter()
        .flatten()
        .filter_map(|call| call.pointer_mut("/function/arguments"))
    {
        if let Some(object) = parsed(arguments) {
            *arguments = object;
        }
    }
    Ok(Cow::Owned(Json::Object(fields)))
}

/// Appends the content of a message to its reasoning. The template of gpt-oss renders the content of
/// messages with tool calls as reasoning, but accepts only one of them.
fn move_content_to_reasoning(fields: &mut Map<String, Json>) {
    let field = |name: &str| fields.get(name)?.as_str().filter(|text| !text.is_empty());
    if let (Some(content), Some(reasoning)) = (field("content"), field(REASONING[1])) {
        let both = format!("{reasoning}\n\n{content}");
        fields.insert(REASONING[1].into(), both.into());
        fields.insert("content".into(), "".into());
    }
}
