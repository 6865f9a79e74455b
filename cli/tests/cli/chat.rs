//! Tests of `tabla chat`, with pipes and on a terminal.

use super::{Scratch, architecture, check_failure, program, ran, tabla, tabla_with_input};
use serde_json::{Value, json};
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

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
    let (folder, _) = architecture("llama");
    let model = folder.join("model.gguf");
    let model = model.to_str().expect("UTF-8 path");
    // The model by position or by option.
    for model in [&[model][..], &["-m", model]] {
        let args = [&["chat", "--device", "cpu", "-p", "Hi"], model].concat();
        check_failure(&tabla(&args), "has no chat template");
        check_failure(&tabla(&args), "chatml");
    }
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

/// Without a model, the error has commands to continue with.
#[test]
fn explains_how_to_chat_without_a_model() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let chat = || {
        ran(program(&["chat"])
            .env("HF_HUB_CACHE", cache.path())
            .stdin(Stdio::null())
            .output()
            .expect("program starts"))
    };
    let none = chat();
    assert_eq!((none.code, none.stdout.len()), (Some(2), 0));
    let commands = |stderr: &str| stderr.matches("tabla chat -hf ").count();
    assert_eq!(commands(&none.stderr), 3, "{}", none.stderr);
    assert!(none.stderr.contains("tabla pull"), "{}", none.stderr);

    // Downloaded models that can chat come first. The first of these has no template.
    download(cache.path(), "llama");
    download(cache.path(), "gpt2");
    let one = chat();
    let position = |text: &str| one.stderr.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(position("tabla chat -hf org/gpt2:Q8_0") < position("Qwen/"));
    assert_eq!(commands(&one.stderr), 4, "{}", one.stderr);
}

/// Stores a model as `org/NAME:Q8_0` in a cache of downloads.
fn download(cache: &Path, name: &str) {
    let (model, commit) = (architecture(name).0, "0123456789".repeat(4));
    let folder = cache.join(format!("models--org--{name}"));
    let snapshot = folder.join("snapshots").join(&commit);
    for folder in [&snapshot, &folder.join("refs")] {
        std::fs::create_dir_all(folder).expect("writable folder");
    }
    std::fs::write(folder.join("refs/main"), &commit).expect("writable folder");
    let copied = std::fs::copy(model.join("model.gguf"), snapshot.join("m-Q8_0.gguf"));
    copied.expect("writable folder");
}

#[test]
fn notes_say_what_ended_a_response() {
    let chat = |more: &[&str], input: &str| {
        let common = [
            "chat",
            "--device",
            "cpu",
            "--temp",
            "0",
            "--chat-template",
            PLAIN,
        ];
        tabla_with_input(&[&common[..], more].concat(), input)
    };
    let limited = chat(&["-n", "5"], "Once upon\n");
    let note = "the response ended at the limit -n 5";
    assert!(limited.stderr.contains(note), "{}", limited.stderr);
    let quiet = chat(&["-n", "5", "-q"], "Once upon\n");
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));

    let full = chat(&["-c", "32"], "Once upon\nThere was\n");
    let note = "the context of 32 tokens is full: use /undo or /clear";
    assert!(full.stderr.contains(note), "{}", full.stderr);
    assert_eq!(full.code, Some(1));
    let error = "context size is 32: use /undo or /clear, or start with --context-shift";
    assert!(full.stderr.contains(error), "{}", full.stderr);
}

