//! The output format of a chat template.

use super::formats::{self, Layout, ReasoningFormat, ToolCallFormat};
use super::harmony;
use crate::Tokenizer;
use crate::chat::ChatTemplate;
use serde_json::Value as Json;
use std::borrow::Cow;

/// Format of the output for a chat template: the markers of tool calls and reasoning. The parsed
/// text must have control tokens as text, see [`ChatFormat::token_text`].
#[derive(Clone, Debug)]
pub struct ChatFormat {
    pub(super) tool_calls: Option<&'static ToolCallFormat>,
    pub(super) reasoning: Option<&'static ReasoningFormat>,
    pub(super) tools: Vec<Json>,
    supports_tools: bool,
}

/// Number of tokens at the end of a prompt that may open the reasoning.
const PROMPT_END_TOKENS: usize = 16;

/// Variable of chat templates that describe tools.
const TOOLS: &str = "tools";

impl ChatFormat {
    /// Detects the format from the template source. If the template does not support tools, tool calls
    /// have the format `<tool_call>{"name": ..., "arguments": ...}</tool_call>`, which
    /// [`ChatTemplate::adapt`] describes to the model. Without `tools`, tool calls are not parsed.
    pub fn detect(template: &ChatTemplate, tools: &[Json]) -> Self {
        let known = formats::tool_calls(template.source());
        let supports_tools = known.is_some() && template.source().contains(TOOLS);
        let tool_calls = known
            .filter(|_| supports_tools)
            .unwrap_or(&formats::FALLBACK);
        Self {
            tool_calls: (!tools.is_empty()).then_some(tool_calls),
            reasoning: formats::reasoning(template.source()),
            tools: tools.to_vec(),
            supports_tools,
        }
    }

    /// Returns whether the chat template describes tools to the model, in a known tool-call format. The
    /// templates of DeepSeek V3 and V3.1 format tool calls and describe no tools.
    pub fn supports_tools(&self) -> bool {
        self.supports_tools
    }

    /// Returns the markers that open and close reasoning, for example `<think>` and `</think>`.
    /// `None` if the chat template has no known reasoning format.
    pub fn reasoning_markers(&self) -> Option<(&'static str, &'static str)> {
        self.reasoning.map(|format| (format.open, format.close))
    }

    /// Returns whether a prompt ends with the marker that opens reasoning, so that the output starts
    /// within reasoning.
    pub fn starts_in_reasoning(&self, prompt: &str) -> bool {
        self.reasoning
            .is_some_and(|format| prompt.trim_end().ends_with(format.open.trim_end()))
    }

    /// Returns the markers of which one precedes the content, after reasoning. Empty for most formats, whose
    /// content follows reasoning immediately.
    pub fn content_markers(&self) -> &'static [&'static str] {
        match self.layout() {
            Layout::Parts => &[],
            Layout::Messages => harmony::CONTENT,
        }
    }

    /// Returns the text that opens content after another part of the output. `None` if content needs no
    /// marker.
    pub fn content_opening(&self) -> Option<String> {
        let marker = self.content_markers().first()?;
        Some([harmony::NEXT, marker].concat())
    }

    /// Returns the text of the last tokens of a prompt, which has the marker that opens reasoning if the
    /// output starts within it.
    pub fn prompt_end(tokenizer: &Tokenizer, prompt: &[u32]) -> String {
        let end = &prompt[prompt.len().saturating_sub(PROMPT_END_TOKENS)..];
        let bytes = end
            .iter()
            .flat_map(|token| tokenizer.token_bytes_with_special(*token));
        String::from_utf8_lossy(&bytes.copied().collect::<Vec<u8>>()).into_owned()
    }

    /// Returns the text between a prompt and content that an application wrote, so that the model continues
    /// it: it closes the reasoning that the prompt opens, or is a marker before content.
    pub fn content_prefix(&self, prompt: &str) -> String {
        let close = self.reasoning.map(|format| format.close);
        match close.filter(|_| self.starts_in_reasoning(prompt)) {
            Some(close) if prompt.ends_with('\n') => format!("\n{close}\n\n"),
            Some(close) => close.to_string(),
            None => {
                let marker = self.content_markers().first();
                marker.copied().unwrap_or_default().to_string()
            }
        }
    }

    /// The structure of the output.
    pub(super) fn layout(&self) -> Layout {
        self.reasoning.map_or(Layout::Parts, |format| format.layout)
    }

    /// Returns the text of a token for [`ChatParser::push`]. Control tokens have no text of their own,
    /// so a control token that is a part of a marker of this format is appended to `text`.
    pub fn token_text<'t>(&self, tokenizer: &Tokenizer, token: u32, text: &'t str) -> Cow<'t, str> {
        if !tokenizer.is_control(token) {
            return Cow::Borrowed(text);
        }
        match str::from_utf8(tokenizer.token_bytes_with_special(token)) {
            Ok(control) if self.markers().any(|marker| marker.contains(control)) => {
                Cow::Owned([text, control].concat())
            }
            _ => Cow::Borrowed(text),
        }
    }

    /// Whether there is a tool of this name.
    pub(super) fn has_tool(&self, name: &str) -> bool {
        let functions = self
            .tools
            .iter()
            .map(|tool| tool.get("function").unwrap_or(tool));
        let mut names = functions.filter_map(|function| function.get("name")?.as_str());
        names.any(|known| known == name)
    }

    /// The markers of tool calls and reasoning.
    pub(super) fn markers(&self) -> impl Iterator<Item = &'static str> {
        let tool_calls = self.tool_calls.iter();
        let tool_calls = tool_calls.flat_map(|format| {
            format
                .open
                .iter()
                .chain([&format.close])
                .chain(&format.list)
                .chain(format.inner)
        });
        let reasoning = self.reasoning.iter().flat_map(|t| [&t.open, &t.close]);
        let headers = match self.layout() {
            Layout::Parts => &[],
            Layout::Messages => harmony::MARKERS,
        };
        let all = tool_calls.chain(reasoning).chain(headers);
        let all = all.map(|marker| marker.trim());
        all.filter(|marker| !marker.is_empty())
    }
}
