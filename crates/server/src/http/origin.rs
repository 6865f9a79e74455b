//! Checks of the `Host` and `Origin` headers: no web page may use the server without permission.
//!
//! A page of another site can send requests to a server on the same machine. It must send its origin with
//! them, except for plain navigation. With DNS rebinding it can even read the answers, as pages of its own
//! origin; then the `Host` header has the name of the site.

use super::error::{ApiError, ApiResult};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use std::net::{IpAddr, Ipv6Addr};

/// Which hosts and origins are accepted.
#[derive(Debug)]
pub(crate) struct OriginRules {
    /// Host names in addition to IP addresses and `localhost`, in lower case.
    pub(crate) hosts: Vec<String>,
    /// Origins in addition to those of `localhost`.
    pub(crate) origins: Vec<String>,
    /// Whether requests need a key, which pages of other sites do not have.
    pub(crate) has_keys: bool,
}

/// Request headers that pages may send.
const ALLOWED_HEADERS: &str = "authorization, content-type, x-api-key, anthropic-version, \
    anthropic-beta, anthropic-dangerous-direct-browser-access, openai-beta, openai-organization, \
    openai-project, x-stainless-arch, x-stainless-lang, x-stainless-os, x-stainless-package-version, \
    x-stainless-retry-count, x-stainless-runtime, x-stainless-runtime-version, x-stainless-timeout, \
    x-stainless-helper-method, x-stainless-poll-helper, x-stainless-custom-poll-interval";

impl OriginRules {
    /// Checks the headers of a request. Returns the origin that may read the answer, if a page sent it.
    pub(crate) fn check<'h>(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &'h HeaderMap,
    ) -> ApiResult<Option<&'h HeaderValue>> {
        self.check_host(uri, headers)?;
        let forbidden = |message: &str| Err(ApiError::new(StatusCode::FORBIDDEN, message));
        let Some(origin) = headers.get(header::ORIGIN) else {
            let site = headers.get(HeaderName::from_static("sec-fetch-site"));
            let is_cross_site = site.is_some_and(|site| site == "cross-site");
            // A link to the page is a cross-site request, too.
            let is_link = matches!(*method, Method::GET | Method::HEAD) && uri.path() == "/";
            if is_cross_site && !is_link {
                return forbidden("requests of other web sites are not allowed");
            }
            return Ok(None);
        };
        match origin.to_str() {
            Ok(text) if self.allows(text) => Ok(Some(origin)),
            _ => forbidden(
                "requests of this origin are not allowed: start the server with --cors-origin",
            ),
        }
    }

    /// Checks the hosts in the `Host` header and in an absolute target (`GET http://HOST/PATH`).
    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> ApiResult<()> {
        let invalid = || ApiError::invalid("the Host header is missing or invalid");
        let mut hosts = Vec::new();
        for value in headers.get_all(header::HOST) {
            let host = value.to_str().ok().and_then(host_name);
            hosts.push(host.ok_or_else(invalid)?);
        }
        if hosts.len() > 1 {
            return Err(invalid());
        }
        if let Some(authority) = uri.authority() {
            hosts.push(host_name(authority.as_str()).ok_or_else(invalid)?);
        }
        if hosts.is_empty() {
            return Err(invalid());
        }
        // A site cannot send a key that it does not have.
        if self.has_keys || hosts.iter().all(|host| self.allows_host(host)) {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "the Host header names a host that is not allowed: start the server with --allowed-host or --api-key",
        ))
    }

    fn allows_host(&self, host: &str) -> bool {
        is_local(host) || host.parse::<IpAddr>().is_ok() || self.hosts.iter().any(|h| h == host)
    }

    fn allows(&self, origin: &str) -> bool {
        if self.origins.iter().any(|allowed| allowed == origin) {
            return true;
        }
        let rest = ["http://", "https://"]
            .iter()
            .find_map(|scheme| origin.strip_prefix(scheme));
        let host = rest.and_then(host_name);
        host.is_some_and(|host| is_local(&host) || self.hosts.contains(&host) || is_loopback(&host))
    }

    /// Adds the headers with which a browser lets a page read the answer.
    pub(crate) fn allow(origin: &HeaderValue, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        let exposed = HeaderValue::from_static("x-request-id, request-id, x-seed, retry-after");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }

    /// Adds the headers of an answer to a preflight request.
    pub(crate) fn allow_preflight(headers: &mut HeaderMap) {
        for (name, value) in [
            (
                header::ACCESS_CONTROL_ALLOW_METHODS,
                "GET, POST, DELETE, OPTIONS",
            ),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS),
            (header::ACCESS_CONTROL_MAX_AGE, "600"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

fn is_loopback(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns the host of `HOST[:PORT]` in lower case, without the brackets of an IPv6 address.
fn host_name(authority: &str) -> Option<String> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_number);
        return is_port.then(|| address.to_string());
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port),
        None => (authority, "0"),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_valid = !host.is_empty() && host.chars().all(is_name) && is_number(port);
    is_valid.then(|| host.trim_end_matches('.').to_ascii_lowercase())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(host: Option<&str>, origin: Option<&str>) -> u16 {
        status_at("/v1/chat/completions", host, origin)
    }

    fn status_at(target: &str, host: Option<&str>, origin: Option<&str>) -> u16 {
        let rules = OriginRules {
            hosts: vec!["tabla.lan".to_string()],
            origins: vec!["https://app.example".to_string()],
            has_keys: false,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, HeaderValue::from_str(value).expect("valid value"));
            }
        }
        let uri = Uri::try_from(target).expect("a valid target");
        match rules.check(&Method::POST, &uri, &headers) {
            Ok(_) => 200,
            Err(error) => error.status.as_u16(),
        }
    }

    #[test]
    fn hosts_are_addresses_local_names_or_listed() {
        for host in [
            "127.0.0.1:8080",
            "localhost",
            "LOCALHOST:1",
            "a.localhost:80",
            "[::1]:8080",
            "10.0.0.7",
            "tabla.lan:8080",
            "localhost.",
        ] {
            assert_eq!(status(Some(host), None), 200, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "evillocalhost",
            "127.0.0.1.evil.example",
        ] {
            assert_eq!(status(Some(host), None), 403, "{host}");
        }
        for host in [
            "",
            ":8080",
            "[::1",
            "local host",
            "localhost:x",
            "a@localhost",
        ] {
            assert_eq!(status(Some(host), None), 400, "{host}");
        }
        assert_eq!(status(None, None), 400);
    }

    #[test]
    fn the_host_of_an_absolute_target_is_checked_too() {
        for (target, host, expected) in [
            ("http://localhost:8080/health", Some("localhost"), 200),
            ("http://127.0.0.1/health", None, 200),
            ("http://evil.example/health", Some("localhost"), 403),
            ("http://localhost/health", Some("evil.example"), 403),
            ("http://a@localhost/health", Some("localhost"), 400),
            ("evil.example:80", Some("localhost"), 403),
        ] {
            assert_eq!(status_at(target, host, None), expected, "{target} {host:?}");
        }
    }

    #[test]
    fn origins_are_local_or_listed() {
        let host = Some("127.0.0.1:8080");
        for origin in [
            "http://localhost:3000",
            "https://app.example",
            "http://127.0.0.1:8080",
            "http://[::1]:1",
        ] {
            assert_eq!(status(host, Some(origin)), 200, "{origin}");
        }
        for origin in [
            "null",
            "https://evil.example",
            "http://app.example",
            "file://",
            "http://10.0.0.1",
            "http://localhost.evil.example",
        ] {
            assert_eq!(status(host, Some(origin)), 403, "{origin}");
        }
    }
}
