//! Tests of the habits of users of llama.cpp: spellings, special values and escapes.

use super::{Scratch, tabla};

/// Runs the story model on the CPU.
fn run(args: &[&str]) -> super::Ran {
    tabla(&[&["run", "--device", "cpu", "-p", "Once"], args].concat())
}

#[test]
fn options_without_an_effect_print_a_note() {
    let args = [
        "-n", "2", "-ngl", "99", "-fa", "on", "--jinja", "-b", "512", "-s", "-1", "-t", "-1",
    ];
    let ran = run(&args);
    assert!(!ran.text().is_empty());
    for shown in ["-ngl 99", "-fa on", "--jinja", "-b 512"] {
        let note = format!("note: {shown} has no effect: ");
        assert!(ran.stderr.contains(&note), "{shown}: {}", ran.stderr);
    }
    let quiet = run(&[&args[..], &["-q"]].concat());
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
}

#[test]
fn options_without_a_counterpart_are_refused() {
    for (args, expected) in [
        (&["-ts", "3,1"][..], "error: -ts is not supported: "),
        (&["-hff", "x.gguf"], "write -hf ORG/REPO:FILE"),
        (&["-sys", "Be brief."], "use `tabla chat`"),
        (
            &["-ctk", "q8_0", "-ctv", "f16"],
            "keys and values have one type",
        ),
        (&["-mmodel.gguf"], "write -m model.gguf"),
        (&["-c", "-3"], "-3"),
    ] {
        let ran = run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn zero_layers_on_the_gpu_are_the_cpu() {
    let ran = tabla(&["run", "-ngl", "0", "-n", "1", "-t", "1", "--json"]);
    let device = ran.json()["device"].clone();
    let device = device.as_str().expect("a device").to_string();
    assert!(device.ends_with(" 1 thread)"), "{device}");
}

#[test]
fn escapes_are_replaced_on_request() {
    let file = Scratch::with_bytes("prompt.txt", b"one\\ntwo\n");
    let prompt = |args: &[&str]| {
        let args = [&["run", "--device", "cpu", "-n", "1", "--json"], args].concat();
        tabla(&args).json()["prompt_tokens"].clone()
    };
    let lines = prompt(&["-p", "one\ntwo"]);
    assert_eq!(prompt(&["-e", "-p", "one\\ntwo"]), lines);
    assert_eq!(prompt(&["-e", "-f", file.path()]), lines);
    assert_ne!(prompt(&["-p", "one\\ntwo"]), lines);
    assert_ne!(prompt(&["--no-escape", "-p", "one\\ntwo"]), lines);
}

#[test]
fn reverse_prompts_are_stop_strings() {
    let args = ["--temp", "0", "-n", "24"];
    let ran = run(&args);
    let text = ran.text().to_string();
    let word = text.split_whitespace().nth(3).expect("four words");
    let before = text.find(word).expect("the word");
    let stopped = run(&[&args[..], &["-r", word]].concat());
    assert_eq!(stopped.text(), &text[..before]);
}

#[test]
fn minus_two_tokens_fill_the_context() {
    let full = [
        "-n",
        "-2",
        "-c",
        "32",
        "--ignore-eos",
        "--context-shift",
        "--json",
    ];
    assert_eq!(run(&full).json()["finish"], "context");
}

#[test]
fn a_context_of_0_is_the_training_context() {
    let model = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/golden/arch/gemma3_nested/model.gguf"
    );
    let context = |args: &[&str]| {
        let inspect = ["inspect", "--device", "cpu", "--json", model];
        let object = tabla(&[&inspect[..], args].concat()).json();
        let trained = &object["metadata"]["gemma3.context_length"]["value"];
        (object["memory"]["context"].clone(), trained.clone())
    };
    let (zero, trained) = context(&["-c", "0"]);
    assert_eq!(zero, trained);
    assert!(trained.as_u64() > Some(4096), "{trained}");
    assert_eq!(context(&[]).0, 4096);
}

#[test]
fn every_command_has_quiet() {
    let ran = tabla(&[
        "bench", "--device", "cpu", "-p", "4", "-n", "0", "-r", "1", "--quiet",
    ]);
    assert!(ran.text().contains("pp4"));
    assert_eq!(ran.stderr, "");
    let failed = tabla(&["inspect", "-q", "/no/such/model.gguf"]);
    assert_eq!(failed.code, Some(1));
    assert!(failed.stderr.starts_with("error: "), "{}", failed.stderr);
}
