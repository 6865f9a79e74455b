//! The input lines of a chat: messages and commands.

use crate::output::{Failure, wrap};
use std::path::PathBuf;

/// The commands and their descriptions, for `/help`, completion and `docs/cli.md`.
pub(crate) const COMMANDS: [(&str, &str); 11] = [
    ("/help, /?", "show this list"),
    ("/list", "list the messages with their turn numbers"),
    (
        "/system [TEXT]",
        "set the system message; without TEXT, remove it",
    ),
    ("/regen", "regenerate the last response with another seed"),
    (
        "/undo [N]",
        "remove turn N and later turns [default: the last turn]",
    ),
    (
        "/edit [N]",
        "the same as /undo, then edit the removed message",
    ),
    (
        "/reset, /clear",
        "remove all messages except the system message",
    ),
    ("/save FILE", "save the messages as JSON"),
    ("/load FILE", "replace the messages by those of a file"),
    ("/exit, /quit, /bye", "leave the chat"),
    ("//TEXT", "send a message that starts with a slash"),
];

/// The keys of a chat, for `/help` and `docs/cli.md`.
pub(crate) const KEYS: [(&str, &str); 6] = [
    (
        "Ctrl-C",
        "stop the response; clear the line; on an empty line, leave with the second Ctrl-C",
    ),
    ("Ctrl-D", "leave the chat, on an empty line"),
    ("Alt-Enter", "insert a line break"),
    ("\"\"\"", "begin and end a message of several lines"),
    ("Tab", "complete a command, or the file of /save and /load"),
    ("Up, Down, Ctrl-R", "recall earlier lines, or search them"),
];

/// Minimum similarity of a suggested name, as for the options of the program.
const SIMILARITY_MIN: f64 = 0.7;

/// Quotes around a message of several lines.
const QUOTES: &str = "\"\"\"";

/// Columns of the names in `/help`.
const NAME_COLUMNS: usize = 20;

/// Returns the lines of `/help` for a terminal of this width.
pub(super) fn help(columns: Option<usize>) -> impl Iterator<Item = String> {
    let rows = COMMANDS.iter().chain(&KEYS);
    rows.map(move |(name, description)| {
        let row = format!("{name:<NAME_COLUMNS$}{description}");
        wrap::indented(&row, columns, NAME_COLUMNS)
    })
}

/// Returns the names of the commands with their slashes.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let rows = COMMANDS.iter().filter(|row| !row.0.starts_with("//"));
    rows.flat_map(|row| row.0.split(", "))
        .filter_map(|name| name.split(' ').next())
}

/// A parsed input line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Message(String),
    Help,
    List,
    System(String),
    Regenerate,
    Undo(Option<usize>),
    Edit(Option<usize>),
    Reset,
    Save(PathBuf),
    Load(PathBuf),
    Exit,
}

impl Command {
    /// Parses a line. Lines that start with a slash are commands, `//` escapes the slash. Text in quotes
    /// is a message.
    pub(super) fn parse(line: &str) -> Result<Self, Failure> {
        if let Some(quoted) = line.strip_prefix(QUOTES) {
            return unquote(quoted).map(Self::Message);
        }
        let Some(command) = line.strip_prefix('/') else {
            return Ok(Self::Message(line.to_string()));
        };
        if command.starts_with('/') {
            return Ok(Self::Message(command.to_string()));
        }
        let (name, rest) = command
            .split_once(char::is_whitespace)
            .unwrap_or((command, ""));
        let rest = rest.trim();
        let without_argument = |command| match rest {
            "" => Ok(command),
            _ => Err(Failure::new(format!("/{name} takes no argument"))),
        };
        match name {
            "help" | "?" => without_argument(Self::Help),
            "list" => without_argument(Self::List),
            "regen" => without_argument(Self::Regenerate),
            "reset" | "clear" => without_argument(Self::Reset),
            "exit" | "quit" | "bye" => without_argument(Self::Exit),
            "system" => Ok(Self::System(rest.to_string())),
            "undo" => turn(rest).map(Self::Undo),
            "edit" => turn(rest).map(Self::Edit),
            "save" => file(name, rest).map(Self::Save),
            "load" => file(name, rest).map(Self::Load),
            _ => Err(Failure::new(unknown(name))),
        }
    }
}

