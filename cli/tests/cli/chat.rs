//! `tabla chat` as a user meets it, through pipes and at a terminal.

use super::{Scratch, check_failure, program, tabla, tabla_with_input};
use serde_json::{Value, json};
use std::io::{BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A template whose prompt is all that was said, so that answers are of it.
const PLAIN: &str = "{% for m in messages %}{{ m.content }} {% endfor %}";

/// A greedy conversation of short answers.
const TALK: [&str; 10] = [
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

/// The conversation that lines lead to.
fn saved(lines: &[&str]) -> Value {
    let file = Scratch::new(&format!("talk-{}.json", lines.len()));
    let text = format!("{}\n/save {}\n", lines.join("\n"), file.path());
    let ran = tabla_with_input(&TALK, &text);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let text = std::fs::read_to_string(&file.0).expect("it was saved");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Who said what, in the order of a saved conversation.
fn said(saved: &Value) -> Vec<(String, String)> {
    let messages = saved["messages"].as_array().expect("messages").iter();
    let text = |value: &Value| value.as_str().expect("a text").to_string();
    messages
        .map(|message| (text(&message["role"]), text(&message["content"])))
        .collect()
}

#[test]
fn a_chat_answers_once_or_line_by_line() {
    let common = ["chat", "--device", "cpu", "--temp", "0", "-n", "4", "-q"];
    let with = |more: &[&'static str]| {
        let mut args = common.to_vec();
        args.extend(more);
        args
    };
    let once = tabla(&with(&["--chat-template", "alpaca", "-p", "Hi"]));
    assert!(once.text().ends_with('\n') && once.text().len() > 1);
    assert_eq!(once.stderr, "");
    let lines = with(&["--chat-template", "alpaca", "--system", "Be brief."]);
    let said = tabla_with_input(&lines, "Hi\n\nAnd then?\n");
    assert!(said.text().lines().count() >= 2, "{}", said.text());

    // The source of a template, or a file with it.
    let source = "{{ messages[-1].content }} there was {{ who }}";
    let more = ["-p", "Once", "--chat-template-kwargs", r#"{"who": "a"}"#];
    let told = tabla(&with(&[&["--chat-template", source][..], &more].concat()));
    let file = Scratch::holding("told.jinja", source.as_bytes());
    let mut args: Vec<&str> = common.to_vec();
    args.extend(["--chat-template", file.path()]);
    args.extend(more);
    assert_eq!(told.text(), tabla(&args).text());
}

#[test]
fn a_chat_says_what_it_lacks() {
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
fn turns_are_edited_and_answered_anew() {
    let two = said(&saved(&["/system Be brief.", "Once upon", "There was"]));
    let roles: Vec<&str> = two.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    // What was taken back leaves no trace in what is answered next.
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
        assert_eq!(said(&saved(lines)), two, "{lines:?}");
    }
    let none = said(&saved(&["/system Be brief.", "Once upon", "/system"]));
    assert_eq!(none.len(), 2);
    assert_eq!(none[0].0, "user");
    assert_eq!(said(&saved(&["//help me"]))[0].1, "/help me");
}

#[test]
fn a_conversation_goes_on_from_its_file() {
    let whole = saved(&["Once upon", "There was"]);
    let half = saved(&["Once upon"]);
    let file = Scratch::holding("half.json", half.to_string().as_bytes());
    let load = format!("/load {}", file.path());
    assert_eq!(saved(&["Else", &load, "There was"]), whole);
    // What is refused changes nothing, and ends who cannot see it.
    let bad = json!({ "messages": [{ "role": "user", "content": "a" }, { "role": "root", "content": "b" }] });
    let bad = Scratch::holding("bad.json", bad.to_string().as_bytes());
    let lines = format!("Once upon\n/load {}\nThere was\n", bad.path());
    let refused = tabla_with_input(&TALK, &lines);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("message 1: the role"),
        "{}",
        refused.stderr
    );
    check_failure(
        &tabla_with_input(&TALK, "/load no such file\n"),
        "cannot read",
    );
    check_failure(
        &tabla_with_input(&TALK, "/save no/such/folder.json\n"),
        "cannot save",
    );
    check_failure(&tabla_with_input(&TALK, "/undo\n"), "nothing was said");
    check_failure(&tabla_with_input(&TALK, "/hlep\n"), "no command");
}

#[test]
fn another_answer_is_drawn_with_another_seed() {
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
fn thoughts_are_kept_apart() {
    // The prompt begins a thought that the model never ends.
    let thinks = "{# <think></think> #}{{ messages[-1].content }}<think>";
    let file = Scratch::new("reasoning.json");
    let lines = format!("Once upon a time\n/save {}\n", file.path());
    let mut args = TALK;
    args[9] = thinks;
    let ran = tabla_with_input(&args, &lines);
    assert!(!ran.text().contains('\x1b'), "a pipe has no colours");
    let text = std::fs::read_to_string(&file.0).expect("it was saved");
    let saved: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(saved["messages"][1]["content"], "");
    let thought = saved["messages"][1]["reasoning_content"].as_str();
    assert_eq!(thought.map(str::trim), Some(ran.text().trim()));
}

/// A terminal that a conversation is held at: what is typed goes in, what is seen comes out.
struct Terminal {
    child: std::process::Child,
    seen: std::sync::mpsc::Receiver<u8>,
    text: String,
}

impl Terminal {
    /// By `script`, which runs a program at a terminal of its own.
    fn new(args: &[&str]) -> Option<Self> {
        let tabla = program(args);
        let quoted = std::iter::once(tabla.get_program()).chain(tabla.get_args());
        let quoted = quoted.map(|arg| format!("'{}'", arg.to_str().expect("plain")));
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
            let _ = writeln!(std::io::stderr().lock(), "SKIPPED: there is no `script`");
            return None;
        };
        let stdout = child.stdout.take().expect("it is piped");
        let (send, seen) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let bytes = BufReader::new(stdout).bytes().map_while(Result::ok);
            // Nobody looks any more where this fails.
            bytes
                .take_while(|byte| send.send(*byte).is_ok())
                .for_each(drop);
        });
        let text = String::new();
        Some(Self { child, seen, text })
    }

    fn types(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        stdin.write_all(keys.as_bytes()).expect("it listens");
    }

    /// Waits until this is seen behind what was waited for before.
    fn sees(&mut self, what: &str) {
        let mut bytes = Vec::new();
        while !String::from_utf8_lossy(&bytes).contains(what) {
            let byte = self.seen.recv_timeout(Duration::from_secs(60));
            let shown = String::from_utf8_lossy(&bytes);
            bytes.push(byte.unwrap_or_else(|_| panic!("no {what:?} in {shown:?}")));
        }
        self.text.push_str(&String::from_utf8_lossy(&bytes));
    }

    fn code(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

#[test]
fn ctrl_c_stops_the_answer_and_then_the_program() {
    let args = [
        "chat",
        "--device",
        "cpu",
        "--temp",
        "0",
        "-q",
        "--chat-template",
        PLAIN,
    ];
    let Some(mut terminal) = Terminal::new(&args) else {
        return;
    };
    terminal.sees("> ");
    terminal.types("Once upon a time\r");
    terminal.sees("time");
    // More than a bar says of the prompt.
    (0..40).for_each(|_| terminal.sees("e"));
    terminal.types("\x03");
    terminal.sees("> ");
    terminal.types("/list\r");
    terminal.sees("  1 user      Once upon a time");
    terminal.sees("  1 assistant");
    terminal.types("/nonsense\r");
    terminal.sees("no command");
    terminal.sees("> ");
    terminal.types("\x03");
    assert_eq!(terminal.code(), Some(130));
}

#[test]
fn thoughts_are_dim_at_a_terminal() {
    let mut args = TALK;
    args[9] = "{# <think></think> #}{{ messages[-1].content }}<think>";
    let Some(mut terminal) = Terminal::new(&args) else {
        return;
    };
    terminal.sees("> ");
    terminal.types("Once upon a time\r");
    terminal.sees("\x1b[2m");
    terminal.sees("The");
    terminal.sees("\x1b[0m");
    terminal.sees("> ");
    terminal.types("\x04");
    assert_eq!(terminal.code(), Some(0));
}

#[test]
fn a_turn_is_offered_to_be_edited() {
    let file = Scratch::new("edited.json");
    let Some(mut terminal) = Terminal::new(&TALK) else {
        return;
    };
    terminal.sees("> ");
    terminal.types("Once upon\r");
    terminal.sees("> ");
    terminal.types("/edit\r");
    terminal.sees("> Once upon");
    terminal.types(" a time\r");
    terminal.sees("> ");
    terminal.types(&format!("/save {}\r", file.path()));
    terminal.sees("> ");
    terminal.types("\x04");
    assert_eq!(terminal.code(), Some(0));
    let text = std::fs::read_to_string(&file.0).expect("it was saved");
    let saved: Value = serde_json::from_str(&text).expect("it is JSON");
    let edited = said(&saved);
    assert_eq!(
        (edited.len(), edited[0].1.as_str()),
        (2, "Once upon a time")
    );
}
