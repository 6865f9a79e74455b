//! `/openapi.json`: the description of all endpoints, whose request schemas are those of the parsers.

use super::chat::ChatFields;
use super::classify::{ClassifyFields, PredictFields};
use super::common::json_response;
use super::completions::CompletionFields;
use super::embeddings::{EmbeddingFields, RerankFields};
use super::format::FormatFields;
use super::inside::ActivationFields;
use super::llamacpp::LlamaCppFields;
use super::messages::MessagesFields;
use super::native::{DetokenizeFields, ScoreFields, TokenizeFields};
use super::responses::ResponsesFields;
use crate::app::App;
use crate::engine::extra_fields::ExtraFields;
use crate::engine::parameters::{AnswerFields, LimitFields};
use crate::engine::sampling_fields::SamplingFields;
use crate::http::error::ApiResult;
use crate::http::gate::RequestContext;
use axum::body::Body;
use axum::http::{Response, Uri};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// Schemas by name.
type Schemas = Map<String, Value>;

/// Adds a schema and the schemas that it refers to. Returns its name.
type AddSchema = fn(&mut Schemas) -> String;

/// An endpoint: method, path, summary, and the groups of fields of its body.
type Operation = (
    &'static str,
    &'static str,
    &'static str,
    &'static [AddSchema],
);

const SAMPLING: AddSchema = add::<SamplingFields>;
const ANSWER: AddSchema = add::<AnswerFields>;
const LIMIT: AddSchema = add::<LimitFields>;
const FORMAT: AddSchema = add::<FormatFields>;
const EXTRA: AddSchema = add::<ExtraFields>;

/// Fields of llama.cpp's completions.
const NATIVE: &[AddSchema] = &[
    add::<LlamaCppFields>,
    SAMPLING,
    ANSWER,
    LIMIT,
    FORMAT,
    EXTRA,
];

/// The endpoints.
const OPERATIONS: &[Operation] = &[
    (
        "post",
        "/v1/chat/completions",
        "Answer a conversation",
        &[add::<ChatFields>, SAMPLING, ANSWER, LIMIT, FORMAT, EXTRA],
    ),
    (
        "post",
        "/v1/chat/completions/input_tokens",
        "Count the tokens of a conversation (llama.cpp)",
        &[add::<ChatFields>],
    ),
    (
        "post",
        "/v1/completions",
        "Complete texts",
        &[
            add::<CompletionFields>,
            SAMPLING,
            ANSWER,
            LIMIT,
            FORMAT,
            EXTRA,
        ],
    ),
    (
        "post",
        "/v1/responses",
        "Create a response (OpenAI Responses)",
        &[add::<ResponsesFields>, SAMPLING, ANSWER, FORMAT, EXTRA],
    ),
    (
        "post",
        "/v1/responses/input_tokens",
        "Count the tokens of a response's input",
        &[add::<ResponsesFields>],
    ),
    (
        "post",
        "/v1/responses/compact",
        "Answer that conversations cannot be compacted",
        &[],
    ),
    ("get", "/v1/responses/{id}", "Return a stored response", &[]),
    (
        "delete",
        "/v1/responses/{id}",
        "Delete a stored response",
        &[],
    ),
    (
        "post",
        "/v1/messages",
        "Create a message (Anthropic)",
        &[add::<MessagesFields>, SAMPLING, ANSWER, FORMAT, EXTRA],
    ),
    (
        "post",
        "/v1/messages/count_tokens",
        "Count the tokens of a message",
        &[add::<MessagesFields>],
    ),
    (
        "post",
        "/v1/embeddings",
        "Compute embeddings",
        &[add::<EmbeddingFields>],
    ),
    (
        "post",
        "/v1/rerank",
        "Rank documents by relevance",
        &[add::<RerankFields>],
    ),
    (
        "post",
        "/v1/reranking",
        "Rank documents by relevance (llama.cpp)",
        &[add::<RerankFields>],
    ),
    (
        "post",
        "/v1/classify",
        "Classify texts (vLLM)",
        &[add::<ClassifyFields>],
    ),
    (
        "post",
        "/predict",
        "Classify texts and pairs of texts (text-embeddings-inference)",
        &[add::<PredictFields>],
    ),
    (
        "post",
        "/v1/audio/transcriptions",
        "Transcribe audio (multipart/form-data)",
        &[],
    ),
    (
        "post",
        "/v1/audio/translations",
        "Translate audio to English (multipart/form-data)",
        &[],
    ),
    ("get", "/v1/models", "List the models", &[]),
    ("get", "/v1/models/{name}", "Return a model", &[]),
    ("post", "/completion", "Complete a text (llama.cpp)", NATIVE),
    (
        "post",
        "/completions",
        "Complete a text (llama.cpp)",
        NATIVE,
    ),
    (
        "post",
        "/embeddings",
        "Compute embeddings (llama.cpp)",
        &[add::<EmbeddingFields>],
    ),
    (
        "post",
        "/embedding",
        "Compute embeddings (llama.cpp)",
        &[add::<EmbeddingFields>],
    ),
    (
        "post",
        "/infill",
        "Complete text between a prefix and a suffix (llama.cpp)",
        NATIVE,
    ),
    (
        "post",
        "/tokenize",
        "Convert text to token ids",
        &[add::<TokenizeFields>],
    ),
    (
        "get",
        "/tokenizer_info",
        "Return special tokens and the chat template (vLLM)",
        &[],
    ),
    (
        "post",
        "/detokenize",
        "Convert token ids to text",
        &[add::<DetokenizeFields>],
    ),
    (
        "post",
        "/apply-template",
        "Return the prompt of a conversation",
        &[add::<ChatFields>],
    ),
    (
        "post",
        "/score",
        "Return log-probabilities of given texts",
        &[add::<ScoreFields>],
    ),
    (
        "post",
        "/activations",
        "Return values of the forward pass",
        &[add::<ActivationFields>],
    ),
    ("get", "/table", "Return the dispatch tables", &[]),
    (
        "get",
        "/health",
        "Tell whether the default model is loaded",
        &[],
    ),
    (
        "get",
        "/props",
        "Return the properties of a model (llama.cpp)",
        &[],
    ),
    ("get", "/slots", "Return the slots (llama.cpp)", &[]),
    ("get", "/metrics", "Return metrics for Prometheus", &[]),
    ("get", "/openapi.json", "Return this description", &[]),
];