/// Whether the line starts a quoted message that it does not end.
pub(super) fn is_open(line: &str) -> bool {
    line.strip_prefix(QUOTES)
        .is_some_and(|quoted| !quoted.trim_end().ends_with(QUOTES))
}

/// Removes the closing quotes, and the line breaks next to quotes on their own lines.
fn unquote(quoted: &str) -> Result<String, Failure> {
    let Some(text) = quoted.trim_end().strip_suffix(QUOTES) else {
        return Err(Failure::new(format!(
            "the message starts with {QUOTES} and has no {QUOTES} at its end"
        )));
    };
    let text = text.strip_prefix('\n').unwrap_or(text);
    Ok(text.strip_suffix('\n').unwrap_or(text).to_string())
}

/// Returns the error of an unknown command, with the most similar one.
fn unknown(name: &str) -> String {
    let similarity = |other: &str| strsim::jaro_winkler(name, &other[1..]);
    let similar = names().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let similar = similar.filter(|other| similarity(other) >= SIMILARITY_MIN);
    let suggestion = match similar {
        Some(similar) => format!("did you mean {similar}? "),
        None => String::new(),
    };
    format!(
        "unknown command /{name}: {suggestion}/help lists the commands, //{name} sends it as a message"
    )
}

fn turn(text: &str) -> Result<Option<usize>, Failure> {
    match text {
        "" => Ok(None),
        number => match number.parse() {
            Ok(turn) => Ok(Some(turn)),
            Err(_) => Err(Failure::new(format!("invalid turn number {number:?}"))),
        },
    }
}

fn file(name: &str, path: &str) -> Result<PathBuf, Failure> {
    match path {
        "" => Err(Failure::new(format!("/{name} needs a file name"))),
        path => Ok(PathBuf::from(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_messages_and_commands() {
        let message = |text: &str| Command::Message(text.to_string());
        for (line, expected) in [
            ("Hi /help", message("Hi /help")),
            (" /help", message(" /help")),
            ("//help me", message("/help me")),
            ("/help", Command::Help),
            ("/undo", Command::Undo(None)),
            ("/edit  2 ", Command::Edit(Some(2))),
            (
                "/system  Be brief. ",
                Command::System("Be brief.".to_string()),
            ),
            ("/system", Command::System(String::new())),
            ("/save a b.json", Command::Save(PathBuf::from("a b.json"))),
            ("/?", Command::Help),
            ("/clear", Command::Reset),
            ("/exit", Command::Exit),
            ("/quit ", Command::Exit),
            ("/bye", Command::Exit),
            ("\"\"\"a\"\"\"", message("a")),
            ("\"\"\"\n/a\n\nb\n\"\"\"", message("/a\n\nb")),
            ("\"\"\"a\nb\"\"\" ", message("a\nb")),
            ("\"\"\"\"\"\"", message("")),
        ] {
            assert_eq!(Command::parse(line).expect(line), expected);
        }
        for line in [
            "/",
            "/hlep",
            "/undo x",
            "/undo -1",
            "/save",
            "/load ",
            "/reset all",
            "/bye now",
            "\"\"\"",
            "\"\"\"a",
            "\"\"\"\"",
        ] {
            assert!(Command::parse(line).is_err(), "{line}");
        }
    }

    fn error(line: &str) -> String {
        match Command::parse(line) {
            Err(Failure::Program { message, .. }) => message,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn help_lists_known_commands() {
        assert_eq!(names().count(), 14);
        for name in names() {
            assert!(!error(name).contains("unknown command"), "{name}");
        }
    }

    #[test]
    fn unknown_commands_have_a_suggestion() {
        for (line, suggestion) in [
            ("/hlep", "did you mean /help?"),
            ("/sav a.json", "did you mean /save?"),
            ("/quit!", "did you mean /quit?"),
        ] {
            assert!(error(line).contains(suggestion), "{line}: {}", error(line));
        }
        let other = error("/zzz");
        assert!(
            !other.contains("did you mean") && other.contains("//zzz"),
            "{other}"
        );
    }

    #[test]
    fn quotes_continue_a_message() {
        for open in ["\"\"\"", "\"\"\"a", "\"\"\"\"", "\"\"\"a\n\"\""] {
            assert!(is_open(open), "{open:?}");
        }
        for closed in ["", "a", "a\"\"\"", "\"\"\"\"\"\"", "\"\"\"a\nb\"\"\" "] {
            assert!(!is_open(closed), "{closed:?}");
        }
    }
}
