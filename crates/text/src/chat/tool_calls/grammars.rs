//! Grammars of tool calls: for output that must be a call, and for the text after the marker that
//! opens one.

use super::chat_format::ChatFormat;
use super::formats::{Layout, Notation, Repeat, ToolCallFormat};
use super::harmony;
use super::lark::{self, Rules, marker};
use super::{parameters, python, quoted};
use crate::Tokenizer;
use crate::grammar::Grammar;
use crate::grammar::schema::{Position, prepare};
use serde_json::{Value as Json, json};
use tabla_core::error::{Context, Result, bail};

tabla_core::options! {
    /// Tool calls that a grammar allows. The default is exactly one call of any tool.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct AllowedToolCalls<'a> {
        /// Names of the tools that may be called; empty: all.
        pub names: &'a [&'a str],
        /// Whether further calls may follow the first one. Default false. Llama 3 supports only one
        /// call.
        pub parallel: bool,
    }
}

/// Where the grammar begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// At the start of the output.
    Output,
    /// After an opening marker.
    Body,
}

impl ChatFormat {
    /// Returns the grammar of an output that consists of tool calls with arguments that match the
    /// schemas of the tools. Returns `None` without tools, and for a chat template without a known
    /// tool-call format.
    ///
    /// # Errors
    /// `Argument` for an unknown name or a tool without a name; errors in the parameter schema of a
    /// tool.
    pub fn forced_tool_calls(
        &self,
        calls: AllowedToolCalls<'_>,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Grammar>> {
        let format = self.tool_calls;
        format
            .map(|format| self.grammar(format, calls, Start::Output, tokenizer))
            .transpose()
    }

    /// Returns the markers that open a tool call, and the grammar of the text after such a marker:
    /// the rest of the call and, with [`AllowedToolCalls::parallel`], further calls. The markers are
    /// the triggers of a grammar that begins to apply when the model opens a call. Returns `None` as
    /// [`forced_tool_calls`](Self::forced_tool_calls) does.
    ///
    /// # Errors
    /// See [`forced_tool_calls`](Self::forced_tool_calls).
    pub fn tool_call_grammar(
        &self,
        calls: AllowedToolCalls<'_>,
        tokenizer: &Tokenizer,
    ) -> Result<Option<(Vec<String>, Grammar)>> {
        let Some(format) = self.tool_calls else {
            return Ok(None);
        };
        let grammar = self.grammar(format, calls, Start::Body, tokenizer)?;
        let list = format.list.iter().take(1);
        let triggers = list.filter(|marker| !marker.is_empty()).chain(format.open);
        Ok(Some((triggers.map(ToString::to_string).collect(), grammar)))
    }

    /// Returns the Lark expression of the text between reasoning and content, for grammars of content that
    /// apply after reasoning.
    pub fn content_start(&self, tokenizer: &Tokenizer) -> String {
        let marker = self.content_markers().first();
        self.part(marker.unwrap_or(&""), tokenizer)
    }

    /// Returns the Lark expression of a marker at the start of an output or after reasoning.
    fn part(&self, text: &str, tokenizer: &Tokenizer) -> String {
        let text = marker(text, tokenizer);
        match self.layout() {
            Layout::Parts => text,
            Layout::Messages => format!("({})? {text}", marker(harmony::NEXT, tokenizer)),
        }
    }

    fn grammar(
        &self,
        format: &ToolCallFormat,
        calls: AllowedToolCalls<'_>,
        start: Start,
        tokenizer: &Tokenizer,
    ) -> Result<Grammar> {
        let mut rules = Rules::new(tokenizer);
        let tools = self.bodies(format, calls, &mut rules)?;
        rules.define("tool", &tools.join(" | "));
        let (before, after) = match format.notation {
            Notation::Object(_, before, after) => (before, after),
            Notation::Tagged(tags) => (tags.around, tags.around),
            Notation::Python => ("[", "]"),
            Notation::Named(_) | Notation::QuotedByTokens | Notation::Recipient => ("", ""),
        };
        // A model that opened a call itself may write it without the line breaks.
        let space = |text: &str| match start {
            Start::Body if text == "\n" => format!("{}?", lark::string(text)),
            _ => lark::string(text),
        };
        let tools = match format.repeat {
            Repeat::List if calls.parallel => "tool (/, ?/ tool)*",
            _ => "tool",
        };
        let close = marker(format.close, tokenizer);
        let call = format!("{} {tools} {} {close}", space(before), space(after));
        rules.define("call", &call);
        let [list, end_of_list] = format.list;
        let open = marker(format.open[0], tokenizer);
        let first = match start {
            Start::Output if !format.is_bare => {
                self.part(&[list, format.open[0]].concat(), tokenizer)
            }
            // After the marker of the list or that of the call.
            Start::Body if !list.is_empty() => format!("({open})?"),
            _ => lark::string(""),
        };
        let more = match format.repeat {
            Repeat::Marked(separator) if calls.parallel => {
                format!("({} {open} call)*", lark::string(separator))
            }
            _ => String::new(),
        };
        let end = marker(end_of_list, tokenizer);
        rules.define("start", &format!("{first} call {more} {end}"));
        Ok(Grammar::Lark(rules.into_text()))
    }

