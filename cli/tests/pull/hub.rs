//! A small server that speaks like the Hugging Face Hub, and a second one to which it sends on for
//! large files, as the Hub does. Both misbehave on demand and remember what they were asked.

use ring::digest::{SHA256, digest};
use serde_json::json;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// The one model.
pub(crate) const REPO: &str = "org/model";
/// Its newest commit.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the servers have and how they behave.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) files: Vec<(String, Vec<u8>)>,
    pub(crate) commit: String,
    /// Names that are listed and not there.
    pub(crate) listed: Vec<String>,
    /// What is said instead of the etag of large files.
    pub(crate) etag: Option<String>,
    /// What is said instead of their size.
    pub(crate) size: Option<u64>,
    /// Who asks for a file without this token is refused.
    pub(crate) gate: Option<String>,
    /// Every request is refused so: status, `X-Error-Code`, `X-Error-Message`.
    pub(crate) refusal: Option<(u16, String, String)>,
    /// What happens to the next requests for bytes of large files.
    pub(crate) faults: VecDeque<Fault>,
}

/// How an answer goes wrong.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    /// The connection ends after so many bytes.
    Cut(usize),
    /// Nothing comes after so many bytes.
    Stall(usize),
    /// It comes late.
    Late(Duration),
    /// It has every byte, whatever range was asked for.
    Whole,
    /// Its last byte is another one.
    Wrong,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Whether the second server was asked, on another port.
    pub(crate) elsewhere: bool,
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
            refusal: None,
            faults: VecDeque::new(),
        }
    }
}

/// Bytes that differ by name.
pub(crate) fn bytes(name: &str, length: usize) -> Vec<u8> {
    let name = name.as_bytes();
    let byte = |at: usize| name[at % name.len()] ^ u8::try_from(at * 31 % 251).expect("below 251");
    (0..length).map(byte).collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let hash = digest(&SHA256, bytes);
    hash.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// Both servers, running.
pub(crate) struct Hub {
    state: Arc<State>,
    pub(crate) endpoint: String,
}

struct State {
    model: Mutex<Model>,
    seen: Mutex<Vec<Seen>>,
    /// Where large files are.
    elsewhere: SocketAddr,
}

impl Hub {
    pub(crate) fn serving(model: Model) -> Self {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let (here, elsewhere) = (listen(), listen());
        let address = |listener: &TcpListener| listener.local_addr().expect("it is bound");
        let endpoint = format!("http://{}", address(&here));
        let state = Arc::new(State {
            model: Mutex::new(model),
            seen: Mutex::default(),
            elsewhere: address(&elsewhere),
        });
        accept(here, &state, State::hub);
        accept(elsewhere, &state, State::elsewhere);
        Self { state, endpoint }
    }

    /// What is served from here on.
    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        self.state.model.lock().expect("no holder panicked")
    }

    /// The requests so far, which are forgotten.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.state.seen.lock().expect("no holder panicked"))
    }

    /// The requests for bytes of large files so far; all others are forgotten too.
    pub(crate) fn fetched(&self) -> Vec<Seen> {
        let mut seen = self.seen();
        seen.retain(|seen| seen.elsewhere);
        seen
    }
}

fn accept(listener: TcpListener, state: &Arc<State>, answer: fn(&State, &Seen) -> Answer) {
    let state = Arc::clone(state);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let state = Arc::clone(&state);
            // A client that left early is no failure of the server.
            thread::spawn(move || state.serve(stream, answer).ok());
        }
    });
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    fault: Option<Fault>,
}

impl Answer {
    fn new(status: u16, headers: Vec<(&'static str, String)>, body: Vec<u8>) -> Self {
        Self {
            status,
            headers,
            body,
            fault: None,
        }
    }

    fn refusal(status: u16, code: &str, message: &str) -> Self {
        let headers = vec![
            ("X-Error-Code", code.to_string()),
            ("X-Error-Message", message.to_string()),
        ];
        Self::new(status, headers, Vec::new())
    }
}

impl State {
    fn serve(&self, stream: TcpStream, answer: fn(&Self, &Seen) -> Answer) -> std::io::Result<()> {
        let elsewhere = stream.local_addr()? == self.elsewhere;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let mut words = first.split(' ').map(str::to_string);
        let mut seen = Seen {
            elsewhere,
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
                "range" => seen.range = Some(value.to_string()),
                "authorization" => seen.authorization = Some(value.to_string()),
                _ => {}
            }
        }
        let answer = answer(self, &seen);
        self.seen
            .lock()
            .expect("no holder panicked")
            .push(seen.clone());
        send(stream, &answer, &seen.method)
    }

