//! The request of a response.

use super::items::{items, messages};
use super::tools::ToolTable;
use crate::api::common::top_logprobs;
use crate::api::format::{FormatFields, response_format};
use crate::engine::conversation::{Chat, PromptEnd, ResponseFormat};
use crate::engine::numbers::Int;
use crate::engine::parameters::{TokenLimit, generate_options};
use crate::engine::tools;
use crate::http::body::{Json, fields};
use crate::http::error::{ApiError, ApiResult};
use crate::http::memory::BodyMemory;
use crate::models::Loaded;
use crate::response_store::ResponseStore;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::sync::Arc;
use tabla::GenerateOptions;
use utoipa::ToSchema;

/// Request of a response. Unknown fields are ignored.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ResponsesFields {
    /// Name of the model; the default model if it is missing.
    pub(crate) model: Option<String>,
    /// Text, or items: messages, function calls and their outputs, reasoning.
    #[schema(value_type = Option<Object>)]
    pub(crate) input: Option<Value>,
    /// System message before all items.
    pub(crate) instructions: Option<String>,
    /// Maximum number of tokens to generate, at least 1. Reasoning counts.
    #[schema(value_type = Option<i64>)]
    pub(crate) max_output_tokens: Option<Int>,
    /// Whether the answer is streamed.
    pub(crate) stream: Option<bool>,
    /// Tools: functions, custom tools and namespaces of functions. Others are skipped.
    #[schema(value_type = Option<Vec<Object>>)]
    pub(crate) tools: Option<Vec<Value>>,
    /// `none`, `auto`, `required`, a named tool, or allowed tools.
    #[schema(value_type = Option<Object>)]
    pub(crate) tool_choice: Option<Value>,
    /// Whether an answer may have several tool calls. Default true.
    pub(crate) parallel_tool_calls: Option<bool>,
    pub(crate) text: Option<TextFields>,
    pub(crate) reasoning: Option<ReasoningFields>,
    /// Identifier of the stored response that the conversation continues.
    pub(crate) previous_response_id: Option<String>,
    /// Whether the response is stored. Default true.
    pub(crate) store: Option<bool>,
    /// Further output: `message.output_text.logprobs`, `reasoning.encrypted_content`.
    pub(crate) include: Option<Vec<String>>,
    /// Number of likeliest tokens at each position, 0 to 20.
    #[schema(value_type = Option<i64>)]
    pub(crate) top_logprobs: Option<Int>,
    /// Must not be true: a response ends with its connection.
    pub(crate) background: Option<bool>,
    /// Repeated in the answer.
    #[schema(value_type = Option<Object>)]
    pub(crate) metadata: Option<Map<String, Value>>,
    /// Variables of the chat template.
    #[schema(value_type = Option<Object>)]
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
    /// Repeated in the answer if it is an integer.
    #[schema(ignore)]
    pub(crate) max_tool_calls: Option<Value>,
    /// Repeated in the answer if it is a string.
    #[schema(ignore)]
    pub(crate) prompt_cache_key: Option<Value>,
    /// Repeated in the answer if it is a string.
    #[schema(ignore)]
    pub(crate) safety_identifier: Option<Value>,
    /// Repeated in the answer if it is a string.
    #[schema(ignore)]
    pub(crate) user: Option<Value>,
    /// Not supported.
    #[schema(ignore)]
    conversation: Option<IgnoredAny>,
    /// Not supported.
    #[schema(ignore)]
    prompt: Option<IgnoredAny>,
}

/// Format of the text.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct TextFields {
    /// `{"type": "text"}`, `{"type": "json_object"}`, or `{"type": "json_schema", "schema": {}}`.
    #[schema(value_type = Option<Object>)]
    pub(crate) format: Option<Value>,
    /// Repeated in the answer.
    pub(crate) verbosity: Option<String>,
}

/// Reasoning of the model.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ReasoningFields {
    /// Effort; `none` disables the reasoning.
    pub(crate) effort: Option<String>,
    /// Repeated in the answer. The answer has the reasoning itself.
    #[serde(alias = "generate_summary")]
    pub(crate) summary: Option<String>,
}

