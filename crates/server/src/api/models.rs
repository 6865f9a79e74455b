//! `GET /v1/models` and `/health`.

use super::common::{json_response, percent_decoded, query};
use crate::app::App;
use crate::http::error::{ApiError, ApiResult, Dialect};
use crate::http::gate::RequestContext;
use crate::models::{Entry, Kind, Status};
use axum::body::Body;
use axum::http::{Response, StatusCode, Uri};
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum and default number of models of a page of Anthropic's API.
const PAGE: (usize, usize) = (1000, 20);

/// Lists the models, for clients of OpenAI, llama.cpp and vLLM, or of Anthropic.
pub(crate) async fn list(
    app: Arc<App>,
    context: RequestContext,
    uri: Uri,
) -> ApiResult<Response<Body>> {
    let entries = app.registry.entries();
    if context.dialect == Dialect::Anthropic {
        return Ok(json_response(&page(&uri, entries, app.started)?));
    }
    let data: Vec<Value> = entries
        .iter()
        .map(|entry| describe(entry, app.started))
        .collect();
    Ok(json_response(&json!({
        "object": "list",
        "data": data,
        "models": [],
    })))
}

/// Returns a page of models in Anthropic's API. Its cursors are names of models.
fn page(uri: &Uri, entries: &[Arc<Entry>], created: u64) -> ApiResult<Value> {
    let (max, default) = PAGE;
    let limit = match query(uri, "limit").map(str::parse) {
        None => default,
        Some(Ok(limit)) if (1..=max).contains(&limit) => limit,
        Some(_) => {
            let message = format!("expected an integer from 1 to {max}");
            return Err(ApiError::field("limit", message));
        }
    };
    let cursor = |name: &str| {
        let id = query(uri, name).map(percent_decoded);
        let at = id.map(|id| {
            let at = entries.iter().position(|entry| entry.config.name == id);
            at.ok_or_else(|| ApiError::field(name, format!("the model {id:?} does not exist")))
        });
        at.transpose()
    };
    let (after, before) = (cursor("after_id")?, cursor("before_id")?);
    let begin = after.map_or(0, |at| at + 1);
    let listed = &entries[begin..before.unwrap_or(entries.len()).max(begin)];
    // A page before a model ends there.
    let rest = listed.len().saturating_sub(limit);
    let shown = match before {
        Some(_) => &listed[rest..],
        None => &listed[..listed.len() - rest],
    };
    let data = shown.iter().map(|entry| describe_anthropic(entry, created));
    Ok(json!({
        "data": data.collect::<Vec<_>>(),
        "has_more": rest > 0,
        "first_id": shown.first().map(|entry| &entry.config.name),
        "last_id": shown.last().map(|entry| &entry.config.name),
    }))
}

/// Returns one model.
pub(crate) async fn retrieve(
    app: Arc<App>,
    context: RequestContext,
    uri: Uri,
) -> ApiResult<Response<Body>> {
    let path = uri.path();
    let name = path.split_once("/models/").map_or("", |(_, name)| name);
    let name = percent_decoded(name);
    let entry = app.registry.entry(Some(&name))?;
    Ok(json_response(&match context.dialect {
        Dialect::OpenAi => describe(entry, app.started),
        Dialect::Anthropic => describe_anthropic(entry, app.started),
    }))
}

/// Returns the description of a model in Anthropic's API.
fn describe_anthropic(entry: &Entry, created: u64) -> Value {
    let context = entry.loaded().map(|loaded| loaded.model.facts().context);
    json!({
        "type": "model",
        "id": entry.config.name,
        "display_name": entry.config.name,
        "created_at": iso_time(created),
        "lifecycle": "active",
        "deprecated_at": null,
        "retires_at": null,
        "line": null,
        "capabilities": null,
        "max_input_tokens": context,
        "max_tokens": context,
    })
}

/// Returns the description of a model.
fn describe(entry: &Entry, created: u64) -> Value {
    let name = &entry.config.name;
    let mut value = json!({
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "tabla",
        "type": "model",
        "display_name": name,
        "created_at": iso_time(created),
        "lifecycle": "active",
        "aliases": entry.config.aliases,
        "status": entry.status().name(),
    });
    if let Some(loaded) = entry.loaded() {
        let facts = loaded.model.facts();
        let outputs = match loaded.kind {
            Kind::Text | Kind::Speech => json!(["text"]),
            Kind::Encoder if loaded.model.classifier().is_some() => json!(["scores"]),
            Kind::Encoder => json!(["embeddings"]),
        };
        let input = if loaded.kind == Kind::Speech {
            "audio"
        } else {
            "text"
        };
        for name in [
            "max_input_tokens",
            "max_tokens",
            "max_model_len",
            "context_length",
            "max_context_length",
        ] {
            value[name] = facts.context.into();
        }
        value["meta"] = json!({
            "n_ctx": facts.context,
            "n_ctx_train": facts.context_trained,
            "n_vocab": facts.vocab,
            "n_params": facts.parameters,
            "n_embd": facts.dim,
            "size": facts.file_bytes,
        });
        value["architecture"] =
            json!({ "input_modalities": [input], "output_modalities": outputs });
        value["capabilities"] = capabilities(&loaded).into();
    }
    value
}

/// Returns what a model can do.
fn capabilities(loaded: &crate::models::Loaded) -> Vec<&'static str> {
    let mut capabilities = Vec::new();
    if loaded.kind == Kind::Text {
        capabilities.push("completion");
    }
    if loaded.can_chat() {
        capabilities.push("chat");
    }
    if loaded.model.table(tabla::TableId::Embed).is_some() {
        capabilities.push("embeddings");
    }
    if loaded.model.classifier().is_some() {
        capabilities.push("classification");
    }
    if loaded.kind == Kind::Speech {
        capabilities.push("transcription");
    }
    capabilities
}

/// Formats seconds since 1970 as a time in UTC.
fn iso_time(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's civil_from_days: http://howardhinnant.github.io/date_algorithms.html
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Tells whether the default model is loaded.
pub(crate) async fn health(app: Arc<App>, _: RequestContext, _: Uri) -> ApiResult<Response<Body>> {
    let error = |message| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).retry_after(1);
    if app.is_draining() {
        return Err(error("the server is shutting down"));
    }
    let first = &app.registry.entries()[0];
    match first.status() {
        Status::Loading => Err(error("loading model").code("loading")),
        Status::Loaded | Status::Unloaded => Ok(json_response(&json!({ "status": "ok" }))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted() {
        assert_eq!(iso_time(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso_time(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(iso_time(1_795_687_199), "2026-11-26T09:59:59Z");
    }
}
