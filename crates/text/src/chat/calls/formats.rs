//! The formats: what begins and ends a call, and who reads what is between.

use super::bodies::{self, Body};

/// How calls are written.
#[derive(Debug)]
pub(super) struct Calls {
    /// A template with one of these is of the format.
    templates: &'static [&'static str],
    pub(super) open: &'static [&'static str],
    pub(super) close: &'static str,
    /// Further markers between them.
    pub(super) inner: &'static [&'static str],
    /// Whether an answer that begins with `{` is a call.
    pub(super) is_bare: bool,
    pub(super) body: Body,
    /// What forces a call; `None` where JSON does not say it.
    pub(super) forced: Option<ForcedToolCall>,
}

/// How a call is forced, behind the first marker that opens one.
#[derive(Clone, Copy, Debug)]
pub(super) enum ForcedToolCall {
    /// An object of the tool's name and, under this key, the arguments; text in front and behind.
    Object(&'static str, &'static str, &'static str),
    /// The name, this marker, and the arguments.
    Named(&'static str),
}

/// The first row that a template has counts.
const CALLS: &[Calls] = &[
    // Qwen 3.5 and Qwen 3 Coder
    Calls {
        templates: &["<parameter="],
        open: &["<tool_call>"],
        close: "</tool_call>",
        inner: &[],
        is_bare: false,
        body: bodies::parameters,
        forced: None,
    },
    // Gemma 4
    Calls {
        templates: &["<|tool_call>call:"],
        open: &["<|tool_call>"],
        close: "<tool_call|>",
        inner: &["<|\"|>"],
        is_bare: false,
        body: bodies::quoted_by_tokens,
        forced: None,
    },
    // Mistral, old and new
    Calls {
        templates: &["[ARGS]"],
        open: &["[TOOL_CALLS]"],
        close: "",
        inner: &["[CALL_ID]", "[ARGS]"],
        is_bare: false,
        body: bodies::list_or_named,
        forced: Some(ForcedToolCall::Named("[ARGS]")),
    },
    Calls {
        templates: &["[TOOL_CALLS]"],
        open: &["[TOOL_CALLS]"],
        close: "",
        inner: &[],
        is_bare: false,
        body: bodies::list_or_named,
        forced: Some(ForcedToolCall::Object("arguments", "[", "]")),
    },
    // Granite 3
    Calls {
        templates: &["<|tool_call|>"],
        open: &["<|tool_call|>", "<tool_call>"],
        close: "",
        inner: &[],
        is_bare: false,
        body: bodies::list_or_named,
        forced: Some(ForcedToolCall::Object("arguments", "[", "]")),
    },
    // Functionary 3.1 and Llamas that were told so
    Calls {
        templates: &["<function="],
        open: &["<function="],
        close: "</function>",
        inner: &[],
        is_bare: false,
        body: bodies::tagged,
        forced: Some(ForcedToolCall::Named(">")),
    },
    // Hermes, Qwen 2.5 and 3, SmolLM 3
    Calls {
        templates: &["<tool_call>"],
        open: &["<tool_call>"],
        close: "</tool_call>",
        inner: &[],
        is_bare: false,
        body: bodies::object,
        forced: Some(ForcedToolCall::Object("arguments", "\n", "\n")),
    },
    // Llama 3
    Calls {
        templates: &["<|python_tag|>", "ipython"],
        open: &["<|python_tag|>"],
        close: "",
        inner: &[],
        is_bare: true,
        body: bodies::object,
        forced: Some(ForcedToolCall::Object("parameters", "", "")),
    },
];

/// How reasoning are written.
#[derive(Debug)]
pub(super) struct Reasoning {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
}

const THOUGHTS: &[Reasoning] = &[
    Reasoning {
        open: "<|channel>thought\n",
        close: "<channel|>",
    },
    Reasoning {
        open: "[THINK]",
        close: "[/THINK]",
    },
    Reasoning {
        open: "<think>",
        close: "</think>",
    },
];

pub(super) fn calls(template: &str) -> Option<&'static Calls> {
    let is_in = |calls: &&Calls| calls.templates.iter().any(|text| template.contains(text));
    CALLS.iter().find(is_in)
}

pub(super) fn reasoning(template: &str) -> Option<&'static Reasoning> {
    THOUGHTS.iter().find(|t| template.contains(t.close))
}
