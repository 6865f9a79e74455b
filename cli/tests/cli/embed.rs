//! Tests of `tabla embed`.

use super::{Ran, Scratch, check_failure, tabla, tabla_with_input};
use serde_json::Value;

#[test]
fn prints_one_json_object_per_text() {
    let args = ["embed", "--device", "cpu", "--pooling", "mean"];
    let rows = |ran: &Ran| -> Vec<Value> {
        let lines = ran.text().lines();
        lines
            .map(|line| serde_json::from_str(line).expect("valid JSON"))
            .collect()
    };
    let mut given = args.to_vec();
    given.extend(["a red ball", "", "a blue car"]);
    let given = rows(&tabla(&given));
    for (index, row) in given.iter().enumerate() {
        assert_eq!(row["index"], index);
        let numbers = row["embedding"].as_array().expect("numbers").iter();
        let squares: f64 = numbers.map(|x| x.as_f64().expect("a number").powi(2)).sum();
        assert!((squares - 1.0).abs() < 1e-5, "{squares}");
    }
    assert_ne!(given[0]["embedding"], given[2]["embedding"]);
    let piped = tabla_with_input(&args, "a red ball\n\na blue car\n");
    assert_eq!(rows(&piped), given);
    let mut json = args.to_vec();
    json.push("--jsonl");
    let piped = tabla_with_input(
        &json,
        "\"a red ball\"\n\"\"\n{\"id\": 1, \"text\": \"a blue car\"}\n",
    );
    assert_eq!(rows(&piped), given);

    let file = Scratch::new("embeddings.npy");
    let mut numpy = args.to_vec();
    numpy.extend(["--dimensions", "3", "-o", file.path(), "a red ball"]);
    assert_eq!(tabla(&numpy).text(), "");
    let bytes = std::fs::read(&file.path).expect("output file");
    assert!(bytes.starts_with(b"\x93NUMPY"));
    assert_eq!(bytes.len() % 64, 3 * size_of::<f32>());
}

#[test]
fn rejects_invalid_embedding_options() {
    let embed = |more: &[&str]| {
        let mut args = vec!["embed", "--device", "cpu", "x"];
        args.extend(more);
        tabla(&args)
    };
    check_failure(&embed(&[]), "mean, cls, last, max");
    check_failure(
        &embed(&["--pooling", "mean", "--prompt-name", "query"]),
        "\"query\"",
    );
    check_failure(
        &embed(&["--pooling", "mean", "--dimensions", "9999"]),
        "dimensions must be at most 192, got 9999",
    );
    check_failure(
        &embed(&["--pooling", "mean", "-c", "1"]),
        "expected at most 1",
    );
    let cut = embed(&["--pooling", "mean", "-c", "2", "--truncate"]);
    assert_eq!(cut.code, Some(0), "{}", cut.stderr);
    assert_eq!(embed(&["--pooling", "median"]).code, Some(2));
    assert_eq!(tabla_with_input(&["embed", "--jsonl"], "a\n").code, Some(2));
    assert_eq!(tabla(&["embed"]).code, Some(2), "no text");
}
