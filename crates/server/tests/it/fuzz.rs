//! The inputs of the fuzz target `requests` (docs/reliability.md).

use crate::client::TestServer;
use crate::speech_model;
use std::path::Path;

#[expect(dead_code, reason = "other targets use more of it")]
#[path = "../../../../fuzz/src/targets/choices.rs"]
mod choices;
#[path = "../../../../fuzz/src/targets/json_edits.rs"]
mod json_edits;
#[path = "../../../../fuzz/src/targets/requests.rs"]
mod requests;

#[test]
fn no_request_of_the_corpus_is_an_internal_error() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().expect("a folder");
    let server = TestServer::with(requests::config(&root, folder.path()));
    let inputs = root.join("fuzz/corpus/requests").read_dir();
    let mut answered = 0;
    for input in inputs.expect("a corpus") {
        let path = input.expect("an entry").path();
        let post = requests::post(&std::fs::read(&path).expect("an input"));
        let form = [("Content-Type", post.content_type)];
        let answer = server.send("POST", post.path, &form, &post.body);
        let name = path.display();
        assert!(
            answer.status != 0 && answer.status != 500,
            "{name}: {}",
            answer.body
        );
        answered += u32::from(answer.status == 200);
    }
    // Without answers, the inputs would only reach the checks of fields.
    assert!(answered > 10, "{answered}");
}
