//! Parsing of Harmony: channels, recipients, and outputs that deviate from it.

use super::tests::{call, check, content, format, parts, reasoning};
use super::*;
use crate::ChatTemplate;
use crate::chat::TemplateTokens;

/// The parts of the template that identify the format.
const TEMPLATE: &str = "tools <|channel|>analysis <|channel|>commentary";

#[test]
fn separates_channels() {
    check(
        TEMPLATE,
        "<|channel|>analysis<|message|>User says hi.\n<|end|><|start|>assistant<|channel|>final<|message|>Hello!\n\n**x**<|return|>",
        &[reasoning("User says hi."), content("Hello!\n\n**x**")],
    );
    check(
        TEMPLATE,
        "<|channel|>final<|message|>a < b <| c ",
        &[content("a < b <| c ")],
    );
    // Several messages of a channel are paragraphs.
    check(
        TEMPLATE,
        "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>final<|message|>Done.",
        &[
            reasoning("One."),
            content("Wait."),
            reasoning("\n\nTwo."),
            content("\n\nDone."),
        ],
    );
}

#[test]
fn parses_calls_with_recipients_in_either_place() {
    let arguments = r#"{"s":"<|call|> }"}"#;
    for header in [
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.f<|message|>",
        " to=functions.f<|channel|>commentary json<|message|>",
        "<|channel|>analysis to=functions.f code<|message|>",
    ] {
        check(
            TEMPLATE,
            &format!("{header}{{\"s\": \"<|call|> }}\"}}<|call|>"),
            &[call("f", arguments)],
        );
        check(
            TEMPLATE,
            &format!(
                "<|channel|>analysis<|message|>Hm, to=functions.g<|end|><|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant{header}{arguments}"
            ),
            &[
                reasoning("Hm, to=functions.g"),
                content("Let me see."),
                call("f", arguments),
            ],
        );
    }
    check(
        TEMPLATE,
        "<|channel|>commentary to=functions.f<|message|>{}<|call|><|start|>assistant<|channel|>commentary to=g json<|message|>{}\n<|end|><|start|>assistant<|channel|>final<|message|>So.",
        &[call("f", "{}"), call("g", "{}"), content("So.")],
    );
}

#[test]
fn other_output_is_not_lost() {
    for output in ["Hello.", " total: 5", "to be", "<|start|>a b", "t"] {
        check(TEMPLATE, output, &[content(output)]);
    }
    check(
        TEMPLATE,
        "<|channel|>final<|message|>One<|end|> two",
        &[content("One\n\ntwo")],
    );
    // Messages without a text or an end.
    check(TEMPLATE, "<|end|>x", &[content("x")]);
    check(
        TEMPLATE,
        "<|channel|>analysis<|end|><|start|>assistant<|channel|>final<|message|>x",
        &[content("x")],
    );
    check(
        TEMPLATE,
        "<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>So.<|start|>assistant<|channel|>commentary<|message|>End.",
        &[reasoning("Hm."), content("So.\n\nEnd.")],
    );
    let malformed = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>s = 1";
    check(TEMPLATE, malformed, &[content(malformed)]);
    check(
        TEMPLATE,
        "<|channel|>commentary to=functions.f<|message|>{}<|call|>and more",
        &[call("f", "{}"), content("and more")],
    );
}

#[test]
fn output_may_end_in_a_header_or_in_arguments() {
    for header in [
        "<|channel|>",
        "<|channel|>analysis",
        "<|channel|>commentary to=fun",
    ] {
        check(TEMPLATE, header, &[]);
        let output = format!("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{header}");
        check(TEMPLATE, &output, &[reasoning("Hm.")]);
    }
    let cut = "<|channel|>commentary to=functions.f json<|message|>{\"s\": \"a";
    let format = format(TEMPLATE);
    assert_eq!(parts(format.parser(""), cut, 3), [content(cut)]);
    let streamed = parts(format.parser("").stream_arguments(), cut, 3);
    assert_eq!(streamed, [call("f", "{\"s\":\"a")]);
}

#[test]
fn prompt_may_open_a_message() {
    let format = format(TEMPLATE);
    let parse = |prompt: &str, output: &str| {
        let message = format.parse(prompt, output);
        (message.reasoning, message.content)
    };
    let prompt = "<|start|>user<|message|>Hi<|end|><|start|>assistant";
    let text = |text: &str| text.to_string();
    assert_eq!(
        parse(prompt, "<|channel|>final<|message|>Hello"),
        (text(""), text("Hello"))
    );
    let open = format!("{prompt}<|channel|>final<|message|>to=");
    assert_eq!(parse(&open, "Hello"), (text(""), text("Hello")));
    let open = format!("{prompt}<|channel|>analysis<|message|>");
    assert!(format.starts_in_reasoning(&open));
    assert_eq!(
        parse(
            &open,
            "Hm.<|end|><|start|>assistant<|channel|>final<|message|>So."
        ),
        (text("Hm."), text("So."))
    );
}

/// Without tools, what is addressed to one has the channel of its message.
#[test]
fn messages_without_tools_have_no_calls() {
    let template = ChatTemplate::new(TEMPLATE, TemplateTokens::default()).expect("a template");
    let format = ChatFormat::detect(&template, &[]);
    assert!(format.supports_tools());
    assert_eq!(
        format.content_markers().first(),
        Some(&"<|channel|>final<|message|>")
    );
    // It follows the end of another message.
    let opening = format.content_opening().expect("Harmony has headers");
    let parsed = format.parse(
        "",
        &format!("<|channel|>analysis<|message|>Hm<|end|>{opening}{{}}"),
    );
    assert_eq!((&*parsed.reasoning, &*parsed.content), ("Hm", "{}"));
    let output = "<|channel|>analysis to=python code<|message|>1 + 1<|end|><|start|>assistant<|channel|>commentary to=functions.f json<|message|>{}";
    let message = format.parse("", output);
    assert_eq!(message.reasoning, "1 + 1");
    assert_eq!((&*message.content, message.tool_calls.len()), ("{}", 0));
}

/// The result does not depend on the pieces, also for arbitrary sequences of markers.
#[test]
fn pieces_do_not_matter() {
    const PARTS: &[&str] = &[
        "<|start|>",
        "assistant",
        "<|channel|>",
        "analysis",
        "final",
        "commentary",
        " to=functions.f",
        " ",
        "<|constrain|>",
        "json",
        "<|message|>",
        "{}",
        "{\"s\": 1}",
        "text",
        "<|end|>",
        "<|call|>",
        "\n",
        "<|",
        "to=",
    ];
    let format = format(TEMPLATE);
    // Marsaglia's xorshift64.
    let mut state = 0x7ab1a_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).expect("31 bits") % below
    };
    for _ in 0..3000 {
        let length = next(14);
        let output: String = (0..length).map(|_| PARTS[next(PARTS.len())]).collect();
        let whole = parts(format.parser(""), &output, 1000);
        for step in [1, 2, 5] {
            let found = parts(format.parser(""), &output, step);
            assert_eq!(found, whole, "{output:?} by {step}");
        }
    }
}