/// A request whose items and tools are parsed.
pub(crate) struct ParsedRequest {
    pub(crate) fields: ResponsesFields,
    pub(crate) chat: Chat,
    pub(crate) tools: ToolTable,
    /// Items of the request, without those of the previous response.
    pub(crate) items: Vec<Value>,
}

impl ResponsesFields {
    /// Parses a request.
    pub(crate) fn parse(
        request: &Json,
        store: &ResponseStore,
        memory: &BodyMemory,
        tools_max: usize,
    ) -> ApiResult<ParsedRequest> {
        let mut parsed: Self = fields(request)?;
        if parsed.background.unwrap_or(false) {
            return Err(ApiError::field("background", "must be false"));
        }
        // They name what OpenAI stores and this server does not have.
        let unsupported = [
            ("conversation", parsed.conversation),
            ("prompt", parsed.prompt),
        ];
        if let Some((name, _)) = unsupported.iter().find(|(_, value)| value.is_some()) {
            return Err(ApiError::field(*name, "is not supported"));
        }
        if parsed.input.is_none() && parsed.previous_response_id.is_none() {
            let message = "is missing: expected a string or a list of items";
            return Err(ApiError::field("input", message));
        }
        let mut tools = ToolTable::new(parsed.tools.as_deref().unwrap_or_default())?;
        let tool_choice = tools.choose(parsed.tool_choice.as_ref())?;
        tools::check(&tools.tools, "tool_choice", &tool_choice, tools_max)?;
        let own = items(parsed.input.take(), store)?;
        let before = parsed.previous(store, memory)?;
        let before = before.iter().flat_map(|part| part.iter());
        let mut conversation: Vec<&Value> = before.collect();
        let before = conversation.len();
        conversation.extend(&own);
        let instructions = parsed.instructions.as_deref();
        let (messages, text_arguments) = messages(instructions, &conversation, before, &tools)?;
        let chat = Chat {
            messages,
            text_arguments,
            tools: tools.tools.clone(),
            tool_choice,
            parallel_calls: parsed.parallel_tool_calls.unwrap_or(true),
            response: FormatFields::combined(request, parsed.format()?)?,
            reasoning_effort: parsed.reasoning.as_ref().and_then(|r| r.effort.clone()),
            variables: parsed.chat_template_kwargs.clone().unwrap_or_default(),
            prompt_end: PromptEnd::Automatic,
        };
        Ok(ParsedRequest {
            fields: parsed,
            chat,
            tools,
            items: own,
        })
    }

    /// Returns the items of the conversation that the request continues.
    fn previous(
        &self,
        store: &ResponseStore,
        memory: &BodyMemory,
    ) -> ApiResult<Vec<Arc<Vec<Value>>>> {
        let Some(id) = &self.previous_response_id else {
            return Ok(Vec::new());
        };
        let Some((items, bytes)) = store.conversation(id) else {
            let message = format!("the response {id:?} is not stored");
            let error = ApiError::field("previous_response_id", message);
            return Err(error.code("previous_response_not_found"));
        };
        // The messages have the texts of the items.
        memory.grow(bytes)?;
        Ok(items)
    }

    fn format(&self) -> ApiResult<ResponseFormat> {
        let format = self.text.as_ref().and_then(|text| text.format.as_ref());
        match format {
            None => Ok(ResponseFormat::Text),
            Some(format) => response_format("text.format", format, format),
        }
    }

    /// Whether the answer has this additional output.
    pub(crate) fn includes(&self, name: &str) -> bool {
        self.include.iter().flatten().any(|entry| entry == name)
    }

    /// Returns the limit of the number of tokens.
    pub(crate) fn limit(&self) -> ApiResult<TokenLimit> {
        let limit = self.max_output_tokens;
        let limit = limit.map(|limit| TokenLimit::new("max_output_tokens", limit));
        Ok(limit.transpose()?.unwrap_or_default())
    }

    /// Returns the options of the generation.
    pub(crate) fn options(&self, request: &Json, model: &Loaded) -> ApiResult<GenerateOptions> {
        let top = top_logprobs(self.top_logprobs)?;
        let has_logprobs = top > 0 || self.includes("message.output_text.logprobs");
        let options = generate_options(request, model)?.max_tokens(self.limit()?.max_tokens());
        Ok(options.logprobs(has_logprobs.then_some(top)))
    }
}
