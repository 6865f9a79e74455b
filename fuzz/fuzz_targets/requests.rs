//! The target `requests`: a status of 500 is a bug. It is not in the list of targets, because it needs the server.

#![no_main]

#[expect(dead_code, reason = "other targets use more of it")]
#[path = "../src/targets/choices.rs"]
mod choices;
#[path = "../src/targets/json_edits.rs"]
mod json_edits;
#[path = "../src/targets/requests.rs"]
mod requests;
#[expect(dead_code, reason = "the tests of the program use more of it")]
#[path = "../../cli/tests/cli/speech_model.rs"]
mod speech_model;

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::OnceLock;
use tabla_server::InProcess;

fn server() -> &'static InProcess {
    static SERVER: OnceLock<InProcess> = OnceLock::new();
    SERVER.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folder = std::env::temp_dir().join(format!("tabla-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let config = requests::config(&root, &folder);
        InProcess::new(&config).expect("a valid configuration")
    })
}

fuzz_target!(|input: &[u8]| {
    let post = requests::post(input);
    let answer = server().post(post.path, post.content_type, &post.body);
    let (status, body) = answer.expect("a valid request");
    assert_ne!(
        status,
        500,
        "{}: {}",
        post.path,
        String::from_utf8_lossy(&body)
    );
});