#[test]
fn asks_for_a_downloaded_model_on_a_terminal() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    download(&cache.path().join("hub"), "gpt2");
    for (answer, code) in [("1\r", 0), ("\r", 0), ("2\r", 2), ("x\r", 2)] {
        let args = ["chat", "--device", "cpu", "-n", "2"];
        let Some(mut terminal) = Terminal::with_cache(&args, 80, cache.path()) else {
            return;
        };
        terminal.expect("  1  org/gpt2:Q8_0, ");
        terminal.expect("Model [1]: ");
        terminal.write(answer);
        if code == 0 {
            terminal.expect("m-Q8_0.gguf: ");
            terminal.prompt();
            terminal.write("/bye\r");
        } else {
            // The question is repeated; Ctrl-D leaves.
            terminal.expect("expected a number of the list: 1");
            terminal.expect("Model [1]: ");
            terminal.write("\x04");
            terminal.expect("no model was selected");
        }
        assert_eq!(terminal.code(), Some(code), "{answer:?}");
    }
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
    assert_eq!(messages(&saved(&["\"\"\"a", "/b\"\"\""]))[0].1, "a\n/b");
    // Lines after the end of the chat are not read.
    let ended = tabla_with_input(&CHAT, "/clear\n/bye\n/save no/such/folder.json\n");
    assert_eq!((ended.text(), ended.stderr.as_str()), ("", ""));
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
    check_failure(&tabla_with_input(&CHAT, "/hlep\n"), "did you mean /help?");
    check_failure(&tabla_with_input(&CHAT, "\"\"\"a\n"), "at its end");
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

/// A pseudo-terminal with a running program.
pub(super) struct Terminal {
    child: std::process::Child,
    seen: std::sync::mpsc::Receiver<u8>,
    text: String,
    /// Cache folder of the program; `None`: the caller has it.
    _cache: Option<TempDir>,
}

impl Terminal {
    /// Starts the program on a terminal of 80 columns, with its own cache folder.
    fn new(args: &[&str]) -> Option<Self> {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let terminal = Self::with_cache(args, 80, cache.path())?;
        let _cache = Some(cache);
        Some(Self { _cache, ..terminal })
    }

    /// Starts the program with `script`, which provides the terminal. `None` if there is no `script`.
    pub(super) fn with_cache(args: &[&str], columns: usize, cache: &Path) -> Option<Self> {
        let tabla = program(args);
        let quoted = std::iter::once(tabla.get_program()).chain(tabla.get_args());
        let quoted = quoted.map(|arg| format!("'{}'", arg.to_str().expect("UTF-8 argument")));
        let quoted: Vec<String> = quoted.collect();
        let line = format!("stty rows 24 cols {columns}; exec {}", quoted.join(" "));
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", &line, "/dev/null"]);
        command.env("XDG_CACHE_HOME", cache);
        command.env("HF_HUB_CACHE", cache.join("hub"));
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
        let (text, _cache) = (String::new(), None);
        Some(Self {
            child,
            seen,
            text,
            _cache,
        })
    }

    pub(super) fn write(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().expect("piped stream");
        stdin.write_all(keys.as_bytes()).expect("open stdin");
    }

    /// Waits for this output after the previously expected output.
    pub(super) fn expect(&mut self, expected: &str) {
        let mut bytes = Vec::new();
        while !String::from_utf8_lossy(&bytes).contains(expected) {
            let byte = self.seen.recv_timeout(Duration::from_secs(60));
            let shown = String::from_utf8_lossy(&bytes);
            bytes.push(byte.unwrap_or_else(|_| panic!("no {expected:?} in {shown:?}")));
        }
        self.text.push_str(&String::from_utf8_lossy(&bytes));
    }

    /// Waits for the next prompt. The editor enables bracketed paste before it, and repeats the prompt
    /// when it redraws a line.
    fn prompt(&mut self) {
        self.expect("\x1b[?2004h");
        self.expect("> ");
    }

