//! Constraints of answers: their fields, and errors of grammars and schemas.

use crate::client::TestServer;
use crate::errors::{CHAT, COMPLETION, COMPLETIONS, MESSAGES, RESPONSES, check, with};
use serde_json::json;
use tabla_server::ServerEvent;

#[test]
fn fields_that_constrain_the_answer_are_named() {
    let server = TestServer::new();
    let schema = |kind: &str| json!({ "type": "json_schema", "json_schema": { "schema": { "type": kind } } });
    let text = json!({ "format": { "type": "json_schema", "schema": { "anyOf": [{ "type": "strng" }] } } });
    let reference = json!({ "type": "json_schema", "strict": true, "schema": { "$ref": "https://example.com/s" } });
    check(
        &server,
        &[
            (
                CHAT,
                json!({ "response_format": schema("strng") }),
                "response_format",
            ),
            (
                COMPLETIONS,
                json!({ "response_format": schema("strng") }),
                "response_format",
            ),
            (
                CHAT,
                json!({ "json_schema": { "properties": { "a": { "type": ["x"] } } } }),
                "json_schema",
            ),
            (CHAT, json!({ "guided_json": 1 }), "guided_json"),
            (CHAT, json!({ "guided_regex": "(" }), "guided_regex"),
            (COMPLETIONS, json!({ "guided_regex": "(" }), "guided_regex"),
            (COMPLETION, json!({ "grammar": "root ::= (" }), "grammar"),
            (CHAT, json!({ "grammar": "root ::= (" }), "grammar"),
            (
                CHAT,
                json!({ "guided_grammar": "root ::= (" }),
                "guided_grammar",
            ),
            (CHAT, json!({ "guided_choice": [] }), "guided_choice"),
            (
                CHAT,
                json!({ "structured_outputs": { "regex": "(" } }),
                "structured_outputs.regex",
            ),
            (
                CHAT,
                json!({ "structured_outputs": { "json": { "type": 1 } } }),
                "structured_outputs.json",
            ),
            (
                CHAT,
                json!({ "structured_outputs": { "structural_tag": {} } }),
                "structured_outputs.structural_tag",
            ),
            (RESPONSES, json!({ "text": text }), "text.format"),
            (
                RESPONSES,
                json!({ "text": { "format": reference } }),
                "text.format",
            ),
            (
                MESSAGES,
                json!({ "output_config": text }),
                "output_config.format",
            ),
            (MESSAGES, json!({ "grammar": "root ::= (" }), "grammar"),
        ],
    );
}

#[test]
fn a_request_has_at_most_one_constraint() {
    let server = TestServer::new();
    let format = json!({ "type": "json_object" });
    let grammar = "root ::= \"yes\"";
    check(
        &server,
        &[
            (
                CHAT,
                json!({ "response_format": format, "grammar": grammar }),
                "grammar",
            ),
            (
                COMPLETION,
                json!({ "json_schema": {}, "grammar": grammar }),
                "grammar",
            ),
            (
                RESPONSES,
                json!({ "text": { "format": format }, "guided_regex": "a" }),
                "guided_regex",
            ),
            (
                MESSAGES,
                json!({ "output_format": format, "grammar": grammar }),
                "grammar",
            ),
            (
                CHAT,
                json!({ "structured_outputs": { "choice": ["a"], "regex": "a" } }),
                "structured_outputs.choice",
            ),
        ],
    );
    let both = json!({ "response_format": format, "grammar": grammar });
    let message = server.post(CHAT, &with(CHAT, &both)).json()["error"]["message"].clone();
    assert!(
        message
            .as_str()
            .is_some_and(|text| text.contains("response_format"))
    );
}

#[test]
fn every_api_accepts_constraints() {
    let server = TestServer::new();
    let constraints = [
        json!({ "grammar": "root ::= \"yes\"" }),
        json!({ "grammar": "root ::= \"yes\"", "response_format": { "type": "text" } }),
        json!({ "guided_choice": ["yes"] }),
        json!({ "structured_outputs": { "grammar": "root ::= \"yes\"" } }),
        json!({ "structured_outputs": { "choice": ["yes"] }, "grammar": "" }),
    ];
    for mut extra in constraints {
        extra["max_tokens"] = 50.into();
        extra["max_output_tokens"] = 50.into();
        for (path, text) in [
            (CHAT, "/choices/0/message/content"),
            (COMPLETIONS, "/choices/0/text"),
            (RESPONSES, "/output/0/content/0/text"),
            (MESSAGES, "/content/0/text"),
        ] {
            let answer = server.post(path, &with(path, &extra)).json();
            assert_eq!(
                answer.pointer(text),
                Some(&json!("yes")),
                "{path} {extra}: {answer}"
            );
        }
    }
}

#[test]
fn unknown_types_in_the_schemas_of_tools_are_warnings() {
    let server = TestServer::new();
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "strng" } } });
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": parameters } });
    let request = with(CHAT, &json!({ "tools": [tool] }));
    let answer = server.post(CHAT, &request);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let events = server.events.lock().expect("no panic");
    let is_warning =
        |event: &ServerEvent| matches!(event, ServerEvent::Warning(text) if text.contains("strng"));
    assert!(events.iter().any(is_warning), "{events:?}");
}

#[test]
fn constraints_and_tools_cannot_be_combined() {
    let server = TestServer::new();
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    for choice in ["auto", "required"] {
        let request = json!({ "tools": [tool], "tool_choice": choice, "guided_regex": "a+" });
        check(&server, &[(CHAT, request, "guided_regex")]);
    }
    let request =
        json!({ "tools": [tool], "tool_choice": "none", "guided_regex": "a+", "max_tokens": 4 });
    assert_eq!(server.post(CHAT, &with(CHAT, &request)).status, 200);
    let choice = json!({ "name": "g" });
    let request = json!({ "functions": [{ "name": "f" }], "function_call": choice });
    check(&server, &[(CHAT, request, "function_call")]);
    check(
        &server,
        &[
            (
                RESPONSES,
                json!({ "conversation": "conv_1" }),
                "conversation",
            ),
            (RESPONSES, json!({ "prompt": { "id": "pmpt_1" } }), "prompt"),
        ],
    );
}
