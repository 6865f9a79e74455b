//! `POST /v1/classify` in the format of vLLM, and `/predict` in that of text-embeddings-inference.

use super::common::{Blocking, InputField, json_response, open};
use super::completions::token_ids;
use crate::app::{App, unix_seconds};
use crate::engine::admission::PassSlot;
use crate::http::error::{ApiError, ApiResult};
use crate::http::gate::RequestContext;
use crate::http::ids;
use crate::models::Loaded;
use axum::body::{Body, Bytes};
use axum::http::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tabla::embed::{ClassifyInput, ClassifyOptions};
use utoipa::ToSchema;

/// Request of a classification. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ClassifyFields {
    /// Name of the model; the default model if it is missing.
    model: Option<String>,
    /// A text, a list of texts, a list of token ids, or a list of such lists.
    #[schema(value_type = Object)]
    input: Option<Value>,
    /// Whether `probs` are scores; otherwise they are logits. Default true.
    use_activation: Option<bool>,
    /// Whether to truncate texts that are too long. Default false: they are an error.
    truncate: Option<bool>,
}

/// Request of predictions. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct PredictFields {
    /// Name of the model; the default model if it is missing.
    model: Option<String>,
    /// A text, a list of one text or of the two texts of a pair, or a list of such lists.
    #[schema(value_type = Object)]
    inputs: Option<Value>,
    /// Whether scores are logits. Default false.
    raw_scores: Option<bool>,
    /// Whether to truncate texts that are too long: of a pair only the second text. Default false: they
    /// are an error.
    truncate: Option<bool>,
}

/// An input of a request.
enum Input {
    Text(String),
    Pair(String, String),
    Tokens(Vec<u32>),
}

impl Input {
    fn borrowed(&self) -> ClassifyInput<'_> {
        match self {
            Self::Text(text) => ClassifyInput::Text(text),
            Self::Pair(first, second) => ClassifyInput::Pair(first, second),
            Self::Tokens(ids) => ClassifyInput::Tokens(ids),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Pair(first, second) => first.len() + second.len(),
            Self::Tokens(_) => 0,
        }
    }
}

/// Scores of inputs.
struct Scores {
    labels: Vec<String>,
    /// `[inputs, labels]`.
    values: Vec<f32>,
    tokens: u64,
}

/// Classifies texts.
pub(crate) async fn classify(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let (_, parsed, lease) = open(&app, &context, bytes, |fields: &ClassifyFields| {
        fields.model.as_deref()
    })
    .await?;
    lease.check_classifier()?;
    let field = InputField::of("input", parsed.input.as_ref());
    let inputs = match (&parsed.input, field) {
        (Some(Value::Array(items)), InputField::List(_)) => {
            batch(field, items, app.limits.inputs, |path, value| {
                text_or_tokens(&lease, path, value)
            })?
        }
        (input, _) => {
            let input = input.as_ref().unwrap_or(&Value::Null);
            vec![text_or_tokens(&lease, "input", input)?]
        }
    };
    let options = ClassifyOptions::default()
        .logits(parsed.use_activation == Some(false))
        .truncate(parsed.truncate.unwrap_or(false));
    check_bytes(&lease, &inputs, field, &options)?;
    let mut slot = lease.admit()?.pass_slot(context.deadline).await;
    let record = context.record;
    Blocking::new(&lease)
        .run(move |model, session| {
            let scores = scores(session, field, &inputs, &options, &mut slot)?;
            record.update(|record| record.prompt_tokens = scores.tokens);
            let rows = scores.values.chunks(scores.labels.len()).enumerate();
            let data = rows.map(|(index, row)| {
                let best = (0..row.len())
                    .rev()
                    .max_by(|a, b| row[*a].total_cmp(&row[*b]));
                json!({
                    "index": index,
                    "label": best.map(|best| &scores.labels[best]),
                    "probs": row,
                    "num_classes": row.len(),
                })
            });
            Ok(json_response(&json!({
                "id": ids::new_id("classify-"),
                "object": "list",
                "created": unix_seconds(),
                "model": model.name,
                "data": data.collect::<Vec<_>>(),
                "usage": {
                    "prompt_tokens": scores.tokens,
                    "completion_tokens": 0,
                    "total_tokens": scores.tokens,
                },
            })))
        })
        .await
}

