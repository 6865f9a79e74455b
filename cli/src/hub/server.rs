//! Requests to the Hub: where each may go, and what its refusals mean.

use super::cache::{self, is_commit, is_hex};
use crate::output::Failure;
use serde_json::Value;
use std::io;
use std::time::Duration;
use ureq::http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use ureq::{Agent, Body};

/// Where models come from unless `HF_ENDPOINT` says otherwise.
const ENDPOINT: &str = "https://huggingface.co";

/// How long a connection may take; whoever has no network has the cache.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a server may stay silent.
const PATIENCE: Duration = Duration::from_secs(30);

/// The etag of the bytes that a redirect leads to.
const LINKED_ETAG: &str = "x-linked-etag";

/// Redirects that are followed one after the other.
const REDIRECTS_MAX: usize = 10;

/// Bytes of a listing at most.
const LISTING_BYTES_MAX: u64 = 16 << 20;

/// Why a request came to nothing.
pub(super) enum Trouble {
    /// The network or the server is down: later it may work.
    Passing(Failure),
    /// It would fail again.
    Final(Failure),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Passing(failure) | Trouble::Final(failure) => failure,
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Final(failure)
    }
}

/// The Hub, or a server that speaks like it.
pub(super) struct Server {
    /// Without a slash at its end.
    endpoint: String,
    origin: Uri,
    token: Option<String>,
    agent: Agent,
}

/// What a model has.
pub(super) struct Listing {
    /// The newest commit, 40 hex digits.
    pub(super) commit: String,
    /// Its files, none of which leads out of a folder.
    pub(super) names: Vec<String>,
}

/// What a file will be.
pub(super) struct Remote {
    /// The name of its bytes, which can be a file's name.
    pub(super) etag: String,
    pub(super) size: u64,
}

impl Remote {
    /// The SHA-256 that its bytes must have, in hex; large files have one.
    pub(super) fn sha256(&self) -> Option<&str> {
        is_hex(&self.etag, 64).then_some(self.etag.as_str())
    }
}

/// How far a request follows redirects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// To other paths of the endpoint, until an answer says what the bytes are.
    Endpoint,
    /// To wherever the bytes are.
    Everywhere,
}

