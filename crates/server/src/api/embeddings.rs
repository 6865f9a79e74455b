//! `POST /v1/embeddings` and `/v1/rerank`.

use super::common::{Blocking, Encoding, InputField, Numbers, json_response, open};
use super::completions::token_ids;
use crate::app::App;
use crate::engine::numbers::Int;
use crate::http::error::{ApiError, ApiResult};
use crate::http::gate::RequestContext;
use crate::http::ids;
use crate::models::{Kind, Loaded};
use axum::body::{Body, Bytes};
use axum::http::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use tabla::embed::{EmbedOptions, RerankOptions};
use tabla::text::EncodeOptions;
use tabla::{ErrorKind, Session, TableId};
use utoipa::ToSchema;

/// Request of embeddings. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbeddingFields {
    /// Name of the model; the default model if it is missing.
    model: Option<String>,
    /// A text, a list of texts, a list of token ids, or a list of such lists.
    #[schema(value_type = Object)]
    input: Option<Value>,
    /// `float` or `base64`: little-endian 32-bit floats.
    encoding_format: Option<String>,
    /// Number of leading dimensions to keep.
    #[schema(value_type = Option<i64>)]
    dimensions: Option<Int>,
    /// Name of the prompt that the model files define for a task, such as `query`.
    #[serde(alias = "task")]
    prompt_name: Option<String>,
    /// Whether to remove the end of texts that are too long. Default false: they are an error.
    truncate: Option<bool>,
    /// Number of tokens to keep, at the end of a text and with the special tokens around it, as in vLLM; -1:
    /// the maximum of the model.
    #[schema(value_type = Option<i64>)]
    truncate_prompt_tokens: Option<Int>,
}

/// How inputs that are too long are shortened.
#[derive(Clone, Copy)]
enum Truncation {
    /// They are an error.
    None,
    /// Their end is removed.
    End,
    /// Their start is removed, to this number of tokens.
    Start(usize),
}

impl EmbeddingFields {
    /// Returns the field of the inputs. A list of numbers is one input.
    fn field(&self) -> InputField {
        InputField::of("input", self.input.as_ref())
    }

    /// Returns how inputs over the limit are shortened.
    fn truncation(&self, limit: u32) -> ApiResult<Truncation> {
        let truncates = self.truncate.unwrap_or(false);
        let name = "truncate_prompt_tokens";
        match self.truncate_prompt_tokens {
            None if truncates => Ok(Truncation::End),
            None => Ok(Truncation::None),
            Some(_) if truncates => {
                let message = "cannot be combined with truncate: send one of them";
                Err(ApiError::field(name, message))
            }
            Some(Int(-1)) => Ok(Truncation::Start(limit as usize)),
            Some(count) => Ok(Truncation::Start(count.u32_in(name, 1, limit)? as usize)),
        }
    }
}

/// Answer with embeddings.
#[derive(Serialize)]
struct Embeddings<'a> {
    object: &'static str,
    data: Vec<Embedded<'a>>,
    model: &'a str,
    usage: Value,
}

/// An embedding.
#[derive(Serialize)]
struct Embedded<'a> {
    object: &'static str,
    index: usize,
    embedding: Numbers<'a>,
}

/// Computes embeddings.
pub(crate) async fn embed(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let (_, parsed, lease) = open(&app, &context, bytes, |fields: &EmbeddingFields| {
        fields.model.as_deref()
    })
    .await?;
    check_embeddings(&lease)?;
    let encoding = Encoding::find(parsed.encoding_format.as_deref())?;
    let max = app.limits.inputs;
    let pooling = app.pooling;
    let mut slot = lease.admit()?.pass_slot(context.deadline).await;
    let record = context.record;
    Blocking::new(&lease)
        .run(move |model, session| {
            if pooling.is_none() && session.embedding().pooling.is_empty() {
                let message =
                    "the files of the model specify no pooling: start the server with --pooling";
                return Err(ApiError::unsupported(message));
            }
            let inputs = inputs(model, session, &parsed, max)?;
            let dim = u32::try_from(model.model.embedding_dim()).unwrap_or(u32::MAX);
            let dimensions = parsed.dimensions.map(|n| n.u32_in("dimensions", 1, dim));
            let options = EmbedOptions::default()
                .pooling(pooling)
                .dimensions(dimensions.transpose()?.unwrap_or(0))
                .prompt_name(parsed.prompt_name.as_deref());
            let width = session.embedding_dim(&options)?;
            let mut values = vec![0.0; width * inputs.len()];
            let embedded =
                session.embed_tokens(&inputs, &options, &mut values, &mut |_, _| slot.next());
            embedded.map_err(|error| parsed.field().error(error))?;
            let data = values.chunks(width).enumerate();
            let data = data.map(|(index, row)| Embedded {
                object: "embedding",
                index,
                embedding: encoding.numbers(row),
            });
            let tokens: usize = inputs.iter().map(Vec::len).sum();
            record.update(|record| record.prompt_tokens = tokens as u64);
            Ok(json_response(&Embeddings {
                object: "list",
                data: data.collect(),
                model: &model.name,
                usage: json!({ "prompt_tokens": tokens, "total_tokens": tokens }),
            }))
        })
        .await
}

