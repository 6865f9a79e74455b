//! `/v1/audio/transcriptions`.

use crate::client::{self, Answer, TestServer};
use crate::speech_model::{ENGLISH, MULTILINGUAL, ggml_model, wav};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use tabla_server::Config;

const BOUNDARY: &str = "boundary";

const PATH: &str = "/v1/audio/transcriptions";

const FORM: (&str, &str) = ("Content-Type", "multipart/form-data; boundary=boundary");

/// Sends seconds of audio with further fields.
pub(crate) fn transcribe(server: &TestServer, seconds: usize, fields: &[(&str, &str)]) -> Answer {
    server.send("POST", PATH, &[FORM], &form(seconds, fields))
}

/// Begins to transcribe seconds of audio, until the connection is dropped.
pub(crate) fn hold_transcription(server: &TestServer, seconds: usize) -> TcpStream {
    server.hold(PATH, &[FORM], &form(seconds, &[]))
}

fn form(seconds: usize, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    let part =
        |name: &str| format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"");
    for (name, value) in fields {
        body.extend(format!("{}\r\n\r\n{value}\r\n", part(name)).bytes());
    }
    body.extend(format!("{}; filename=\"a.wav\"\r\n\r\n", part("file")).bytes());
    body.extend(wav(seconds, None));
    body.extend(format!("\r\n--{BOUNDARY}--\r\n").bytes());
    body
}

/// Returns the configuration of a speech model of this number of tokens.
pub(crate) fn config(vocab: usize) -> Config {
    config_of(&format!("speech-{vocab}"), &ggml_model(vocab))
}

/// Returns the configuration of a speech model, which is written to a file of this name.
pub(crate) fn config_of(name: &str, model: &[u8]) -> Config {
    // Tests and processes run at the same time: a file that a server reads is replaced whole.
    static WRITES: AtomicU32 = AtomicU32::new(0);
    let (process, write) = (std::process::id(), WRITES.fetch_add(1, Ordering::Relaxed));
    let path = format!("{}/{name}.bin", env!("CARGO_TARGET_TMPDIR"));
    let new = format!("{path}.{process}.{write}");
    std::fs::write(&new, model).expect("written");
    std::fs::rename(&new, &path).expect("renamed");
    let mut config = client::config();
    config.models[0].source = tabla::Source::Path(path.into());
    config.models[0].chat_template = None;
    config
}

#[test]
fn a_language_that_the_model_does_not_transcribe_is_named() {
    for (vocab, languages) in [
        (
            ENGLISH,
            [
                ("", 200),
                ("en", 200),
                ("English", 200),
                ("de", 400),
                ("xx", 400),
            ],
        ),
        (
            MULTILINGUAL,
            [
                ("", 200),
                ("en", 200),
                ("german", 200),
                ("de", 200),
                ("xx", 400),
            ],
        ),
    ] {
        let server = TestServer::with(config(vocab));
        for (language, status) in languages {
            let answer = transcribe(&server, 1, &[("language", language)]);
            assert_eq!(answer.status, status, "{vocab} {language}: {}", answer.body);
            if status == 400 {
                assert_eq!(answer.json()["error"]["param"], "language");
            }
        }
    }
}

#[test]
fn metrics_count_requests_and_seconds() {
    let server = TestServer::with(config(ENGLISH));
    for seconds in [1, 2] {
        assert_eq!(transcribe(&server, seconds, &[]).status, 200);
    }
    let metrics = server.get("/metrics").body;
    for line in [
        "tabla_transcription_requests_total{model=\"story\"} 2",
        "tabla_transcription_audio_seconds_total{model=\"story\"} 3",
    ] {
        assert!(
            metrics.lines().any(|other| other == line),
            "{line}\n{metrics}"
        );
    }
}

#[test]
fn invalid_fields_are_named() {
    let server = TestServer::with(config(ENGLISH));
    for (field, value) in [
        ("temperature", "2"),
        ("response_format", "xml"),
        ("timestamp_granularities[]", "letter"),
    ] {
        let answer = transcribe(&server, 1, &[(field, value)]);
        assert_eq!(answer.status, 400, "{field}: {}", answer.body);
        assert_eq!(answer.json()["error"]["param"], field);
    }
}
