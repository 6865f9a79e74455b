//! Prepares a chat: renders and tokenizes the conversation, and compiles the grammar of the answer.

use super::messages::arrange_system;
use super::request::{ChatOutput, OutputFormat};
use super::tools::{Tool, ToolChoice};
use crate::http::error::{ApiError, ApiResult};
use crate::models::Loaded;
use serde_json::{Map, Value};
use tabla::GenerateOptions;
use tabla::text::{
    ChatFormat, ChatTemplate, Conversation, DecodeOptions, EncodeOptions, Grammar, SpecialTokens,
};

/// Number of tokens at the end of a prompt that may open the reasoning.
const PROMPT_END_TOKENS: usize = 16;

/// A conversation and how to answer it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chat {
    /// Normalized messages.
    pub(crate) messages: Vec<Value>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) tool_choice: ToolChoice,
    /// Whether an answer may have several tool calls.
    pub(crate) parallel_calls: bool,
    pub(crate) response: ResponseFormat,
    /// Effort of the reasoning; `none` disables it.
    pub(crate) reasoning_effort: Option<String>,
    /// Further variables of the chat template.
    pub(crate) variables: Map<String, Value>,
}

/// Format of the answer.
#[derive(Clone, Debug, Default)]
pub(crate) enum ResponseFormat {
    /// Any text.
    #[default]
    Text,
    /// Text that matches a grammar.
    Grammar(Grammar),
}

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
    model.check_text()?;
    let bytes = chat
        .messages
        .iter()
        .map(|message| message.to_string().len());
    model.check_bytes(bytes.sum())?;
    let tools: Vec<Value> = match chat.tool_choice {
        ToolChoice::None => Vec::new(),
        _ => chat.tools.iter().map(Tool::to_template).collect(),
    };
    let template = model.template(&tools)?;
    let prompt = encode(model, template, &chat, &tools)?;
    model.check_length(prompt.len())?;
    let format = ChatFormat::detect(template, &tools);
    let tokenizer = model.model.tokenizer();
    let end = &prompt[prompt.len().saturating_sub(PROMPT_END_TOKENS)..];
    let decode = DecodeOptions::default().specials(SpecialTokens::Tokens);
    let prompt_end = tokenizer.decode_lossy(end, decode)?;
    let grammar = grammar(model, &chat, &format)?;
    let grammar = match grammar {
        Some(grammar) => Some(model.model.compile_grammar(&grammar)?),
        None => None,
    };
    let calls_max = match chat.parallel_calls {
        true => u32::MAX,
        false => 1,
    };
    Ok(PreparedChat {
        prompt,
        options: options.grammar(grammar),
        format: OutputFormat::Chat(ChatOutput {
            format,
            prompt_end,
            calls_max,
        }),
        warnings: Vec::new(),
    })
}

/// Renders and tokenizes the conversation. A text of the assistant at the end is continued.
fn encode(
    model: &Loaded,
    template: &ChatTemplate,
    chat: &Chat,
    tools: &[Value],
) -> ApiResult<Vec<u32>> {
    let mut messages = arrange_system(chat.messages.clone(), model.late_system());
    let is_assistant =
        |message: &mut Value| message["role"] == "assistant" && message.get("tool_calls").is_none();
    let continued = messages.pop_if(is_assistant);
    let variables = variables(chat);
    let conversation = Conversation::new(&messages)
        .tools(tools)
        .variables(&variables);
    let tokenizer = model.model.tokenizer();
    let mut prompt = template.encode(&conversation, tokenizer)?;
    if let Some(text) = continued
        .as_ref()
        .and_then(|message| message["content"].as_str())
    {
        prompt.extend(tokenizer.encode(text, EncodeOptions::default())?);
    }
    Ok(prompt)
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

/// Returns the grammar of the answer.
fn grammar(model: &Loaded, chat: &Chat, format: &ChatFormat) -> ApiResult<Option<Grammar>> {
    let forced = match &chat.tool_choice {
        ToolChoice::Auto | ToolChoice::None => {
            return Ok(match &chat.response {
                ResponseFormat::Text => None,
                ResponseFormat::Grammar(grammar) => Some(grammar.clone()),
            });
        }
        ToolChoice::Required => format.forced_tool_call(None, model.model.tokenizer())?,
        ToolChoice::Named(name) => format.forced_tool_call(Some(name), model.model.tokenizer())?,
    };
    match forced {
        Some(grammar) => Ok(Some(grammar)),
        None => Err(ApiError::field(
            "tool_choice",
            "a tool call of this model cannot be forced",
        )),
    }
}
