//! HTTP requests to the Hub: redirects, the token, and error responses.

use super::cache::{self, is_commit, is_hex};
use crate::output::Failure;
use serde_json::Value;
use std::io;
use std::time::Duration;
use ureq::http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use ureq::{Agent, Body};

/// Default of `HF_ENDPOINT`.
const ENDPOINT: &str = "https://huggingface.co";

/// Timeout of connecting. Without a network the cache is used.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a response and of each read.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Header with the etag of the target of a redirect.
const LINKED_ETAG: &str = "x-linked-etag";

/// Maximum number of redirects of a request.
const REDIRECTS_MAX: usize = 10;

/// Maximum size of a listing in bytes.
const LISTING_BYTES_MAX: u64 = 16 << 20;

/// The error of a request.
pub(super) enum RequestError {
    /// A failure of the network or the server; a retry may succeed.
    Transient(Failure),
    /// A retry would fail again.
    Permanent(Failure),
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Transient(failure) | RequestError::Permanent(failure) => failure,
        }
    }
}

impl From<Failure> for RequestError {
    fn from(failure: Failure) -> Self {
        Self::Permanent(failure)
    }
}

/// The Hub, or a server with the same API.
pub(super) struct Server {
    /// URL without a trailing slash.
    endpoint: String,
    origin: Uri,
    token: Option<String>,
    agent: Agent,
}

/// The files of a model.
pub(super) struct Listing {
    /// The newest commit, 40 hex digits.
    pub(super) commit: String,
    /// File names, relative and without `..`.
    pub(super) names: Vec<String>,
}

/// Etag and size of a remote file.
pub(super) struct Remote {
    /// Etag, which is valid as a file name.
    pub(super) etag: String,
    pub(super) size: u64,
}

impl Remote {
    /// SHA-256 of the contents in hexadecimal; `None` for small files.
    pub(super) fn sha256(&self) -> Option<&str> {
        is_hex(&self.etag, 64).then_some(self.etag.as_str())
    }
}

/// Redirect policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RedirectPolicy {
    /// Follow redirects within the endpoint, until a response has the etag of the contents.
    Endpoint,
    /// Follow all redirects.
    All,
}

