//! The request of a message.

use super::conversation::{messages, system};
use crate::api::format::response_format;
use crate::engine::conversation::{Chat, PromptEnd, ResponseFormat};
use crate::engine::numbers::Int;
use crate::engine::parameters::{LimitFields, TokenLimit, generate_options};
use crate::engine::tools::{self, Tool, ToolChoice};
use crate::http::body::{Json, fields};
use crate::http::error::{ApiError, ApiResult};
use crate::models::Loaded;
use serde::Deserialize;
use serde_json::{Map, Value};
use tabla::GenerateOptions;
use utoipa::ToSchema;

/// Request of a message. Unknown fields are ignored; `max_tokens`, `stop_sequences` and the parameters of
/// sampling are parsed apart.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct MessagesFields {
    /// Name of the model; the default model if it is missing.
    pub(crate) model: Option<String>,
    /// Messages of user, assistant and system.
    #[schema(value_type = Vec<Object>)]
    messages: Option<Vec<Value>>,
    /// System message before all messages: text, or text blocks.
    #[schema(value_type = Option<Object>)]
    system: Option<Value>,
    /// Whether the answer is streamed.
    pub(crate) stream: Option<bool>,
    /// Tools with a name, a description and a JSON schema. Tools of the provider are skipped.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    tool_choice: Option<ToolChoiceFields>,
    thinking: Option<ThinkingFields>,
    output_config: Option<OutputFields>,
    /// Older form of `output_config.format`.
    #[schema(value_type = Option<Object>)]
    output_format: Option<Value>,
    /// Variables of the chat template.
    #[schema(value_type = Option<Object>)]
    chat_template_kwargs: Option<Map<String, Value>>,
}

/// Which tools the model must or may call.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ToolChoiceFields {
    /// `auto`, `any`, `tool` or `none`.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Name of the tool.
    name: Option<String>,
    /// Whether an answer has at most one call.
    disable_parallel_tool_use: Option<bool>,
}

/// Reasoning of the model.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ThinkingFields {
    /// `enabled`, `adaptive` or `disabled`.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// `omitted`: the answer has no text of the reasoning, only the signature.
    display: Option<String>,
    /// Maximum number of tokens of the reasoning; then it is closed.
    #[schema(value_type = Option<i64>)]
    budget_tokens: Option<Int>,
}

/// Effort and format of the answer.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct OutputFields {
    /// Effort of the reasoning.
    effort: Option<String>,
    /// `{"type": "json_schema", "schema": {}}`.
    #[schema(value_type = Option<Object>)]
    format: Option<Value>,
}

impl MessagesFields {
    /// Returns the conversation.
    pub(crate) fn chat(&self, tools_max: usize) -> ApiResult<Chat> {
        let tools = self.tools()?;
        let tool_choice = self.tool_choice()?;
        tools::check(&tools, "tool_choice", &tool_choice, tools_max)?;
        let list = self.messages.as_deref().unwrap_or_default();
        if list.is_empty() {
            let message = "expected at least one message";
            return Err(ApiError::field("messages", message));
        }
        let choice = self.tool_choice.as_ref();
        let is_single = choice.and_then(|choice| choice.disable_parallel_tool_use);
        Ok(Chat {
            messages: messages(system(self.system.as_ref())?, list)?,
            text_arguments: None,
            tools,
            tool_choice,
            parallel_calls: !is_single.unwrap_or(false),
            response: self.format()?,
            reasoning_effort: Some(self.effort().to_string()),
            variables: self.chat_template_kwargs.clone().unwrap_or_default(),
            prompt_end: PromptEnd::Automatic,
        })
    }

    /// Returns the limit of the number of tokens.
    pub(crate) fn limit(request: &Json) -> ApiResult<TokenLimit> {
        let fields: LimitFields = fields(request)?;
        Ok(fields.limit()?.unwrap_or_default())
    }

    /// Returns the options of the generation.
    pub(crate) fn options(&self, request: &Json, model: &Loaded) -> ApiResult<GenerateOptions> {
        let limit = Self::limit(request)?;
        let options = generate_options(request, model)?.max_tokens(limit.max_tokens());
        let thinking = self.thinking.as_ref();
        let budget = thinking.and_then(|thinking| thinking.budget_tokens);
        let budget = budget.map(|tokens| tokens.u32_in("thinking.budget_tokens", 0, u32::MAX));
        let budget = budget.transpose()?.or(options.reasoning_budget);
        Ok(options.reasoning_budget(budget))
    }

    /// Whether the answer omits the text of the reasoning.
    pub(crate) fn omits_thinking(&self) -> bool {
        let thinking = self.thinking.as_ref();
        thinking.is_some_and(|thinking| thinking.display.as_deref() == Some("omitted"))
    }

    /// Returns the effort of the reasoning. It is disabled unless the request has `thinking` or an effort:
    /// clients that do not expect reasoning read the first block as text.
    fn effort(&self) -> &str {
        let kind = self
            .thinking
            .as_ref()
            .and_then(|thinking| thinking.kind.as_deref());
        let effort = self
            .output_config
            .as_ref()
            .and_then(|output| output.effort.as_deref());
        match (kind, effort) {
            (Some("disabled"), _) | (None, None) => "none",
            (_, Some(effort)) => effort,
            (Some(_), None) => "medium",
        }
    }

    fn format(&self) -> ApiResult<ResponseFormat> {
        let output = self.output_config.as_ref();
        let format = output.and_then(|output| output.format.as_ref());
        let named = [
            ("output_config.format", format),
            ("output_format", self.output_format.as_ref()),
        ];
        let given = named
            .into_iter()
            .find_map(|(name, format)| Some((name, format?)));
        match given {
            None => Ok(ResponseFormat::Text),
            Some((name, format)) => response_format(name, format, format),
        }
    }

    /// Parses tools. Tools that the provider executes or defines are skipped.
    fn tools(&self) -> ApiResult<Vec<Tool>> {
        let mut parsed = Vec::new();
        for (at, tool) in self.tools.iter().flatten().enumerate() {
            let path = format!("tools[{at}]");
            let kind = tool["type"].as_str().unwrap_or("custom");
            if kind != "custom" {
                tracing::debug!(path, kind, "skipped a tool that the server does not have");
                continue;
            }
            let schema = &tool["input_schema"];
            if !matches!(schema, Value::Null | Value::Bool(true) | Value::Object(_)) {
                let path = format!("{path}.input_schema");
                return Err(ApiError::field(path, "expected a JSON schema"));
            }
            let text = |name: &str| tool[name].as_str();
            let parsed_tool = Tool::new(&path, text("name"), text("description"), Some(schema))?;
            parsed.push(parsed_tool.strict(&tool["strict"]));
        }
        Ok(parsed)
    }

    fn tool_choice(&self) -> ApiResult<ToolChoice> {
        let Some(choice) = &self.tool_choice else {
            return Ok(ToolChoice::Auto);
        };
        match (choice.kind.as_deref(), &choice.name) {
            (Some("auto"), _) => Ok(ToolChoice::Auto),
            (Some("none"), _) => Ok(ToolChoice::None),
            (Some("any"), _) => Ok(ToolChoice::Required),
            (Some("tool"), Some(name)) => Ok(ToolChoice::Named(name.clone())),
            (Some("tool"), None) => Err(ApiError::field("tool_choice.name", "expected a string")),
            _ => {
                let message = "expected auto, any, tool or none";
                Err(ApiError::field("tool_choice.type", message))
            }
        }
    }
}
