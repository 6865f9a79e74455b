//! `tabla serve`: the HTTP server.

use super::embed::pooling;
use crate::args::{
    ContextArg, DeviceArgs, OverflowArgs, SamplingArgs, parsers, text_file, token_limit,
};
use crate::hub::{self, Access, HubModel};
use crate::output::Failure;
use crate::output::terminal;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tabla::embed::Pooling;
use tabla::load::LoadOptions;
use tabla::text::BUILTIN_TEMPLATES;
use tabla::{Overflow, Source};
use tabla_server::{
    Config, Limits, MetricsCompat, ModelConfig, RequestRecord, Server, ServerEvent,
};

/// Environment variable with the API key.
const KEY_VARIABLE: &str = "TABLA_API_KEY";

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one flag per option")]
pub(crate) struct ServeArgs {
    /// Model: a GGUF file, a compiled model, a safetensors file, a model folder or a ggml file of whisper.cpp, with
    /// an optional name; or a folder with GGUF files and compiled models, which are all served. Can be repeated; the
    /// first is the default [default: the built-in story model]
    #[arg(help_heading = "Models", short, long, value_name = "[NAME=]FILE")]
    model: Vec<String>,
    /// Model on the Hugging Face Hub, downloaded on first use. Can be repeated [short: -hf]
    #[arg(help_heading = "Models", long, value_name = "ORG/REPO[:QUANT]")]
    hf_repo: Vec<HubModel>,
    /// Use cached models only, without network access
    #[arg(help_heading = "Models", long)]
    offline: bool,
    /// Further name of a model, or of the default model. Can be repeated
    #[arg(
        help_heading = "Models",
        long,
        value_delimiter = ',',
        value_name = "ALIAS[=NAME]"
    )]
    alias: Vec<String>,
    /// Answer requests with an unknown model name with status 404, also if there is only one model
    #[arg(help_heading = "Models", long)]
    strict_model: bool,
    /// Chat template of all models: the name of a built-in template, or a file [default: the template of
    /// the model files]
    #[arg(help_heading = "Models", long, value_name = "NAME|FILE")]
    chat_template: Option<String>,
    /// Variables of the chat template, as a JSON object, which requests can replace
    #[arg(help_heading = "Models", long, value_name = "JSON", value_parser = parsers::object)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// Maximum number of tokens of the reasoning of a chat, unless the request sets another one; -1: no
    /// maximum
    #[arg(help_heading = "Models", long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    reasoning_budget: i64,
    /// Load all models at the start instead of on demand
    #[arg(help_heading = "Models", long)]
    preload: bool,
    /// Maximum memory of loaded models in GiB; idle ones are unloaded
    #[arg(help_heading = "Models", long, value_name = "GIB", allow_negative_numbers = true, value_parser = budget)]
    memory_budget: Option<f64>,
    /// Unload a model after this many seconds without requests [default: never]
    #[arg(help_heading = "Models", long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    idle_timeout: Option<u64>,
    /// Also compute embeddings with decoder models
    #[arg(help_heading = "Models", long)]
    embeddings: bool,
    /// Pooling of embeddings: mean, cls, last or max [default: from the model]
    #[arg(help_heading = "Models", long, value_name = "POOLING", value_parser = pooling)]
    pooling: Option<Pooling>,
    /// Address to listen on. Other than loopback addresses need an API key or --insecure
    #[arg(
        help_heading = "Server",
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1",
        value_parser = host
    )]
    host: IpAddr,
    /// Port; 0 selects a free one
    #[arg(
        help_heading = "Server",
        long,
        value_name = "PORT",
        default_value_t = 8080
    )]
    port: u16,
    /// API keys, separated by commas. Other users of the machine can read them: prefer --api-key-file
    #[arg(
        help_heading = "Server",
        long,
        value_delimiter = ',',
        value_name = "KEY",
        value_parser = api_key
    )]
    api_key: Vec<String>,
    /// File with API keys, one per line. The environment variable `TABLA_API_KEY` is another key
    #[arg(help_heading = "Server", long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Listen on other than loopback addresses without an API key
    #[arg(help_heading = "Server", long)]
    insecure: bool,
    /// Web origin that may use the server, such as `https://app.example`. Can be repeated
    #[arg(
        help_heading = "Server",
        long,
        value_delimiter = ',',
        value_name = "ORIGIN"
    )]
    cors_origin: Vec<String>,
    /// Host name in the URL of the server, besides localhost. Can be repeated
    #[arg(help_heading = "Server", long, value_name = "NAME")]
    allowed_host: Vec<String>,
    /// Number of sequences that are decoded at once
    #[arg(help_heading = "Server", long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    parallel: u32,
    /// Maximum number of queued requests; further ones get status 429
    #[arg(help_heading = "Server", long, value_name = "N", default_value_t = 128)]
    queue: usize,
    /// Maximum duration of a request in seconds
    #[arg(help_heading = "Server", long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Maximum duration of an audio file in seconds
    #[arg(help_heading = "Server", long, value_name = "SECONDS", default_value_t = 14_400, value_parser = clap::value_parser!(u64).range(1..))]
    max_audio: u64,
    /// Time that running requests get to finish at the shutdown, in seconds
    #[arg(
        help_heading = "Server",
        long,
        value_name = "SECONDS",
        default_value_t = 10
    )]
    drain_timeout: u64,
    /// Format of the request log on standard error
    #[arg(help_heading = "Server", long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Also write metrics with the names of another server, for existing dashboards
    #[arg(help_heading = "Server", long, value_name = "SERVER", value_enum)]
    metrics_compat: Option<MetricNames>,
    /// Maximum number of tokens to generate, unless the request sets another one; -1: until the model stops
    /// or the context is full; 0: compute the prompt only
    #[arg(short, long, visible_alias = "max-tokens", value_name = "N", value_parser = token_limit())]
    n_predict: Option<i64>,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    overflow: OverflowArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// Parses an address, or the name of the loopback address.
