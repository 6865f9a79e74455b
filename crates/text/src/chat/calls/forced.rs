//! Grammars of answers that have to be a call.

use super::formats::ForcedToolCall;
use super::stream::AnswerFormat;
use crate::Tokenizer;
use crate::grammar::{Grammar, plain_schema};
use serde_json::{Value as Json, json};
use tabla_core::error::{Context, Result, bail};

impl AnswerFormat {
    /// The grammar of one call of one of the tools, or of the one that is named; `None` where the
    /// format is none that a schema describes.
    ///
    /// # Errors
    /// `Argument` for a name that no tool has and tools without names, and what is wrong with the
    /// schema of a tool's parameters.
    pub fn forced_call(
        &self,
        name: Option<&str>,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Grammar>> {
        let Some((calls, forced)) = self.calls.and_then(|c| Some((c, c.forced?))) else {
            return Ok(None);
        };
        let mut bodies = Vec::new();
        for (n, tool) in self.tools.iter().enumerate() {
            let function = tool.get("function").unwrap_or(tool);
            let Some(own) = function.get("name").and_then(Json::as_str) else {
                bail!(Argument, "tool {n} has no name");
            };
            if name.is_some_and(|name| name != own) {
                continue;
            }
            let parameters = function.get("parameters").cloned();
            let parameters = parameters.unwrap_or_else(|| json!({ "type": "object" }));
            bodies.push(body(forced, own, &parameters, tokenizer).context(own)?);
        }
        if bodies.is_empty() {
            bail!(Argument, "there is no tool {:?}", name.unwrap_or_default());
        }
        let open = if calls.is_bare { "" } else { calls.open[0] };
        let (before, behind) = match forced {
            ForcedToolCall::Object(_, before, behind) => (before, behind),
            ForcedToolCall::Named(_) => ("", ""),
        };
        Ok(Some(Grammar::Lark(format!(
            "start: {} {} ({}) {} {}\n",
            marker(open, tokenizer),
            text(before),
            bodies.join(" | "),
            text(behind),
            marker(calls.close, tokenizer),
        ))))
    }
}

/// What stands between the markers for one tool.
fn body(
    forced: ForcedToolCall,
    name: &str,
    parameters: &Json,
    tokenizer: &Tokenizer,
) -> Result<String> {
    let mut parameters = plain_schema(parameters)?;
    Ok(match forced {
        ForcedToolCall::Named(mark) => {
            format!(
                "{} {} %json {parameters}",
                text(name),
                marker(mark, tokenizer)
            )
        }
        ForcedToolCall::Object(key, ..) => {
            // What lies at the root of a schema stays there when the schema itself does not.
            let mut part = |key: &str| {
                let fields = parameters.as_object_mut()?;
                fields.remove(key)
            };
            let (definitions, options) = (part("$defs"), part("x-guidance"));
            let mut whole = json!({
                "type": "object",
                "properties": { "name": { "const": name } },
                "required": ["name", key],
                "additionalProperties": false,
            });
            whole["properties"][key] = parameters;
            for (key, value) in [("$defs", definitions), ("x-guidance", options)] {
                if let Some(value) = value {
                    whole[key] = value;
                }
            }
            format!("%json {whole}")
        }
    })
}

/// A marker as a token where it is one that no text becomes, else as text.
fn marker(spelling: &str, tokenizer: &Tokenizer) -> String {
    let id = tokenizer.special_id(spelling);
    match id.filter(|id| tokenizer.is_control(*id)) {
        Some(id) => format!("<[{id}]>"),
        None => text(spelling),
    }
}

/// A text as Lark writes it; none of these has a character that JSON writes otherwise.
fn text(text: &str) -> String {
    Json::from(text).to_string()
}