    /// Returns the Lark expressions of the call bodies, one for each allowed tool.
    fn bodies(
        &self,
        format: &ToolCallFormat,
        calls: AllowedToolCalls<'_>,
        rules: &mut Rules<'_>,
    ) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut bodies = Vec::new();
        for (n, tool) in self.tools.iter().enumerate() {
            let function = tool.get("function").unwrap_or(tool);
            let Some(name) = function.get("name").and_then(Json::as_str) else {
                bail!(Argument, "tool {n} has no name");
            };
            if !calls.names.is_empty() && !calls.names.contains(&name) {
                continue;
            }
            found.push(name);
            rules.is_strict = function.get("strict") == Some(&Json::Bool(true));
            let body = parameter_schema(function.get("parameters"))
                .and_then(|schema| body(format.notation, name, schema, rules));
            bodies.push(body.context(name)?);
        }
        if let Some(name) = calls.names.iter().find(|name| !found.contains(name)) {
            bail!(Argument, "unknown tool {name:?}");
        }
        Ok(bodies)
    }
}

/// Returns the prepared schema of a tool's arguments.
fn parameter_schema(parameters: Option<&Json>) -> Result<Json> {
    let any = json!({ "type": "object" });
    let schema = parameters.filter(|schema| schema.is_object());
    prepare(schema.unwrap_or(&any), Position::Part)
}

/// Returns the Lark expression of a call body for one tool.
fn body(notation: Notation, name: &str, schema: Json, rules: &mut Rules<'_>) -> Result<String> {
    match notation {
        Notation::Named(named) => {
            check_name(name, named.separator)?;
            let [before, separator, after] = [named.before, named.separator, named.after]
                .map(|text| marker(text, rules.tokenizer));
            let name = lark::string(name);
            Ok(format!(
                "{before} {name} {separator} %json {schema} {after}"
            ))
        }
        Notation::Object(key, ..) => Ok(object(name, key, schema)),
        Notation::Tagged(tags) => {
            check_name(name, tags.end_of_name)?;
            parameters::body(name, &schema, tags, rules)
        }
        Notation::Python => {
            check_name(name, "(")?;
            python::body(name, &schema, rules)
        }
        Notation::QuotedByTokens => {
            check_name(name, "{")?;
            quoted::body(name, &schema, rules)
        }
        Notation::Recipient => {
            check_name(name, "<")?;
            check_name(name, " ")?;
            let header = harmony::after_recipient(|text| marker(text, rules.tokenizer));
            let header = rules.once("after_recipient", &header);
            Ok(format!("{} {header} %json {schema}", lark::string(name)))
        }
    }
}

/// Checks that a name does not contain the marker after it.
fn check_name(name: &str, marker: &str) -> Result<()> {
    if name.contains(marker) || name.trim() != name || name.is_empty() {
        bail!(
            Argument,
            "the tool-call format cannot express the name: expected no {marker:?} and no white space around it"
        );
    }
    Ok(())
}

/// Returns the expression of an object with the name and the arguments of a call.
fn object(name: &str, key: &str, mut parameters: Json) -> String {
    // These keys are valid only at the root, and the parameter schema is nested below it.
    let mut take = |key: &str| {
        let fields = parameters.as_object_mut()?;
        fields.remove(key)
    };
    let (definitions, options) = (take("$defs"), take("x-guidance"));
    let mut schema = json!({
        "type": "object",
        "properties": { "name": { "const": name } },
        "required": ["name", key],
        "additionalProperties": false,
    });
    schema["properties"][key] = parameters;
    for (key, value) in [("$defs", definitions), ("x-guidance", options)] {
        if let Some(value) = value {
            schema[key] = value;
        }
    }
    format!("%json {schema}")
}
