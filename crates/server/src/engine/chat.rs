//! Prepares a chat: renders and tokenizes the conversation, and compiles the grammar of the answer.

use super::answer_grammar::AnswerGrammar;
use super::conversation::Chat;
use super::messages::arrange_system;
use super::request::{ChatOutput, Content, OutputFormat};
use super::tools::{Tool, ToolChoice};
use crate::http::error::{ApiError, ApiResult};
use crate::models::Loaded;
use serde_json::{Map, Value, json};
use tabla::GenerateOptions;
use tabla::text::{
    ChatFormat, ChatTemplate, Conversation, DecodeOptions, EncodeOptions, SpecialTokens,
};

/// Number of tokens at the end of a prompt that may open the reasoning.
const PROMPT_END_TOKENS: usize = 16;

/// A prepared chat.
pub(crate) struct PreparedChat {
    pub(crate) prompt: Vec<u32>,
    pub(crate) options: GenerateOptions,
    pub(crate) format: OutputFormat,
    /// Messages for the log: what is not enforced.
    pub(crate) warnings: Vec<String>,
}

/// Returns the token ids of the prompt of a conversation.
pub(crate) fn prompt_tokens(model: &Loaded, chat: &Chat) -> ApiResult<Vec<u32>> {
    model.check_text()?;
    let bytes = chat
        .messages
        .iter()
        .map(|message| message.to_string().len());
    model.check_bytes(bytes.sum())?;
    let tools = template_tools(chat);
    encode(model, model.template(&tools)?, chat, &tools)
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
    let prompt = prompt_tokens(model, &chat)?;
    model.check_length(prompt.len())?;
    let tools = template_tools(&chat);
    let (relaxed, mut warnings) = match tools.is_empty() {
        true => (Vec::new(), Vec::new()),
        false => {
            let tools: Vec<Value> = chat.tools.iter().map(Tool::to_grammar).collect();
            let relaxed = model.model.grammar_engine()?.relax_tools(&tools);
            relaxed.map_err(|error| ApiError::in_field("tools", error))?
        }
    };
    let format = ChatFormat::detect_or_fallback(model.template(&tools)?, &relaxed);
    let prompt_end = prompt_end(model, &prompt)?;
    let answer = AnswerGrammar {
        model,
        chat: &chat,
        format: &format,
        warnings: &mut warnings,
    };
    let mut options = answer.apply(options, &prompt_end)?;
    let content = match chat.tool_choice {
        ToolChoice::Required | ToolChoice::Named(_) => Content::Forbidden,
        ToolChoice::Auto | ToolChoice::None => Content::Allowed,
    };
    if content == Content::Forbidden {
        // A stop string would end the call within its arguments.
        options.stop.clear();
    }
    let calls_max = match chat.permits_several_calls() {
        true => u32::MAX,
        false => 1,
    };
    Ok(PreparedChat {
        prompt,
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

/// Renders and tokenizes the conversation. A text of the assistant at the end is continued.
fn encode(
    model: &Loaded,
    template: &ChatTemplate,
    chat: &Chat,
    tools: &[Value],
) -> ApiResult<Vec<u32>> {
    let mut messages = chat.messages.clone();
    let mut tools = tools;
    let format = ChatFormat::detect_or_fallback(template, tools);
    if !tools.is_empty() && !format.supports_tools() {
        // The template ignores tools, so the system message describes them.
        let prompt = ChatFormat::fallback_tool_prompt(tools);
        messages.insert(0, json!({ "role": "system", "content": prompt }));
        tools = &[];
    }
    let mut messages = arrange_system(messages, model.late_system());
    let continued = messages.pop_if(|_| chat.continues_answer());
    let variables = variables(chat);
    let conversation = Conversation::new(&messages)
        .tools(tools)
        .variables(&variables);
    let tokenizer = model.model.tokenizer();
    let mut prompt = template.encode(&conversation, tokenizer)?;
    let text = continued
        .as_ref()
        .and_then(|message| message["content"].as_str());
    if let Some(text) = text {
        let prefix = format.content_prefix(&prompt_end(model, &prompt)?);
        let options = EncodeOptions::default().specials(SpecialTokens::Tokens);
        prompt.extend(tokenizer.encode(&prefix, options)?);
        prompt.extend(tokenizer.encode_continuation(text)?);
    }
    Ok(prompt)
}

/// Returns the text of the last tokens of a prompt.
fn prompt_end(model: &Loaded, prompt: &[u32]) -> ApiResult<String> {
    let end = &prompt[prompt.len().saturating_sub(PROMPT_END_TOKENS)..];
    let decode = DecodeOptions::default().specials(SpecialTokens::Tokens);
    Ok(model.model.tokenizer().decode_lossy(end, decode)?)
}

/// Returns the variables of the chat template.
fn variables(chat: &Chat) -> Map<String, Value> {
    let mut variables = chat.variables.clone();
    match chat.reasoning_effort.as_deref() {
        None => {}
        Some("none") => {
            variables.insert("enable_thinking".to_string(), false.into());
        }
        Some(effort) => {
            variables.insert("enable_thinking".to_string(), true.into());
            variables.insert("reasoning_effort".to_string(), effort.into());
        }
    }
    variables
}
