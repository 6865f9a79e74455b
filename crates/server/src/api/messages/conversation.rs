//! Converts messages of content blocks to messages of text.

use crate::api::opaque;
use crate::api::responses::called_name;
use crate::engine::messages::{Media, media_text, tool_call};
use crate::http::error::{ApiError, ApiResult};
use serde_json::{Value, json};
use std::borrow::Cow;

/// Start of the line that Claude Code puts before the system message. It is different in each request, and the
/// prefix cache would end there.
const BILLING: &str = "x-anthropic-billing-header:";

/// Separator of texts that are blocks of their own.
const BLANK_LINE: &str = "\n\n";

/// Returns the text of `system`.
pub(crate) fn system(system: Option<&Value>) -> ApiResult<String> {
    let blocks = match system {
        None | Some(Value::Null) => return Ok(String::new()),
        Some(content) => blocks(content, "system")?,
    };
    system_text(&blocks, "system")
}

/// Returns the messages of a conversation.
pub(crate) fn messages(system: String, list: &[Value]) -> ApiResult<Vec<Value>> {
    let mut messages = Vec::new();
    if !system.is_empty() {
        messages.push(json!({ "role": "system", "content": system }));
    }
    for (at, message) in list.iter().enumerate() {
        let path = format!("messages[{at}]");
        if !message.is_object() {
            return Err(ApiError::field(path, "expected an object"));
        }
        let content_path = format!("{path}.content");
        let blocks = blocks(&message["content"], &content_path)?;
        match message["role"].as_str() {
            Some("user") => user(&mut messages, &blocks, &content_path)?,
            Some("assistant") => assistant(&mut messages, &blocks, &content_path)?,
            Some("system") => {
                let text = system_text(&blocks, &content_path)?;
                if !text.is_empty() {
                    messages.push(json!({ "role": "system", "content": text }));
                }
            }
            _ => {
                let message = "expected user, assistant or system";
                return Err(ApiError::field(format!("{path}.role"), message));
            }
        }
    }
    Ok(messages)
}

/// A content block.
struct Block<'v> {
    kind: &'v str,
    value: &'v Value,
}

/// Returns the blocks of a content; a string is one block.
fn blocks<'v>(content: &'v Value, path: &str) -> ApiResult<Vec<Block<'v>>> {
    match content {
        Value::String(_) => Ok(vec![Block {
            kind: "string",
            value: content,
        }]),
        Value::Array(list) => {
            let blocks = list.iter().enumerate().map(|(at, value)| {
                let kind = value["type"].as_str();
                let kind = kind.ok_or_else(|| {
                    ApiError::field(format!("{path}[{at}].type"), "expected a string")
                })?;
                Ok(Block { kind, value })
            });
            blocks.collect()
        }
        _ => {
            let message = "expected a string or a list of blocks";
            Err(ApiError::field(path, message))
        }
    }
}

/// Returns the text of a block; `None` if it is of a type without text.
fn text<'v>(block: &Block<'v>, path: &str, media: Media) -> ApiResult<Option<Cow<'v, str>>> {
    let source = &block.value["source"];
    match block.kind {
        "string" => Ok(block.value.as_str().map(Cow::Borrowed)),
        "text" => {
            let text = block.value["text"].as_str().map(Cow::Borrowed);
            let missing = || ApiError::field(format!("{path}.text"), "expected a string");
            text.map(Some).ok_or_else(missing)
        }
        "document" if source["type"] == "text" => {
            let text = source["data"].as_str().map(Cow::Borrowed);
            let missing = || ApiError::field(format!("{path}.source.data"), "expected a string");
            text.map(Some).ok_or_else(missing)
        }
        "image" | "document" => media_text(path, block.kind, media).map(|text| Some(text.into())),
        kind => {
            tracing::debug!(path, kind, "skipped a block of an unsupported type");
            Ok(None)
        }
    }
}

/// Returns the texts of all blocks.
fn texts<'v>(blocks: &[Block<'v>], path: &str, media: Media) -> ApiResult<Vec<Cow<'v, str>>> {
    let texts = blocks.iter().enumerate().filter_map(|(at, block)| {
        let text = text(block, &format!("{path}[{at}]"), media);
        text.transpose()
    });
    texts.collect()
}

