//! Calls of tools: what templates of real models write of them is read back, and what is forced can
//! be read.

use crate::common::testdata;
use crate::grammar::Walker;
use serde_json::{Value, json};
use std::sync::Arc;
use tabla::Source;
use tabla::text::{
    BUILTIN_TEMPLATES, ChatFormat, ChatTemplate, Conversation, GrammarEngine, MessageDelta,
    TemplateTokens, Tokenizer,
};

fn tools() -> [Value; 2] {
    [
        json!({ "type": "function", "function": { "name": "get_weather", "description": "The weather", "parameters": {
            "type": "object",
            "properties": {
                "city": { "type": "string", "description": "A city" },
                "days": { "type": "integer", "description": "How many" },
                "exact": { "type": "boolean", "description": "Exactly" },
                "place": { "$ref": "#/$defs/place", "type": "object", "description": "Where" },
            },
            "required": ["city"],
            "additionalProperties": false,
            "$defs": { "place": { "type": "object", "properties": { "x": { "type": "number" } }, "required": ["x"], "additionalProperties": false } },
        } } }),
        json!({ "type": "function", "function": { "name": "clock", "description": "The time", "parameters": {
            "type": "object", "properties": {}, "additionalProperties": false,
        } } }),
    ]
}

/// The templates of real models that write calls, and how many calls they let an answer have.
const TEMPLATES: &[(&str, usize)] = &[
    ("Mistral-Small-3.2-24B-Instruct-2506", 2),
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", 2),
    ("Qwen-Qwen2.5-7B-Instruct", 2),
    ("Qwen-Qwen3-0.6B", 2),
    ("Qwen3.5-4B", 2),
    ("google-gemma-4-31B-it", 2),
    ("meta-llama-Llama-3.1-8B-Instruct", 1),
    ("meta-llama-Llama-3.2-3B-Instruct", 1),
    ("mistralai-Mistral-Nemo-Instruct-2407", 2),
];

/// What ends an answer: a token, which the text of an answer does not have.
const ENDS: &[&str] = &[
    "<|im_end|>\n",
    "<|im_end|>",
    "</s>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<turn|>\n",
    "<|tool_response>",
];

fn template(name: &str) -> Option<ChatTemplate> {
    let path = testdata(&format!("templates/{name}.jinja"))?;
    let source = std::fs::read_to_string(path).expect(name);
    let ends = TemplateTokens {
        bos: Some("<s>"),
        eos: Some("</s>"),
    };
    Some(ChatTemplate::new(&source, ends).expect(name))
}

