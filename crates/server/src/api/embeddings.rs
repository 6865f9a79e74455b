//! `POST /v1/embeddings` and `/v1/rerank`, also in the formats of llama.cpp and text-embeddings-inference.

use super::common::{Blocking, Encoding, InputField, Numbers, json_response, open};
use super::completions::mixed;
use crate::app::App;
use crate::engine::messages::{Media, parts_of};
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
    /// A text, a list of token ids and texts, an object with a text as `prompt_string` or with text parts as
    /// `content`, or a list of them.
    #[serde(alias = "content")]
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

/// Format of an answer with embeddings.
#[derive(Clone, Copy)]
enum EmbeddingFormat {
    OpenAi,
    LlamaCpp,
}

/// Computes embeddings.
pub(crate) async fn embed(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    answer(app, context, bytes, EmbeddingFormat::OpenAi).await
}

/// Computes embeddings; the answer has the format of llama.cpp.
pub(crate) async fn embed_native(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    answer(app, context, bytes, EmbeddingFormat::LlamaCpp).await
}

async fn answer(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
    format: EmbeddingFormat,
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
            let rows = values.chunks(width).map(|row| encoding.numbers(row));
            let tokens: usize = inputs.iter().map(Vec::len).sum();
            record.update(|record| record.prompt_tokens = tokens as u64);
            model.metrics.embedded(tokens as u64);
            Ok(match format {
                EmbeddingFormat::OpenAi => openai_response(model, rows, tokens),
                EmbeddingFormat::LlamaCpp => native_response(rows),
            })
        })
        .await
}

fn openai_response<'a>(
    model: &Loaded,
    rows: impl Iterator<Item = Numbers<'a>>,
    tokens: usize,
) -> Response<Body> {
    let data = rows.enumerate().map(|(index, embedding)| Embedded {
        object: "embedding",
        index,
        embedding,
    });
    json_response(&Embeddings {
        object: "list",
        data: data.collect(),
        model: &model.name,
        usage: json!({ "prompt_tokens": tokens, "total_tokens": tokens }),
    })
}

/// An embedding in the format of llama.cpp: a list, which has one vector with pooling.
#[derive(Serialize)]
struct NativeEmbedding<'a> {
    index: usize,
    embedding: [Numbers<'a>; 1],
}

fn native_response<'a>(rows: impl Iterator<Item = Numbers<'a>>) -> Response<Body> {
    let rows = rows.enumerate().map(|(index, row)| NativeEmbedding {
        index,
        embedding: [row],
    });
    json_response(&rows.collect::<Vec<_>>())
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
        let text = object_text(input, &field.path(at))?.map(Value::from);
        let mut ids = match text.as_ref().unwrap_or(input) {
            Value::String(text) if text.is_empty() => return Err(invalid("is empty")),
            Value::String(text) => {
                let text = format!("{prompt}{text}");
                if matches!(truncation, Truncation::None) {
                    field.check_bytes(model, at, text.len())?;
                }
                let ids = tokenizer.encode(&text, EncodeOptions::PROMPT);
                ids.map_err(|error| ApiError::in_field(&field.path(at), error))?
            }
            Value::Array(parts) if !parts.is_empty() => mixed(model, &field.path(at), parts)?,
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

/// Returns the text of an input that is an object, as in llama.cpp.
fn object_text(input: &Value, path: &str) -> ApiResult<Option<String>> {
    if let Some(text) = input.get("prompt_string").and_then(Value::as_str) {
        return Ok(Some(text.to_string()));
    }
    let Some(parts @ Value::Array(_)) = input.get("content") else {
        return Ok(None);
    };
    let texts = parts_of(parts, &format!("{path}.content"), Media::Rejected)?;
    Ok(Some(texts.concat()))
}

/// Request of a ranking, in the formats of Jina, Cohere and text-embeddings-inference. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RerankFields {
    /// Name of the model; the default model if it is missing.
    model: Option<String>,
    /// Query that documents are compared with.
    query: Option<String>,
    /// Texts, or objects with a field `text`.
    #[schema(value_type = Vec<Object>)]
    documents: Option<Vec<Value>>,
    /// Same as `documents`; the answer has the format of text-embeddings-inference.
    #[schema(value_type = Vec<Object>)]
    texts: Option<Vec<Value>>,
    /// Number of results.
    #[schema(value_type = Option<i64>)]
    top_n: Option<Int>,
    /// Whether results have the text of the document.
    #[serde(alias = "return_text")]
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
    let (field, listed) = match (&parsed.documents, &parsed.texts) {
        (None, Some(texts)) => (TEXTS, Some(texts)),
        (documents, _) => (DOCUMENTS, documents.as_ref()),
    };
    let documents = documents(field, listed.map(Vec::as_slice), app.limits.inputs)?;
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
            field.check_bytes(&lease, at, query.len() + document.len())?;
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
            let scores = scores.map_err(|error| rerank_error(error, field, &options))?;
            let mut order: Vec<usize> = (0..documents.len()).collect();
            order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
            order.truncate(top);
            let ranking = Ranking {
                order,
                scores,
                texts: has_documents.then_some(documents),
            };
            Ok(match field.name() == TEXTS.name() {
                true => json_response(&ranking.tei()),
                false => json_response(&ranking.jina(model, session.computed_tokens())),
            })
        })
        .await
}