fn add<T: ToSchema>(schemas: &mut Schemas) -> String {
    let mut nested = Vec::new();
    T::schemas(&mut nested);
    nested.push((T::name().into_owned(), T::schema()));
    for (name, schema) in nested {
        // Schemas are plain data, which JSON represents.
        schemas.insert(name, serde_json::to_value(schema).unwrap_or_default());
    }
    T::name().into_owned()
}

/// Returns the description.
pub(crate) async fn describe(_: Arc<App>, _: RequestContext, _: Uri) -> ApiResult<Response<Body>> {
    Ok(json_response(&document()))
}

fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for (method, path, summary, groups) in OPERATIONS {
        let mut operation = json!({
            "summary": summary,
            "responses": {
                "200": { "description": "Success" },
                "400": { "description": "Invalid request: the error names the field" },
                "401": { "description": "Missing or invalid API key" },
                "429": { "description": "Full queue" },
                "503": { "description": "Loading, shutting down, or out of memory" },
            },
        });
        let groups = groups
            .iter()
            .map(|add| json!({ "$ref": format!("#/components/schemas/{}", add(&mut schemas)) }));
        let groups: Vec<Value> = groups.collect();
        if !groups.is_empty() {
            let schema = json!({ "allOf": groups });
            operation["requestBody"] = json!({
                "required": true,
                "content": { "application/json": { "schema": schema } },
            });
        }
        if let Some((_, name)) = path.split_once('{') {
            operation["parameters"] = json!([{
                "name": name.trim_end_matches('}'),
                "in": "path",
                "required": true,
                "schema": { "type": "string" },
            }]);
        }
        let entry = paths.entry(*path).or_insert_with(|| json!({}));
        entry[*method] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tabla",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "APIs of OpenAI, Anthropic and llama.cpp, and native endpoints of Tabla.",
        },
        "security": [{ "key": [] }, {}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
        },
    })
}