impl Server {
    pub(super) fn from_env() -> Result<Self, Failure> {
        let given = std::env::var("HF_ENDPOINT").unwrap_or_default();
        let endpoint = match given.trim_end_matches('/') {
            "" => ENDPOINT.to_string(),
            endpoint => endpoint.to_string(),
        };
        let origin = endpoint.parse().ok().filter(is_web).ok_or_else(|| {
            Failure::new(format!(
                "HF_ENDPOINT is no http or https address: {given:?}"
            ))
        })?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Followed here: the token must not go along.
            .max_redirects(0)
            .user_agent(concat!("tabla/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(PATIENCE))
            .timeout_per_read(Some(PATIENCE));
        Ok(Self {
            endpoint,
            origin,
            token: cache::token()?,
            agent: config.build().into(),
        })
    }

    /// The server's name, for people.
    pub(super) fn host(&self) -> &str {
        self.origin.host().unwrap_or(&self.endpoint)
    }

    /// The newest commit of a model and the names of its files.
    pub(super) fn listing(&self, repo: &str) -> Result<Listing, Trouble> {
        let url = format!("{}/api/models/{repo}/revision/main", self.endpoint);
        let response = self.send(&Method::GET, &url, 0, Follow::Endpoint)?;
        if response.status() != StatusCode::OK {
            return Err(self.refusal(repo, &response));
        }
        let strange = || Failure::new(format!("{} sent no listing of {repo}", self.host()));
        let body = response.into_body().into_with_config();
        let bytes = body.limit(LISTING_BYTES_MAX).read_to_vec();
        let bytes = bytes.map_err(|error| self.unreachable(error))?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|_| strange())?;
        let commit = json["sha"].as_str().filter(|sha| is_commit(sha));
        let commit = commit.ok_or_else(strange)?.to_string();
        let files = json["siblings"].as_array().ok_or_else(strange)?;
        let mut names = Vec::with_capacity(files.len());
        for file in files {
            let name = file["rfilename"].as_str().ok_or_else(strange)?;
            if !stays_below(name) {
                let message = format!("{repo} lists a file that would leave its folder: {name:?}");
                return Err(Failure::new(message).into());
            }
            names.push(name.to_string());
        }
        names.sort();
        Ok(Listing { commit, names })
    }

    /// The size of a file and the name of its bytes.
    pub(super) fn describe(&self, repo: &str, commit: &str, name: &str) -> Result<Remote, Trouble> {
        let url = self.address(repo, commit, name);
        let response = self.send(&Method::HEAD, &url, 0, Follow::Endpoint)?;
        if !response.status().is_success() && !response.status().is_redirection() {
            return Err(self.refusal(repo, &response));
        }
        let headers = response.headers();
        let strange = |what: &str| {
            let host = self.host();
            Failure::new(format!("{host} says no {what} of {name} that can be used"))
        };
        let etag = text(headers, LINKED_ETAG).or(text(headers, "etag"));
        let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"'));
        let etag = etag.filter(|etag| is_blob_name(etag));
        let own_size =
            || text(headers, "content-length").filter(|_| response.status().is_success());
        let size = text(headers, "x-linked-size").or_else(own_size);
        Ok(Remote {
            etag: etag.ok_or_else(|| strange("etag"))?.to_string(),
            size: size
                .and_then(|size| size.parse().ok())
                .ok_or_else(|| strange("size"))?,
        })
    }

    /// The bytes of a file from this one on; or, where the server cannot, all of them.
    /// Returns where they begin and the answer with them.
    pub(super) fn open(
        &self,
        repo: &str,
        url: &str,
        from: u64,
    ) -> Result<(u64, Response<Body>), Trouble> {
        let response = self.send(&Method::GET, url, from, Follow::Everywhere)?;
        match response.status() {
            StatusCode::OK => Ok((0, response)),
            StatusCode::PARTIAL_CONTENT => {
                let range = text(response.headers(), "content-range").unwrap_or_default();
                if range.starts_with(&format!("bytes {from}-")) {
                    return Ok((from, response));
                }
                let message = format!("byte {from} was asked for, and {range:?} was sent");
                Err(Failure::new(message).into())
            }
            _ => Err(self.refusal(repo, &response)),
        }
    }

    /// Where a file of a commit is.
    pub(super) fn address(&self, repo: &str, commit: &str, name: &str) -> String {
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
        follow: Follow,
    ) -> Result<Response<Body>, Trouble> {
        let strange = |what: &str| Failure::new(format!("{} sends on {what}", self.host()));
        let mut url: Uri = url.parse().map_err(|_| strange("to no address"))?;
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send_once(method, &url, from)?;
            let location = text(response.headers(), "location");
            let Some(location) = location.filter(|_| response.status().is_redirection()) else {
                return Ok(response);
            };
            let next = redirected(&url, location).ok_or_else(|| {
                strange(&format!(
                    "to an address that cannot be trusted: {location:?}"
                ))
            })?;
            let described = response.headers().contains_key(LINKED_ETAG);
            if follow == Follow::Endpoint && (described || !self.is_endpoint(&next)) {
                return Ok(response);
            }
            url = next;
        }
        Err(strange(&format!("more than {REDIRECTS_MAX} times")).into())
    }

    fn send_once(&self, method: &Method, url: &Uri, from: u64) -> Result<Response<Body>, Trouble> {
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            // Sizes and ranges are those of the file and not of something packed.
            .header(header::ACCEPT_ENCODING, "identity");
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        if let Some(token) = self.token.as_ref().filter(|_| self.is_endpoint(url)) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(()).map_err(|_| {
            Failure::new("the token in HF_TOKEN or in its file has letters that no token has")
        })?;
        self.agent
            .run(request)
            .map_err(|error| self.unreachable(error))
    }

