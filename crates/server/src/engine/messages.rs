//! Messages in the format of OpenAI's chat completions, and the place of system messages.

use crate::http::error::{ApiError, ApiResult};
use serde_json::{Map, Value, json};

/// Returns the messages of a request in the form that chat templates expect.
pub(crate) fn normalize(messages: &[Value]) -> ApiResult<Vec<Value>> {
    if messages.is_empty() {
        return Err(ApiError::field("messages", "expected at least one message"));
    }
    let normalized = messages.iter().enumerate().map(|(at, message)| {
        let path = format!("messages[{at}]");
        match message {
            Value::Object(fields) => normalize_message(fields, &path),
            _ => Err(ApiError::field(path, "expected an object")),
        }
    });
    let mut normalized: Vec<Value> = normalized.collect::<ApiResult<_>>()?;
    // Some clients append an empty message for the answer.
    let is_empty = |message: &Value| {
        message["role"] == "assistant"
            && message["content"].as_str().is_none_or(str::is_empty)
            && message.get("tool_calls").is_none()
    };
    if normalized.len() > 1 && normalized.last().is_some_and(is_empty) {
        normalized.pop();
    }
    Ok(normalized)
}

fn normalize_message(fields: &Map<String, Value>, path: &str) -> ApiResult<Value> {
    let role = match fields.get("role").and_then(Value::as_str) {
        Some("developer" | "system") => "system",
        Some("function") => "tool",
        Some(role @ ("user" | "assistant" | "tool")) => role,
        _ => {
            let message = "expected system, developer, user, assistant or tool";
            return Err(ApiError::field(format!("{path}.role"), message));
        }
    };
    let content_path = format!("{path}.content");
    let content = match fields.get("content") {
        None | Some(Value::Null) if role == "user" => {
            return Err(ApiError::field(
                content_path,
                "a user message needs content",
            ));
        }
        None | Some(Value::Null) => None,
        Some(content) if role == "tool" && !is_text(content) => Some(content.to_string()),
        Some(content) => {
            let media = match role {
                "tool" => Media::Omitted,
                _ => Media::Rejected,
            };
            Some(text_of(content, &content_path, media)?)
        }
    };
    let mut message = json!({ "role": role });
    // Templates concatenate the content, which then must be a string.
    message["content"] = content.unwrap_or_default().into();
    if role == "assistant" {
        let mut reasoning = ["reasoning_content", "reasoning"].iter();
        let reasoning = reasoning.find_map(|name| fields.get(*name)?.as_str());
        if let Some(reasoning) = reasoning.filter(|text| !text.is_empty()) {
            message["reasoning_content"] = reasoning.into();
        }
        let calls = tool_calls(fields, path)?;
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
    }
    for name in ["name", "tool_call_id"] {
        if let Some(value) = fields.get(name).filter(|value| value.is_string()) {
            message[name] = value.clone();
        }
    }
    Ok(message)
}

/// Whether a content is a string or a list of parts.
fn is_text(content: &Value) -> bool {
    let is_part = |part: &Value| part.get("type").is_some_and(Value::is_string);
    match content {
        Value::String(_) => true,
        Value::Array(parts) => parts.iter().all(is_part),
        _ => false,
    }
}

/// What happens to a part that is not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// The request is rejected.
    Rejected,
    /// A text takes its place: in results of tools, which an agent sends again with every request.
    Omitted,
}

/// Returns the text of a content: a string, or a list of text parts, which are joined by line breaks as in llama.cpp
/// and vLLM.
pub(crate) fn text_of(content: &Value, path: &str, media: Media) -> ApiResult<String> {
    Ok(parts_of(content, path, media)?.join("\n"))
}

/// Returns the texts of a content: a string, or a list of text parts.
pub(crate) fn parts_of(content: &Value, path: &str, media: Media) -> ApiResult<Vec<String>> {
    let parts = match content {
        Value::String(text) => return Ok(vec![text.clone()]),
        Value::Array(parts) => parts,
        _ => {
            return Err(ApiError::field(
                path,
                "expected a string or a list of parts",
            ));
        }
    };
    let mut texts = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let field = match part.get("type").and_then(Value::as_str) {
            Some("text" | "input_text" | "output_text") => "text",
            Some("refusal") => "refusal",
            Some(kind) => {
                texts.push(media_text(&path, kind, media)?);
                continue;
            }
            None => return Err(ApiError::field(format!("{path}.type"), "expected a string")),
        };
        match part.get(field).and_then(Value::as_str) {
            Some(part) => texts.push(part.to_string()),
            None => {
                return Err(ApiError::field(
                    format!("{path}.{field}"),
                    "expected a string",
                ));
            }
        }
    }
    Ok(texts)
}