    pub(super) fn code(mut self) -> Option<i32> {
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
    terminal.prompt();
    terminal.write("Once upon a time\r");
    terminal.expect("time");
    // More than a progress bar prints.
    (0..40).for_each(|_| terminal.expect("e"));
    // A repeated Ctrl-C does not end the chat.
    terminal.write("\x03\x03");
    terminal.prompt();
    terminal.write("/list\r");
    terminal.expect("  1 user      Once upon a time");
    terminal.expect("  1 assistant");
    terminal.write("/nonsense\r");
    terminal.expect("unknown command");
    terminal.prompt();
    // On an empty line, the second one leaves. A line with text is only cleared.
    terminal.write("\x03");
    terminal.expect("press Ctrl-C again");
    terminal.prompt();
    terminal.write("/bye\x03");
    terminal.expect("/bye");
    terminal.prompt();
    terminal.write("\x03");
    terminal.expect("press Ctrl-C again");
    terminal.prompt();
    terminal.write("\x03");
    assert_eq!(terminal.code(), Some(130));
}

/// Returns the user messages that a chat has saved after these keys, each sent at a prompt.
fn typed(keys: &[&str]) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("my chat.json");
    let path = file.to_str().expect("UTF-8 path");
    let mut terminal = Terminal::new(&CHAT)?;
    for keys in keys {
        terminal.prompt();
        terminal.write(keys);
    }
    // Tab completes the command, the space after it included.
    terminal.prompt();
    terminal.write(&format!("/sav\t{path}\r"));
    // Tab completes the name of the file.
    terminal.prompt();
    terminal.write(&format!("/load {}/my\t\r", folder.path().display()));
    terminal.expect("my chat.json");
    terminal.prompt();
    terminal.write("/quit\r");
    assert_eq!(terminal.code(), Some(0));
    let text = std::fs::read_to_string(&file).expect("saved file");
    let saved: Value = serde_json::from_str(&text).expect("valid JSON");
    let users = messages(&saved).into_iter();
    let users = users.filter(|(role, _)| role == "user");
    Some(users.map(|(_, text)| text).collect())
}

#[test]
fn keys_edit_messages() {
    let keys = [
        "a dog\x03",
        "a\x1b\rcat\r",
        "\"\"\"\r/a\rbig\r\"\"\"\r",
        // Ctrl-C also clears a message of several lines.
        "\"\"\"a\rb\x03",
        // A paste with a line break is one message.
        "\x1b[200~one\ntwo\x1b[201~\r",
    ];
    if let Some(messages) = typed(&keys) {
        assert_eq!(messages, ["a\ncat", "/a\nbig", "one\ntwo"]);
    }
}

#[test]
fn a_chat_recalls_lines_of_earlier_chats() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let history = cache.path().join("tabla/chat_history");
    let start = |more: &[&str]| {
        let mut terminal = Terminal::with_cache(&[&CHAT[..], more].concat(), 80, cache.path())?;
        terminal.prompt();
        Some(terminal)
    };
    let Some(mut first) = start(&[]) else {
        return;
    };
    first.write("Once upon\x1b\ra time\r");
    first.prompt();
    first.write("/bye\r");
    assert_eq!(first.code(), Some(0));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let metadata = history.metadata().expect("a history");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }
    let mut second = start(&[]).expect("a terminal");
    second.write("\x1b[A");
    second.expect("/bye");
    second.write("\x1b[A");
    second.expect("Once upon");
    second.write("\x03");
    second.prompt();
    second.write("\x04");
    assert_eq!(second.code(), Some(0));

    // Without a history, no line of it is recalled and no line is added.
    let before = std::fs::read(&history).expect("a history");
    let mut third = start(&["--no-history"]).expect("a terminal");
    third.write("\x1b[A/list\r");
    third.expect("/list");
    third.prompt();
    third.write("\x04");
    assert_eq!(third.code(), Some(0));
    assert_eq!(std::fs::read(&history).expect("a history"), before);

    // The history is bounded; lines of a pipe are not added.
    let lines: String = (0..5000).map(|n| format!("line {n}\n")).collect();
    std::fs::write(&history, format!("#V2\n{lines}")).expect("writable folder");
    let piped = program(&CHAT)
        .env("XDG_CACHE_HOME", cache.path())
        .stdin(Stdio::null())
        .status();
    assert!(piped.expect("program starts").success());
    assert_eq!(
        std::fs::read(&history).expect("a history").len(),
        lines.len() + 4
    );
    let mut last = start(&[]).expect("a terminal");
    last.write("/list\r");
    last.prompt();
    last.write("/exit\r");
    assert_eq!(last.code(), Some(0));
    let text = std::fs::read_to_string(&history).expect("a history");
    let kept: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(kept.len(), 1000);
    assert_eq!((kept[0], kept[999]), ("line 4002", "/exit"));
}

