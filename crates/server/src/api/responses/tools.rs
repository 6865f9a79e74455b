//! Tools of a request: tools of namespaces get one joined name for the model, custom tools become functions
//! with one string parameter. Calls of the answer are translated back.

use crate::engine::tools::{Tool, ToolChoice};
use crate::http::error::{ApiError, ApiResult};
use serde_json::{Map, Value, json};

/// Parameter of the function that stands for a custom tool.
const INPUT: &str = "input";

/// Kind of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolKind {
    /// Arguments are JSON.
    Function,
    /// The input is text.
    Custom,
}

/// A tool as the client has named it.
#[derive(Clone, Debug)]
struct ClientTool {
    /// Name for the model.
    flat: String,
    namespace: Option<String>,
    name: String,
    kind: ToolKind,
    /// Whether the input must match a grammar that a call cannot be forced to match.
    has_free_grammar: bool,
}

/// The tools of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolTable {
    /// Tools for the model.
    pub(crate) tools: Vec<Tool>,
    client: Vec<ClientTool>,
}

/// A call of the model, with the names of the client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientCall {
    pub(crate) kind: ToolKind,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    /// Arguments as JSON text, or the input of a custom tool.
    pub(crate) payload: String,
}

impl ToolTable {
    /// Parses tools. Tools of other types than function, custom and namespace are skipped.
    pub(crate) fn new(tools: &[Value]) -> ApiResult<Self> {
        let mut table = Self::default();
        for (at, tool) in tools.iter().enumerate() {
            let path = format!("tools[{at}]");
            if tool["type"] == "namespace" {
                let namespace = required_name(tool, &path)?;
                let inner = tool["tools"].as_array().into_iter().flatten();
                for (at, tool) in inner.enumerate() {
                    table.add(tool, &format!("{path}.tools[{at}]"), Some(namespace))?;
                }
            } else {
                table.add(tool, &path, None)?;
            }
        }
        Ok(table)
    }

    fn add(&mut self, tool: &Value, path: &str, namespace: Option<&str>) -> ApiResult<()> {
        let kind = match tool["type"].as_str() {
            Some("function") => ToolKind::Function,
            Some("custom") => ToolKind::Custom,
            kind => {
                let kind = kind.unwrap_or_default();
                tracing::debug!(path, kind, "skipped a tool that the server does not have");
                return Ok(());
            }
        };
        // Some clients send the form of chat completions.
        let nested = ["function", "custom"].map(|name| tool.get(name));
        let nested = nested.into_iter().flatten().find(|tool| tool.is_object());
        let tool = nested.unwrap_or(tool);
        let name = required_name(tool, path)?;
        let flat = self.unique(joined(namespace, name));
        let (description, parameters, has_free_grammar) = match kind {
            ToolKind::Function => (
                tool["description"].as_str().map(str::to_string),
                tool.get("parameters").cloned(),
                false,
            ),
            ToolKind::Custom => custom(tool),
        };
        let parsed = Tool::new(
            path,
            Some(&flat),
            description.as_deref(),
            parameters.as_ref(),
        )?;
        self.tools.push(parsed.strict(&tool["strict"]));
        self.client.push(ClientTool {
            flat,
            namespace: namespace.map(str::to_string),
            name: name.to_string(),
            kind,
            has_free_grammar,
        });
        Ok(())
    }

    /// Returns the name, with a number if another tool has it.
    fn unique(&self, name: String) -> String {
        let is_used = |name: &str| self.client.iter().any(|tool| tool.flat == name);
        let mut unique = name.clone();
        let mut number = 2;
        while is_used(&unique) {
            unique = format!("{name}_{number}");
            number += 1;
        }
        unique
    }

    /// Forces a call, of the tools whose calls can be forced.
    fn required(&mut self) -> ApiResult<ToolChoice> {
        let is_free = |name: &str| {
            let mut client = self.client.iter();
            client.any(|tool| tool.flat == name && tool.has_free_grammar)
        };
        let count = self.tools.len();
        self.tools.retain(|tool| !is_free(&tool.name));
        if self.tools.is_empty() && count > 0 {
            let message = "a call with an input in a Lark grammar cannot be forced";
            return Err(ApiError::field("tool_choice", message));
        }
        Ok(ToolChoice::Required)
    }