    /// Whether an address is the endpoint's: only there the token is sent.
    fn is_endpoint(&self, url: &Uri) -> bool {
        let place = |url: &Uri| {
            let host = url.host().map(str::to_ascii_lowercase);
            let usual = if is_secure(url) { 443 } else { 80 };
            (is_secure(url), host, url.port_u16().unwrap_or(usual))
        };
        place(url) == place(&self.origin)
    }

    fn unreachable(&self, error: ureq::Error) -> Trouble {
        Trouble::Passing(Failure::Program {
            message: format!("cannot reach {}", self.host()),
            cause: Some(error.into_io()),
        })
    }

    /// What an answer without a file means.
    fn refusal(&self, repo: &str, response: &Response<Body>) -> Trouble {
        let (host, endpoint) = (self.host(), &self.endpoint);
        let status = response.status();
        let code = text(response.headers(), "x-error-code").unwrap_or_default();
        let message = match (status.as_u16(), code, &self.token) {
            (_, "GatedRepo", None) => format!(
                "{repo} is gated: agree to its terms at {endpoint}/{repo} and put a token of your \
                 account into HF_TOKEN"
            ),
            (_, "GatedRepo", Some(_)) => format!(
                "{repo} is gated, and the account of your token has no access: ask for it at \
                 {endpoint}/{repo}"
            ),
            (_, "RepoNotFound", _) | (404, "", _) | (401, _, None) => format!(
                "{host} has no model {repo}, or it is private and needs a token in HF_TOKEN"
            ),
            (401, _, Some(_)) => format!("{host} does not accept your token"),
            (404, ..) => format!("{host} no longer has what it listed for {repo}"),
            (429, ..) => format!("{host} wants fewer requests: wait some minutes"),
            (status, ..) => format!("{host} answers {status} to a request for {repo}"),
        };
        let cause = text(response.headers(), "x-error-message").map(io::Error::other);
        let failure = Failure::Program { message, cause };
        if status.is_server_error() {
            Trouble::Passing(failure)
        } else {
            Trouble::Final(failure)
        }
    }
}

/// Where a redirect leads: to a path of the same server or to an address, and never from https
/// to http.
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

/// Whether a name from a listing stays below the folder it is put into, on every system.
fn stays_below(name: &str) -> bool {
    let plain = |c: char| !c.is_control() && c != '\\' && c != ':';
    name.chars().all(plain) && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Whether an etag can be a file's name.
fn is_blob_name(etag: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=128).contains(&etag.len()) && etag.chars().all(plain)
}

/// The name as a part of an address, RFC 3986 section 2.
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
    fn names_stay_below() {
        for good in ["a", "a/b.gguf", "UD Q4/ü.gguf", "..a", "a..b"] {
            assert!(stays_below(good), "{good}");
        }
        for bad in [
            "", "/a", "a/", "a//b", "..", "../a", "a/../b", ".", "a\\b", "C:a", "a\0", "a\n",
        ] {
            assert!(!stays_below(bad), "{bad:?}");
        }
    }

    #[test]
    fn etags_are_no_paths() {
        assert!(is_blob_name("0af-x"));
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a.incomplete",
            "a\\b",
            &"a".repeat(129),
        ] {
            assert!(!is_blob_name(bad), "{bad}");
        }
    }

    #[test]
    fn addresses_are_escaped() {
        assert_eq!(escaped("a b/ü#?%.gguf"), "a%20b/%C3%BC%23%3F%25.gguf");
    }

    #[test]
    fn redirects_never_lead_to_less_safety() {
        let from: Uri = "https://hub.example/a".parse().expect("it is an address");
        let to = |location| redirected(&from, location).map(|uri| uri.to_string());
        assert_eq!(to("/b?c").as_deref(), Some("https://hub.example/b?c"));
        assert_eq!(
            to("https://cdn.example/b").as_deref(),
            Some("https://cdn.example/b")
        );
        for bad in [
            "http://hub.example/b",
            "//cdn.example/b",
            "b",
            "file:///b",
            "ftp://a/b",
            "",
        ] {
            assert_eq!(to(bad), None, "{bad}");
        }
    }
}