/// A damaged history is reported and does not end the chat.
#[test]
fn a_chat_continues_without_a_history() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir_all(cache.path().join("tabla/chat_history")).expect("writable folder");
    let args: Vec<&str> = CHAT.into_iter().filter(|arg| *arg != "-q").collect();
    let Some(mut terminal) = Terminal::with_cache(&args, 80, cache.path()) else {
        return;
    };
    terminal.expect("cannot read the chat history");
    terminal.prompt();
    terminal.write("/bye\r");
    assert_eq!(terminal.code(), Some(0));
}

#[test]
fn lines_break_between_words_on_a_terminal() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let mut args = CHAT;
    args[6] = "90";
    let Some(mut terminal) = Terminal::with_cache(&args, 40, cache.path()) else {
        return;
    };
    let piped = tabla_with_input(&args, "Once upon a time\n");
    let expected: Vec<&str> = piped.text().split_whitespace().collect();
    assert!(expected.len() > 30, "{expected:?}");
    terminal.prompt();
    terminal.write("Once upon a time\r");
    terminal.expect("time\u{1b}[?2004l\r\n");
    terminal.text.clear();
    terminal.expect("\u{1b}[?2004h");
    let shown = terminal.text.replace("\u{1b}[?2004h", "");
    let shown = shown.trim_end();
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), expected);
    let lengths: Vec<usize> = shown.lines().map(|line| line.trim_end().len()).collect();
    assert!(
        lengths.len() > 5 && lengths.iter().all(|length| *length < 40),
        "{shown:?}"
    );
    terminal.expect("> ");
    terminal.write("\x04");
    assert_eq!(terminal.code(), Some(0));
}

#[test]
fn the_banner_names_the_model() {
    let args: Vec<&str> = CHAT.into_iter().filter(|arg| *arg != "-q").collect();
    let Some(mut terminal) = Terminal::new(&args) else {
        return;
    };
    terminal.expect("built-in story model: ");
    terminal.expect("context ");
    terminal.expect("/? for commands");
    terminal.prompt();
    terminal.write("/?\r");
    terminal.expect("/help, /?");
    terminal.prompt();
    terminal.write("\x04");
    assert_eq!(terminal.code(), Some(0));
    let mut quiet = Terminal::new(&CHAT).expect("a terminal");
    quiet.prompt();
    assert!(!quiet.text.contains("/? for commands"), "{}", quiet.text);
    quiet.write("\x04");
    assert_eq!(quiet.code(), Some(0));
    let piped = tabla_with_input(&args, "/list\n");
    assert!(
        !piped.stderr.contains("/? for commands"),
        "{}",
        piped.stderr
    );
}

#[test]
fn reasoning_is_dim_on_a_terminal() {
    let mut args = CHAT;
    args[9] = "{# <think></think> #}{{ messages[-1].content }}<think>";
    let Some(mut terminal) = Terminal::new(&args) else {
        return;
    };
    terminal.prompt();
    terminal.write("Once upon a time\r");
    terminal.expect("\x1b[2m");
    terminal.expect("The");
    terminal.expect("\x1b[0m");
    terminal.prompt();
    terminal.write("\x04");
    assert_eq!(terminal.code(), Some(0));
}

#[test]
fn edit_starts_with_the_removed_message() {
    let file = Scratch::new("edited.json");
    let Some(mut terminal) = Terminal::new(&CHAT) else {
        return;
    };
    terminal.prompt();
    terminal.write("Once upon\r");
    terminal.prompt();
    terminal.write("/edit\r");
    terminal.expect("> Once upon");
    terminal.write(" a time\r");
    terminal.prompt();
    terminal.write(&format!("/save {}\r", file.path()));
    terminal.prompt();
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