/// Documents in the order of their scores.
struct Ranking {
    order: Vec<usize>,
    scores: Vec<f32>,
    /// The texts of the documents, if the answer has them.
    texts: Option<Vec<String>>,
}

impl Ranking {
    /// Returns the answer in the format of text-embeddings-inference.
    fn tei(&self) -> Vec<Value> {
        let result = |index: &usize| {
            let mut result = json!({ "index": index, "score": self.scores[*index] });
            if let Some(texts) = &self.texts {
                result["text"] = texts[*index].as_str().into();
            }
            result
        };
        self.order.iter().map(result).collect()
    }

    /// Returns the answer in the formats of Jina and Cohere.
    fn jina(&self, model: &Loaded, tokens: u64) -> Value {
        let result = |index: &usize| {
            let mut result = json!({ "index": index, "relevance_score": self.scores[*index] });
            if let Some(texts) = &self.texts {
                result["document"] = json!({ "text": texts[*index] });
            }
            result
        };
        json!({
            "id": ids::new_id("rerank-"),
            "object": "list",
            "model": model.name,
            "results": self.order.iter().map(result).collect::<Vec<_>>(),
            "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
            "meta": { "api_version": { "version": "2" }, "billed_units": { "search_units": 1 } },
        })
    }
}

/// Field of the documents, and its name in text-embeddings-inference.
const DOCUMENTS: InputField = InputField::List("documents");
const TEXTS: InputField = InputField::List("texts");

/// Returns the error of a ranking with the field that has caused it.
fn rerank_error(
    error: tabla::Error,
    documents: InputField,
    options: &RerankOptions<'_>,
) -> ApiError {
    match (error.kind(), std::error::Error::source(&error)) {
        (_, Some(_)) => documents.error(error),
        (ErrorKind::Unsupported | ErrorKind::State, _) => ApiError::from(error).param("model"),
        (ErrorKind::TooLarge, _) => ApiError::in_field("query", error),
        (_, None) if options.instruction.is_some() => ApiError::in_field("instruction", error),
        (_, None) => ApiError::in_field("truncate", error),
    }
}

/// Returns the texts of the documents.
fn documents(field: InputField, documents: Option<&[Value]>, max: usize) -> ApiResult<Vec<String>> {
    let documents = documents.unwrap_or_default();
    if documents.is_empty() || documents.len() > max {
        let message = format!("expected 1 to {max} documents, got {}", documents.len());
        return Err(ApiError::field(field.name(), message));
    }
    let text = |(at, document): (usize, &Value)| {
        let text = document.as_str().or_else(|| document.get("text")?.as_str());
        text.map(str::to_string).ok_or_else(|| {
            ApiError::field(field.path(at), "expected a text or an object with a text")
        })
    };
    documents.iter().enumerate().map(text).collect()
}
