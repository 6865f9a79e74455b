//! Tools of a request, independent of the API.

use crate::http::error::{ApiError, ApiResult};
use crate::http::memory::value_bytes;
use serde_json::{Value, json};

/// Maximum length of a tool name in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Maximum memory of the schemas of a request in bytes. Template and grammar have copies of them.
const SCHEMA_BYTES_MAX: usize = 8 << 20;

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// JSON schema of the arguments.
    pub(crate) parameters: Value,
    /// Whether a schema that a grammar cannot express is an error.
    pub(crate) is_strict: bool,
}

/// Which tools the model must or may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No call.
    None,
    /// At least one call.
    Required,
    /// A call of this tool.
    Named(String),
}

impl Tool {
    /// Creates a tool after checking its name and schema.
    pub(crate) fn new(
        path: &str,
        name: Option<&str>,
        description: Option<&str>,
        parameters: Option<&Value>,
    ) -> ApiResult<Self> {
        let name = name.filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX);
        let Some(name) = name else {
            let message = format!("expected a name of 1 to {NAME_BYTES_MAX} bytes");
            return Err(ApiError::field(format!("{path}.name"), message));
        };
        let parameters = match parameters {
            None | Some(Value::Null) => {
                json!({ "type": "object", "properties": {}, "additionalProperties": false })
            }
            Some(Value::Bool(true)) => json!({ "type": "object" }),
            Some(Value::Object(fields)) => Value::Object(fields.clone()),
            Some(_) => {
                let message = "expected a JSON schema";
                return Err(ApiError::field(format!("{path}.parameters"), message));
            }
        };
        Ok(Self {
            name: name.to_string(),
            description: description.map(str::to_string),
            parameters,
            is_strict: false,
        })
    }

    /// Sets the field `strict` of a tool.
    pub(crate) fn strict(mut self, strict: &Value) -> Self {
        self.is_strict = *strict == true;
        self
    }

    /// Returns the tool for grammars: as in chat templates, with the field `strict`.
    pub(crate) fn to_grammar(&self) -> Value {
        let mut tool = self.to_template();
        tool["function"]["strict"] = self.is_strict.into();
        tool
    }

    /// Returns the tool in the format of chat templates.
    pub(crate) fn to_template(&self) -> Value {
        let mut function = json!({ "name": self.name });
        if let Some(description) = &self.description {
            function["description"] = description.clone().into();
        }
        function["parameters"] = self.parameters.clone();
        json!({ "type": "function", "function": function })
    }
}

/// Checks the number of tools and the choice in `field`.
pub(crate) fn check(tools: &[Tool], field: &str, choice: &ToolChoice, max: usize) -> ApiResult<()> {
    if tools.len() > max {
        let message = format!("expected at most {max} tools, got {}", tools.len());
        return Err(ApiError::field("tools", message));
    }
    let bytes = tools.iter().map(|tool| value_bytes(&tool.parameters));
    check_schema_bytes("tools", bytes.sum())?;
    match choice {
        ToolChoice::Named(name) if !tools.iter().any(|tool| tool.name == *name) => {
            let message = format!("the tool {name:?} is not in tools");
            Err(ApiError::field(field, message))
        }
        ToolChoice::Required if tools.is_empty() => {
            Err(ApiError::field(field, "there are no tools to call"))
        }
        _ => Ok(()),
    }
}

/// Checks the memory of schemas or variables in a field.
pub(crate) fn check_schema_bytes(field: &str, bytes: usize) -> ApiResult<()> {
    if bytes > SCHEMA_BYTES_MAX {
        let max = SCHEMA_BYTES_MAX >> 20;
        let message = format!("has too many values: they exceed {max} MiB of memory");
        return Err(ApiError::field(field, message));
    }
    Ok(())
}
