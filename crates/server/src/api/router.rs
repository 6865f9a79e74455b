//! The table of endpoints.

use super::{
    audio, chat, classify, completions, embeddings, inside, llamacpp, messages, models, native,
    openapi, page, responses, status,
};
use crate::app::App;
use crate::http::error::{ApiError, ApiResult};
use crate::http::gate::{self, RequestContext};
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri};
use axum::routing::{
    MethodFilter, MethodRouter, get as axum_get, on as axum_on, post as axum_post,
};
use axum::{Router, middleware};
use futures_util::FutureExt as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Returns the endpoints. Each is also there without `/v1`.
fn endpoints() -> Vec<(&'static str, MethodRouter<Arc<App>>)> {
    const GET: MethodFilter = MethodFilter::GET;
    const DELETE: MethodFilter = MethodFilter::DELETE;
    vec![
        ("/health", on(GET, models::health)),
        ("/models", on(GET, models::list)),
        ("/models/{*id}", on(GET, models::retrieve)),
        ("/chat/completions", post(chat::create)),
        ("/chat/completions/input_tokens", post(chat::count)),
        ("/responses", post(responses::create)),
        (
            "/responses/{id}",
            on(GET, responses::retrieve).merge(on(DELETE, responses::remove)),
        ),
        ("/responses/compact", post(responses::compact)),
        ("/responses/input_tokens", post(responses::count)),
        ("/messages", post(messages::create)),
        ("/messages/count_tokens", post(messages::count)),
        ("/tokenize", post(native::tokenize)),
        ("/tokenizer_info", on(GET, native::tokenizer_info)),
        ("/detokenize", post(native::detokenize)),
        ("/apply-template", post(native::apply_template)),
        ("/score", post(native::score)),
        ("/audio/transcriptions", upload(audio::transcribe)),
        ("/audio/translations", upload(audio::translate)),
        ("/rerank", post(embeddings::rerank)),
        ("/reranking", post(embeddings::rerank)),
        ("/classify", post(classify::classify)),
        ("/predict", post(classify::predict)),
        ("/completion", post(llamacpp::completion)),
        ("/embedding", post(embeddings::embed_native)),
        ("/infill", post(llamacpp::fill)),
        ("/table", on(GET, inside::table)),
        ("/activations", post(inside::activations)),
        ("/openapi.json", on(GET, openapi::describe)),
        ("/metrics", on(GET, status::metrics)),
        ("/props", on(GET, status::props)),
        ("/slots", on(GET, status::slots)),
    ]
}

/// Returns the endpoints that differ with and without `/v1`: those of OpenAI, and those of llama.cpp.
fn versioned_endpoints() -> Vec<(&'static str, MethodRouter<Arc<App>>)> {
    vec![
        ("/v1/completions", post(completions::create)),
        ("/completions", post(llamacpp::completion)),
        ("/v1/embeddings", post(embeddings::embed)),
        ("/embeddings", post(embeddings::embed_native)),
    ]
}

/// Returns the router of all endpoints.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for (path, methods) in versioned_endpoints() {
        router = router.route(path, methods);
    }
    for (path, methods) in endpoints() {
        router = router
            .route(&format!("/v1{path}"), methods.clone())
            .route(path, methods);
    }
    router
        .route("/", axum_get(page::index))
        .route("/reference", axum_get(page::reference))
        .route("/page/{name}", axum_get(page::file))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        // The body was read and its length checked.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn(catch_panic))
        .layer(middleware::from_fn_with_state(Arc::clone(app), gate::pass))
        .with_state(Arc::clone(app))
}

/// A handler of the body of a request, with the deadline of requests.
fn post<F, R>(handler: F) -> MethodRouter<Arc<App>>
where
    F: Fn(Arc<App>, RequestContext, Bytes) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ApiResult<Response<Body>>> + Send + 'static,
{
    upload(move |app, context, _, body| {
        let body = app.defaults.apply(body);
        handler(app, context, body)
    })
}

/// A handler of the headers and the body of a request, with the deadline of requests.
fn upload<F, R>(handler: F) -> MethodRouter<Arc<App>>
where
    F: Fn(Arc<App>, RequestContext, HeaderMap, Bytes) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ApiResult<Response<Body>>> + Send + 'static,
{
    axum_post(
        async move |State(app): State<Arc<App>>,
                    Extension(context): Extension<RequestContext>,
                    headers: HeaderMap,
                    body: Bytes| {
            let work = handler(app, context.clone(), headers, body);
            context.respond(context.deadline.limit(work).await)
        },
    )
}

/// A handler of the URI of a request without a body, with the deadline of requests.
fn on<F, R>(method: MethodFilter, handler: F) -> MethodRouter<Arc<App>>
where
    F: Fn(Arc<App>, RequestContext, Uri) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ApiResult<Response<Body>>> + Send + 'static,
{
    axum_on(
        method,
        async move |State(app): State<Arc<App>>,
                    Extension(context): Extension<RequestContext>,
                    uri: Uri| {
            let work = handler(app, context.clone(), uri);
            context.respond(context.deadline.limit(work).await)
        },
    )
}

async fn not_found(Extension(context): Extension<RequestContext>, uri: Uri) -> Response<Body> {
    let path = uri.path();
    let message = match path.starts_with("/v1/v1/") {
        true => format!("{path} does not exist: the base URL has /v1 twice"),
        false => format!("{path} does not exist"),
    };
    context.respond(Err(ApiError::new(StatusCode::NOT_FOUND, message)))
}

async fn method_not_allowed(
    Extension(context): Extension<RequestContext>,
    method: Method,
    uri: Uri,
) -> Response<Body> {
    let message = format!("{} does not accept {method}", uri.path());
    context.respond(Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)))
}

/// Answers a request whose handler panics with status 500. Other requests continue.
async fn catch_panic(request: Request, next: middleware::Next) -> Response<Body> {
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    answer.unwrap_or_else(|_| {
        let error = ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error");
        error.response(crate::http::error::Dialect::OpenAi, "")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    #[tokio::test]
    async fn panic_of_a_handler_is_status_500() {
        async fn fail() -> &'static str {
            panic!("the handler fails")
        }
        let router: Router = Router::new()
            .route("/", axum_get(fail).post(|| async { "answer" }))
            .layer(middleware::from_fn(catch_panic));
        let send = async |method| {
            let request = Request::builder().method(method).body(Body::empty());
            let answer = router.clone().oneshot(request.expect("a request")).await;
            let answer = answer.expect("the router does not fail");
            let status = answer.status();
            let body = answer.into_body().collect().await.expect("a body");
            (
                status,
                String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            )
        };
        let (status, body) = send(Method::GET).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(body["error"]["message"], "internal error");
        let other = send(Method::POST).await;
        assert_eq!(other, (StatusCode::OK, "answer".to_string()));
    }
}
