//! A test server with the API of the Hugging Face Hub, and a second one to which it redirects requests
//! for large files, as the Hub does. Both record requests and simulate faults.

use ring::digest::{SHA256, digest};
use serde_json::json;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Name of the model.
pub(crate) const REPO: &str = "org/model";
/// Newest commit of the model.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The files and the behavior of the servers.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) files: Vec<(String, Vec<u8>)>,
    pub(crate) commit: String,
    /// Names in the listing of files that do not exist.
    pub(crate) listed: Vec<String>,
    /// Replaces the etag of large files.
    pub(crate) etag: Option<String>,
    /// Replaces the size of large files.
    pub(crate) size: Option<u64>,
    /// Token that requests for files need.
    pub(crate) gate: Option<String>,
    /// Error response to every request: status, `X-Error-Code`, `X-Error-Message`.
    pub(crate) error: Option<(u16, String, String)>,
    /// Faults of the next requests for large files, in order.
    pub(crate) faults: VecDeque<Fault>,
}

/// A simulated fault of a response.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    /// Closes the connection after this many bytes.
    Cut(usize),
    /// Stops sending after this many bytes.
    Stall(usize),
    /// Delays the response.
    Late(Duration),
    /// Ignores the requested range.
    Whole,
    /// Changes the last byte.
    Wrong,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    /// Whether the second server received it.
    pub(crate) redirected: bool,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) range: Option<String>,
    pub(crate) authorization: Option<String>,
}

impl Model {
    pub(crate) fn of(files: &[(&str, Vec<u8>)]) -> Self {
        let file = |(name, bytes): &(&str, Vec<u8>)| ((*name).to_string(), bytes.clone());
        Self {
            files: files.iter().map(file).collect(),
            commit: COMMIT.to_string(),
            listed: Vec::new(),
            etag: None,
            size: None,
            gate: None,
            error: None,
            faults: VecDeque::new(),
        }
    }
}

/// Returns file contents that depend on the name.
pub(crate) fn bytes(name: &str, length: usize) -> Vec<u8> {
    let name = name.as_bytes();
    let byte = |at: usize| name[at % name.len()] ^ u8::try_from(at * 31 % 251).expect("below 251");
    (0..length).map(byte).collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let hash = digest(&SHA256, bytes);
    hash.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// The running servers.
pub(crate) struct Hub {
    state: Arc<State>,
    pub(crate) endpoint: String,
}

struct State {
    model: Mutex<Model>,
    requests: Mutex<Vec<RecordedRequest>>,
    /// Address of the second server.
    large_files: SocketAddr,
}

impl Hub {
    pub(crate) fn serving(model: Model) -> Self {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("free port");
        let (hub, large_files) = (listen(), listen());
        let address = |listener: &TcpListener| listener.local_addr().expect("bound socket");
        let endpoint = format!("http://{}", address(&hub));
        let state = Arc::new(State {
            model: Mutex::new(model),
            requests: Mutex::default(),
            large_files: address(&large_files),
        });
        accept(hub, &state, State::hub);
        accept(large_files, &state, State::large_files);
        Self { state, endpoint }
    }

    /// Returns the model, to change it.
    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        self.state.model.lock().expect("no holder panicked")
    }

    /// Takes the recorded requests.
    pub(crate) fn take_requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut *self.state.requests.lock().expect("no holder panicked"))
    }

    /// Takes the recorded requests and returns those for large files.
    pub(crate) fn take_downloads(&self) -> Vec<RecordedRequest> {
        let mut requests = self.take_requests();
        requests.retain(|request| request.redirected);
        requests
    }
}

fn accept(
    listener: TcpListener,
    state: &Arc<State>,
    response: fn(&State, &RecordedRequest) -> Response,
) {
    let state = Arc::clone(state);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let state = Arc::clone(&state);
            // A closed connection is not an error of the server.
            thread::spawn(move || state.serve(stream, response).ok());
        }
    });
}

struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    fault: Option<Fault>,
}

impl Response {
    fn new(status: u16, headers: Vec<(&'static str, String)>, body: Vec<u8>) -> Self {
        Self {
            status,
            headers,
            body,
            fault: None,
        }
    }

    fn error(status: u16, code: &str, message: &str) -> Self {
        let headers = vec![
            ("X-Error-Code", code.to_string()),
            ("X-Error-Message", message.to_string()),
        ];
        Self::new(status, headers, Vec::new())
    }
}

impl State {
    fn serve(
        &self,
        stream: TcpStream,
        response: fn(&Self, &RecordedRequest) -> Response,
    ) -> std::io::Result<()> {
        let redirected = stream.local_addr()? == self.large_files;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let mut words = first.split(' ').map(str::to_string);
        let mut request = RecordedRequest {
            redirected,
            method: words.next().unwrap_or_default(),
            path: words.next().unwrap_or_default(),
            range: None,
            authorization: None,
        };
        for line in lines {
            let line = line?;
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "range" => request.range = Some(value.to_string()),
                "authorization" => request.authorization = Some(value.to_string()),
                _ => {}
            }
        }
        let response = response(self, &request);
        self.requests
            .lock()
            .expect("no holder panicked")
            .push(request.clone());
        send(stream, &response, &request.method)
    }

