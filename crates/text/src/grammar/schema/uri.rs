//! Resolution of URI references, by section 5.2 of RFC 3986.

/// URI of a schema that has no absolute `$id`.
pub(super) const DEFAULT_BASE: &str = "json-schema:///";

/// Components of a URI reference without a fragment.
struct Uri<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Uri<'a> {
    fn new(text: &'a str) -> Self {
        let is_scheme = |scheme: &str| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        };
        let scheme = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme));
        let (scheme, rest) = scheme.map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (Some(authority), path)
            }
            None => (None, rest),
        };
        Self {
            scheme,
            authority,
            path,
            query,
        }
    }

    fn text(&self, path: &str) -> String {
        let scheme = self.scheme.map(|scheme| format!("{scheme}:"));
        let authority = self.authority.map(|authority| format!("//{authority}"));
        let query = self.query.map(|query| format!("?{query}"));
        let [scheme, authority, query] = [scheme, authority, query].map(Option::unwrap_or_default);
        format!("{scheme}{authority}{path}{query}")
    }
}

/// Resolves a reference without a fragment against an absolute URI.
pub(super) fn resolve(base: &str, reference: &str) -> String {
    let (base, mut target) = (Uri::new(base), Uri::new(reference));
    let mut path = target.path.to_string();
    if target.scheme.is_none() {
        if target.authority.is_none() {
            if path.is_empty() {
                path = base.path.to_string();
                target.query = target.query.or(base.query);
            } else if !path.starts_with('/') {
                let folder = base.path.rfind('/').map_or("/", |at| &base.path[..=at]);
                path = format!("{folder}{path}");
            }
            target.authority = base.authority;
        }
        target.scheme = base.scheme;
    }
    target.text(&without_dots(&path))
}

/// Removes the segments `.` and `..` of an absolute path. Other paths, as in `urn:a:b`, are unchanged.
fn without_dots(path: &str) -> String {
    if !path.starts_with('/') {
        return path.to_string();
    }
    let mut segments = Vec::new();
    let count = path.split('/').count();
    for (at, segment) in path.split('/').enumerate() {
        match segment {
            ".." if segments.len() > 1 => drop(segments.pop()),
            "." | ".." => {}
            _ => segments.push(segment),
        }
        if at + 1 == count && [".", ".."].contains(&segment) {
            segments.push("");
        }
    }
    segments.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of section 5.4 of RFC 3986 that have no fragment.
    #[test]
    fn examples_of_the_rfc() {
        for (reference, expected) in [
            ("g:h", "g:h"),
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            (";x", "http://a/b/c/;x"),
            ("g;x", "http://a/b/c/g;x"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../g", "http://a/g"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            ("..g", "http://a/b/c/..g"),
            ("./../g", "http://a/b/g"),
            ("./g/.", "http://a/b/c/g/"),
            ("g/../h", "http://a/b/c/h"),
        ] {
            assert_eq!(
                resolve("http://a/b/c/d;p?q", reference),
                expected,
                "{reference}"
            );
        }
        assert_eq!(
            resolve(DEFAULT_BASE, "item.json"),
            "json-schema:///item.json"
        );
        assert_eq!(resolve("urn:example:a", "urn:example:b"), "urn:example:b");
    }
}