/// Returns the text that takes the place of a part that is not text.
///
/// # Errors
///
/// Status 400 if the request is rejected.
pub(crate) fn media_text(path: &str, kind: &str, media: Media) -> ApiResult<String> {
    let (what, error) = match kind {
        "image_url" | "input_image" | "image" => ("image", "images are not supported"),
        "input_audio" | "audio" => ("audio", "audio is not supported"),
        "file" | "input_file" | "document" => ("file", "files are not supported"),
        _ => (kind, "only text is supported"),
    };
    match media {
        Media::Omitted => Ok(format!("[{what} omitted: the model reads only text]")),
        Media::Rejected => Err(ApiError::field(
            format!("{path}.type"),
            format!("{error}, got a part of type {kind:?}"),
        )),
    }
}

/// Returns the tool calls of an assistant message; also of the older field `function_call`.
fn tool_calls(fields: &Map<String, Value>, path: &str) -> ApiResult<Vec<Value>> {
    let older = fields.get("function_call").filter(|call| call.is_object());
    let calls = match (fields.get("tool_calls"), older) {
        (None | Some(Value::Null), None) => return Ok(Vec::new()),
        (None | Some(Value::Null), Some(call)) => vec![json!({ "function": call })],
        (Some(Value::Array(calls)), _) => calls.clone(),
        _ => {
            return Err(ApiError::field(
                format!("{path}.tool_calls"),
                "expected a list",
            ));
        }
    };
    let normalized = calls.iter().enumerate().map(|(at, call)| {
        let function = call.get("function").or_else(|| call.get("custom"));
        let name = function.and_then(|function| function.get("name")?.as_str());
        let (Some(function), Some(name)) = (function, name) else {
            let path = format!("{path}.tool_calls[{at}].function.name");
            return Err(ApiError::field(path, "expected a string"));
        };
        let arguments = function.get("arguments").or_else(|| function.get("input"));
        let arguments = match arguments {
            None | Some(Value::Null) => "{}".to_string(),
            Some(Value::String(text)) if text.trim().is_empty() => "{}".to_string(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        let id = call.get("id").and_then(Value::as_str);
        let id = id.map_or_else(|| format!("call_{at}"), str::to_string);
        Ok(tool_call(&id, name, &arguments))
    });
    normalized.collect()
}

/// Returns the field of the first tool call whose arguments are no JSON object.
pub(crate) fn text_arguments(messages: &[Value]) -> Option<String> {
    let mut calls = messages.iter().enumerate().flat_map(|(message, fields)| {
        let calls = fields.get("tool_calls").and_then(Value::as_array);
        let calls = calls.into_iter().flatten().enumerate();
        calls.map(move |(at, call)| (message, at, &call["function"]["arguments"]))
    });
    let cut = calls.find(|(.., arguments)| arguments.as_str().is_some_and(|text| !is_object(text)));
    cut.map(|(message, at, _)| format!("messages[{message}].tool_calls[{at}].function.arguments"))
}

/// Whether a text is a JSON object.
pub(crate) fn is_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

/// Returns a tool call in the format of chat templates.
pub(crate) fn tool_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({
        "id": id,
        "type": "function",
        "function": { "name": name, "arguments": arguments },
    })
}

/// Where system messages after the first message go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateSystem {
    /// They stay: the chat template accepts them.
    Kept,
    /// Into the next user message.
    Moved,
}