    /// Parses `tool_choice`. A choice of allowed tools removes the others.
    pub(crate) fn choose(&mut self, choice: Option<&Value>) -> ApiResult<ToolChoice> {
        const NAME: &str = "tool_choice";
        match choice {
            None | Some(Value::Null) => Ok(ToolChoice::Auto),
            Some(Value::String(word)) => match word.as_str() {
                "auto" => Ok(ToolChoice::Auto),
                "none" => Ok(ToolChoice::None),
                "required" | "any" => self.required(),
                word => {
                    let message = format!("expected none, auto, required or a tool, got {word:?}");
                    Err(ApiError::field(NAME, message))
                }
            },
            Some(choice) if choice["type"] == "allowed_tools" => {
                let listed = choice["tools"].as_array().into_iter().flatten();
                let listed: Vec<&Value> = listed.collect();
                let is_listed = |tool: &ClientTool| listed.iter().any(|entry| tool.is(entry));
                let allowed = self.client.iter().filter(|tool| is_listed(tool));
                let allowed: Vec<&str> = allowed.map(|tool| tool.flat.as_str()).collect();
                self.tools
                    .retain(|tool| allowed.contains(&tool.name.as_str()));
                match choice["mode"].as_str() {
                    Some("required") => self.required(),
                    _ => Ok(ToolChoice::Auto),
                }
            }
            Some(choice) => match self.client.iter().find(|tool| tool.is(choice)) {
                Some(tool) if tool.has_free_grammar => {
                    let message = "a call with an input in a Lark grammar cannot be forced";
                    Err(ApiError::field(NAME, message))
                }
                Some(tool) => Ok(ToolChoice::Named(tool.flat.clone())),
                None => {
                    let message = format!("the tool {choice} is not in tools");
                    Err(ApiError::field(NAME, message))
                }
            },
        }
    }

    /// Returns the name for the model of a call of the conversation.
    pub(crate) fn flat_name(&self, namespace: Option<&str>, name: &str) -> String {
        let is_same =
            |tool: &&ClientTool| tool.namespace.as_deref() == namespace && tool.name == name;
        match self.client.iter().find(is_same) {
            Some(tool) => tool.flat.clone(),
            None => joined(namespace, name),
        }
    }

    /// Translates a call of the model. A call of an unknown tool keeps its name.
    pub(crate) fn client_call(&self, flat: &str, arguments: &str) -> ClientCall {
        let tool = self.client.iter().find(|tool| tool.flat == flat);
        let kind = tool.map_or(ToolKind::Function, |tool| tool.kind);
        ClientCall {
            kind,
            name: tool.map_or(flat, |tool| &tool.name).to_string(),
            namespace: tool.and_then(|tool| tool.namespace.clone()),
            payload: match kind {
                ToolKind::Function => arguments.to_string(),
                ToolKind::Custom => custom_input(arguments),
            },
        }
    }
}

impl ClientTool {
    /// Whether an entry of `tool_choice` names this tool or its namespace.
    fn is(&self, entry: &Value) -> bool {
        let text = |name: &str| entry[name].as_str();
        if text("type") == Some("namespace") {
            return self.namespace.as_deref() == text("name");
        }
        let function = entry.get("function").unwrap_or(entry);
        let name = function["name"].as_str();
        let is_namespace =
            text("namespace").is_none_or(|name| self.namespace.as_deref() == Some(name));
        is_namespace && (name == Some(&self.name) || name == Some(&self.flat))
    }
}

/// Returns the arguments of the function that stands for a custom tool.
pub(crate) fn custom_arguments(input: &str) -> String {
    json!({ INPUT: input }).to_string()
}

/// Returns the input of a custom tool, also from arguments that were cut; the arguments themselves if they have
/// another form.
fn custom_input(arguments: &str) -> String {
    let parse = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let parsed = parse(arguments).or_else(|| parse(&format!("{arguments}\"}}")));
    let input = parsed.and_then(|mut fields| fields.remove(INPUT));
    match input {
        Some(Value::String(text)) => text,
        _ => arguments.to_string(),
    }
}

/// Returns description and schema of the function that stands for a custom tool, and whether its grammar
/// cannot be part of the schema.
fn custom(tool: &Value) -> (Option<String>, Option<Value>, bool) {
    let description = tool["description"].as_str().unwrap_or_default();
    let mut input = json!({ "type": "string" });
    let format = tool.get("format").unwrap_or(&Value::Null);
    // Chat completions nest the grammar.
    let grammar = format.get("grammar").unwrap_or(format);
    let syntax = grammar["syntax"].as_str();
    let (Some(syntax), Some(definition)) = (syntax, grammar["definition"].as_str()) else {
        return (Some(description.to_string()), Some(schema(&input)), false);
    };
    let is_regex = syntax == "regex";
    if is_regex {
        input["pattern"] = format!("^(?:{definition})$").into();
    }
    let description =
        format!("{description}\n\nThe input matches this {syntax} grammar:\n{definition}");
    let description = description.trim_start().to_string();
    (Some(description), Some(schema(&input)), !is_regex)
}

fn schema(input: &Value) -> Value {
    json!({
        "type": "object",
        "properties": { INPUT: input },
        "required": [INPUT],
        "additionalProperties": false,
    })
}

fn joined(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}__{name}"),
        None => name.to_string(),
    }
}

fn required_name<'v>(tool: &'v Value, path: &str) -> ApiResult<&'v str> {
    let name = tool["name"].as_str().filter(|name| !name.is_empty());
    name.ok_or_else(|| ApiError::field(format!("{path}.name"), "expected a string"))
}
