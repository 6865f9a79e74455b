//! `/metrics`, `/props`, `/slots`: the state of the server.

use super::common::{json_response, lease, percent_decoded, query};
use super::llamacpp::{kept, sampling};
use crate::app::App;
use crate::config::MetricsCompat;
use crate::engine::messages::LateSystem;
use crate::http::error::ApiResult;
use crate::http::gate::RequestContext;
use crate::models::{Kind, Status};
use crate::prometheus::{ModelState, render};
use axum::body::Body;
use axum::http::{HeaderValue, Response, Uri, header};
use serde_json::{Value, json};
use std::sync::Arc;
use tabla::Sampling;

/// Returns the metrics in the text format of Prometheus.
pub(crate) async fn metrics(app: Arc<App>, _: RequestContext, _: Uri) -> ApiResult<Response<Body>> {
    let loaded: Vec<_> = app
        .registry
        .entries()
        .iter()
        .map(|entry| (entry, entry.loaded()))
        .collect();
    let states = loaded.iter().map(|(entry, loaded)| {
        let admission = loaded.as_ref().map(|loaded| &loaded.admission);
        ModelState {
            name: &entry.config.name,
            metrics: &entry.metrics,
            is_loaded: loaded.is_some(),
            running: admission.map_or(0, |a| a.running()),
            waiting: admission.map_or(0, |a| a.waiting()),
            slots: admission.map_or(0, |a| a.slots()),
            token_bytes: loaded.as_ref().map_or(0, |l| l.model.facts().token_bytes),
        }
    });
    let states: Vec<_> = states.collect();
    let mut text = String::new();
    render(None, &states, &mut text);
    if app.metrics_compat.is_some() {
        render(app.metrics_compat, &states, &mut text);
    }
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    if app.metrics_compat == Some(MetricsCompat::LlamaCpp) {
        let headers = response.headers_mut();
        headers.insert("process-start-time-unix", app.started.into());
    }
    Ok(response)
}

/// Returns the properties of a model, as llama.cpp does. A model that is not loaded stays so; then the
/// context has 0 tokens, as in the router of llama.cpp.
pub(crate) async fn props(
    app: Arc<App>,
    context: RequestContext,
    uri: Uri,
) -> ApiResult<Response<Body>> {
    let name = query(&uri, "model").map(percent_decoded);
    let entry = app.registry.requested(name.as_deref())?;
    context.record.set_model(&entry.config.name);
    let loaded = match entry.status() {
        // A client that starts with the server waits for the context length.
        Status::Loading => Some(lease(&app, &context, name.as_deref()).await?.model()),
        Status::Loaded | Status::Unloaded => entry.loaded(),
    };
    let loaded = loaded.as_ref();
    let facts = loaded.map(|loaded| loaded.model.facts());
    let mut params = sampling(&Sampling::default());
    params["n_predict"] = (-1).into();
    params["seed"] = (-1).into();
    params["n_keep"] = kept(entry.config.overflow).into();
    app.defaults.replace_in(&mut params);
    let template = loaded.and_then(|loaded| loaded.template(&[]).ok());
    let is_late_system_kept =
        loaded.is_some_and(|loaded| loaded.can_chat() && loaded.late_system() == LateSystem::Kept);
    Ok(json_response(&json!({
        "default_generation_settings": {
            "n_ctx": facts.map_or(0, |facts| facts.context),
            "params": params,
        },
        "total_slots": loaded.map_or(0, |loaded| loaded.admission.slots()),
        "model_path": entry.config.name,
        "model_alias": entry.config.name,
        "chat_template": template.map(|template| template.source()),
        "chat_template_caps": {
            "supports_system_role": true,
            "supports_late_system_role": is_late_system_kept,
        },
        "modalities": {
            "vision": false,
            "audio": loaded.is_some_and(|loaded| loaded.kind == Kind::Speech),
        },
        "build_info": concat!("tabla ", env!("CARGO_PKG_VERSION")),
        "device": facts.map(|facts| &facts.device),
        "is_sleeping": loaded.is_none(),
    })))
}

/// Returns the slots of the loaded models, without prompts.
pub(crate) async fn slots(app: Arc<App>, _: RequestContext, _: Uri) -> ApiResult<Response<Body>> {
    let loaded = app
        .registry
        .entries()
        .iter()
        .filter_map(|entry| entry.loaded());
    let mut slots = Vec::new();
    for loaded in loaded {
        let running = loaded.admission.running();
        slots.extend((0..loaded.admission.slots()).map(|id| {
            json!({
                "id": id,
                "model": loaded.name,
                "n_ctx": loaded.model.facts().context,
                "is_processing": id < running,
            })
        }));
    }
    Ok(json_response(&Value::from(slots)))
}