impl Server {
    pub(super) fn from_env() -> Result<Self, Failure> {
        let value = std::env::var("HF_ENDPOINT").unwrap_or_default();
        let endpoint = match value.trim_end_matches('/') {
            "" => ENDPOINT.to_string(),
            endpoint => endpoint.to_string(),
        };
        let origin = endpoint.parse().ok().filter(is_web).ok_or_else(|| {
            Failure::new(format!(
                "HF_ENDPOINT is not an http or https URL: {value:?}"
            ))
        })?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Redirects are followed in `send`, without the token.
            .max_redirects(0)
            .user_agent(concat!("tabla/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(READ_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT));
        Ok(Self {
            endpoint,
            origin,
            token: cache::token()?,
            agent: config.build().into(),
        })
    }

    /// Returns the host name for messages.
    pub(super) fn host(&self) -> &str {
        self.origin.host().unwrap_or(&self.endpoint)
    }

    /// Returns the newest commit of a model and the names of its files.
    pub(super) fn listing(&self, repo: &str) -> Result<Listing, RequestError> {
        let url = format!("{}/api/models/{repo}/revision/main", self.endpoint);
        let response = self.send(&Method::GET, &url, 0, RedirectPolicy::Endpoint)?;
        if response.status() != StatusCode::OK {
            return Err(self.status_error(repo, &response));
        }
        let invalid = || Failure::new(format!("{} sent an invalid listing of {repo}", self.host()));
        let body = response.into_body().into_with_config();
        let bytes = body.limit(LISTING_BYTES_MAX).read_to_vec();
        let bytes = bytes.map_err(|error| self.unreachable(error))?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
        let commit = json["sha"].as_str().filter(|sha| is_commit(sha));
        let commit = commit.ok_or_else(invalid)?.to_string();
        let files = json["siblings"].as_array().ok_or_else(invalid)?;
        let mut names = Vec::with_capacity(files.len());
        for file in files {
            let name = file["rfilename"].as_str().ok_or_else(invalid)?;
            if !is_safe_path(name) {
                let message = format!("{repo} lists an unsafe file name: {name:?}");
                return Err(Failure::new(message).into());
            }
            names.push(name.to_string());
        }
        names.sort();
        Ok(Listing { commit, names })
    }

    /// Returns the etag and size of a file.
    pub(super) fn metadata(
        &self,
        repo: &str,
        commit: &str,
        name: &str,
    ) -> Result<Remote, RequestError> {
        let url = self.url(repo, commit, name);
        let response = self.send(&Method::HEAD, &url, 0, RedirectPolicy::Endpoint)?;
        if !response.status().is_success() && !response.status().is_redirection() {
            return Err(self.status_error(repo, &response));
        }
        let headers = response.headers();
        let invalid = |header: &str| {
            let host = self.host();
            Failure::new(format!("{host} sent no valid {header} of {name}"))
        };
        let etag = text(headers, LINKED_ETAG).or(text(headers, "etag"));
        let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"'));
        let etag = etag.filter(|etag| is_blob_name(etag));
        let own_size =
            || text(headers, "content-length").filter(|_| response.status().is_success());
        let size = text(headers, "x-linked-size").or_else(own_size);
        Ok(Remote {
            etag: etag.ok_or_else(|| invalid("etag"))?.to_string(),
            size: size
                .and_then(|size| size.parse().ok())
                .ok_or_else(|| invalid("size"))?,
        })
    }

    /// Requests the bytes of a file from offset `from`. Returns the offset of the response, which is 0 if
    /// the server does not support ranges, and the response.
    pub(super) fn open(
        &self,
        repo: &str,
        url: &str,
        from: u64,
    ) -> Result<(u64, Response<Body>), RequestError> {
        let response = self.send(&Method::GET, url, from, RedirectPolicy::All)?;
        match response.status() {
            StatusCode::OK => Ok((0, response)),
            StatusCode::PARTIAL_CONTENT => {
                let range = text(response.headers(), "content-range").unwrap_or_default();
                if range.starts_with(&format!("bytes {from}-")) {
                    return Ok((from, response));
                }
                let message = format!("requested byte {from}, got content-range {range:?}");
                Err(Failure::new(message).into())
            }
            _ => Err(self.status_error(repo, &response)),
        }
    }

    /// Returns the URL of a file of a commit.
    pub(super) fn url(&self, repo: &str, commit: &str, name: &str) -> String {
        format!(
            "{}/{repo}/resolve/{commit}/{}",
            self.endpoint,
            escaped(name)
        )
    }

    fn send(
        &self,
        method: &Method,
        url: &str,
        from: u64,
        policy: RedirectPolicy,
    ) -> Result<Response<Body>, RequestError> {
        let invalid = |reason: &str| Failure::new(format!("{}: {reason}", self.host()));
        let mut url: Uri = url.parse().map_err(|_| invalid("invalid URL"))?;
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send_once(method, &url, from)?;
            let location = text(response.headers(), "location");
            let Some(location) = location.filter(|_| response.status().is_redirection()) else {
                return Ok(response);
            };
            let next = redirected(&url, location)
                .ok_or_else(|| invalid(&format!("untrusted redirect to {location:?}")))?;
            let has_etag = response.headers().contains_key(LINKED_ETAG);
            if policy == RedirectPolicy::Endpoint && (has_etag || !self.is_endpoint(&next)) {
                return Ok(response);
            }
            url = next;
        }
        Err(invalid(&format!("more than {REDIRECTS_MAX} redirects")).into())
    }

    fn send_once(
        &self,
        method: &Method,
        url: &Uri,
        from: u64,
    ) -> Result<Response<Body>, RequestError> {
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            // Sizes and ranges refer to the uncompressed file.
            .header(header::ACCEPT_ENCODING, "identity");
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        if let Some(token) = self.token.as_ref().filter(|_| self.is_endpoint(url)) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(()).map_err(|_| {
            Failure::new(
                "invalid token: HF_TOKEN or the token file has characters that are not allowed",
            )
        })?;
        self.agent
            .run(request)
            .map_err(|error| self.unreachable(error))
    }

    /// Whether a URL has the origin of the endpoint. The token is sent to this origin only.
    fn is_endpoint(&self, url: &Uri) -> bool {
        let origin = |url: &Uri| {
            let host = url.host().map(str::to_ascii_lowercase);
            let default_port = if is_secure(url) { 443 } else { 80 };
            (is_secure(url), host, url.port_u16().unwrap_or(default_port))
        };
        origin(url) == origin(&self.origin)
    }

    fn unreachable(&self, error: ureq::Error) -> RequestError {
        RequestError::Transient(Failure::Program {
            message: format!("cannot reach {}", self.host()),
            cause: Some(error.into_io()),
        })
    }

    /// Returns the error of a response with an error status.
    fn status_error(&self, repo: &str, response: &Response<Body>) -> RequestError {
        let (host, endpoint) = (self.host(), &self.endpoint);
        let status = response.status();
        let code = text(response.headers(), "x-error-code").unwrap_or_default();
        let message = match (status.as_u16(), code, &self.token) {
            (_, "GatedRepo", None) => format!(
                "{repo} is gated: accept its terms at {endpoint}/{repo} and set HF_TOKEN to a token of \
                 your account"
            ),
            (_, "GatedRepo", Some(_)) => format!(
                "{repo} is gated and your token has no access: request access at \
                 {endpoint}/{repo}"
            ),
            (_, "RepoNotFound", _) | (404, "", _) | (401, _, None) => {
                format!("{host} has no model {repo}, or it is private and needs HF_TOKEN")
            }
            (401, _, Some(_)) => format!("{host} rejected your token"),
            (404, ..) => format!("{host} no longer has a listed file of {repo}"),
            (429, ..) => format!("{host}: too many requests, retry in a few minutes"),
            (status, ..) => format!("{host} returned status {status} for {repo}"),
        };
        let cause = text(response.headers(), "x-error-message").map(io::Error::other);
        let failure = Failure::Program { message, cause };
        if status.is_server_error() {
            RequestError::Transient(failure)
        } else {
            RequestError::Permanent(failure)
        }
    }
}

/// Returns the target of a redirect: an absolute path or a URL. Redirects from https to http are
/// rejected.
fn redirected(from: &Uri, location: &str) -> Option<Uri> {
    let next: Uri = if location.starts_with('/') && !location.starts_with("//") {
        let (scheme, authority) = (from.scheme_str()?, from.authority()?);
        format!("{scheme}://{authority}{location}").parse().ok()?
    } else {
        location.parse().ok()?
    };
    (is_web(&next) && (is_secure(&next) || !is_secure(from))).then_some(next)
}

fn is_web(url: &Uri) -> bool {
    matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some()
}

fn is_secure(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whether a file name of a listing is a relative path without `..`, on every operating system.
fn is_safe_path(name: &str) -> bool {
    let is_allowed = |c: char| !c.is_control() && c != '\\' && c != ':';
    name.chars().all(is_allowed) && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Whether an etag is valid as a file name.
fn is_blob_name(etag: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=128).contains(&etag.len()) && etag.chars().all(is_allowed)
}

/// Percent-encodes a path of a URL (RFC 3986, section 2).
fn escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_unsafe_paths() {
        for valid in ["a", "a/b.gguf", "UD Q4/ü.gguf", "..a", "a..b"] {
            assert!(is_safe_path(valid), "{valid}");
        }
        for invalid in [
            "", "/a", "a/", "a//b", "..", "../a", "a/../b", ".", "a\\b", "C:a", "a\0", "a\n",
        ] {
            assert!(!is_safe_path(invalid), "{invalid:?}");
        }
    }

    #[test]
    fn rejects_etags_that_are_paths() {
        assert!(is_blob_name("0af-x"));
        for invalid in [
            "",
            ".",
            "..",
            "a/b",
            "a.incomplete",
            "a\\b",
            &"a".repeat(129),
        ] {
            assert!(!is_blob_name(invalid), "{invalid}");
        }
    }

    #[test]
    fn encodes_urls() {
        assert_eq!(escaped("a b/ü#?%.gguf"), "a%20b/%C3%BC%23%3F%25.gguf");
    }

    #[test]
    fn rejects_redirects_to_http() {
        let from: Uri = "https://hub.example/a".parse().expect("valid URL");
        let to = |location| redirected(&from, location).map(|uri| uri.to_string());
        assert_eq!(to("/b?c").as_deref(), Some("https://hub.example/b?c"));
        assert_eq!(
            to("https://cdn.example/b").as_deref(),
            Some("https://cdn.example/b")
        );
        for invalid in [
            "http://hub.example/b",
            "//cdn.example/b",
            "b",
            "file:///b",
            "ftp://a/b",
            "",
        ] {
            assert_eq!(to(invalid), None, "{invalid}");
        }
    }
}
