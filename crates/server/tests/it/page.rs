//! The chat page: its files are served, and its functions pass their tests under Node.js.

use crate::client::TestServer;
use std::io::Write;
use std::path::Path;
use std::process::Command;

#[test]
fn every_file_of_the_page_is_served() {
    let server = TestServer::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    for entry in std::fs::read_dir(folder).expect("the page") {
        let path = entry.expect("a file").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        let answer = server.get(&format!("/page/{name}"));
        let content = std::fs::read_to_string(&path).expect("a text");
        assert_eq!((answer.status, answer.body), (200, content), "{name}");
    }
}

#[test]
fn functions_of_the_page_pass_their_tests() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/unit.mjs");
    let Ok(output) = Command::new("node").arg(script).output() else {
        let text = b"SKIPPED: functions of the page: Node.js was not found\n";
        std::io::stderr().write_all(text).expect("standard error");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}
