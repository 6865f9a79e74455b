//! Tool calls: those that templates of real models write are parsed, and forced tool calls are
//! valid.

use crate::common::{llama_cpp, testdata};
use crate::grammar::{SCHEMAS, Walker};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tabla::Source;
use tabla::text::{
    AllowedToolCalls, BUILTIN_TEMPLATES, ChatFormat, ChatTemplate, CompiledGrammar, Conversation,
    Grammar, GrammarEngine, MessageDelta, TemplateTokens, Tokenizer,
};
use tabla_testkit::fixed_json;

fn tools() -> [Value; 2] {
    [
        fixed_json!({ "type": "function", "function": { "name": "get_weather", "description": "The weather", "parameters": {
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
        fixed_json!({ "type": "function", "function": { "name": "clock", "description": "The time", "parameters": {
            "type": "object", "properties": {}, "additionalProperties": false,
        } } }),
    ]
}

/// Templates with tool calls, and the number of calls to render.
const TEMPLATES: &[(&str, usize)] = &[
    ("gpt-oss", 1),
    ("Mistral-Small-3.2-24B-Instruct-2506", 2),
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", 2),
    ("Qwen-Qwen2.5-7B-Instruct", 2),
    ("Qwen-Qwen3-0.6B", 2),
    ("Qwen3.5-4B", 2),
    ("google-gemma-4-31B-it", 2),
    ("meta-llama-Llama-3.1-8B-Instruct", 1),
    ("meta-llama-Llama-3.2-3B-Instruct", 1),
    ("mistralai-Mistral-Nemo-Instruct-2407", 2),
    ("openai-gpt-oss-120b", 1),
    ("mistralai-Ministral-3-14B-Reasoning-2512", 2),
    ("Qwen3-Coder", 2),
    ("ibm-granite-granite-4.0", 2),
    ("ibm-granite-granite-4.1", 2),
    ("NVIDIA-Nemotron-Nano-v2", 2),
    ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 2),
    ("LFM2.5-8B-A1B", 2),
    ("GLM-4.6", 2),
    ("GLM-4.7-Flash", 2),
    ("llama-cpp-deepseek-r1", 2),
    ("deepseek-ai-DeepSeek-V3.1", 2),
];

/// Templates that format tool calls and do not describe the tools.
const WITHOUT_TOOLS: &[&str] = &["deepseek-ai-DeepSeek-V3.1"];

/// Text of end-of-generation tokens, which are not part of the output.
const EOG_TEXTS: &[&str] = &[
    "<|im_end|>\n",
    "<|im_end|>",
    "</s>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<turn|>\n",
    "<|tool_response>",
    "<|call|>",
    "<|end_of_text|>\n",
    "<SPECIAL_12>\n\n",
    "<｜end▁of▁sentence｜>",
];

/// Returns a built-in template, or one of a real model: of the folder of real models or of llama.cpp.
fn template(name: &str) -> Option<ChatTemplate> {
    let file = format!("templates/{name}.jinja");
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).ok();
    let mut builtin = BUILTIN_TEMPLATES.iter();
    let source = match builtin.find(|(known, _)| *known == name) {
        Some((_, source)) => source.to_string(),
        None => match testdata("").and_then(|folder| read(folder.join(&file))) {
            Some(source) => source,
            None => read(llama_cpp(&file)?).expect(name),
        },
    };
    let ends = TemplateTokens {
        bos: Some("<s>"),
        eos: Some("</s>"),
    };
    Some(ChatTemplate::new(&source, ends).expect(name))
}

/// Returns the text that a template renders for an assistant message.
fn render_message(template: &ChatTemplate, message: Value) -> String {
    let messages = [
        fixed_json!({ "role": "user", "content": "How warm is it?" }),
        message,
    ];
    let tools = tools();
    let mut conversation = Conversation::new(&messages[..1]);
    conversation.tools = &tools;
    conversation.add_generation_prompt = false;
    let prompt = template.render(&conversation).expect("a question");
    conversation.messages = &messages;
    let full = template.render(&conversation).expect("a call");
    // Some templates write the tools before the last question, so cut the common prefix.
    let equal = prompt.chars().zip(full.chars()).take_while(|(a, b)| a == b);
    let text = &full[equal.map(|(c, _)| c.len_utf8()).sum()..];
    let headers = [
        "<｜Assistant｜><think></think>",
        "<｜Assistant｜>",
        "Assistant\n",
        "<|assistant|></think>",
        "<|assistant|>",
        "assistant<|end_header_id|>\n\n",
        "assistant<|end_of_role|>",
        "assistant\n",
        "assistant",
        "<|turn>model\n",
    ];
    let text = headers
        .iter()
        .find_map(|header| Some(text.split_once(header)?.1))
        .unwrap_or(text);
    let text = text.strip_prefix('\n').unwrap_or(text);
    let end = EOG_TEXTS.iter().find_map(|end| text.strip_suffix(end));
    end.unwrap_or(text).to_string()
}

#[test]
fn parses_tool_calls_of_templates() {
    let arguments = [
        fixed_json!({ "city": "Zürich \"</tool_call>\" {", "days": 3, "exact": true, "place": { "x": 1.5 } }),
        json!({}),
    ];
    for (name, count) in TEMPLATES {
        let Some(template) = template(name) else {
            continue;
        };
        let calls = [("get_weather", "abcdefgh1"), ("clock", "abcdefgh2")];
        let calls: Vec<Value> = calls.iter().zip(&arguments).take(*count).map(|((name, id), arguments)| {
            json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
        }).collect();
        let text = render_message(
            &template,
            json!({ "role": "assistant", "content": "", "tool_calls": calls }),
        );
        let format = ChatFormat::detect(&template, &tools());
        let message = format.parse("", &text);
        assert_eq!(message.content, "", "{name}: {text:?}");
        let names: Vec<&str> = message
            .tool_calls
            .iter()
            .map(|call| call.name.as_str())
            .collect();
        assert_eq!(
            names,
            &["get_weather", "clock"][..*count],
            "{name}: {text:?}"
        );
        for (call, expected) in message.tool_calls.iter().zip(&arguments) {
            let parsed: Value = serde_json::from_str(&call.arguments).expect(name);
            assert_eq!(&parsed, expected, "{name}: {text:?}");
        }
        // The result does not depend on the pieces, and has no markers.
        let mut parser = format.parser("");
        let mut deltas: Vec<MessageDelta> = text
            .chars()
            .flat_map(|c| parser.push(&c.to_string()))
            .collect();
        deltas.extend(parser.finish());
        let calls: Vec<MessageDelta> = message
            .tool_calls
            .into_iter()
            .map(MessageDelta::ToolCall)
            .collect();
        assert_eq!(deltas, calls, "{name}");
    }
}

#[test]
fn parses_reasoning_of_templates() {
    for name in [
        "gpt-oss",
        "Qwen-Qwen3-0.6B",
        "Qwen3.5-4B",
        "google-gemma-4-31B-it",
        "openai-gpt-oss-120b",
        "GLM-4.6",
        "GLM-4.7-Flash",
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    ] {
        let Some(template) = template(name) else {
            continue;
        };
        let text = render_message(
            &template,
            fixed_json!({
                "role": "assistant", "content": "", "reasoning_content": "Hm, 1 < 2.",
                "tool_calls": [{ "type": "function", "function": { "name": "clock", "arguments": {} } }],
            }),
        );
        let message = ChatFormat::detect(&template, &tools()).parse("", &text);
        assert_eq!(message.reasoning, "Hm, 1 < 2.", "{name}: {text:?}");
        assert_eq!(
            (message.content.as_str(), message.tool_calls.len()),
            ("", 1),
            "{name}: {text:?}"
        );
    }
}

#[test]
fn parses_no_tool_calls_without_tools() {
    for (name, source) in BUILTIN_TEMPLATES {
        let template = ChatTemplate::new(source, TemplateTokens::default()).expect(name);
        let format = ChatFormat::detect(&template, &[]);
        let text = "<tool_call>{\"name\": \"clock\"}</tool_call> [TOOL_CALLS]";
        assert_eq!(format.parse("", text).content, text, "{name}");
    }
}

/// Checks random outputs of a grammar: after `prefix`, each is one call or several ones of
/// `get_weather`. Returns the number of calls.
fn check_calls(
    format: &ChatFormat,
    compiled: &CompiledGrammar,
    walker: &mut Walker<'_>,
    prefix: &str,
) -> usize {
    let mut calls = 0;
    for _ in 0..8 {
        let Some(text) = walker.walk(&mut compiled.matcher()) else {
            continue;
        };
        let text = prefix.to_string() + &String::from_utf8(text).expect("UTF-8");
        let message = format.parse("", &text);
        assert_eq!(message.content, "", "{text:?}");
        assert!(!message.tool_calls.is_empty(), "{text:?}");
        calls += message.tool_calls.len();
        for call in message.tool_calls {
            assert_eq!(call.name, "get_weather", "{text:?}");
            let arguments: Value = serde_json::from_str(&call.arguments).expect("JSON");
            assert!(arguments["city"].is_string(), "{text:?}");
            let days = &arguments["days"];
            assert!(days.is_null() || days.is_number(), "{text:?}");
            let x = arguments.pointer("/place/x");
            assert!(arguments.get("place").is_none() || x.is_some_and(Value::is_number));
        }
    }
    calls
}

/// Random output that matches the grammar of a tool call is a tool call.
#[test]
fn forced_tool_calls_are_tool_calls() {
    let tokenizer: Arc<Tokenizer> =
        Arc::new(tabla::tools::load_tokenizer(&Source::BuiltIn).expect("built in"));
    let engine = GrammarEngine::new(&tokenizer).expect("an engine");
    let compile = |grammar: &Grammar| {
        let compiled = engine.compile(grammar);
        compiled.unwrap_or_else(|e| panic!("{e}: {grammar:?}"))
    };
    let (mut single, mut parallel) = (0, 0);
    for (name, _) in TEMPLATES {
        let Some(template) = template(name) else {
            continue;
        };
        let format = ChatFormat::detect(&template, &tools());
        assert_eq!(
            format.supports_tools(),
            !WITHOUT_TOOLS.contains(name),
            "{name}"
        );
        let mut walker = Walker::new(&tokenizer);
        let one = AllowedToolCalls::default().names(&["get_weather"]);
        for calls in [one, one.parallel(true)] {
            let grammar = format.forced_tool_calls(calls, &tokenizer).expect(name);
            let compiled = compile(&grammar.expect(name));
            let count = check_calls(&format, &compiled, &mut walker, "");
            let grammar = format.tool_call_grammar(calls, &tokenizer).expect(name);
            let (triggers, grammar) = grammar.expect(name);
            let compiled = compile(&grammar);
            let lazy = check_calls(&format, &compiled, &mut walker, &triggers[0]);
            *(if calls.parallel {
                &mut parallel
            } else {
                &mut single
            }) += count + lazy;
        }
        let unknown = AllowedToolCalls::default().names(&["nothing"]);
        let error = format.forced_tool_calls(unknown, &tokenizer);
        let error = error.expect_err(name);
        assert_eq!(error.message(), "unknown tool \"nothing\"");
        let any = format.forced_tool_calls(AllowedToolCalls::default(), &tokenizer);
        compile(&any.expect(name).expect(name));
    }
    assert!(single >= 16, "{single} calls are too few");
    if testdata("").is_some() {
        assert!(single >= 100, "{single} calls are too few");
        assert!(parallel > single, "{parallel} calls are too few");
    }
}

/// Schemas that grammars support are not relaxed.
#[test]
fn supported_schemas_are_not_relaxed() {
    let tokenizer: Arc<Tokenizer> =
        Arc::new(tabla::tools::load_tokenizer(&Source::BuiltIn).expect("built in"));
    let engine = GrammarEngine::new(&tokenizer).expect("an engine");
    let groups: Map<String, Value> = serde_json::from_str(SCHEMAS).expect("schemas");
    for schema in groups
        .values()
        .flat_map(|list| list.as_array().expect("a list"))
    {
        let relaxed = engine.relax(schema).expect("a schema");
        assert_eq!(relaxed.warnings, [""; 0], "{schema}");
        let compiled = engine.compile(&Grammar::JsonSchema(relaxed.schema));
        compiled.unwrap_or_else(|e| panic!("{schema}: {e}"));
    }
}
