//! The input lines of a chat: messages and commands.

use crate::output::Failure;
use std::path::PathBuf;

/// The commands and their descriptions, for `/help` and `docs/cli.md`.
pub(crate) const COMMANDS: [(&str, &str); 10] = [
    ("/help", "show this list"),
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
    ("/reset", "remove all messages except the system message"),
    ("/save FILE", "save the messages as JSON"),
    ("/load FILE", "replace the messages by those of a file"),
    ("//TEXT", "send a message that starts with a slash"),
];

/// The keys of a chat, for `/help` and `docs/cli.md`.
pub(crate) const KEYS: &str = "Ctrl-C stops a response, or exits if there is none; Ctrl-D exits.";

/// Returns the lines of `/help`.
pub(super) fn help() -> impl Iterator<Item = String> {
    let commands = COMMANDS.iter();
    commands
        .map(|(command, description)| format!("{command:<14} {description}"))
        .chain([KEYS.to_string()])
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
}

impl Command {
    /// Parses a line. Lines that start with a slash are commands, `//` escapes the slash.
    pub(super) fn parse(line: &str) -> Result<Self, Failure> {
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
            "help" => without_argument(Self::Help),
            "list" => without_argument(Self::List),
            "regen" => without_argument(Self::Regenerate),
            "reset" => without_argument(Self::Reset),
            "system" => Ok(Self::System(rest.to_string())),
            "undo" => turn(rest).map(Self::Undo),
            "edit" => turn(rest).map(Self::Edit),
            "save" => file(name, rest).map(Self::Save),
            "load" => file(name, rest).map(Self::Load),
            _ => Err(Failure::new(format!(
                "unknown command /{name}: /help lists the commands, //{name} sends it as a message"
            ))),
        }
    }
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
        ] {
            assert!(Command::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn help_lists_known_commands() {
        for (command, _) in COMMANDS.iter().filter(|(name, _)| !name.starts_with("//")) {
            let name = command.split(' ').next().unwrap_or_default();
            let failure = Command::parse(name);
            let unknown = matches!(failure, Err(Failure::Program { message, .. })
                if message.contains("unknown command"));
            assert!(!unknown, "{name}");
        }
    }
}