/// Returns the text of a system message without billing lines.
fn system_text(blocks: &[Block<'_>], path: &str) -> ApiResult<String> {
    let texts = texts(blocks, path, Media::Rejected)?;
    let kept = texts.iter().map(|text| without_billing(text));
    let kept = kept.filter(|text| !text.is_empty());
    Ok(kept.collect::<Vec<_>>().join(BLANK_LINE))
}

fn without_billing(text: &str) -> String {
    if !text.contains(BILLING) {
        return text.to_string();
    }
    let lines = text.split_inclusive('\n');
    let kept = lines.filter(|line| !line.trim_start().starts_with(BILLING));
    kept.collect()
}

/// Appends the messages of a message of the user: results of tools, then text.
fn user(messages: &mut Vec<Value>, blocks: &[Block<'_>], path: &str) -> ApiResult<()> {
    let mut content = Vec::new();
    let mut has_results = false;
    for (at, block) in blocks.iter().enumerate() {
        let path = format!("{path}[{at}]");
        if block.kind == "tool_result" {
            has_results = true;
            let result = tool_result(messages, block.value, &path)?;
            messages.push(result);
        } else if let Some(text) = text(block, &path, Media::Rejected)? {
            content.push(text);
        }
    }
    if !has_results || !content.is_empty() {
        messages.push(json!({ "role": "user", "content": content.join(BLANK_LINE) }));
    }
    Ok(())
}

fn tool_result(messages: &[Value], result: &Value, path: &str) -> ApiResult<Value> {
    let Some(id) = result["tool_use_id"].as_str() else {
        let path = format!("{path}.tool_use_id");
        return Err(ApiError::field(path, "expected a string"));
    };
    let path = format!("{path}.content");
    let text = match &result["content"] {
        Value::Null => String::new(),
        content => texts(&blocks(content, &path)?, &path, Media::Omitted)?.join(BLANK_LINE),
    };
    let text = match result["is_error"].as_bool() {
        Some(true) => format!("Error: {text}"),
        _ => text,
    };
    let mut message = json!({ "role": "tool", "content": text, "tool_call_id": id });
    // Some templates need the name.
    if let Some(name) = called_name(messages, id) {
        message["name"] = name.into();
    }
    Ok(message)
}

/// Appends a message of the assistant; nothing if it is empty.
fn assistant(messages: &mut Vec<Value>, blocks: &[Block<'_>], path: &str) -> ApiResult<()> {
    let mut content = String::new();
    let mut reasoning = String::new();
    let mut calls = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let path = format!("{path}[{at}]");
        match block.kind {
            "thinking" => reasoning.push_str(&thinking(block.value)),
            "tool_use" => calls.push(tool_use(block.value, &path)?),
            _ => content.push_str(&text(block, &path, Media::Rejected)?.unwrap_or_default()),
        }
    }
    if content.is_empty() && calls.is_empty() {
        return Ok(());
    }
    let mut message = json!({ "role": "assistant", "content": content });
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    messages.push(message);
    Ok(())
}

/// Returns the text of a thinking block; if it was omitted, the text that the signature has.
fn thinking(block: &Value) -> String {
    let text = block["thinking"].as_str().unwrap_or_default();
    let signature = || opaque::decode(block["signature"].as_str()?);
    match text.is_empty() {
        true => signature().unwrap_or_default(),
        false => text.to_string(),
    }
}

fn tool_use(block: &Value, path: &str) -> ApiResult<Value> {
    let text = |name: &str| {
        let value = block[name].as_str();
        value.ok_or_else(|| ApiError::field(format!("{path}.{name}"), "expected a string"))
    };
    let arguments = match &block["input"] {
        Value::Null => "{}".to_string(),
        input @ Value::Object(_) => input.to_string(),
        _ => {
            let path = format!("{path}.input");
            return Err(ApiError::field(path, "expected an object"));
        }
    };
    Ok(tool_call(text("id")?, text("name")?, &arguments))
}
