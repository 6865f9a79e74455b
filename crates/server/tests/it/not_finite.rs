//! Requests to a model whose weights are not finite: status 500 and an error that names the tensor.

use crate::client::{TestServer, config};
use serde_json::json;
use std::path::Path;

#[test]
fn weights_that_are_not_finite_are_errors_of_the_server() {
    let tensor = "blk.0.ffn_up.weight";
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let model = golden.join("arch/llama/model.gguf");
    let file = tabla::format::open(&model).expect("a model");
    let offset = file.tensor(tensor).expect("the tensor exists").offset;
    let offset = usize::try_from(offset).expect("small");
    let mut bytes = std::fs::read(&model).expect("readable");
    // NaN in bf16.
    bytes[offset..offset + 2].copy_from_slice(&[0xc0, 0x7f]);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("not_finite.gguf");
    std::fs::write(&path, bytes).expect("writable");

    let mut config = config();
    config.models[0].source = tabla::Source::from(&path);
    let server = TestServer::with(config);
    for temperature in [0, 1] {
        let request = json!({ "prompt": [1, 9, 4], "max_tokens": 8, "temperature": temperature });
        let answer = server.post("/v1/completions", &request);
        assert_eq!(answer.status, 500, "{}", answer.body);
        let message = answer.json()["error"]["message"].to_string();
        assert!(
            message.contains("no logit") && message.contains(tensor),
            "{message}"
        );
    }
    let request = json!({ "prompt": [1, 9, 4], "max_tokens": 8, "stream": true });
    let answer = server.post("/v1/completions", &request);
    assert!(answer.body.contains(tensor), "{}", answer.body);
    assert!(!answer.body.contains("!!"), "{}", answer.body);
}
