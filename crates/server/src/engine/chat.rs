//! Prepares a chat: renders and tokenizes the conversation, and compiles the grammar of the answer.

use super::answer_grammar::AnswerGrammar;
use super::conversation::{Chat, PromptEnd};
use super::messages::arrange_system;
use super::request::{ChatOutput, Content, OutputFormat};
use super::tools::{self, Tool, ToolChoice};
use crate::http::error::{ApiError, ApiResult};
use crate::http::memory::value_bytes;
use crate::models::Loaded;
use serde_json::Value;
use tabla::text::{ChatFormat, Conversation, TextArguments};
use tabla::{GenerateOptions, ReasoningMarkers};

/// The prompt of a conversation.
pub(crate) struct Prompt {
    /// The rendered chat template.
    pub(crate) text: String,
    pub(crate) tokens: Vec<u32>,
    /// What the chat template does not support.
    warnings: Vec<String>,
}

/// A prepared chat.
pub(crate) struct PreparedChat {
    pub(crate) prompt: Vec<u32>,
    pub(crate) options: GenerateOptions,
    pub(crate) format: OutputFormat,
    /// Messages for the log: what is not enforced.
    pub(crate) warnings: Vec<String>,
}

/// Renders and tokenizes a conversation. A text of the assistant at the end is continued.
pub(crate) fn prompt(model: &Loaded, chat: &Chat) -> ApiResult<Prompt> {
    model.check_text()?;
    let bytes = chat
        .messages
        .iter()
        .map(|message| message.to_string().len());
    model.check_bytes(bytes.sum())?;
    let variables = chat.variables.values().map(value_bytes);
    tools::check_schema_bytes("chat_template_kwargs", variables.sum())?;
    let tools = template_tools(chat);
    let template = model.template(&tools)?;
    let mut messages = arrange_system(chat.messages.clone(), model.late_system());
    let continued = messages.pop_if(|_| chat.continues_answer());
    let variables = model.template_variables(&chat.variables);
    let conversation = Conversation::new(&messages)
        .tools(&tools)
        .variables(&*variables)
        .add_generation_prompt(chat.prompt_end != PromptEnd::Conversation);
    let adapted = template.adapt(&conversation, chat.reasoning_effort.as_deref());
    let tokenizer = model.model.tokenizer();
    let rendered = template.prompt(&adapted.conversation(), tokenizer);
    let (mut text, mut tokens) = rendered.map_err(|error| template_error(error, chat))?;
    let continued = continued
        .as_ref()
        .and_then(|message| message["content"].as_str());
    if let Some(answer) = continued {
        let prompt_end = ChatFormat::prompt_end(tokenizer, &tokens);
        let prefix = ChatFormat::detect(template, &tools).content_prefix(&prompt_end);
        tokens.extend(tokenizer.encode_markers(&prefix)?);
        tokens.extend(tokenizer.encode_continuation(answer)?);
        text.extend([prefix.as_str(), answer]);
    }
    let mut warnings = adapted.warnings;
    warnings.extend(model.template_warning());
    Ok(Prompt {
        text,
        tokens,
        warnings,
    })
}

/// Returns the tools in the format of chat templates.
fn template_tools(chat: &Chat) -> Vec<Value> {
    match chat.tool_choice {
        ToolChoice::None => Vec::new(),
        _ => chat.tools.iter().map(Tool::to_template).collect(),
    }
}

/// Renders, tokenizes and compiles. Blocks.
pub(crate) fn prepare(
    model: &Loaded,
    chat: Chat,
    options: GenerateOptions,
) -> ApiResult<PreparedChat> {
    let prompt = prompt(model, &chat)?;
    model.check_length(prompt.tokens.len())?;
    let tools = template_tools(&chat);
    let (relaxed, relaxations) = match tools.is_empty() {
        true => (Vec::new(), Vec::new()),
        false => {
            let tools: Vec<Value> = chat.tools.iter().map(Tool::to_grammar).collect();
            let relaxed = model.model.grammar_engine()?.relax_tools(&tools);
            relaxed.map_err(|error| ApiError::in_field("tools", error))?
        }
    };
    let mut warnings = [prompt.warnings, relaxations].concat();
    let format = ChatFormat::detect(model.template(&tools)?, &relaxed);
    let prompt_end = ChatFormat::prompt_end(model.model.tokenizer(), &prompt.tokens);
    let answer = AnswerGrammar {
        model,
        chat: &chat,
        format: &format,
        warnings: &mut warnings,
    };
    let reasoning = ReasoningMarkers::of_format(&format, &prompt_end);
    let mut options = answer.apply(options.reasoning(reasoning))?;
    let content = match chat.tool_choice {
        ToolChoice::Required | ToolChoice::Named(_) => Content::Forbidden,
        ToolChoice::Auto | ToolChoice::None => Content::Allowed,
    };
    if content == Content::Forbidden {
        // They would end the call within its arguments.
        options.stop.clear();
        options.stop_token_ids.clear();
    }
    let calls_max = match chat.permits_several_calls() {
        true => u32::MAX,
        false => 1,
    };
    Ok(PreparedChat {
        prompt: prompt.tokens,
        options,
        format: OutputFormat::Chat(ChatOutput {
            format,
            prompt_end,
            calls_max,
            content,
        }),
        warnings,
    })
}

/// Returns the error of the chat template, with the field of variables or arguments that it cannot
/// render.
fn template_error(error: tabla::Error, chat: &Chat) -> ApiError {
    let source = std::error::Error::source(&error);
    let is_of_call = source.is_some_and(|source| source.is::<TextArguments>());
    let message = error.to_string();
    let is_invalid = |name: &&String| message.contains(&format!("invalid variable name {name:?}"));
    if let Some(name) = chat.variables.keys().find(is_invalid) {
        return ApiError::in_field(&format!("chat_template_kwargs.{name}"), error);
    }
    match &chat.text_arguments {
        Some(field) if is_of_call => ApiError::in_field(field, error),
        _ => error.into(),
    }
}
