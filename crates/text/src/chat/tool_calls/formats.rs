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
    /// Notation of a call body in grammars.
    pub(super) notation: Notation,
    /// How further calls follow the first one in grammars.
    pub(super) repeat: Repeat,
}

/// Notation of a call body, after the opening marker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Notation {
    /// An object with the tool's name and, under this key, its arguments; then the text before and
    /// after the object.
    Object(&'static str, &'static str, &'static str),
    /// The tool's name, this marker, and the arguments.
    Named(&'static str),
    /// The notation of [`bodies::parameters`].
    Parameters,
    /// The notation of [`bodies::quoted_by_tokens`].
    QuotedByTokens,
    /// The rest of a header of [`harmony`](super::harmony), and the arguments.
    Recipient,
}

/// How further calls follow the first one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repeat {
    /// Not at all.
    Never,
    /// After this text, with the opening and the closing marker.
    Marked(&'static str),
    /// In the list that the call body is.
    List,
}

/// Hermes, Qwen 2.5 and 3, SmolLM 3
const HERMES: ToolCallFormat = ToolCallFormat {
    templates: &["<tool_call>"],
    open: &["<tool_call>"],
    close: "</tool_call>",
    inner: &[],
    is_bare: false,
    body: bodies::object,
    notation: Notation::Object("arguments", "\n", "\n"),
    repeat: Repeat::Marked("\n"),
};

/// Format for chat templates without a known format. The model learns it from
/// [`super::fallback::prompt`].
pub(super) static FALLBACK: ToolCallFormat = HERMES;

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
        notation: Notation::Parameters,
        repeat: Repeat::Marked("\n"),
    },
    // Gemma 4
    ToolCallFormat {
        templates: &["<|tool_call>call:"],
        open: &["<|tool_call>"],
        close: "<tool_call|>",
        inner: &["<|\"|>"],
        is_bare: false,
        body: bodies::quoted_by_tokens,
        notation: Notation::QuotedByTokens,
        repeat: Repeat::Marked(""),
    },
    // gpt-oss. The generation ends with a call.
    ToolCallFormat {
        templates: &["<|channel|>commentary"],
        open: &[
            "<|channel|>commentary to=functions.",
            "<|channel|>analysis to=functions.",
            "<|start|>assistant to=functions.",
        ],
        close: "",
        inner: &[],
        is_bare: false,
        body: bodies::recipient,
        notation: Notation::Recipient,
        repeat: Repeat::Never,
    },
    // Mistral: v11 and newer, then older ones
    ToolCallFormat {
        templates: &["[ARGS]"],
        open: &["[TOOL_CALLS]"],
        close: "",
        inner: &["[CALL_ID]", "[ARGS]"],
        is_bare: false,
        body: bodies::list_or_named,
        notation: Notation::Named("[ARGS]"),
        repeat: Repeat::Marked(""),
    },
    ToolCallFormat {
        templates: &["[TOOL_CALLS]"],
        open: &["[TOOL_CALLS]"],
        close: "",
        inner: &[],
        is_bare: false,
        body: bodies::list_or_named,
        notation: Notation::Object("arguments", "[", "]"),
        repeat: Repeat::List,
    },
    // Granite 3
    ToolCallFormat {
        templates: &["<|tool_call|>"],
        open: &["<|tool_call|>", "<tool_call>"],
        close: "",
        inner: &[],
        is_bare: false,
        body: bodies::list_or_named,
        notation: Notation::Object("arguments", "[", "]"),
        repeat: Repeat::List,
    },
    // Functionary 3.1 and Llama 3 with the same format
    ToolCallFormat {
        templates: &["<function="],
        open: &["<function="],
        close: "</function>",
        inner: &[],
        is_bare: false,
        body: bodies::tagged,
        notation: Notation::Named(">"),
        repeat: Repeat::Marked("\n"),
    },
    HERMES,
    // Llama 3
    ToolCallFormat {
        templates: &["<|python_tag|>", "ipython"],
        open: &["<|python_tag|>"],
        close: "",
        inner: &[],
        is_bare: true,
        body: bodies::object,
        notation: Notation::Object("parameters", "", ""),
        repeat: Repeat::Never,
    },
];

/// Markers around reasoning.
#[derive(Debug)]
pub(super) struct ReasoningFormat {
    /// Substring of a chat template that identifies the format.
    template: &'static str,
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    pub(super) layout: Layout,
}

/// Structure of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Reasoning, content, tool calls.
    Parts,
    /// Messages with headers of [`harmony`](super::harmony).
    Messages,
}

/// Known reasoning formats; the first match wins.
const REASONING_FORMATS: &[ReasoningFormat] = &[
    // Gemma 4
    ReasoningFormat {
        template: "<channel|>",
        open: "<|channel>thought\n",
        close: "<channel|>",
        layout: Layout::Parts,
    },
    // gpt-oss
    ReasoningFormat {
        template: "<|channel|>analysis",
        open: "<|channel|>analysis<|message|>",
        close: "<|end|>",
        layout: Layout::Messages,
    },
    // Magistral, Ministral 3
    ReasoningFormat {
        template: "[/THINK]",
        open: "[THINK]",
        close: "[/THINK]",
        layout: Layout::Parts,
    },
    ReasoningFormat {
        template: "</think>",
        open: "<think>",
        close: "</think>",
        layout: Layout::Parts,
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
        .find(|format| template.contains(format.template))
}