    /// Responses of the server in `HF_ENDPOINT`.
    fn hub(&self, request: &RecordedRequest) -> Response {
        let model = self.model.lock().expect("no holder panicked").clone();
        if let Some((status, code, message)) = &model.error {
            return Response::error(*status, code, message);
        }
        if request.path == format!("/api/models/{REPO}/revision/main") {
            let names = model
                .files
                .iter()
                .map(|(name, _)| name)
                .chain(&model.listed);
            let siblings: Vec<_> = names.map(|name| json!({ "rfilename": name })).collect();
            let listing = json!({ "sha": model.commit, "siblings": siblings });
            return Response::new(200, Vec::new(), listing.to_string().into_bytes());
        }
        let gate = model.gate.as_ref().map(|token| format!("Bearer {token}"));
        if gate.is_some() && request.authorization != gate {
            return Response::error(401, "GatedRepo", "Access to model is restricted.");
        }
        let commit = ("X-Repo-Commit", model.commit.clone());
        let named = |place: &str| {
            let name = request.path.strip_prefix(place)?;
            model.files.iter().find(|(own, _)| own == name)
        };
        if let Some((name, bytes)) = named(&format!("/{REPO}/resolve/{COMMIT}/")) {
            if name.ends_with(".json") {
                let location = ("Location", format!("/api/resolve-cache/{name}"));
                return Response::new(307, vec![commit, location], Vec::new());
            }
            let etag = model.etag.clone().unwrap_or_else(|| sha256(bytes));
            let size = model.size.unwrap_or(bytes.len() as u64);
            let headers = vec![
                commit,
                (
                    "Location",
                    format!("http://{}/{name}?signed", self.large_files),
                ),
                ("ETag", "\"of the redirect\"".to_string()),
                ("X-Linked-ETag", format!("\"{etag}\"")),
                ("X-Linked-Size", size.to_string()),
            ];
            return Response::new(302, headers, Vec::new());
        }
        match named("/api/resolve-cache/") {
            Some((name, bytes)) => {
                // 40 digits, as the hash of a git object, which is not the SHA-256 of the file.
                let etag = format!("W/\"{}\"", &sha256(name.as_bytes())[..40]);
                Response::new(200, vec![commit, ("ETag", etag)], bytes.clone())
            }
            None => Response::error(404, "RepoNotFound", "Repository not found"),
        }
    }

    /// Responses of the server with the large files.
    fn large_files(&self, request: &RecordedRequest) -> Response {
        let mut model = self.model.lock().expect("no holder panicked");
        let fault = model.faults.pop_front();
        let name = request
            .path
            .trim_start_matches('/')
            .trim_end_matches("?signed");
        let Some((_, bytes)) = model.files.iter().find(|(own, _)| own == name) else {
            return Response::error(404, "EntryNotFound", "Entry not found");
        };
        let mut bytes = bytes.clone();
        if let (Some(Fault::Wrong), Some(last)) = (fault, bytes.last_mut()) {
            *last ^= 1;
        }
        let from = request.range.as_deref().and_then(|range| {
            let from = range.strip_prefix("bytes=")?.strip_suffix('-')?;
            from.parse::<usize>().ok()
        });
        let mut response = match from {
            Some(from) if !matches!(fault, Some(Fault::Whole)) => {
                let (last, all) = (bytes.len() - 1, bytes.len());
                let range = ("Content-Range", format!("bytes {from}-{last}/{all}"));
                Response::new(206, vec![range], bytes.split_off(from))
            }
            _ => Response::new(200, Vec::new(), bytes),
        };
        response.fault = fault;
        response
    }
}

fn send(mut stream: TcpStream, response: &Response, method: &str) -> std::io::Result<()> {
    if let Some(Fault::Late(time)) = response.fault {
        thread::sleep(time);
    }
    let Response { status, body, .. } = response;
    let length = body.len();
    let mut head =
        format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n");
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    if method == "HEAD" {
        return Ok(());
    }
    match response.fault {
        Some(Fault::Cut(bytes)) => stream.write_all(&body[..bytes]),
        Some(Fault::Stall(bytes)) => {
            stream.write_all(&body[..bytes])?;
            stream.flush()?;
            // Waits until the client closes the connection.
            stream.read(&mut [0]).map(|_| ())
        }
        _ => stream.write_all(body),
    }
}
