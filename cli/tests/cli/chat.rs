//! Tests of `tabla chat`, with pipes and on a terminal.

use super::{Scratch, check_failure, program, tabla, tabla_with_input};
use serde_json::{Value, json};
use std::io::{BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A template whose prompt is the contents of all messages.
const PLAIN: &str = "{% for m in messages %}{{ m.content }} {% endfor %}";

/// Arguments of a greedy chat with short responses.
const CHAT: [&str; 10] = [
    "chat",
    "--device",
    "cpu",
    "--temp",
    "0",
    "-n",
    "6",
    "-q",
    "--chat-template",
    PLAIN,
];

/// Returns the saved messages after these input lines.
fn saved(lines: &[&str]) -> Value {
    let file = Scratch::new(&format!("talk-{}.json", lines.len()));
    let text = format!("{}\n/save {}\n", lines.join("\n"), file.path());
    let ran = tabla_with_input(&CHAT, &text);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let text = std::fs::read_to_string(&file.path).expect("saved file");
    serde_json::from_str(&text).expect("valid JSON")
}

/// Returns role and content of the saved messages.
fn messages(saved: &Value) -> Vec<(String, String)> {
    let messages = saved["messages"].as_array().expect("messages").iter();
    let text = |value: &Value| value.as_str().expect("a string").to_string();
    messages
        .map(|message| (text(&message["role"]), text(&message["content"])))
        .collect()
}

#[test]
fn responds_to_one_message_or_to_lines() {
    let common = ["chat", "--device", "cpu", "--temp", "0", "-n", "4", "-q"];
    let with = |more: &[&'static str]| {
        let mut args = common.to_vec();
        args.extend(more);
        args
    };
    let once = tabla(&with(&["--chat-template", "alpaca", "-p", "Hi"]));
    assert!(once.text().ends_with('\n') && once.text().len() > 1);
    assert_eq!(once.stderr, "");
    let lines = with(&["--chat-template", "alpaca", "--system-prompt", "Be brief."]);
    let ran = tabla_with_input(&lines, "Hi\n\nAnd then?\n");
    assert!(ran.text().lines().count() >= 2, "{}", ran.text());

    // The template as source and as a file.
    let source = "{{ messages[-1].content }} there was {{ who }}";
    let more = ["-p", "Once", "--chat-template-kwargs", r#"{"who": "a"}"#];
    let by_source = tabla(&with(&[&["--chat-template", source][..], &more].concat()));
    let file = Scratch::with_bytes("template.jinja", source.as_bytes());
    let mut args: Vec<&str> = common.to_vec();
    args.extend(["--chat-template", file.path()]);
    args.extend(more);
    assert_eq!(by_source.text(), tabla(&args).text());
}

#[test]
fn rejects_missing_and_invalid_templates() {
    let none = tabla(&["chat", "--device", "cpu", "-p", "Hi"]);
    assert_eq!(none.code, Some(1));
    assert!(
        none.stderr.contains("has no chat template"),
        "{}",
        none.stderr
    );
    assert!(none.stderr.contains("chatml"), "{}", none.stderr);
    let args = [
        "chat",
        "--device",
        "cpu",
        "-p",
        "Hi",
        "--chat-template",
        "chatlm",
    ];
    let wrong = tabla(&args);
    assert!(
        wrong.stderr.contains("unknown chat template"),
        "{}",
        wrong.stderr
    );
    let args = ["chat", "--chat-template-kwargs", "[]"];
    assert_eq!(tabla(&args).code, Some(2));
}

#[test]
fn edits_and_regenerates_turns() {
    let two = messages(&saved(&["/system Be brief.", "Once upon", "There was"]));
    let roles: Vec<&str> = two.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    // Removed turns do not affect later responses.
    for lines in [
        &[
            "/system Be brief.",
            "Once upon",
            "A cat sat",
            "/undo",
            "There was",
        ][..],
        &[
            "/system Be brief.",
            "No",
            "No, no",
            "/edit 1",
            "Once upon",
            "There was",
        ],
        &[
            "/system Be brief.",
            "No",
            "/reset",
            "Once upon",
            "There was",
            "/regen",
        ],
        &[
            "Once upon",
            "/undo 1",
            "/system Be brief.",
            "Once upon",
            "There was",
        ],
    ] {
        assert_eq!(messages(&saved(lines)), two, "{lines:?}");
    }
    let none = messages(&saved(&["/system Be brief.", "Once upon", "/system"]));
    assert_eq!(none.len(), 2);
    assert_eq!(none[0].0, "user");
    assert_eq!(messages(&saved(&["//help me"]))[0].1, "/help me");
}

#[test]
fn continues_a_loaded_chat() {
    let whole = saved(&["Once upon", "There was"]);
    let half = saved(&["Once upon"]);
    let file = Scratch::with_bytes("half.json", half.to_string().as_bytes());
    let load = format!("/load {}", file.path());
    assert_eq!(saved(&["Else", &load, "There was"]), whole);
    // An invalid file is an error, which ends a chat without a terminal.
    let invalid = json!({ "messages": [{ "role": "user", "content": "a" }, { "role": "root", "content": "b" }] });
    let invalid = Scratch::with_bytes("invalid.json", invalid.to_string().as_bytes());
    let lines = format!("Once upon\n/load {}\nThere was\n", invalid.path());
    let rejected = tabla_with_input(&CHAT, &lines);
    assert_eq!(rejected.code, Some(1));
    assert!(
        rejected.stderr.contains("message 1: unsupported role"),
        "{}",
        rejected.stderr
    );
    check_failure(
        &tabla_with_input(&CHAT, "/load no such file\n"),
        "cannot read",
    );
    check_failure(
        &tabla_with_input(&CHAT, "/save no/such/folder.json\n"),
        "cannot save",
    );
    check_failure(
        &tabla_with_input(&CHAT, "/undo\n"),
        "the chat has no messages",
    );
    check_failure(&tabla_with_input(&CHAT, "/hlep\n"), "unknown command");
}

#[test]
fn regenerates_with_another_seed() {
    let args = [
        "chat",
        "--device",
        "cpu",
        "-s",
        "7",
        "-n",
        "12",
        "-q",
        "--chat-template",
        PLAIN,
    ];
    let lines = "Once upon a time\n/regen\n";
    let ran = tabla_with_input(&args, lines);
    let answers: Vec<&str> = ran.text().lines().collect();
    assert!(
        answers.len() >= 2 && answers[0] != answers[1],
        "{answers:?}"
    );
    assert_eq!(ran.text(), tabla_with_input(&args, lines).text());
}

#[test]
fn saves_reasoning_separately() {
    // The prompt starts reasoning that the model does not end.
    let thinks = "{# <think></think> #}{{ messages[-1].content }}<think>";
    let file = Scratch::new("reasoning.json");
    let lines = format!("Once upon a time\n/save {}\n", file.path());
    let mut args = CHAT;
    args[9] = thinks;
    let ran = tabla_with_input(&args, &lines);
    assert!(!ran.text().contains('\x1b'), "a pipe gets no colors");
    let text = std::fs::read_to_string(&file.path).expect("saved file");
    let saved: Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(saved["messages"][1]["content"], "");
    let reasoning = saved["messages"][1]["reasoning_content"].as_str();
    assert_eq!(reasoning.map(str::trim), Some(ran.text().trim()));
}

/// A pseudo-terminal with a running chat.
struct Terminal {
    child: std::process::Child,
    seen: std::sync::mpsc::Receiver<u8>,
    text: String,
}

impl Terminal {
    /// Starts the program with `script`, which provides the terminal. `None` if there is no `script`.
    fn new(args: &[&str]) -> Option<Self> {
        let tabla = program(args);
        let quoted = std::iter::once(tabla.get_program()).chain(tabla.get_args());
        let quoted = quoted.map(|arg| format!("'{}'", arg.to_str().expect("UTF-8 argument")));
        let quoted: Vec<String> = quoted.collect();
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", &quoted.join(" "), "/dev/null"]);
        command.envs(
            tabla
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        command.env("TERM", "xterm").env_remove("NO_COLOR");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = child else {
            let _ = writeln!(
                std::io::stderr().lock(),
                "SKIPPED: `script` is not installed"
            );
            return None;
        };
        let stdout = child.stdout.take().expect("piped stream");
        let (send, seen) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let bytes = BufReader::new(stdout).bytes().map_while(Result::ok);
            // The receiver is dropped at the end of the test.
            bytes
                .take_while(|byte| send.send(*byte).is_ok())
                .for_each(drop);
        });
        let text = String::new();
        Some(Self { child, seen, text })
    }

    fn write(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().expect("piped stream");
        stdin.write_all(keys.as_bytes()).expect("open stdin");
    }

    /// Waits for this output after the previously expected output.
    fn expect(&mut self, expected: &str) {
        let mut bytes = Vec::new();
        while !String::from_utf8_lossy(&bytes).contains(expected) {
            let byte = self.seen.recv_timeout(Duration::from_secs(60));
            let shown = String::from_utf8_lossy(&bytes);
            bytes.push(byte.unwrap_or_else(|_| panic!("no {expected:?} in {shown:?}")));
        }
        self.text.push_str(&String::from_utf8_lossy(&bytes));
    }

    fn code(mut self) -> Option<i32> {
        self.child.wait().expect("program exits").code()
    }
}

#[test]
fn ctrl_c_stops_the_response_and_then_the_program() {
    let args = [
        "chat",
        "--device",
        "cpu",
        "--temp",
        "0",
        "-q",
        "--chat-template",
        PLAIN,
        // The response has no end: no stop token and no full context.
        "--context-shift",
        "-l",
        "0-inf",
    ];
    let Some(mut terminal) = Terminal::new(&args) else {
        return;
    };
    terminal.expect("> ");
    terminal.write("Once upon a time\r");
    terminal.expect("time");
    // More than a progress bar prints.
    (0..40).for_each(|_| terminal.expect("e"));
    terminal.write("\x03");
    terminal.expect("> ");
    terminal.write("/list\r");
    terminal.expect("  1 user      Once upon a time");
    terminal.expect("  1 assistant");
    terminal.write("/nonsense\r");
    terminal.expect("unknown command");
    terminal.expect("> ");
    terminal.write("\x03");
    assert_eq!(terminal.code(), Some(130));
}

#[test]
fn reasoning_is_dim_on_a_terminal() {
    let mut args = CHAT;
    args[9] = "{# <think></think> #}{{ messages[-1].content }}<think>";
    let Some(mut terminal) = Terminal::new(&args) else {
        return;
    };
    terminal.expect("> ");
    terminal.write("Once upon a time\r");
    terminal.expect("\x1b[2m");
    terminal.expect("The");
    terminal.expect("\x1b[0m");
    terminal.expect("> ");
    terminal.write("\x04");
    assert_eq!(terminal.code(), Some(0));
}

#[test]
fn edit_starts_with_the_removed_message() {
    let file = Scratch::new("edited.json");
    let Some(mut terminal) = Terminal::new(&CHAT) else {
        return;
    };
    terminal.expect("> ");
    terminal.write("Once upon\r");
    terminal.expect("> ");
    terminal.write("/edit\r");
    terminal.expect("> Once upon");
    terminal.write(" a time\r");
    terminal.expect("> ");
    terminal.write(&format!("/save {}\r", file.path()));
    terminal.expect("> ");
    terminal.write("\x04");
    assert_eq!(terminal.code(), Some(0));
    let text = std::fs::read_to_string(&file.path).expect("saved file");
    let saved: Value = serde_json::from_str(&text).expect("valid JSON");
    let edited = messages(&saved);
    assert_eq!(
        (edited.len(), edited[0].1.as_str()),
        (2, "Once upon a time")
    );
}

/// The answer of a model that ends within its reasoning has the format, and standard output only the answer.
#[test]
fn a_format_applies_after_reasoning() {
    let template = "{% for m in messages %}{{ m.content }} {% endfor %}<think>\n{# </think> #}";
    let tokenizer = ::tabla::tools::load_tokenizer(&::tabla::Source::BuiltIn).expect("a tokenizer");
    let bias = format!("{}+100", tokenizer.stops()[0]);
    let chat = |more: &[&str]| {
        let mut args = vec!["chat", "--device", "cpu", "--temp", "0", "-q", "-p", "Once"];
        args.extend(["--chat-template", template, "-n", "60"]);
        args.extend(more);
        let ran = tabla(&args);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.text().to_string()
    };
    let schema = r#"{"type":"boolean"}"#;
    for more in [["-l", &bias], ["--reasoning-budget", "5"]] {
        let text = chat(&[&["-j", schema][..], &more].concat());
        assert!(["true\n", "false\n"].contains(&&*text), "{text:?}");
    }
    let text = chat(&["--reasoning-budget", "3"]);
    let (reasoning, _) = text.split_once("\n</think>\n\n").expect("a marker");
    assert!(!reasoning.is_empty() && reasoning.len() < 60, "{text:?}");
}
