//! Grammars that force the output to be a tool call.

use super::formats::ForcedToolCall;
use super::stream::ChatFormat;
use crate::Tokenizer;
use crate::grammar::{Grammar, resolve_schema};
use serde_json::{Value as Json, json};
use tabla_core::error::{Context, Result, bail};

impl ChatFormat {
    /// Returns the grammar of one tool call, to any tool or only to the tool `name`. Returns `None`
    /// if a JSON schema cannot describe the call format.
    ///
    /// # Errors
    /// `Argument` for an unknown `name` or a tool without a name; errors in the parameter schema of
    /// a tool.
    pub fn forced_tool_call(
        &self,
        name: Option<&str>,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Grammar>> {
        let Some((format, forced)) = self.tool_calls.and_then(|c| Some((c, c.forced?))) else {
            return Ok(None);
        };
        let mut bodies = Vec::new();
        for (n, tool) in self.tools.iter().enumerate() {
            let function = tool.get("function").unwrap_or(tool);
            let Some(tool_name) = function.get("name").and_then(Json::as_str) else {
                bail!(Argument, "tool {n} has no name");
            };
            if name.is_some_and(|name| name != tool_name) {
                continue;
            }
            let parameters = function.get("parameters").cloned();
            let parameters = parameters.unwrap_or_else(|| json!({ "type": "object" }));
            bodies.push(body(forced, tool_name, &parameters, tokenizer).context(tool_name)?);
        }
        if bodies.is_empty() {
            bail!(Argument, "unknown tool {:?}", name.unwrap_or_default());
        }
        let open = if format.is_bare { "" } else { format.open[0] };
        let (before, after) = match forced {
            ForcedToolCall::Object(_, before, after) => (before, after),
            ForcedToolCall::Named(_) => ("", ""),
        };
        Ok(Some(Grammar::Lark(format!(
            "start: {} {} ({}) {} {}\n",
            marker(open, tokenizer),
            lark_string(before),
            bodies.join(" | "),
            lark_string(after),
            marker(format.close, tokenizer),
        ))))
    }
}

/// Returns the Lark expression of a call body for one tool.
fn body(
    forced: ForcedToolCall,
    name: &str,
    parameters: &Json,
    tokenizer: &Tokenizer,
) -> Result<String> {
    let mut parameters = resolve_schema(parameters)?;
    Ok(match forced {
        ForcedToolCall::Named(separator) => {
            format!(
                "{} {} %json {parameters}",
                lark_string(name),
                marker(separator, tokenizer)
            )
        }
        ForcedToolCall::Object(key, ..) => {
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
    })
}

/// Returns the Lark expression of a marker: a token if it is a control token, otherwise a string.
fn marker(text: &str, tokenizer: &Tokenizer) -> String {
    let id = tokenizer.special_id(text);
    match id.filter(|id| tokenizer.is_control(*id)) {
        Some(id) => format!("<[{id}]>"),
        None => lark_string(text),
    }
}

/// Returns a Lark string literal. JSON escapes are equivalent for the strings used here.
fn lark_string(text: &str) -> String {
    Json::from(text).to_string()
}
