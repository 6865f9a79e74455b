//! Posts bodies to every endpoint. The first byte selects the endpoint. A status of 500 is a bug.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use tabla::Source;
use tabla::load::DeviceChoice;
use tabla_server::{Config, InProcess, ModelConfig};

const PATHS: [&str; 15] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/audio/transcriptions",
    "/completion",
    "/infill",
    "/tokenize",
    "/detokenize",
    "/score",
    "/activations",
];

fn server() -> &'static InProcess {
    static SERVER: OnceLock<InProcess> = OnceLock::new();
    SERVER.get_or_init(|| {
        let mut config = Config::new(vec![ModelConfig {
            name: "story".to_string(),
            aliases: Vec::new(),
            source: Source::BuiltIn,
            chat_template: Some("zephyr".to_string()),
            template_variables: Default::default(),
            overflow: tabla::Overflow::Stop,
        }]);
        config.load = config
            .load
            .device(DeviceChoice::Cpu)
            .threads(1)
            .max_context(128);
        InProcess::new(&config).expect("a valid configuration")
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((path, body)) = data.split_first() else {
        return;
    };
    let path = PATHS[usize::from(*path) % PATHS.len()];
    let kind = match path.contains("/audio/") {
        true => "multipart/form-data; boundary=x",
        false => "application/json",
    };
    let (status, answer) = server().post(path, kind, body).expect("a valid request");
    assert_ne!(status, 500, "{path}: {}", String::from_utf8_lossy(&answer));
});