    /// The server that `HF_ENDPOINT` names.
    fn hub(&self, seen: &Seen) -> Answer {
        let model = self.model.lock().expect("no holder panicked").clone();
        if let Some((status, code, message)) = &model.refusal {
            return Answer::refusal(*status, code, message);
        }
        if seen.path == format!("/api/models/{REPO}/revision/main") {
            let names = model
                .files
                .iter()
                .map(|(name, _)| name)
                .chain(&model.listed);
            let siblings: Vec<_> = names.map(|name| json!({ "rfilename": name })).collect();
            let listing = json!({ "sha": model.commit, "siblings": siblings });
            return Answer::new(200, Vec::new(), listing.to_string().into_bytes());
        }
        let gate = model.gate.as_ref().map(|token| format!("Bearer {token}"));
        if gate.is_some() && seen.authorization != gate {
            return Answer::refusal(401, "GatedRepo", "Access to model is restricted.");
        }
        let commit = ("X-Repo-Commit", model.commit.clone());
        let named = |place: &str| {
            let name = seen.path.strip_prefix(place)?;
            model.files.iter().find(|(own, _)| own == name)
        };
        if let Some((name, bytes)) = named(&format!("/{REPO}/resolve/{COMMIT}/")) {
            if name.ends_with(".json") {
                let location = ("Location", format!("/api/resolve-cache/{name}"));
                return Answer::new(307, vec![commit, location], Vec::new());
            }
            let etag = model.etag.clone().unwrap_or_else(|| sha256(bytes));
            let size = model.size.unwrap_or(bytes.len() as u64);
            let headers = vec![
                commit,
                (
                    "Location",
                    format!("http://{}/{name}?signed", self.elsewhere),
                ),
                ("ETag", "\"of the redirect\"".to_string()),
                ("X-Linked-ETag", format!("\"{etag}\"")),
                ("X-Linked-Size", size.to_string()),
            ];
            return Answer::new(302, headers, Vec::new());
        }
        match named("/api/resolve-cache/") {
            Some((name, bytes)) => {
                // Of the length of a git object's, which is no hash of the bytes alone.
                let etag = format!("W/\"{}\"", &sha256(name.as_bytes())[..40]);
                Answer::new(200, vec![commit, ("ETag", etag)], bytes.clone())
            }
            None => Answer::refusal(404, "RepoNotFound", "Repository not found"),
        }
    }

    /// The server that has the large files.
    fn elsewhere(&self, seen: &Seen) -> Answer {
        let mut model = self.model.lock().expect("no holder panicked");
        let fault = model.faults.pop_front();
        let name = seen
            .path
            .trim_start_matches('/')
            .trim_end_matches("?signed");
        let Some((_, bytes)) = model.files.iter().find(|(own, _)| own == name) else {
            return Answer::refusal(404, "EntryNotFound", "Entry not found");
        };
        let mut bytes = bytes.clone();
        if let (Some(Fault::Wrong), Some(last)) = (fault, bytes.last_mut()) {
            *last ^= 1;
        }
        let from = seen.range.as_deref().and_then(|range| {
            let from = range.strip_prefix("bytes=")?.strip_suffix('-')?;
            from.parse::<usize>().ok()
        });
        let mut answer = match from {
            Some(from) if !matches!(fault, Some(Fault::Whole)) => {
                let (last, all) = (bytes.len() - 1, bytes.len());
                let range = ("Content-Range", format!("bytes {from}-{last}/{all}"));
                Answer::new(206, vec![range], bytes.split_off(from))
            }
            _ => Answer::new(200, Vec::new(), bytes),
        };
        answer.fault = fault;
        answer
    }
}

fn send(mut stream: TcpStream, answer: &Answer, method: &str) -> std::io::Result<()> {
    if let Some(Fault::Late(time)) = answer.fault {
        thread::sleep(time);
    }
    let Answer { status, body, .. } = answer;
    let length = body.len();
    let mut head =
        format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n");
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    if method == "HEAD" {
        return Ok(());
    }
    match answer.fault {
        Some(Fault::Cut(bytes)) => stream.write_all(&body[..bytes]),
        Some(Fault::Stall(bytes)) => {
            stream.write_all(&body[..bytes])?;
            stream.flush()?;
            // Until the client is gone.
            stream.read(&mut [0]).map(|_| ())
        }
        _ => stream.write_all(body),
    }
}
