//! Constraints of the answer: `response_format`, and the fields of llama.cpp and vLLM.

use crate::engine::conversation::ResponseFormat;
use crate::engine::tools::check_schema_bytes;
use crate::http::body::{Json, fields};
use crate::http::error::{ApiError, ApiResult};
use crate::http::memory::value_bytes;
use serde::Deserialize;
use serde_json::Value;
use tabla::text::{Grammar, check_schema_types};
use utoipa::ToSchema;

/// Fields that constrain the answer, of which a request has at most one.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct FormatFields {
    /// `{"type": "text"}`, `{"type": "json_object"}`, or `{"type": "json_schema", "json_schema": {"schema": {}}}`.
    #[schema(value_type = Option<Object>)]
    response_format: Option<Value>,
    /// Grammar in the syntax of llama.cpp (GBNF).
    grammar: Option<String>,
    /// JSON schema of the answer.
    #[schema(value_type = Option<Object>)]
    json_schema: Option<Value>,
    structured_outputs: Option<StructuredFields>,
    /// Same as `structured_outputs.json`.
    #[schema(value_type = Option<Object>)]
    guided_json: Option<Value>,
    /// Same as `structured_outputs.regex`.
    guided_regex: Option<String>,
    /// Same as `structured_outputs.choice`.
    guided_choice: Option<Vec<String>>,
    /// Same as `structured_outputs.grammar`.
    guided_grammar: Option<String>,
}

/// Constraints of vLLM.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct StructuredFields {
    /// JSON schema of the answer.
    #[schema(value_type = Option<Object>)]
    json: Option<Value>,
    /// Regular expression that matches the answer.
    regex: Option<String>,
    /// Possible answers.
    choice: Option<Vec<String>>,
    /// Grammar in the syntax of llama.cpp (GBNF).
    grammar: Option<String>,
    /// Whether the answer is a JSON object.
    json_object: Option<bool>,
    /// Not supported.
    #[schema(value_type = Option<Object>)]
    structural_tag: Option<Value>,
}

impl FormatFields {
    /// Returns the format of the answer to a request. `own` is the format in the fields of its API.
    pub(crate) fn combined(request: &Json, own: ResponseFormat) -> ApiResult<ResponseFormat> {
        let parsed: Self = fields(request)?;
        let structured = parsed.structured_outputs.unwrap_or_default();
        if structured.structural_tag.is_some() {
            let field = "structured_outputs.structural_tag";
            return Err(ApiError::field(field, "is not supported"));
        }
        let object = match structured.json_object {
            Some(true) => {
                ResponseFormat::Grammar("structured_outputs.json_object", Grammar::JsonObject)
            }
            _ => ResponseFormat::Text,
        };
        let given = [
            own,
            openai(parsed.response_format.as_ref())?,
            schema("json_schema", parsed.json_schema)?,
            schema("structured_outputs.json", structured.json)?,
            schema("guided_json", parsed.guided_json)?,
            gbnf("grammar", parsed.grammar),
            gbnf("structured_outputs.grammar", structured.grammar),
            gbnf("guided_grammar", parsed.guided_grammar),
            regex("structured_outputs.regex", structured.regex),
            regex("guided_regex", parsed.guided_regex),
            choice("structured_outputs.choice", structured.choice.as_deref())?,
            choice("guided_choice", parsed.guided_choice.as_deref())?,
            object,
        ];
        let mut given = given.into_iter().filter(|format| format.field().is_some());
        let first = given.next().unwrap_or_default();
        match (
            first.field(),
            given.next().and_then(|second| second.field()),
        ) {
            (Some(first), Some(second)) => {
                let message = format!("cannot be combined with {first}: send one of them");
                Err(ApiError::field(second, message))
            }
            _ => Ok(first),
        }
    }
}

fn schema(field: &'static str, schema: Option<Value>) -> ApiResult<ResponseFormat> {
    let Some(schema) = schema else {
        return Ok(ResponseFormat::Text);
    };
    let schema = checked_schema(field, &schema)?;
    Ok(ResponseFormat::Grammar(field, Grammar::JsonSchema(schema)))
}

fn gbnf(field: &'static str, text: Option<String>) -> ResponseFormat {
    match text.filter(|text| !text.trim().is_empty()) {
        Some(text) => ResponseFormat::Grammar(field, Grammar::Gbnf(text)),
        None => ResponseFormat::Text,
    }
}

fn regex(field: &'static str, text: Option<String>) -> ResponseFormat {
    match text {
        Some(text) => ResponseFormat::Grammar(field, Grammar::Regex(text)),
        None => ResponseFormat::Text,
    }
}

fn choice(field: &'static str, texts: Option<&[String]>) -> ApiResult<ResponseFormat> {
    let Some(texts) = texts else {
        return Ok(ResponseFormat::Text);
    };
    if texts.is_empty() {
        return Err(ApiError::field(field, "expected at least one text"));
    }
    // Strings of Lark have the escapes of JSON.
    let texts = texts
        .iter()
        .map(|text| Value::from(text.as_str()).to_string());
    let text = format!("start: {}", texts.collect::<Vec<_>>().join(" | "));
    Ok(ResponseFormat::Grammar(field, Grammar::Lark(text)))
}

/// Parses the field `response_format`, whose schema may be in `json_schema`.
fn openai(format: Option<&Value>) -> ApiResult<ResponseFormat> {
    match format {
        None => Ok(ResponseFormat::Text),
        Some(format) => {
            let wrapped = format.get("json_schema");
            response_format("response_format", format, wrapped.unwrap_or(format))
        }
    }
}

/// Parses a format with a type; `holder` has the field `schema`.
pub(crate) fn response_format(
    field: &'static str,
    format: &Value,
    holder: &Value,
) -> ApiResult<ResponseFormat> {
    let schema = holder.get("schema").filter(|schema| !schema.is_null());
    let kind = format.get("type").and_then(Value::as_str);
    match (kind, schema) {
        (Some("text"), _) => Ok(ResponseFormat::Text),
        (Some("json_object" | "json_schema"), Some(schema)) => {
            let schema = checked_schema(field, schema)?;
            let is_strict = holder.get("strict").is_some_and(|strict| *strict == true);
            Ok(match is_strict {
                true => ResponseFormat::Grammar(field, Grammar::JsonSchema(schema)),
                false => ResponseFormat::RelaxedSchema(field, schema),
            })
        }
        (Some("json_object"), None) => Ok(ResponseFormat::Grammar(field, Grammar::JsonObject)),
        (Some("json_schema"), None) => Err(ApiError::field(field, "the schema is missing")),
        (Some(kind), _) => {
            let message =
                format!("unknown type {kind:?}, expected text, json_object or json_schema");
            Err(ApiError::field(field, message))
        }
        (None, _) => Err(ApiError::field(field, "expected an object with a type")),
    }
}

/// Checks what would make a schema meaningless, which is an error without `strict`, too. Returns the schema.
fn checked_schema(field: &str, schema: &Value) -> ApiResult<Value> {
    if !schema.is_object() {
        return Err(ApiError::field(field, "the schema must be an object"));
    }
    check_schema_bytes(field, value_bytes(schema))?;
    check_schema_types(schema).map_err(|error| ApiError::field(field, error.message()))?;
    Ok(schema.clone())
}