/// What a template writes of an assistant's message.
fn answer(template: &ChatTemplate, message: Value) -> String {
    let messages = [
        json!({ "role": "user", "content": "How warm is it?" }),
        message,
    ];
    let tools = tools();
    let mut conversation = Conversation::new(&messages[..1]);
    conversation.tools = &tools;
    conversation.add_generation_prompt = false;
    let asked = template.render(&conversation).expect("a question");
    conversation.messages = &messages;
    let whole = template.render(&conversation).expect("a call");
    // Some templates put the tools in front of the last question: what both begin with is cut.
    let same = asked
        .bytes()
        .zip(whole.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let text = &whole[same..];
    let heads = [
        "assistant<|end_header_id|>\n\n",
        "assistant\n",
        "assistant",
        "<|turn>model\n",
    ];
    let text = heads
        .iter()
        .find_map(|head| Some(text.split_once(head)?.1))
        .unwrap_or(text);
    let text = text.strip_prefix('\n').unwrap_or(text);
    let end = ENDS.iter().find_map(|end| text.strip_suffix(end));
    end.unwrap_or(text).to_string()
}

#[test]
fn calls_that_templates_write_are_read() {
    let arguments = [
        json!({ "city": "Zürich \"</tool_call>\" {", "days": 3, "exact": true, "place": { "x": 1.5 } }),
        json!({}),
    ];
    for (name, count) in TEMPLATES {
        let Some(template) = template(name) else {
            return;
        };
        let calls = [("get_weather", "abcdefgh1"), ("clock", "abcdefgh2")];
        let calls: Vec<Value> = calls.iter().zip(&arguments).take(*count).map(|((name, id), arguments)| {
            json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
        }).collect();
        let text = answer(
            &template,
            json!({ "role": "assistant", "content": "", "tool_calls": calls }),
        );
        let format = ChatFormat::detect(&template, &tools());
        let found = format.parse("", &text);
        assert_eq!(found.content, "", "{name}: {text:?}");
        let names: Vec<&str> = found
            .tool_calls
            .iter()
            .map(|call| call.name.as_str())
            .collect();
        assert_eq!(
            names,
            &["get_weather", "clock"][..*count],
            "{name}: {text:?}"
        );
        for (call, wanted) in found.tool_calls.iter().zip(&arguments) {
            let found: Value = serde_json::from_str(&call.arguments).expect(name);
            assert_eq!(&found, wanted, "{name}: {text:?}");
        }
        // However it is cut, the same calls come out, and no marker.
        let mut stream = format.parser("");
        let mut parts: Vec<MessageDelta> = text
            .chars()
            .flat_map(|c| stream.push(&c.to_string()))
            .collect();
        parts.extend(stream.finish());
        let calls: Vec<MessageDelta> = found
            .tool_calls
            .into_iter()
            .map(MessageDelta::ToolCall)
            .collect();
        assert_eq!(parts, calls, "{name}");
    }
}

#[test]
fn thoughts_that_templates_write_are_read() {
    for name in ["Qwen-Qwen3-0.6B", "Qwen3.5-4B", "google-gemma-4-31B-it"] {
        let Some(template) = template(name) else {
            return;
        };
        let text = answer(
            &template,
            json!({
                "role": "assistant", "content": "", "reasoning_content": "Hm, 1 < 2.",
                "tool_calls": [{ "type": "function", "function": { "name": "clock", "arguments": {} } }],
            }),
        );
        let found = ChatFormat::detect(&template, &tools()).parse("", &text);
        assert_eq!(found.reasoning, "Hm, 1 < 2.", "{name}: {text:?}");
        assert_eq!(
            (found.content.as_str(), found.tool_calls.len()),
            ("", 1),
            "{name}: {text:?}"
        );
    }
}

#[test]
fn templates_without_tools_have_no_calls() {
    for (name, source) in BUILTIN_TEMPLATES {
        let template = ChatTemplate::new(source, TemplateTokens::default()).expect(name);
        let format = ChatFormat::detect(&template, &[]);
        let text = "<tool_call>{\"name\": \"clock\"}</tool_call> [TOOL_CALLS]";
        assert_eq!(format.parse("", text).content, text, "{name}");
    }
}

/// A model that takes any token that is allowed calls a tool, where it has to.
#[test]
fn forced_calls_are_calls() {
    let tokenizer: Arc<Tokenizer> =
        Arc::new(tabla::load_tokenizer(&Source::BuiltIn).expect("built in"));
    let engine = GrammarEngine::new(&tokenizer).expect("an engine");
    let mut forced = 0;
    for (name, _) in TEMPLATES {
        let Some(template) = template(name) else {
            return;
        };
        let format = ChatFormat::detect(&template, &tools());
        let grammar = format
            .forced_tool_call(Some("get_weather"), &tokenizer)
            .expect(name);
        let Some(grammar) = grammar else { continue };
        let compiled = engine
            .compile(&grammar)
            .unwrap_or_else(|e| panic!("{name}: {e}: {grammar:?}"));
        let mut walker = Walker::new(&tokenizer);
        for _ in 0..8 {
            let Some(text) = walker.walk(&mut compiled.matcher()) else {
                continue;
            };
            let text = String::from_utf8(text).expect("UTF-8");
            let found = format.parse("", &text);
            assert_eq!(found.tool_calls.len(), 1, "{name}: {text:?}");
            assert_eq!(
                (found.content.as_str(), found.tool_calls[0].name.as_str()),
                ("", "get_weather"),
                "{name}: {text:?}"
            );
            let arguments: Value =
                serde_json::from_str(&found.tool_calls[0].arguments).expect(name);
            assert!(arguments["city"].is_string(), "{name}: {text:?}");
            forced += 1;
        }
        let error = format
            .forced_tool_call(Some("nothing"), &tokenizer)
            .expect_err(name);
        assert_eq!(error.message(), "there is no tool \"nothing\"");
        assert!(
            format
                .forced_tool_call(None, &tokenizer)
                .expect(name)
                .is_some()
        );
    }
    assert!(forced >= 40, "{forced} calls are too few");
}