fn host(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        address => address
            .parse()
            .map_err(|_| "expected an IP address or localhost".to_string()),
    }
}

/// Parses an API key.
fn api_key(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the key is empty: give a key, or omit the option".to_string()),
        key => Ok(key.to_string()),
    }
}

/// Parses a memory budget in GiB.
fn budget(text: &str) -> Result<f64, String> {
    let count: Option<f64> = text.parse().ok();
    count
        .filter(|count| *count > 0.0)
        .ok_or_else(|| "expected a number greater than 0".to_string())
}

/// Server with other names of metrics.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum MetricNames {
    /// vLLM.
    Vllm,
    /// llama.cpp.
    Llamacpp,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// One line per request.
    Text,
    /// One JSON object per line.
    Json,
    /// No log.
    None,
}

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let config = args.config()?;
    let address = config.address;
    let server = Server::bind(config)
        .map_err(|error| Failure::new(format!("cannot listen on {address}: {error}")))?;
    #[cfg(unix)]
    raise_open_files();
    let shutdown = server.shutdown_handle();
    ctrlc::set_handler(move || shutdown.shut_down())
        .map_err(|error| Failure::new(format!("cannot handle signals: {error}")))?;
    server
        .run()
        .map_err(|error| Failure::new(format!("server: {error}")))
}

/// Raises the limit of open files to the one that the process may set: every connection is an open file, and
/// the limit of a shell is often 1024.
#[cfg(unix)]
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};

    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Otherwise fewer connections can be open.
    let _ = setrlimit(Resource::Nofile, limit);
}

impl ServeArgs {
    fn config(&self) -> Result<Config, Failure> {
        let api_keys = self.api_keys()?;
        if !self.host.is_loopback() && api_keys.is_empty() && !self.insecure {
            return Err(Failure::new(format!(
                "--host {}: everyone in the network could use the server; set {KEY_VARIABLE}, --api-key-file or --api-key, or allow it with --insecure",
                self.host
            )));
        }
        let is_origin = |origin: &&String| {
            ["http://", "https://"]
                .iter()
                .any(|s| origin.starts_with(s))
        };
        if let Some(origin) = self.cors_origin.iter().find(|origin| !is_origin(origin)) {
            return Err(Failure::new(format!(
                "--cors-origin {origin}: expected an origin such as https://app.example"
            )));
        }
        let load = self
            .device
            .options(self.context.tokens())?
            .samplers(self.sampling.samplers());
        let log = self.log_format;
        Ok(Config {
            address: SocketAddr::new(self.host, self.port),
            load: load.sequences(self.parallel).embeddings(self.embeddings),
            strict_model: self.strict_model,
            api_keys,
            cors_origins: self.cors_origin.clone(),
            allowed_hosts: self.allowed_host.clone(),
            memory_budget: self.memory_budget.map(gib),
            idle_time: self.idle_timeout.map(Duration::from_secs),
            preload: self.preload,
            pooling: self.pooling,
            metrics_compat: self.metrics_compat.map(|names| match names {
                MetricNames::Vllm => MetricsCompat::Vllm,
                MetricNames::Llamacpp => MetricsCompat::LlamaCpp,
            }),
            limits: Limits {
                queue: self.queue,
                reasoning_budget: u32::try_from(self.reasoning_budget).ok(),
                request_time: Duration::from_secs(self.timeout),
                audio_time: Duration::from_secs(self.max_audio),
                drain_time: Duration::from_secs(self.drain_timeout),
                ..Limits::default()
            },
            request_defaults: self.request_defaults(),
            events: Arc::new(move |event| print_event(&event, log)),
            ..Config::new(self.models()?)
        })
    }

