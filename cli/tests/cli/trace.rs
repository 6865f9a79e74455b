//! Tests of `tabla trace`, and of command timings on a GPU.

use super::{Scratch, tabla};
use serde_json::Value;

/// Returns the devices of this machine, including software GPUs.
pub(super) fn devices() -> Vec<&'static str> {
    let devices = tabla(&["devices", "--json"]).json();
    let gpus = devices["gpus"].as_array().map_or(0, Vec::len);
    assert!(gpus > 0 || std::env::var_os("TABLA_REQUIRE_GPU").is_none());
    let all = ["cpu", "gpu"];
    all[..1 + usize::from(gpus > 0)].to_vec()
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn trace_nests_commands_in_layers() {
    for device in devices() {
        let file = Scratch::new(&format!("trace-{device}.json"));
        let out = file.path.to_str().expect("UTF-8 path");
        let args = [
            "trace", "--device", device, "-p", "The fox", "-n", "3", "-o", out,
        ];
        let text = tabla(&args).text().to_string();
        assert!(text.contains("3 generated tokens, ") && text.contains("GB/s"));
        let trace = std::fs::read_to_string(&file.path).expect("output file");
        let trace: Value = serde_json::from_str(&trace).expect("valid JSON");
        let events = trace["traceEvents"].as_array().expect("an array");
        let of = |key: &'static str, value: &'static str| {
            events.iter().filter(move |event| event[key] == value)
        };
        assert_eq!(of("ph", "M").count(), 3, "{device}");
        assert_eq!(of("cat", "host").count(), 4, "a prompt and three tokens");
        let prompt = |event: &&Value| event["args"]["table"] == "batch";
        let prompt = of("ph", "X").filter(prompt).count();
        assert!(prompt > 0, "{device}: the prompt is in the trace");

        // The first token is sampled after the prompt; each other one takes a whole pass.
        let table = tabla(&["table", "--device", device, "--json"]).json();
        let table = table.as_array().expect("an array").iter();
        let pass = table.filter(|c| c["stage"].is_null() || c["stage"] == "greedy");
        let first = pass.clone().filter(|c| c["stage"] == "greedy");
        let expected: Vec<&Value> = first.chain(pass.clone()).chain(pass).collect();
        let steps =
            |event: &&Value| !event["args"]["kernel"].is_null() && event["args"]["table"] == "step";
        let commands: Vec<&Value> = of("ph", "X").filter(steps).collect();
        assert_eq!(commands.len(), expected.len(), "{device}");
        for (event, command) in commands.iter().zip(expected) {
            assert_eq!(event["name"], command["label"]);
            assert_eq!(event["args"]["kernel"], command["kernel"]);
            let layer = &event["args"]["layer"];
            let inside = of("cat", "layer").any(|span| {
                let end = |e: &Value| number(&e["ts"]) + number(&e["dur"]);
                span["name"] == format!("layer {layer}").as_str()
                    && number(&span["ts"]) <= number(&event["ts"])
                    && end(span) + 1e-3 > end(event)
            });
            assert!(layer.is_null() || inside, "{device}: {event}");
        }
        for pair in commands.windows(2) {
            let [before, after] = [pair[0], pair[1]];
            let end = number(&before["ts"]) + number(&before["dur"]);
            let next = number(&after["ts"]);
            assert!(end <= next + 1e-3, "{device}: {before}, {after}");
        }
    }
}

#[test]
fn times_commands_on_every_device_and_replay() {
    for device in devices() {
        for replay in ["auto", "encoded"] {
            let args = [
                "bench",
                "--device",
                device,
                "--replay",
                replay,
                "-p",
                "0",
                "-n",
                "4",
                "-r",
                "1",
                "--commands",
                "--format",
                "json",
            ];
            let objects = tabla(&args).json();
            let commands = objects[0]["commands"].as_array().expect("an array");
            let timed = |g: &Value| number(&g["seconds"]) > 0.0 && g["runs"].as_u64() >= Some(4);
            assert!(
                commands.iter().all(timed),
                "{device}, {replay}: {commands:?}"
            );
            assert_eq!(
                objects[0]["peak_int8_per_second"].is_null(),
                device == "gpu"
            );
        }
    }
}

#[test]
fn unwritable_trace_is_an_error() {
    let ran = tabla(&[
        "trace",
        "--device",
        "cpu",
        "-n",
        "1",
        "-o",
        "no/such/folder/t.json",
    ]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("cannot write no/such/folder/t.json"),
        "{}",
        ran.stderr
    );
}
