//! `/v1/audio/transcriptions`.

use crate::client::{Answer, TestServer, config};
use crate::speech_model::{ENGLISH, MULTILINGUAL, ggml_model, wav};
use std::sync::atomic::{AtomicU32, Ordering};

const BOUNDARY: &str = "boundary";

/// Sends a second of audio with further fields.
fn transcribe(server: &TestServer, fields: &[(&str, &str)]) -> Answer {
    let mut body = Vec::new();
    let part =
        |name: &str| format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"");
    for (name, value) in fields {
        body.extend(format!("{}\r\n\r\n{value}\r\n", part(name)).bytes());
    }
    body.extend(format!("{}; filename=\"a.wav\"\r\n\r\n", part("file")).bytes());
    body.extend(wav(1, None));
    body.extend(format!("\r\n--{BOUNDARY}--\r\n").bytes());
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let headers = [("Content-Type", kind.as_str())];
    server.send("POST", "/v1/audio/transcriptions", &headers, &body)
}

/// Returns a server with a speech model of this number of tokens.
fn server(vocab: usize) -> TestServer {
    // Tests run at the same time: each server reads a file of its own.
    static FILES: AtomicU32 = AtomicU32::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = format!("{}/speech-{number}.bin", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, ggml_model(vocab)).expect("written");
    let mut config = config();
    config.models[0].source = tabla::Source::Path(path.into());
    config.models[0].chat_template = None;
    TestServer::with(config)
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
        let server = server(vocab);
        for (language, status) in languages {
            let answer = transcribe(&server, &[("language", language)]);
            assert_eq!(answer.status, status, "{vocab} {language}: {}", answer.body);
            if status == 400 {
                assert_eq!(answer.json()["error"]["param"], "language");
            }
        }
    }
}

#[test]
fn invalid_fields_are_named() {
    let server = server(ENGLISH);
    for (field, value) in [
        ("temperature", "2"),
        ("response_format", "xml"),
        ("timestamp_granularities[]", "letter"),
    ] {
        let answer = transcribe(&server, &[(field, value)]);
        assert_eq!(answer.status, 400, "{field}: {}", answer.body);
        assert_eq!(answer.json()["error"]["param"], field);
    }
}
