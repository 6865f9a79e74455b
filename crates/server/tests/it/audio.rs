//! `/v1/audio/transcriptions`.

use crate::client::{self, Answer, TestServer};
use crate::speech_model::{ENGLISH, MULTILINGUAL, ggml_model, wav};
use std::sync::atomic::{AtomicU32, Ordering};
use tabla_server::Config;

const BOUNDARY: &str = "boundary";

/// Sends seconds of audio with further fields.
pub(crate) fn transcribe(server: &TestServer, seconds: usize, fields: &[(&str, &str)]) -> Answer {
    let mut body = Vec::new();
    let part =
        |name: &str| format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"");
    for (name, value) in fields {
        body.extend(format!("{}\r\n\r\n{value}\r\n", part(name)).bytes());
    }
    body.extend(format!("{}; filename=\"a.wav\"\r\n\r\n", part("file")).bytes());
    body.extend(wav(seconds, None));
    body.extend(format!("\r\n--{BOUNDARY}--\r\n").bytes());
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let headers = [("Content-Type", kind.as_str())];
    server.send("POST", "/v1/audio/transcriptions", &headers, &body)
}

/// Returns the configuration of a speech model of this number of tokens.
pub(crate) fn config(vocab: usize) -> Config {
    // Tests run at the same time: each server reads a file of its own.
    static FILES: AtomicU32 = AtomicU32::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = format!("{}/speech-{number}.bin", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, ggml_model(vocab)).expect("written");
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
