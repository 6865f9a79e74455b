//! Requests to a model whose weights are not finite: status 500 and an error that names the tensor.

use crate::client::{TestServer, config};
use crate::damaged_model::model_with_nan;
use serde_json::json;
use std::path::Path;

#[test]
fn weights_that_are_not_finite_are_errors_of_the_server() {
    let tensor = "blk.0.ffn_up.weight";
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let path = model_with_nan(&golden.join("arch/llama/model.gguf"), tensor);
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
    drop(server);
    std::fs::remove_file(path).expect("it exists");
}
