//! A server for a test, and a small HTTP client.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tabla::Source;
use tabla_server::{Config, ModelConfig, Server, ServerEvent, ShutdownHandle};

/// Chat template with the reasoning and the tool calls of Qwen 3.
const TEMPLATE: &str = "{%- if tools %}tools: {{ tools | tojson }} <tool_call></tool_call>\n{% endif -%}\
    {%- for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor -%}\
    {%- if add_generation_prompt %}assistant: {% endif -%}";

/// A running server, which ends when it is dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) events: Arc<Mutex<Vec<ServerEvent>>>,
    shutdown: ShutdownHandle,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// Returns the data of the events of a stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        let data = data.filter(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).expect("JSON in an event"))
            .collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.headers
            .lines()
            .find_map(|line| line.strip_prefix(prefix.as_str()))
    }
}

/// Returns the configuration of the built-in model with a chat template.
pub(crate) fn config() -> Config {
    let model = ModelConfig {
        name: "story".to_string(),
        aliases: vec!["org/alias:q8".to_string()],
        source: Source::BuiltIn,
        chat_template: Some(TEMPLATE.to_string()),
        template_variables: serde_json::Map::new(),
        overflow: tabla::Overflow::Stop,
    };
    let mut config = Config::new(vec![model]);
    config.address = SocketAddr::from(([127, 0, 0, 1], 0));
    config.load = config
        .load
        .sequences(4)
        .threads(1)
        .device(tabla::load::DeviceChoice::Cpu);
    config
}

impl TestServer {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    /// Starts a server and waits until it has loaded a model.
    pub(crate) fn with(config: Config) -> Self {
        let server = Self::start(config);
        let is_loaded = |event: &ServerEvent| matches!(event, ServerEvent::Loaded(..));
        while !server
            .events
            .lock()
            .expect("no panic")
            .iter()
            .any(is_loaded)
        {
            let has_ended = server.thread.as_ref().is_none_or(|t| t.is_finished());
            assert!(!has_ended, "the server ended: {:?}", server.events);
            std::thread::sleep(Duration::from_millis(1));
        }
        server
    }

    /// Starts a server, which loads its first model next to the first requests.
    pub(crate) fn start(mut config: Config) -> Self {
        let events: Arc<Mutex<Vec<ServerEvent>>> = Arc::default();
        let sink = Arc::clone(&events);
        config.events = Arc::new(move |event| {
            let is_loaded = matches!(event, ServerEvent::Loaded(..));
            sink.lock().expect("no panic").push(event);
            if is_loaded {
                // A state that is set after its event would show.
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let server = Server::bind(config).expect("a free port");
        Self {
            address: server.address().expect("an address"),
            events,
            shutdown: server.shutdown_handle(),
            thread: Some(std::thread::spawn(move || server.run())),
        }
    }

    /// Begins the shutdown.
    pub(crate) fn shut_down(&self) {
        self.shutdown.shut_down();
    }

    /// Waits for the end.
    pub(crate) fn join(&mut self) {
        let thread = self.thread.take().expect("joined once");
        thread.join().expect("no panic").expect("no error");
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a timeout");
        stream
    }

    /// Sends bytes and reads until the server closes the connection.
    pub(crate) fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may answer and close before everything is written.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        parse(&self.raw(&self.request(method, path, headers, body)))
    }

    /// Sends a request without reading its answer: it ends when the connection is dropped.
    pub(crate) fn hold(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        let request = self.request("POST", path, headers, body);
        stream.write_all(&request).expect("written");
        stream
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"))
        {
            head += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], body.to_string().as_bytes())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.shutdown.shut_down();
        self.shutdown.shut_down();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Parses an answer.
pub(crate) fn parse(answer: &str) -> Answer {
    let (headers, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = headers
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let headers = headers.to_ascii_lowercase();
    let body = match headers.contains("transfer-encoding: chunked") {
        true => unchunked(body),
        false => body.to_string(),
    };
    Answer {
        status: status.unwrap_or(0),
        headers,
        body,
    }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || after.len() < size {
            break;
        }
        body.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    body
}

/// Returns the methods and paths of a document of `/openapi.json`.
pub(crate) fn endpoints(document: &Value) -> Vec<(String, String)> {
    let paths = document["paths"].as_object().expect("paths");
    let of_path = |(path, methods): (&String, &Value)| {
        let path = path.replace("{id}", "x").replace("{name}", "story");
        let methods = methods.as_object().expect("methods").keys();
        let all = methods.map(move |method| (method.to_uppercase(), path.clone()));
        all.collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}
