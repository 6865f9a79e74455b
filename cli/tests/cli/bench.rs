//! Tests of `tabla bench`.

use super::tabla;
use super::trace::devices;
use serde_json::Value;

#[test]
fn prints_every_output_format() {
    let bench = |format| {
        let args = [
            "bench", "--device", "cpu", "-p", "8", "-n", "4", "-r", "1", "--format", format,
        ];
        tabla(&args)
    };
    let table = bench("md");
    assert!(table.text().contains("pp8") && table.text().contains("tg4"));
    let width = |line: &str| line.chars().count();
    let widths: Vec<usize> = table.text().lines().map(width).collect();
    assert!(widths.iter().all(|w| *w == widths[0]), "{}", table.text());

    let objects = bench("json").json();
    assert_eq!(objects[0]["n_prompt"], 8);
    assert_eq!(objects[1]["n_gen"], 4);
    assert!(objects[1]["avg_ts"].as_f64() > Some(0.0));
    assert_eq!(objects[1]["samples_ts"].as_array().map(Vec::len), Some(1));

    for line in bench("jsonl").text().lines() {
        let object: Value = serde_json::from_str(line).expect("a line is an object");
        assert_eq!(object["backends"], "CPU");
    }
    assert_eq!(
        objects[1]["submit_us_per_token"],
        Value::Null,
        "a CPU finishes a burst in submission"
    );
    let csv = bench("csv");
    assert_eq!(csv.text().lines().count(), 3);
    assert!(csv.text().starts_with("build_version,"));
}

#[test]
fn measures_at_context_depth() {
    let objects = tabla(&[
        "bench", "--device", "cpu", "-p", "8", "-n", "4", "-d", "0,40", "-r", "1", "--format",
        "json",
    ]);
    let objects = objects.json();
    let names = ["pp8", "tg4", "pp8 @ d40", "tg4 @ d40"];
    for (object, name) in objects.as_array().expect("an array").iter().zip(names) {
        assert_eq!(object["test"], name);
        assert_eq!(object["samples_ts"].as_array().map(Vec::len), Some(1));
        // Before each of 4 tests in 2 turns, and at the end.
        assert_eq!(object["memory_samples"].as_array().map(Vec::len), Some(9));
    }
    assert_eq!(objects[3]["n_depth"], 40);
}

/// Repetitions and the warm-up must not use the prefix cache.
#[test]
fn every_reported_token_is_computed() {
    let objects = tabla(&[
        "bench", "--device", "cpu", "-p", "70,200", "-n", "4", "-d", "0,40", "-r", "3", "--format",
        "json",
    ]);
    let objects = objects.json();
    let objects = objects.as_array().expect("an array");
    assert_eq!(objects.len(), 6);
    for object in objects {
        let number = |key: &str| object[key].as_u64().expect("a number");
        let reported = number("n_prompt") + number("n_gen");
        let computed = Value::from(vec![reported; 3]);
        assert_eq!(object["computed_tokens"], computed, "{}", object["test"]);
    }
}

#[test]
fn measures_memory_and_submission_of_each_device() {
    for device in devices() {
        let replays = if device == "gpu" {
            &["auto", "encoded"][..]
        } else {
            &["auto"]
        };
        for replay in replays {
            let args = [
                "bench", "--device", device, "--replay", replay, "-p", "4", "-n", "2", "-r", "1",
                "--format", "json",
            ];
            let objects = tabla(&args).json();
            let [prompt, generated] = [&objects[0], &objects[1]];
            let rates = generated["memory_samples"].as_array().expect("an array");
            assert_eq!(
                rates.len(),
                5,
                "before, between and after two turns of two tests"
            );
            let positive = |rate: &Value| rate.as_f64().is_some_and(|rate| rate > 0.0);
            assert!(rates.iter().all(positive), "{device}: {rates:?}");
            let [best, read, share] = [
                "memory_bytes_per_second",
                "read_bytes_per_second",
                "memory_share_percent",
            ]
            .map(|key| generated[key].as_f64().expect("a number"));
            assert!(rates.iter().any(|rate| rate.as_f64() == Some(best)));
            assert!((read / best * 100.0 - share).abs() < 1e-6 * share);

            assert_eq!(prompt["submit_us_per_token"], Value::Null);
            let submitting = generated["submit_us_per_token"].as_f64();
            assert_eq!(
                submitting > Some(0.0),
                device == "gpu",
                "{replay}: {submitting:?} µs"
            );
        }
    }
}

#[test]
fn times_every_command() {
    let bench = |format| {
        tabla(&[
            "bench",
            "--device",
            "cpu",
            "-p",
            "8",
            "-n",
            "4",
            "-r",
            "2",
            "--commands",
            "--format",
            format,
        ])
    };
    let text = bench("md");
    assert!(text.text().contains("tg4, ") && text.text().contains("argmax"));
    let objects = bench("json").json();
    assert!(objects[0]["peak_int8_per_second"].as_f64() > Some(0.0));
    let table = tabla(&["table", "--device", "cpu", "--json"]).json();
    let commands = objects[1]["commands"].as_array().expect("an array");
    let counts = |key: &'static str| {
        let count = move |g: &Value| g[key].as_u64().expect("a count");
        commands.iter().map(count)
    };
    let all: u64 = counts("commands").sum();
    let table = table.as_array().expect("an array").iter();
    let pass = table.filter(|c| c["stage"].is_null() || c["stage"] == "greedy");
    assert_eq!(all, pass.count() as u64);
    // Two repetitions of four tokens, one pass each.
    let runs = counts("commands").map(|n| 8 * n);
    assert!(counts("runs").eq(runs), "{commands:?}");
    let seconds = |g: &Value| g["seconds"].as_f64() > Some(0.0);
    assert!(commands.iter().all(seconds), "{commands:?}");
    assert_eq!(bench("csv").text().lines().count(), 3);
}

#[test]
fn measures_parallel_sequences() {
    let args = [
        "bench", "--device", "cpu", "-npl", "1,3", "-ntg", "4", "-r", "1", "--format", "json",
    ];
    let objects = tabla(&args).json();
    assert_eq!(objects.as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&objects[0]["test"], &objects[1]["test"]),
        (&"tg4".into(), &"tg4 x3".into())
    );
    assert_eq!(objects[1]["n_parallel"], 3);
    assert_eq!(objects[1]["computed_tokens"], Value::from(vec![12]));
    let [tokens, seconds] = ["avg_ts", "avg_ns"].map(|name| objects[1][name].as_f64());
    let count = tokens.expect("a number") * seconds.expect("a number") / 1e9;
    assert!((count - 12.0).abs() < 1e-3, "{count} tokens");
}
