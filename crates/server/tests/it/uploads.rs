//! Limits of uploaded audio.

use crate::audio;
use crate::client::TestServer;
use crate::speech_model::{ENGLISH, ggml_model_with_context, wav};
use std::time::Duration;

#[test]
fn audio_over_the_limit_is_refused() {
    let model = ggml_model_with_context(ENGLISH, 150);
    let mut config = audio::config_of("uploads", &model);
    config.limits.audio_time = Duration::from_secs(2);
    let server = TestServer::with(config);
    let headers = [("Content-Type", "multipart/form-data; boundary=b")];
    for (seconds, status) in [(2, 200), (3, 400)] {
        let part =
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n";
        let body = [part.as_bytes(), &wav(seconds, None), b"\r\n--b--\r\n"].concat();
        let answer = server.send("POST", "/v1/audio/transcriptions", &headers, &body);
        assert_eq!(answer.status, status, "{seconds} s: {}", answer.body);
        if status == 400 {
            let error = &answer.json()["error"];
            assert_eq!(error["param"], "file");
            let message = error["message"].as_str().expect("a message");
            assert!(message.contains("longer than 2 seconds"), "{message}");
        }
    }
}
