//! Tables of tool-call and reasoning formats: their markers and the parser of the call body.

use super::bodies::{self, BodyParser};
use super::python;
use super::tags::{self, Tags};

/// Tool-call format of a model family.
#[derive(Debug)]
pub(super) struct ToolCallFormat {
    /// Sets of substrings of a chat template. A template that contains all substrings of a set has the
    /// format.
    templates: &'static [&'static [&'static str]],
    /// Markers around the list of all calls; may be empty.
    pub(super) list: [&'static str; 2],
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
    /// The tool's name, and the arguments as an object.
    Named(Named),
    /// An element for each argument, with the tags of a family.
    Tagged(&'static Tags),
    /// The notation of [`python`](super::python).
    Python,
    /// The notation of [`bodies::quoted_by_tokens`].
    QuotedByTokens,
    /// The rest of a header of [`harmony`](super::harmony), and the arguments.
    Recipient,
}

/// Texts around the name and the arguments of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) before: &'static str,
    /// Text between the name and the arguments.
    pub(super) separator: &'static str,
    pub(super) after: &'static str,
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

/// Default values of a row.
const DEFAULT: ToolCallFormat = ToolCallFormat {
    templates: &[],
    list: ["", ""],
    open: &[],
    close: "",
    inner: &[],
    is_bare: false,
    body: bodies::object,
    notation: Notation::Object("arguments", "", ""),
    repeat: Repeat::Never,
};

/// A list of objects with names and arguments.
const LIST: ToolCallFormat = ToolCallFormat {
    body: bodies::list_or_named,
    notation: Notation::Object("arguments", "[", "]"),
    repeat: Repeat::List,
    ..DEFAULT
};

/// Hermes, Qwen 2.5 and 3, SmolLM 3, Granite 4
const HERMES: ToolCallFormat = ToolCallFormat {
    templates: &[&["<tool_call>"]],
    open: &["<tool_call>"],
    close: "</tool_call>",
    notation: Notation::Object("arguments", "\n", "\n"),
    repeat: Repeat::Marked("\n"),
    ..DEFAULT
};

/// Format for chat templates without a known format. The model learns it from
/// [`super::fallback::prompt`].
pub(super) static FALLBACK: ToolCallFormat = HERMES;

/// DeepSeek V3.1
const DEEPSEEK: ToolCallFormat = ToolCallFormat {
    templates: &[&["<｜tool▁calls▁begin｜>"]],
    list: ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
    open: &["<｜tool▁call▁begin｜>"],
    close: "<｜tool▁call▁end｜>",
    inner: &[bodies::SEPARATOR],
    body: bodies::separated,
    notation: Notation::Named(Named {
        before: "",
        separator: bodies::SEPARATOR,
        after: "",
    }),
    repeat: Repeat::Marked(""),
    ..DEFAULT
};

/// GLM 4.7
const GLM: ToolCallFormat = ToolCallFormat {
    templates: &[&["<arg_key>"]],
    open: &["<tool_call>"],
    close: "</tool_call>",
    inner: &["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
    body: bodies::key_values,
    notation: Notation::Tagged(&tags::GLM),
    repeat: Repeat::Marked(""),
    ..DEFAULT
};

/// Known tool-call formats; the first match wins.
const TOOL_CALL_FORMATS: &[ToolCallFormat] = &[
    // Qwen 3.5, Qwen 3 Coder, Nemotron 3
    ToolCallFormat {
        templates: &[&["<parameter="]],
        open: &["<tool_call>"],
        close: "</tool_call>",
        body: bodies::parameters,
        notation: Notation::Tagged(&tags::QWEN),
        repeat: Repeat::Marked("\n"),
        ..DEFAULT
    },
    // Gemma 4
    ToolCallFormat {
        templates: &[&["<|tool_call>call:"]],
        open: &["<|tool_call>"],
        close: "<tool_call|>",
        inner: &["<|\"|>"],
        body: bodies::quoted_by_tokens,
        notation: Notation::QuotedByTokens,
        repeat: Repeat::Marked(""),
        ..DEFAULT
    },
    // gpt-oss. The generation ends with a call.
    ToolCallFormat {
        templates: &[&["<|channel|>commentary"]],
        open: &[
            "<|channel|>commentary to=functions.",
            "<|channel|>analysis to=functions.",
            "<|start|>assistant to=functions.",
        ],
        body: bodies::recipient,
        notation: Notation::Recipient,
        ..DEFAULT
    },
    // Mistral: v11 and newer, then older ones
    ToolCallFormat {
        templates: &[&["[ARGS]"]],
        open: &["[TOOL_CALLS]"],
        inner: &["[CALL_ID]", "[ARGS]"],
        body: bodies::list_or_named,
        notation: Notation::Named(Named {
            before: "",
            separator: "[ARGS]",
            after: "",
        }),
        repeat: Repeat::Marked(""),
        ..DEFAULT
    },
    ToolCallFormat {
        templates: &[&["[TOOL_CALLS]"]],
        open: &["[TOOL_CALLS]"],
        ..LIST
    },
    // Granite 3
    ToolCallFormat {
        templates: &[&["<|tool_call|>"]],
        open: &["<|tool_call|>", "<tool_call>"],
        ..LIST
    },
    // Nemotron Nano 2
    ToolCallFormat {
        templates: &[&["<TOOLCALL>"]],
        open: &["<TOOLCALL>"],
        close: "</TOOLCALL>",
        ..LIST
    },
    // LFM2, LFM2.5
    ToolCallFormat {
        templates: &[
            &["<|tool_call_start|>"],
            &["<|tool_list_start|>"],
            &["List of tools: [", "<|im_start|>"],
        ],
        open: &["<|tool_call_start|>"],
        close: "<|tool_call_end|>",
        body: python::calls,
        notation: Notation::Python,
        repeat: Repeat::List,
        ..DEFAULT
    },
    // DeepSeek V3 and R1
    ToolCallFormat {
        templates: &[&["<｜tool▁calls▁begin｜>", "```json"]],
        notation: Notation::Named(Named {
            before: "function<｜tool▁sep｜>",
            separator: "\n```json\n",
            after: "\n```",
        }),
        repeat: Repeat::Marked("\n"),
        ..DEEPSEEK
    },
    DEEPSEEK,
    // GLM 4.5 and 4.6
    ToolCallFormat {
        templates: &[&["</arg_key>\n<arg_value>"]],
        notation: Notation::Tagged(&tags::GLM_4_5),
        repeat: Repeat::Marked("\n"),
        ..GLM
    },
    GLM,
    // Functionary 3.1 and Llama 3 with the same format
    ToolCallFormat {
        templates: &[&["<function="]],
        open: &["<function="],
        close: "</function>",
        body: bodies::tagged,
        notation: Notation::Named(Named {
            before: "",
            separator: ">",
            after: "",
        }),
        repeat: Repeat::Marked("\n"),
        ..DEFAULT
    },
    HERMES,
    // Llama 3
    ToolCallFormat {
        templates: &[&["<|python_tag|>"], &["ipython"]],
        open: &["<|python_tag|>"],
        is_bare: true,
        notation: Notation::Object("parameters", "", ""),
        ..DEFAULT
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
    let contains = |set: &&[&str]| set.iter().all(|text| template.contains(text));
    let mut formats = TOOL_CALL_FORMATS.iter();
    formats.find(|format| format.templates.iter().copied().any(|set| contains(&set)))
}

/// Detects the reasoning format of a chat template.
pub(super) fn reasoning(template: &str) -> Option<&'static ReasoningFormat> {
    REASONING_FORMATS
        .iter()
        .find(|format| template.contains(format.template))
}
