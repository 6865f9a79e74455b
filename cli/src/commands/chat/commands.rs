//! What may be said in a conversation: messages, and commands about it.

use crate::output::Failure;
use std::path::PathBuf;

/// What `/help` says.
pub(super) const HELP: [&str; 11] = [
    "/help          says this",
    "/list          lists the messages with the numbers of their turns",
    "/system TEXT   tells the model something in front of all messages; without a text nothing",
    "/regen         answers the last message anew",
    "/undo [N]      forgets turn N and all behind it, or the last one",
    "/edit [N]      the same, and offers what was said there to be said better",
    "/reset         forgets all but the system message",
    "/save FILE     writes the messages as JSON",
    "/load FILE     goes on from messages that were saved",
    "//TEXT         a message that begins with a stroke",
    "Ctrl-C stops an answer, and leaves where there is none; Ctrl-D leaves.",
];

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Say(String),
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
    pub(super) fn parse(line: &str) -> Result<Self, Failure> {
        let Some(command) = line.strip_prefix('/') else {
            return Ok(Self::Say(line.to_string()));
        };
        if command.starts_with('/') {
            return Ok(Self::Say(command.to_string()));
        }
        let (name, rest) = command
            .split_once(char::is_whitespace)
            .unwrap_or((command, ""));
        let rest = rest.trim();
        let alone = |command| match rest {
            "" => Ok(command),
            _ => Err(Failure::new(format!("/{name} takes nothing behind it"))),
        };
        match name {
            "help" => alone(Self::Help),
            "list" => alone(Self::List),
            "regen" => alone(Self::Regenerate),
            "reset" => alone(Self::Reset),
            "system" => Ok(Self::System(rest.to_string())),
            "undo" => turn(rest).map(Self::Undo),
            "edit" => turn(rest).map(Self::Edit),
            "save" => file(name, rest).map(Self::Save),
            "load" => file(name, rest).map(Self::Load),
            _ => Err(Failure::new(format!(
                "/{name} is no command; /help lists them, and //{name} says it to the model"
            ))),
        }
    }
}

fn turn(text: &str) -> Result<Option<usize>, Failure> {
    match text {
        "" => Ok(None),
        number => match number.parse() {
            Ok(turn) => Ok(Some(turn)),
            Err(_) => Err(Failure::new(format!("{number:?} is no number of a turn"))),
        },
    }
}

fn file(name: &str, path: &str) -> Result<PathBuf, Failure> {
    match path {
        "" => Err(Failure::new(format!("/{name} takes the name of a file"))),
        path => Ok(PathBuf::from(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        let say = |text: &str| Command::Say(text.to_string());
        for (line, expected) in [
            ("Hi /help", say("Hi /help")),
            (" /help", say(" /help")),
            ("//help me", say("/help me")),
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
    fn help_names_every_command() {
        for line in HELP.iter().filter(|line| !line.starts_with("//")) {
            let Some(name) = line.strip_prefix('/') else {
                continue;
            };
            let name = name.split(' ').next().unwrap_or_default();
            let failure = Command::parse(&format!("/{name}"));
            let unknown = matches!(failure, Err(Failure::Program { message, .. })
                if message.contains("is no command"));
            assert!(!unknown, "{name}");
        }
    }
}