/// Joins the system messages at the start, and moves later ones into the next user message if the
/// template does not accept them. They are never moved to the start: that would change the prefix that
/// the cache has.
pub(crate) fn arrange_system(messages: Vec<Value>, late: LateSystem) -> Vec<Value> {
    let is_system = |message: &Value| message["role"] == "system";
    let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_string();
    let leading = messages.iter().take_while(|message| is_system(message));
    let leading: Vec<String> = leading.map(text).collect();
    let rest = messages.into_iter().skip(leading.len());
    let mut arranged = Vec::new();
    if !leading.is_empty() {
        arranged.push(json!({ "role": "system", "content": leading.join("\n\n") }));
    }
    let mut pending: Vec<String> = Vec::new();
    for mut message in rest {
        if is_system(&message) && late == LateSystem::Moved {
            pending.push(text(&message));
            continue;
        }
        if !pending.is_empty() {
            let moved = std::mem::take(&mut pending).join("\n\n");
            if message["role"] == "user" {
                message["content"] = format!("{moved}\n\n{}", text(&message)).into();
            } else {
                arranged.push(json!({ "role": "user", "content": moved }));
            }
        }
        arranged.push(message);
    }
    if !pending.is_empty() {
        let moved = pending.join("\n\n");
        match arranged.last_mut().filter(|last| last["role"] == "user") {
            Some(last) => last["content"] = format!("{}\n\n{moved}", text(last)).into(),
            None => arranged.push(json!({ "role": "user", "content": moved })),
        }
    }
    arranged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(messages: &[Value]) -> Vec<String> {
        let line = |m: &Value| {
            format!(
                "{}:{}",
                m["role"].as_str().unwrap_or("?"),
                m["content"].as_str().unwrap_or("?")
            )
        };
        messages.iter().map(line).collect()
    }

    #[test]
    fn system_messages_stay_where_the_template_takes_them() {
        let messages = json!([
            { "role": "developer", "content": "a" },
            { "role": "system", "content": [{ "type": "text", "text": "b" }, { "type": "text", "text": "c" }] },
            { "role": "user", "content": "d" },
            { "role": "system", "content": "e" },
            { "role": "user", "content": "f" },
            { "role": "system", "content": "g" },
            { "role": "assistant", "content": null, "tool_calls": [{ "id": null, "function": { "name": "x", "arguments": "" } }] },
            { "role": "tool", "content": { "n": 1 } },
            { "role": "assistant", "content": "" },
        ]);
        let normalized = normalize(messages.as_array().expect("a list")).expect("valid messages");
        let late = arrange_system(normalized.clone(), LateSystem::Kept);
        let expected = [
            "system:a\n\nb\nc",
            "user:d",
            "system:e",
            "user:f",
            "system:g",
            "assistant:",
            "tool:{\"n\":1}",
        ];
        assert_eq!(roles(&late), expected);
        let moved = arrange_system(normalized, LateSystem::Moved);
        let expected = [
            "system:a\n\nb\nc",
            "user:d",
            "user:e\n\nf",
            "user:g",
            "assistant:",
            "tool:{\"n\":1}",
        ];
        assert_eq!(roles(&moved), expected);
        assert_eq!(moved[4]["tool_calls"][0]["function"]["arguments"], "{}");
    }

    #[test]
    fn results_of_tools_keep_their_text() {
        let parts =
            json!([{ "type": "text", "text": "a" }, { "type": "image_url", "image_url": {} }]);
        let message = json!([{ "role": "tool", "tool_call_id": "x", "content": parts }]);
        let normalized = normalize(message.as_array().expect("a list")).expect("valid messages");
        let content = &normalized[0]["content"];
        assert_eq!(*content, "a\n[image omitted: the model reads only text]");
    }

    #[test]
    fn invalid_messages_name_the_field() {
        for (messages, param) in [
            (json!([]), "messages"),
            (json!([1]), "messages[0]"),
            (json!([{ "content": "a" }]), "messages[0].role"),
            (json!([{ "role": "user" }]), "messages[0].content"),
            (
                json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": {} }] }]),
                "messages[0].content[0].type",
            ),
            (
                json!([{ "role": "user", "content": [{ "type": "text" }] }]),
                "messages[0].content[0].text",
            ),
            (
                json!([{ "role": "assistant", "tool_calls": 1 }]),
                "messages[0].tool_calls",
            ),
        ] {
            let error =
                normalize(messages.as_array().expect("a list")).expect_err("invalid messages");
            assert_eq!(error.param.as_deref(), Some(param));
        }
    }
}