    /// Returns the fields that requests without them get.
    fn request_defaults(&self) -> Map<String, Value> {
        let mut fields = self.sampling.request_fields();
        if let Some(limit) = self.n_predict.filter(|limit| *limit >= 0) {
            // Of the endpoints of llama.cpp, OpenAI's older ones and chats, and of responses.
            fields.insert("n_predict".to_string(), limit.into());
            fields.insert("max_output_tokens".to_string(), limit.into());
        }
        fields
    }

    fn api_keys(&self) -> Result<Vec<String>, Failure> {
        let mut keys: Vec<String> = std::env::var(KEY_VARIABLE).into_iter().collect();
        keys.extend(self.api_key.iter().cloned());
        if let Some(path) = &self.api_key_file {
            let text = text_file::read(path)?;
            if text.trim().is_empty() {
                let path = path.display();
                let message = format!("--api-key-file {path}: the file has no key");
                return Err(Failure::Usage(message));
            }
            keys.extend(text.lines().map(str::to_string));
        }
        // An empty environment variable is not set.
        let keys = keys.iter().map(|key| key.trim().to_string());
        let keys: Vec<String> = keys.filter(|key| !key.is_empty()).collect();
        match keys
            .iter()
            .all(|key| key.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            true => Ok(keys),
            false => Err(Failure::new(
                "an API key has characters that a header cannot have: use ASCII letters and digits",
            )),
        }
    }

    fn models(&self) -> Result<Vec<ModelConfig>, Failure> {
        let mut models = Vec::new();
        for text in &self.model {
            let (name, path) = named_path(text);
            match models_of_folder(&path)? {
                Some(found) => models.extend(found),
                None => models.push(model(name, Source::Path(path))),
            }
        }
        for repo in &self.hf_repo {
            let path = hub::locate(repo, Access::new(self.offline), terminal::note)?;
            models.push(model(repo.name(), Source::Path(path)));
        }
        if models.is_empty() {
            models.push(model("story".to_string(), Source::BuiltIn));
        }
        if let Some(template) = &self.chat_template {
            let source = template_source(template)?;
            for model in &mut models {
                model.chat_template = Some(source.clone());
            }
        }
        for model in &mut models {
            model.template_variables = self.chat_template_kwargs.clone().unwrap_or_default();
            model.overflow = self
                .overflow
                .overflow(self.n_predict.unwrap_or(-1), usize::MAX);
        }
        for text in &self.alias {
            let (alias, name) = match text.split_once('=') {
                Some((alias, name)) => (alias, Some(name)),
                None => (text.as_str(), None),
            };
            let mut found = models.iter_mut();
            let found = found.find(|model| name.is_none_or(|name| model.name == name));
            let Some(found) = found else {
                return Err(Failure::new(format!(
                    "--alias {text}: there is no model of this name"
                )));
            };
            found.aliases.push(alias.to_string());
        }
        Ok(models)
    }
}

fn model(name: String, source: Source) -> ModelConfig {
    ModelConfig {
        name,
        aliases: Vec::new(),
        source,
        chat_template: None,
        template_variables: Map::new(),
        overflow: Overflow::Stop,
    }
}

/// Returns the models in a folder that is not a model: GGUF files and compiled models, by their names without the
/// extension. A compiled model takes the place of a GGUF file with the same name.
fn models_of_folder(folder: &Path) -> Result<Option<Vec<ModelConfig>>, Failure> {
    if !folder.is_dir() || tabla::tools::open_directory(&Source::from(folder)).is_ok() {
        return Ok(None);
    }
    let entries = folder.read_dir().map_err(|e| {
        let folder = terminal::one_line(&folder.to_string_lossy());
        Failure::new(format_args!("{folder}: {e}"))
    })?;
    let mut found = BTreeMap::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_first = !stem.contains("-of-") || stem.contains("-00001-of-");
        match path.extension().and_then(|e| e.to_str()) {
            Some("tabla") => {
                found.insert(stem, path);
            }
            Some("gguf") if is_first => {
                found.entry(stem).or_insert(path);
            }
            _ => {}
        }
    }
    let sources = found
        .into_iter()
        .map(|(name, path)| (name, Source::Path(path)));
    // Adapters and damaged files would stop the server.
    let (served, skipped): (Vec<_>, Vec<_>) = sources
        .partition(|(_, source)| tabla::tools::estimate(source, &LoadOptions::default()).is_ok());
    for (name, _) in skipped {
        let name = terminal::one_line(&name);
        terminal::note(&format!("warning: {name} is no model that can be served"));
    }
    let models = served.into_iter().map(|(name, source)| model(name, source));
    let models: Vec<_> = models.collect();
    // The error of an empty folder is that of a model.
    Ok((!models.is_empty()).then_some(models))
}