fn check_embeddings(model: &Loaded) -> ApiResult<()> {
    match (model.model.table(TableId::Embed), model.kind) {
        (Some(_), Kind::Text | Kind::Encoder) => Ok(()),
        (None, Kind::Text) => Err(ApiError::unsupported(format!(
            "the model {} was loaded without embeddings: start the server with --embeddings",
            model.name
        ))),
        _ => Err(ApiError::unsupported(format!(
            "the model {} has no embeddings",
            model.name
        ))),
    }
}

/// Returns the token ids of the inputs.
fn inputs(
    model: &Loaded,
    session: &Session,
    parsed: &EmbeddingFields,
    max: usize,
) -> ApiResult<Vec<Vec<u32>>> {
    let field = parsed.field();
    let limit = session.embedding_max_tokens();
    let truncation = parsed.truncation(limit)?;
    let settings = session.embedding();
    let name = parsed
        .prompt_name
        .as_ref()
        .or(settings.default_prompt.as_ref());
    let prompt = match name.filter(|name| !name.is_empty()) {
        None => "",
        Some(name) => {
            let mut prompts = settings.prompts.iter();
            let found = prompts.find(|(other, _)| other == name);
            let found = found.map(|(_, prompt)| prompt.as_str());
            let message = "the model files define no such prompt";
            found.ok_or_else(|| ApiError::field("prompt_name", message))?
        }
    };
    let tokenizer = model.model.tokenizer();
    let one = |(at, input): (usize, &Value)| {
        let invalid = |message| ApiError::field(field.path(at), message);
        let mut ids = match input {
            Value::String(text) if text.is_empty() => return Err(invalid("is empty")),
            Value::String(text) => {
                let text = format!("{prompt}{text}");
                if matches!(truncation, Truncation::None) {
                    field.check_bytes(model, at, text.len())?;
                }
                let ids = tokenizer.encode(&text, EncodeOptions::PROMPT);
                ids.map_err(|error| ApiError::in_field(&field.path(at), error))?
            }
            Value::Array(ids) if !ids.is_empty() => token_ids(model, &field.path(at), ids)?,
            _ => return Err(invalid("expected a text, token ids, or a list of them")),
        };
        match truncation {
            Truncation::None => {}
            Truncation::End => tokenizer.truncate(&mut ids, limit as usize),
            Truncation::Start(count) => tokenizer.truncate_start(&mut ids, count),
        }
        Ok(ids)
    };
    match &parsed.input {
        None | Some(Value::Null) => Err(ApiError::field("input", "is missing")),
        Some(Value::Array(items)) if matches!(field, InputField::List(_)) => {
            if items.is_empty() || items.len() > max {
                let message = format!("expected 1 to {max} inputs, got {}", items.len());
                return Err(ApiError::field("input", message));
            }
            items.iter().enumerate().map(one).collect()
        }
        Some(input) => Ok(vec![one((0, input))?]),
    }
}

