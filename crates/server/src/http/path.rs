//! Normalization of paths: base URLs of clients differ in slashes.

use axum::http::Uri;
use axum::http::uri::PathAndQuery;

/// Returns the path with single slashes and without a trailing one.
pub(crate) fn clean(path: &str) -> String {
    let mut cleaned = String::with_capacity(path.len());
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        cleaned.push('/');
        cleaned.push_str(segment);
    }
    if cleaned.is_empty() {
        cleaned.push('/');
    }
    cleaned
}

/// Replaces the path of a request by the cleaned one.
pub(crate) fn rewrite(uri: &mut Uri) {
    let cleaned = clean(uri.path());
    if cleaned == uri.path() {
        return;
    }
    let whole = match uri.query() {
        Some(query) => format!("{cleaned}?{query}"),
        None => cleaned,
    };
    let mut parts = uri.clone().into_parts();
    if let Ok(path) = PathAndQuery::try_from(whole) {
        parts.path_and_query = Some(path);
        if let Ok(rewritten) = Uri::from_parts(parts) {
            *uri = rewritten;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_are_normalized() {
        for (path, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("//v1//chat/completions/", "/v1/chat/completions"),
            ("/v1/models/org/name", "/v1/models/org/name"),
            ("*", "/*"),
        ] {
            assert_eq!(clean(path), expected);
        }
        let mut uri = Uri::from_static("//v1/models/?limit=3");
        rewrite(&mut uri);
        assert_eq!(uri, "/v1/models?limit=3");
    }
}