/// Returns the source in a file, or the name of a built-in template.
fn template_source(template: &str) -> Result<String, Failure> {
    if BUILTIN_TEMPLATES.iter().any(|(name, _)| *name == template) {
        return Ok(template.to_string());
    }
    text_file::read(Path::new(template))
}

/// Splits `NAME=FILE`. The default name is that of the file without its extension.
fn named_path(text: &str) -> (String, PathBuf) {
    if let Some((name, path)) = text.split_once('=')
        && !name.is_empty()
        && !Path::new(text).exists()
    {
        return (name.to_string(), path.into());
    }
    let path = PathBuf::from(text);
    let name = match path.is_dir() {
        true => path.file_name(),
        false => path.file_stem(),
    };
    let name = name.map_or(text.into(), |name| name.to_string_lossy());
    (name.into_owned(), path.clone())
}

fn gib(count: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate"
    )]
    let bytes = (count * f64::from(1 << 30)) as u64;
    bytes
}

fn print_event(event: &ServerEvent, format: LogFormat) {
    let line = match (event, format) {
        (_, LogFormat::None) => return,
        (ServerEvent::Request(record), LogFormat::Text) => request_line(record),
        (event, LogFormat::Json) => json_line(event),
        (ServerEvent::Listening(address), _) => format!("listening on http://{address}"),
        (ServerEvent::Loaded(name, took), _) => {
            format!("loaded {name} in {:.2} s", took.as_secs_f64())
        }
        (ServerEvent::LoadFailed(name, error), _) => format!("cannot load {name}: {error}"),
        (ServerEvent::Unloaded(name), _) => format!("unloaded {name}"),
        (ServerEvent::Warning(message), _) => format!("warning: {message}"),
        (ServerEvent::Draining(running), _) => {
            let running = terminal::counted(*running, "running request");
            format!("shutting down; {running}, interrupt again to cancel")
        }
        (ServerEvent::Loading(..), _) => return,
    };
    let line = terminal::one_line(&line);
    match event {
        ServerEvent::LoadFailed(..) => terminal::eprint_line(&line),
        _ => terminal::note(&line),
    }
}

fn request_line(record: &RequestRecord) -> String {
    let mut line = format!(
        "{} {} {} {:.0} ms",
        record.status,
        record.method,
        record.path,
        record.took.as_secs_f64() * 1e3
    );
    if record.prompt_tokens > 0 {
        line += &format!(
            ", {} ({} cached), {} generated",
            terminal::counted(record.prompt_tokens, "prompt token"),
            record.cached_tokens,
            record.generated_tokens
        );
    }
    if let Some(error) = &record.error {
        line += &format!(": {error}");
    }
    line
}

