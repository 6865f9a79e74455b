//! Tools, tool calls and their results as text, for models whose chat templates do not support them.

use serde_json::{Value as Json, json};
use std::borrow::Cow;

/// Returns the text that describes tools and the tool-call format, in the words of Hermes and Qwen.
pub(in crate::chat) fn prompt(tools: &[Json]) -> String {
    let mut text = String::from(
        "# Tools\n\n\
         You may call one or more functions to assist with the user query.\n\n\
         You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n",
    );
    for tool in tools {
        text.push_str(&tool.to_string());
        text.push('\n');
    }
    text.push_str(
        "</tools>\n\n\
         For each function call, return a json object with function name and arguments within \
         <tool_call></tool_call> XML tags:\n<tool_call>\n\
         {\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>",
    );
    text
}

/// Returns messages with tool calls in the format of [`prompt`], and with their results as messages of
/// the user, as by Hermes and Qwen.
pub(in crate::chat) fn messages(messages: Cow<'_, [Json]>) -> Cow<'_, [Json]> {
    let is_text = |message: &Json| calls(message).is_empty() && !is_result(message);
    if messages.iter().all(is_text) {
        return messages;
    }
    let mut written: Vec<Json> = Vec::with_capacity(messages.len());
    let mut follows_result = false;
    for message in messages.iter() {
        let as_text = as_text(message);
        let is_user = as_text["role"] == "user";
        // Some templates reject two messages of the user in a row.
        match written.last_mut().filter(|_| follows_result && is_user) {
            Some(last) => {
                let texts = [content(last), content(&as_text)];
                last["content"] = texts.join("\n").into();
            }
            None => written.push(as_text),
        }
        follows_result = is_user && (follows_result || is_result(message));
    }
    Cow::Owned(written)
}

fn is_result(message: &Json) -> bool {
    message["role"] == "tool"
}

/// Returns the tool calls of a message.
fn calls(message: &Json) -> &[Json] {
    let calls = message.get("tool_calls").and_then(Json::as_array);
    calls.map_or(&[], Vec::as_slice)
}

/// Returns the text of a message.
fn content(message: &Json) -> String {
    match &message["content"] {
        Json::String(text) => text.clone(),
        Json::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect()
        }
        _ => String::new(),
    }
}

/// Returns a message whose tool calls are part of its text, and a result as a message of the user.
fn as_text(message: &Json) -> Json {
    let before = content(message);
    if is_result(message) {
        let content = format!("<tool_response>\n{before}\n</tool_response>");
        return json!({ "role": "user", "content": content });
    }
    let calls = calls(message);
    if calls.is_empty() {
        return message.clone();
    }
    let calls = calls.iter().map(|call| {
        let function = call.get("function").unwrap_or(call);
        let arguments = match &function["arguments"] {
            Json::Null => "{}".to_string(),
            // JSON, or the start of a call that was cut.
            Json::String(text) => text.clone(),
            value => value.to_string(),
        };
        let name = &function["name"];
        format!("<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>")
    });
    let texts = Some(before).into_iter().filter(|text| !text.is_empty());
    let content = texts.chain(calls).collect::<Vec<_>>().join("\n");
    let mut message = message.clone();
    if let Some(fields) = message.as_object_mut() {
        fields.remove("tool_calls");
        fields.insert("content".to_string(), content.into());
    }
    message
}