/// Request of a ranking, in the formats of Jina and Cohere. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RerankFields {
    /// Name of the model; the default model if it is missing.
    model: Option<String>,
    /// Query that documents are compared with.
    query: Option<String>,
    /// Texts, or objects with a field `text`.
    #[schema(value_type = Vec<Object>)]
    documents: Option<Vec<Value>>,
    /// Number of results.
    #[schema(value_type = Option<i64>)]
    top_n: Option<Int>,
    /// Whether results have the text of the document.
    return_documents: Option<bool>,
    /// Task instruction, for generative rerankers.
    instruction: Option<String>,
    /// Whether scores have the activation function of the model; otherwise they are logits. Default true.
    use_activation: Option<bool>,
    /// Whether to truncate documents that are too long, for cross-encoders. Default false: they are an
    /// error.
    truncate: Option<bool>,
}

/// Ranks documents by their relevance to a query.
pub(crate) async fn rerank(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let (_, parsed, lease) = open(&app, &context, bytes, |fields: &RerankFields| {
        fields.model.as_deref()
    })
    .await?;
    let Some(query) = parsed.query.filter(|query| !query.is_empty()) else {
        return Err(ApiError::field("query", "expected a text"));
    };
    let documents = documents(parsed.documents.as_deref(), app.limits.inputs)?;
    let count = i64::try_from(documents.len()).unwrap_or(i64::MAX);
    let top = match parsed.top_n {
        Some(top) => usize::try_from(top.in_range("top_n", 1, i64::MAX)?.min(count)),
        None => Ok(documents.len()),
    };
    let top = top.unwrap_or(documents.len());
    if lease.model.classifier().is_none() {
        lease.check_text()?;
    }
    let truncate = parsed.truncate.unwrap_or(false);
    if !truncate {
        for (at, document) in documents.iter().enumerate() {
            DOCUMENTS.check_bytes(&lease, at, query.len() + document.len())?;
        }
    }
    let mut slot = lease.admit()?.pass_slot(context.deadline).await;
    let has_documents = parsed.return_documents.unwrap_or(false);
    Blocking::new(&lease)
        .run(move |model, session| {
            let options = RerankOptions::default()
                .query(&query)
                .instruction(parsed.instruction.as_deref())
                .logits(parsed.use_activation == Some(false))
                .truncate(truncate);
            let scores = session.rerank(&options, &documents, &mut |_, _| slot.next());
            let scores = scores.map_err(|error| rerank_error(error, &options))?;
            let mut order: Vec<usize> = (0..documents.len()).collect();
            order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
            let results = order.into_iter().take(top).map(|index| {
                let mut result = json!({ "index": index, "relevance_score": scores[index] });
                if has_documents {
                    result["document"] = json!({ "text": documents[index] });
                }
                result
            });
            let tokens = session.computed_tokens();
            Ok(json_response(&json!({
                "id": ids::new_id("rerank-"),
                "object": "list",
                "model": model.name,
                "results": results.collect::<Vec<_>>(),
                "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
                "meta": { "api_version": { "version": "2" }, "billed_units": { "search_units": 1 } },
            })))
        })
        .await
}

/// Field of the documents.
const DOCUMENTS: InputField = InputField::List("documents");

/// Returns the error of a ranking with the field that has caused it.
fn rerank_error(error: tabla::Error, options: &RerankOptions<'_>) -> ApiError {
    match (error.kind(), std::error::Error::source(&error)) {
        (_, Some(_)) => DOCUMENTS.error(error),
        (ErrorKind::Unsupported | ErrorKind::State, _) => ApiError::from(error).param("model"),
        (ErrorKind::TooLarge, _) => ApiError::in_field("query", error),
        (_, None) if options.instruction.is_some() => ApiError::in_field("instruction", error),
        (_, None) => ApiError::in_field("truncate", error),
    }
}

/// Returns the texts of the documents.
fn documents(documents: Option<&[Value]>, max: usize) -> ApiResult<Vec<String>> {
    let documents = documents.unwrap_or_default();
    if documents.is_empty() || documents.len() > max {
        let message = format!("expected 1 to {max} documents, got {}", documents.len());
        return Err(ApiError::field("documents", message));
    }
    let text = |(at, document): (usize, &Value)| {
        let text = document.as_str().or_else(|| document.get("text")?.as_str());
        text.map(str::to_string).ok_or_else(|| {
            ApiError::field(
                format!("documents[{at}]"),
                "expected a text or an object with a text",
            )
        })
    };
    documents.iter().enumerate().map(text).collect()
}
