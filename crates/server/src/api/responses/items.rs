//! Converts items of a conversation to messages.

use super::tools::{ToolTable, custom_arguments};
use crate::api::opaque;
use crate::engine::messages::{Media, is_object, text_of, tool_call};
use crate::http::error::{ApiError, ApiResult};
use crate::response_store::ResponseStore;
use axum::http::StatusCode;
use serde_json::{Value, json};

/// Returns the items of `input`: a string is one message of the user. References are replaced by the items.
pub(crate) fn items(input: Option<Value>, store: &ResponseStore) -> ApiResult<Vec<Value>> {
    let items = match input {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::String(text)) => {
            return Ok(vec![
                json!({ "type": "message", "role": "user", "content": text }),
            ]);
        }
        Some(Value::Array(items)) => items,
        Some(_) => {
            let message = "expected a string or a list of items";
            return Err(ApiError::field("input", message));
        }
    };
    let resolved = items.into_iter().enumerate().map(|(at, item)| {
        if !item.is_object() {
            return Err(ApiError::field(
                format!("input[{at}]"),
                "expected an object",
            ));
        }
        match (item["type"].as_str(), item["id"].as_str()) {
            (Some("item_reference"), Some(id)) => {
                let message = format!("the item {id:?} is not stored");
                let path = format!("input[{at}].id");
                store.item(id).ok_or_else(|| {
                    ApiError::new(StatusCode::NOT_FOUND, format!("{path}: {message}")).param(path)
                })
            }
            _ => Ok(item),
        }
    });
    resolved.collect()
}

/// Returns the messages of a conversation, and the field of the first call whose arguments are no JSON
/// object. `own` is the number of items before those of the request, which
/// errors name.
pub(crate) fn messages(
    instructions: Option<&str>,
    items: &[&Value],
    own: usize,
    tools: &ToolTable,
) -> ApiResult<(Vec<Value>, Option<String>)> {
    let mut conversation = Conversation {
        messages: Vec::new(),
        text_arguments: None,
        reasoning: String::new(),
        tools,
    };
    if let Some(text) = instructions.filter(|text| !text.is_empty()) {
        conversation.push("system", text.to_string());
    }
    for (at, item) in items.iter().enumerate() {
        let path = match at.checked_sub(own) {
            Some(at) => format!("input[{at}]"),
            None => "previous_response_id".to_string(),
        };
        conversation.item(item, &path)?;
    }
    if conversation.messages.iter().all(is_system) {
        // Some clients send an empty input to load the model; templates expect a message of the user.
        conversation.push("user", String::new());
    }
    Ok((conversation.messages, conversation.text_arguments))
}

fn is_system(message: &Value) -> bool {
    message["role"] == "system"
}

/// A conversation that is being converted.
struct Conversation<'a> {
    messages: Vec<Value>,
    text_arguments: Option<String>,
    /// Reasoning of the assistant message that follows.
    reasoning: String,
    tools: &'a ToolTable,
}

