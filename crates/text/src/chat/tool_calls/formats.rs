//! Tables of tool-call and reasoning formats: their markers and the parser of the call body.

use super::bodies::{self, BodyParser};

/// Tool-call format of a model family.
#[derive(Debug)]
pub(super) struct ToolCallFormat {
    /// Substrings of a chat template that identify the format.
    templates: &'static [&'static str],
    /// Markers that start a call; the first one is used for forced calls.
    pub(super) open: &'static [&'static str],
    /// Marker that ends a call; may be empty.
    pub(super) close: &'static str,
    /// Markers within a call body.
    pub(super) inner: &'static [&'static str],
    /// Whether output that starts with `{` is a tool call.
    pub(super) is_bare: bool,
    pub(super) body: BodyParser,
    /// Grammar of a forced tool call; `None` if a JSON schema cannot describe the body.
    pub(super) forced: Option<ForcedToolCall>,
}

/// Body of a forced tool call, after the opening marker.
#[derive(Clone, Copy, Debug)]
pub(super) enum ForcedToolCall {
    /// An object with the tool's name and, under this key, its arguments; then the text before and
    /// after the object.
    Object(&'static str, &'static str, &'static str),
    /// The tool's name, this marker, and the arguments.
    Named(&'static str),
}

/// Known tool-call formats; the first match wins.
const TOOL_CALL_FORMATS: &[ToolCallFormat] = &[
    // Qwen 3.5 and Qwen 3 Coder
    ToolCallFormat {
        templates: &["<parameter="],
        open: &["<tool_call>"],
        close: "</tool_call>",
        inner: &[],
        is_bare: false,
        body: bodies::parameters,
        forced: None,
    },
    // Gemma 4
    ToolCallFormat {
        templates: &["<|tool_call>call:"],
        open: &["<|tool_call>"],
        close: "<tool_call|>",
        inner: &["<|\"|>"],
        is_bare: false,
        body: bodies::quoted_by_tokens,
        forced: None,
    },
    // Mistral: v11 and newer, then older ones
    ToolCallFormat {
        templates: &["[ARGS]"],
        open: &["[TOOL_CALLS]"],
        close: "",
        inner: &["[CALL_ID]", "[ARGS]"],
        is_bare: false,
        body: bodies::list_or_named,
        forced: Some(ForcedToolCall::Named("[ARGS]")),
    },
    ToolCallFormat {
        templates: &["[TOOL_CALLS]"],
        open: &["[TOOL_CALLS]"],
        close: "",
        inner: &[],
        is_bare: false,
        body: bodies::list_or_named,
        forced: Some(ForcedToolCall::Object("arguments", "[", "]")),
    },
    // Granite 3
    ToolCallFormat {
        templates: &["<|tool_call|>"],
        open: &["<|tool_call|>", "<tool_call>"],
        close: "",
        inner: &[],
        is_bare: false,
        body: bodies::list_or_named,
        forced: Some(ForcedToolCall::Object("arguments", "[", "]")),
    },
    // Functionary 3.1 and Llama 3 with the same format
    ToolCallFormat {
        templates: &["<function="],
        open: &["<function="],
        close: "</function>",
        inner: &[],
        is_bare: false,
        body: bodies::tagged,
        forced: Some(ForcedToolCall::Named(">")),
    },
    // Hermes, Qwen 2.5 and 3, SmolLM 3
    ToolCallFormat {
        templates: &["<tool_call>"],
        open: &["<tool_call>"],
        close: "</tool_call>",
        inner: &[],
        is_bare: false,
        body: bodies::object,
        forced: Some(ForcedToolCall::Object("arguments", "\n", "\n")),
    },
    // Llama 3
    ToolCallFormat {
        templates: &["<|python_tag|>", "ipython"],
        open: &["<|python_tag|>"],
        close: "",
        inner: &[],
        is_bare: true,
        body: bodies::object,
        forced: Some(ForcedToolCall::Object("parameters", "", "")),
    },
];

/// Markers around reasoning.
#[derive(Debug)]
pub(super) struct ReasoningFormat {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
}

/// Known reasoning formats; the first match wins.
const REASONING_FORMATS: &[ReasoningFormat] = &[
    ReasoningFormat {
        open: "<|channel>thought\n",
        close: "<channel|>",
    },
    ReasoningFormat {
        open: "[THINK]",
        close: "[/THINK]",
    },
    ReasoningFormat {
        open: "<think>",
        close: "</think>",
    },
];

/// Detects the tool-call format of a chat template.
pub(super) fn tool_calls(template: &str) -> Option<&'static ToolCallFormat> {
    let matches =
        |format: &&ToolCallFormat| format.templates.iter().any(|text| template.contains(text));
    TOOL_CALL_FORMATS.iter().find(matches)
}

/// Detects the reasoning format of a chat template.
pub(super) fn reasoning(template: &str) -> Option<&'static ReasoningFormat> {
    REASONING_FORMATS
        .iter()
        .find(|format| template.contains(format.close))
}
