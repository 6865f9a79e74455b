//! The chat page: files in the program.

use crate::http::error::{ApiError, ApiResult};
use crate::http::gate::RequestContext;
use axum::body::Body;
use axum::extract::{Extension, Path};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

/// A file: name, type and content.
type File = (&'static str, &'static str, &'static str);

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// The files of the page.
        const FILES: &[File] = &[$((
            $name,
            content_type($name),
            include_str!(concat!("../../page/", $name)),
        )),*];
    };
}

files![
    "api.js",
    "app.js",
    "charts.js",
    "chat.js",
    "composer.js",
    "context.js",
    "dom.js",
    "feed.js",
    "format.js",
    "generate.js",
    "highlight.js",
    "index.html",
    "latex.js",
    "markdown.js",
    "message.js",
    "metrics.js",
    "models.js",
    "panel.js",
    "reference.html",
    "reference.js",
    "roofline.js",
    "sidebar.js",
    "store.js",
    "style.css",
    "table.js",
    "theme.js",
    "tokens.js",
    "tools.js",
];

/// Headers of every file. Scripts, styles and requests of other origins are not allowed.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (header::CACHE_CONTROL, "no-cache"),
];

const fn content_type(name: &str) -> &'static str {
    match name.as_bytes() {
        [.., b'h', b't', b'm', b'l'] => "text/html; charset=utf-8",
        [.., b'c', b's', b's'] => "text/css; charset=utf-8",
        [.., b's', b'v', b'g'] => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    }
}

/// Returns the page.
pub(crate) async fn index(
    Extension(context): Extension<RequestContext>,
    headers: HeaderMap,
) -> Response<Body> {
    context.respond(find("index.html", &headers))
}

/// Returns the API reference.
pub(crate) async fn reference(
    Extension(context): Extension<RequestContext>,
    headers: HeaderMap,
) -> Response<Body> {
    context.respond(find("reference.html", &headers))
}

/// Returns a script or a style sheet of the page.
pub(crate) async fn file(
    Extension(context): Extension<RequestContext>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response<Body> {
    context.respond(find(&name, &headers))
}

fn find(name: &str, request: &HeaderMap) -> ApiResult<Response<Body>> {
    let Some((_, kind, text)) = FILES.iter().find(|file| file.0 == name) else {
        let message = format!("the page has no file {name:?}");
        return Err(ApiError::new(StatusCode::NOT_FOUND, message));
    };
    let tag = format!("\"{:016x}\"", fnv1a(text.as_bytes()));
    let is_known = request
        .get(header::IF_NONE_MATCH)
        .is_some_and(|known| known == tag.as_str());
    let mut response = Response::new(Body::from(if is_known { "" } else { *text }));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// Returns the FNV-1a hash of a file, which changes with its content.
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