fn json_line(event: &ServerEvent) -> String {
    let value = match event {
        ServerEvent::Listening(address) => {
            json!({ "event": "listening", "address": address.to_string() })
        }
        ServerEvent::Loading(name, stage) => {
            json!({ "event": "loading", "model": name, "stage": stage })
        }
        ServerEvent::Loaded(name, took) => {
            json!({ "event": "loaded", "model": name, "seconds": took.as_secs_f64() })
        }
        ServerEvent::Unloaded(name) => json!({ "event": "unloaded", "model": name }),
        ServerEvent::LoadFailed(name, error) => {
            json!({ "event": "load_failed", "model": name, "error": error })
        }
        ServerEvent::Warning(message) => json!({ "event": "warning", "message": message }),
        ServerEvent::Draining(running) => json!({ "event": "draining", "running": running }),
        ServerEvent::Request(record) => json!({
            "event": "request",
            "id": record.id,
            "method": record.method,
            "path": record.path,
            "model": record.model,
            "status": record.status,
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "generated_tokens": record.generated_tokens,
            "first_token_seconds": record.first_token.map(|time| time.as_secs_f64()),
            "seconds": record.took.as_secs_f64(),
            "error": record.error,
        }),
    };
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::ops::ControlFlow;

    #[derive(Debug, clap::Parser)]
    struct Program {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn config(args: &[&str]) -> Config {
        let args = ["tabla"].iter().chain(args);
        let program = Program::try_parse_from(args).expect("valid arguments");
        program.serve.config().expect("a valid configuration")
    }

    /// A compiled model takes the place of its file; damaged files and other files are not served.
    #[test]
    fn models_of_a_folder_are_served() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
        let path = |name: &str| folder.path().join(name);
        for (from, to) in [("quant_q4_0", "b"), ("quant_q8_0", "a")] {
            let from = golden.join(format!("{from}.gguf"));
            std::fs::copy(from, path(&format!("{to}.gguf"))).expect("a copy");
        }
        let devices = [tabla::load::DeviceChoice::Cpu];
        let (options, mut go_on) = (LoadOptions::default(), |_, _| ControlFlow::Continue(()));
        let source = Source::Path(path("b.gguf"));
        tabla::tools::compile_model(&source, &path("b.tabla"), &devices, &options, &mut go_on)
            .expect("compiles");
        std::fs::write(path("bad.gguf"), b"GGUF").expect("a file");
        std::fs::write(path("notes.txt"), b"text").expect("a file");
        let served = config(&["-m", &folder.path().to_string_lossy()]).models;
        let served = served.iter().map(|model| match &model.source {
            Source::Path(path) => (&*model.name, path.file_name().and_then(|n| n.to_str())),
            _ => (&*model.name, None),
        });
        let served: Vec<_> = served.collect();
        assert_eq!(served, [("a", Some("a.gguf")), ("b", Some("b.tabla"))]);
    }

    #[test]
    fn sampling_options_are_defaults_of_requests() {
        assert!(config(&[]).request_defaults.is_empty());
        assert!(config(&["-n=-1", "-s=-1"]).request_defaults.is_empty());
        assert_eq!(config(&["-n=0"]).request_defaults["n_predict"], 0);
        let given = "--temp 0.5 --top-k 0 --repeat-penalty 1.5 -s 7 -n 9 --stop x -l 5-inf";
        let given: Vec<&str> = given.split(' ').collect();
        let expected = json!({
            "temperature": 0.5,
            "top_k": 0,
            "repetition_penalty": 1.5,
            "seed": 7,
            "n_predict": 9,
            "max_output_tokens": 9,
            "stop": ["x"],
            "logit_bias": [[5, false]],
        });
        assert_eq!(Value::from(config(&given).request_defaults), expected);
    }

    #[test]
    fn options_of_all_models_are_those_of_each() {
        let shift = ["--context-shift", "--keep", "4"];
        let template = ["--chat-template-kwargs", r#"{"a": 1}"#, "--alias", "x,y"];
        let config = config(&[&shift[..], &template].concat());
        let model = &config.models[0];
        assert_eq!(model.overflow, Overflow::Shift { n_keep: 4 });
        assert_eq!(model.template_variables["a"], 1);
        assert_eq!(model.aliases, ["x", "y"]);
    }

    fn refused(args: &[&str]) -> Failure {
        let args = ["tabla"].iter().chain(args);
        let program = Program::try_parse_from(args).expect("valid arguments");
        program.serve.config().expect_err("refused")
    }

    #[test]
    fn empty_keys_texts_and_budgets_are_refused() {
        for args in [
            &["--api-key", ""][..],
            &["--api-key", " "],
            &["--api-key", "k1,"],
            &["--host", "0.0.0.0", "--api-key", ""],
            &["--memory-budget", "-1"],
            &["--memory-budget", "0"],
            &["--memory-budget", "NaN"],
            &["--stop", ""],
        ] {
            let error = Program::try_parse_from(["tabla"].iter().chain(args));
            assert_eq!(error.expect_err("refused").exit_code(), 2, "{args:?}");
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("keys");
        std::fs::write(&path, "\n \n").expect("written");
        let path = path.to_str().expect("UTF-8");
        let error = refused(&["--api-key-file", path]);
        assert!(matches!(error, Failure::Usage(_)), "{error:?}");
    }

    #[test]
    fn api_keys_are_separated_by_commas() {
        let config = config(&["--api-key", "k1,k2", "--host", "0.0.0.0"]);
        assert!(
            config
                .api_keys
                .ends_with(&["k1".to_string(), "k2".to_string()])
        );
    }
}
