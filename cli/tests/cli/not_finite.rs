//! Tests of models with weights that are not finite: an error and exit code 1, never text.

use super::damaged_model::model_with_nan;
use super::tabla;
use serde_json::Value;
use std::path::Path;

#[test]
fn weights_that_are_not_finite_are_errors() {
    let tensor = "blk.0.ffn_up.weight";
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let copy = model_with_nan(&golden.join("arch/llama/model.gguf"), tensor);
    let path = copy.to_str().expect("UTF-8 path");
    for more in [&["--temp", "0"][..], &["--temp", "1"]] {
        let args = ["run", "-m", path, "--device", "cpu", "-n", "8", "-p", "a"];
        let ran = tabla(&[&args[..], more].concat());
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("no logit") && ran.stderr.contains(tensor),
            "{}",
            ran.stderr
        );
        assert!(!ran.stdout.contains(&b'!'));
    }
    let ran = tabla(&["inspect", path, "--check"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("1 tensor with values that are not finite"),
        "{}",
        ran.stderr
    );
    let named = format!(
        "tensor {tensor} is not finite: 1 of its values, the first is NaN in row 0, column 0"
    );
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(text.contains(&named), "{text}");
    let ran = tabla(&["inspect", path, "--check", "--json"]);
    assert_eq!(ran.code, Some(1));
    let json: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let [found] = &json["not_finite"].as_array().expect("a list")[..] else {
        panic!("one tensor was damaged");
    };
    assert_eq!(
        (&found["tensor"], &found["count"]),
        (&tensor.into(), &1.into())
    );
    assert_eq!((&found["row"], &found["column"]), (&0.into(), &0.into()));
    let ran = tabla(&["inspect", "--check", "--json"]);
    assert_eq!(ran.json()["not_finite"], Value::Array(Vec::new()));
    std::fs::remove_file(copy).expect("it exists");
}