impl Conversation<'_> {
    fn item(&mut self, item: &Value, path: &str) -> ApiResult<()> {
        match item["type"].as_str() {
            None | Some("message") => self.message(item, path),
            Some("function_call") => {
                let arguments = text(item, "arguments", path)?;
                if !arguments.trim().is_empty() && !is_object(arguments) {
                    let field = || format!("{path}.arguments");
                    self.text_arguments.get_or_insert_with(field);
                }
                self.call(item, arguments.to_string(), path)
            }
            Some("custom_tool_call") => {
                let input = custom_arguments(text(item, "input", path)?);
                self.call(item, input, path)
            }
            Some("function_call_output" | "custom_tool_call_output") => self.output(item, path),
            Some("reasoning") => {
                self.reasoning.push_str(&reasoning(item));
                Ok(())
            }
            Some(kind) => {
                tracing::debug!(path, kind, "skipped an item of an unsupported type");
                Ok(())
            }
        }
    }

    fn message(&mut self, item: &Value, path: &str) -> ApiResult<()> {
        let role = match item["role"].as_str() {
            Some("developer" | "system") => "system",
            Some("user") => "user",
            Some("assistant") => "assistant",
            _ => {
                let message = "expected system, developer, user or assistant";
                return Err(ApiError::field(format!("{path}.role"), message));
            }
        };
        let content = match &item["content"] {
            Value::Null => String::new(),
            content => text_of(content, &format!("{path}.content"), Media::Rejected)?,
        };
        match role {
            "assistant" => {
                let at = self.assistant(has_calls);
                let before = self.messages[at]["content"].as_str();
                let texts = [before.unwrap_or_default(), &content];
                let texts = texts.into_iter().filter(|text| !text.is_empty());
                let content = texts.collect::<Vec<_>>().join("\n\n");
                self.messages[at]["content"] = content.into();
            }
            role => self.push(role, content),
        }
        Ok(())
    }

    fn call(&mut self, item: &Value, arguments: String, path: &str) -> ApiResult<()> {
        let id = text(item, "call_id", path)?;
        let name = text(item, "name", path)?;
        let name = self.tools.flat_name(item["namespace"].as_str(), name);
        let arguments = match arguments.trim().is_empty() {
            true => "{}",
            false => &arguments,
        };
        let call = tool_call(id, &name, arguments);
        let at = self.assistant(|_| false);
        match self.messages[at]["tool_calls"].as_array_mut() {
            Some(calls) => calls.push(call),
            None => self.messages[at]["tool_calls"] = json!([call]),
        }
        Ok(())
    }

    fn output(&mut self, item: &Value, path: &str) -> ApiResult<()> {
        let id = text(item, "call_id", path)?;
        let content = match &item["output"] {
            Value::Null => String::new(),
            output @ (Value::String(_) | Value::Array(_)) => {
                text_of(output, &format!("{path}.output"), Media::Omitted)?
            }
            output => output.to_string(),
        };
        let mut message = json!({ "role": "tool", "content": content, "tool_call_id": id });
        // Some templates need the name.
        if let Some(name) = called_name(&self.messages, id) {
            message["name"] = name.into();
        }
        self.reasoning.clear();
        self.messages.push(message);
        Ok(())
    }

    fn push(&mut self, role: &str, content: String) {
        self.reasoning.clear();
        self.messages
            .push(json!({ "role": role, "content": content }));
    }

    /// Returns the index of the assistant message to which the next item belongs: the last message, or a new
    /// one if the last one is of another role, has reasoning before this item, or is `complete`.
    fn assistant(&mut self, is_complete: impl Fn(&Value) -> bool) -> usize {
        let is_open = self.messages.last().is_some_and(|last| {
            last["role"] == "assistant" && self.reasoning.is_empty() && !is_complete(last)
        });
        if !is_open {
            let mut message = json!({ "role": "assistant", "content": "" });
            if !self.reasoning.is_empty() {
                message["reasoning_content"] = std::mem::take(&mut self.reasoning).into();
            }
            self.messages.push(message);
        }
        self.messages.len() - 1
    }
}

/// Whether an assistant message has tool calls, so that further text is another message.
fn has_calls(message: &Value) -> bool {
    message.get("tool_calls").is_some()
}

/// Returns the name of the tool that was called with this identifier.
pub(crate) fn called_name(messages: &[Value], id: &str) -> Option<String> {
    let calls = messages.iter().rev().filter_map(|message| {
        let calls = message.get("tool_calls")?.as_array()?;
        calls.iter().find(|call| call["id"] == id)
    });
    let name = calls.map(|call| call["function"]["name"].as_str()).next();
    name.flatten().map(str::to_string)
}

/// Returns the text of a reasoning item: its content, `encrypted_content` of this server, or its summary.
fn reasoning(item: &Value) -> String {
    let joined = |name: &str| {
        let parts = item[name].as_array().into_iter().flatten();
        let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
        texts.join("\n\n")
    };
    let content = joined("content");
    if !content.is_empty() {
        return content;
    }
    let encoded = item["encrypted_content"].as_str();
    encoded
        .and_then(opaque::decode)
        .unwrap_or_else(|| joined("summary"))
}

/// Returns a string field of an item.
fn text<'v>(item: &'v Value, name: &str, path: &str) -> ApiResult<&'v str> {
    item[name]
        .as_str()
        .ok_or_else(|| ApiError::field(format!("{path}.{name}"), "expected a string"))
}
