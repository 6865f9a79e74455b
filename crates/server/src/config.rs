//! Configuration of the server.

use serde_json::{Map, Value};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tabla::embed::Pooling;
use tabla::load::LoadOptions;
use tabla::{Overflow, Source};

/// A model that the server offers.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// Name in requests and in `/v1/models`.
    pub name: String,
    /// Other names for the same model.
    pub aliases: Vec<String>,
    /// Location of the model.
    pub source: Source,
    /// Name of a built-in chat template, or its source; `None`: the template of the model files.
    pub chat_template: Option<String>,
    /// Variables of the chat template, which requests can replace.
    pub template_variables: Map<String, Value>,
    /// Behavior when the context is full.
    pub overflow: Overflow,
}

/// Limits of requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of bytes of a JSON body.
    pub body_bytes: usize,
    /// Maximum number of bytes of an uploaded audio file.
    pub audio_bytes: usize,
    /// Maximum memory of the bodies of all requests, of the values in them, and of stored responses, in bytes. Stored
    /// responses are removed when bodies need their memory; further requests are answered with status 503.
    pub bodies_bytes: usize,
    /// Maximum duration of an uploaded audio file.
    pub audio_time: Duration,
    /// Maximum number of queued requests of a model. Further requests are answered with status 429.
    pub queue: usize,
    /// Maximum number of open connections.
    pub connections: usize,
    /// Maximum number of choices of a request (`n`), and of prompts times choices.
    pub choices: u32,
    /// Maximum number of inputs of an embedding request, and of documents of a rerank request.
    pub inputs: usize,
    /// Maximum number of tools of a request.
    pub tools: usize,
    /// Maximum number of tokens of the reasoning of a chat, unless the request has another one; `None`: no
    /// maximum.
    pub reasoning_budget: Option<u32>,
    /// Maximum duration of a request, from the last byte of its body to its last token or result.
    pub request_time: Duration,
    /// Duration after which a client that reads nothing is disconnected.
    pub stall_time: Duration,
    /// Maximum duration of reading the headers of a request.
    pub header_time: Duration,
    /// Duration after which a connection without requests is closed.
    pub idle_time: Duration,
    /// Maximum duration of reading a body, in addition to one second per 64 KiB of its length.
    pub body_time: Duration,
    /// Duration that running requests get to finish after the shutdown began.
    pub drain_time: Duration,
    /// Maximum number of stored responses of `/v1/responses`.
    pub stored_responses: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 8 << 20,
            audio_bytes: 100 << 20,
            bodies_bytes: 512 << 20,
            audio_time: Duration::from_secs(4 * 3600),
            queue: 128,
            connections: 16_384,
            choices: 16,
            inputs: 2048,
            tools: 256,
            reasoning_budget: None,
            request_time: Duration::from_secs(600),
            stall_time: Duration::from_secs(30),
            header_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(75),
            body_time: Duration::from_secs(15),
            drain_time: Duration::from_secs(10),
            stored_responses: 512,
        }
    }
}

/// A finished request, for the log.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// Identifier, which the headers `x-request-id` and `request-id` repeat.
    pub id: String,
    /// HTTP method.
    pub method: String,
    /// Path without the query string.
    pub path: String,
    /// Name of the model; empty if the request names none.
    pub model: String,
    /// HTTP status.
    pub status: u16,
    /// Number of prompt tokens.
    pub prompt_tokens: u64,
    /// Number of prompt tokens from the prefix cache.
    pub cached_tokens: u64,
    /// Number of generated tokens.
    pub generated_tokens: u64,
    /// Time until the first token.
    pub first_token: Option<Duration>,
    /// Time until the last byte was written.
    pub took: Duration,
    /// Error message, or the reason of an early end.
    pub error: Option<String>,
}

/// Event that the server reports.
#[derive(Clone, Debug)]
pub enum ServerEvent {
    /// The server accepts connections at this address.
    Listening(SocketAddr),
    /// A model is being loaded: its name and the stage.
    Loading(String, &'static str),
    /// A model was loaded in this time.
    Loaded(String, Duration),
    /// A model was unloaded.
    Unloaded(String),
    /// A model could not be loaded.
    LoadFailed(String, String),
    /// A request ended.
    Request(RequestRecord),
    /// Something deserves attention.
    Warning(String),
    /// The shutdown began; the number of running requests.
    Draining(usize),
}

/// Server whose names `/metrics` has, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsCompat {
    /// vLLM.
    Vllm,
    /// llama.cpp.
    LlamaCpp,
}

/// Receiver of [`ServerEvent`]s. Called from several threads.
pub type EventSink = Arc<dyn Fn(ServerEvent) + Send + Sync>;

/// Configuration of a server.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "one field per option")]
pub struct Config {
    /// Address to listen on.
    pub address: SocketAddr,
    /// Models; the first one is the default.
    pub models: Vec<ModelConfig>,
    /// Whether a request with the name of another model is an error if there is only one model. Otherwise that model
    /// answers it.
    pub strict_model: bool,
    /// Load options of all models.
    pub load: LoadOptions,
    /// Keys, one of which every request must have; empty: no key is needed.
    pub api_keys: Vec<String>,
    /// Origins of web pages that may use the server, in addition to pages of this server.
    pub cors_origins: Vec<String>,
    /// Host names of the server, in addition to IP addresses and `localhost`.
    pub allowed_hosts: Vec<String>,
    /// Maximum number of bytes of loaded models; `None`: no limit.
    pub memory_budget: Option<u64>,
    /// Duration after which a model without requests is unloaded; `None`: never.
    pub idle_time: Option<Duration>,
    /// Whether all models are loaded at the start; otherwise only the first.
    pub preload: bool,
    /// Limits of requests.
    pub limits: Limits,
    /// Fields that requests without them get, such as `temperature` and `n_predict`.
    pub request_defaults: Map<String, Value>,
    /// Server whose names the metrics also have; `None`: only the names of Tabla.
    pub metrics_compat: Option<MetricsCompat>,
    /// Pooling of embeddings; `None`: that of the model files.
    pub pooling: Option<Pooling>,
    /// Receiver of events.
    pub events: EventSink,
    /// Receives each loaded model, for tests of device loss.
    #[doc(hidden)]
    pub on_load: fn(&tabla::Model),
}

impl Config {
    /// Creates the configuration of a server of these models at `127.0.0.1:8080`.
    pub fn new(models: Vec<ModelConfig>) -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            models,
            strict_model: false,
            load: LoadOptions::default(),
            api_keys: Vec::new(),
            cors_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            memory_budget: None,
            idle_time: None,
            preload: false,
            limits: Limits::default(),
            request_defaults: Map::new(),
            metrics_compat: None,
            pooling: None,
            events: Arc::new(|_| {}),
            on_load: |_| {},
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("address", &self.address)
            .field("models", &self.models)
            .finish_non_exhaustive()
    }
}