/// Classifies texts and pairs of texts.
pub(crate) async fn predict(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let (_, parsed, lease) = open(&app, &context, bytes, |fields: &PredictFields| {
        fields.model.as_deref()
    })
    .await?;
    lease.check_classifier()?;
    let (inputs, field) = match &parsed.inputs {
        Some(Value::Array(items)) if items.iter().any(Value::is_array) => {
            let field = InputField::List("inputs");
            let inputs = batch(field, items, app.limits.inputs, text_or_pair)?;
            (inputs, field)
        }
        input => {
            let input = input.as_ref().unwrap_or(&Value::Null);
            let inputs = vec![text_or_pair("inputs", input)?];
            (inputs, InputField::One("inputs"))
        }
    };
    let options = ClassifyOptions::default()
        .logits(parsed.raw_scores.unwrap_or(false))
        .truncate(parsed.truncate.unwrap_or(false));
    check_bytes(&lease, &inputs, field, &options)?;
    let mut slot = lease.admit()?.pass_slot(context.deadline).await;
    let record = context.record;
    Blocking::new(&lease)
        .run(move |_, session| {
            let scores = scores(session, field, &inputs, &options, &mut slot)?;
            record.update(|record| record.prompt_tokens = scores.tokens);
            let rows = scores.values.chunks(scores.labels.len()).map(|row| {
                let mut order: Vec<usize> = (0..row.len()).collect();
                order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
                let one = |at: usize| json!({ "label": scores.labels[at], "score": row[at] });
                order.into_iter().map(one).collect::<Value>()
            });
            let mut rows: Vec<Value> = rows.collect();
            Ok(json_response(&match field {
                InputField::List(_) => rows.into(),
                InputField::One(_) => rows.swap_remove(0),
            }))
        })
        .await
}

/// Computes the scores of inputs.
fn scores(
    session: &mut tabla::Session,
    field: InputField,
    inputs: &[Input],
    options: &ClassifyOptions,
    slot: &mut PassSlot,
) -> ApiResult<Scores> {
    let borrowed: Vec<_> = inputs.iter().map(Input::borrowed).collect();
    let values = session.classify(&borrowed, options, &mut |_, _| slot.next());
    let values = values.map_err(|error| field.error(error))?;
    Ok(Scores {
        labels: session.classifier()?.labels.clone(),
        values,
        tokens: session.computed_tokens(),
    })
}

/// Checks the length of texts before they are tokenized.
fn check_bytes(
    model: &Loaded,
    inputs: &[Input],
    field: InputField,
    options: &ClassifyOptions,
) -> ApiResult<()> {
    if options.truncate {
        return Ok(());
    }
    let mut inputs = inputs.iter().enumerate();
    inputs.try_for_each(|(at, input)| field.check_bytes(model, at, input.bytes()))
}

/// Returns the inputs of a list of at most `max`.
fn batch(
    field: InputField,
    items: &[Value],
    max: usize,
    one: impl Fn(&str, &Value) -> ApiResult<Input>,
) -> ApiResult<Vec<Input>> {
    if items.is_empty() || items.len() > max {
        let message = format!("expected 1 to {max} inputs, got {}", items.len());
        return Err(ApiError::field(field.name(), message));
    }
    let items = items.iter().enumerate();
    items.map(|(at, item)| one(&field.path(at), item)).collect()
}

fn text_or_tokens(model: &Loaded, path: &str, value: &Value) -> ApiResult<Input> {
    match value {
        Value::String(text) if !text.is_empty() => Ok(Input::Text(text.clone())),
        Value::Array(ids) if !ids.is_empty() => Ok(Input::Tokens(token_ids(model, path, ids)?)),
        _ => Err(ApiError::field(
            path,
            "expected a text, token ids, or a list of them",
        )),
    }
}

fn text_or_pair(path: &str, value: &Value) -> ApiResult<Input> {
    let texts = match value {
        Value::Array(texts) => texts.iter().map(Value::as_str).collect(),
        other => other.as_str().map(|text| vec![text]),
    };
    match texts.as_deref() {
        Some([text]) if !text.is_empty() => Ok(Input::Text((*text).to_string())),
        Some([first, second]) => Ok(Input::Pair((*first).to_string(), (*second).to_string())),
        _ => Err(ApiError::field(
            path,
            "expected a text, a pair of texts, or a list of lists of one or two texts",
        )),
    }
}
