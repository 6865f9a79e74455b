//! The messages of a chat: adding and removing turns, saving and loading.
//!
//! A turn starts with a user message. Turns are numbered from 1.

use crate::args::prompt;
use crate::output::Failure;
use crate::output::terminal::counted;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::Path;
use tabla::text::AssistantMessage;

/// Maximum number of messages in a file.
const MESSAGES_MAX: usize = 100_000;

/// The messages, in the format of OpenAI's chat completions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Messages(Vec<Value>);

impl Messages {
    pub(super) fn all(&self) -> &[Value] {
        &self.0
    }

    /// Appends a user message.
    pub(super) fn push_user(&mut self, text: &str) {
        self.0.push(json!({ "role": "user", "content": text }));
    }

    /// Appends an assistant message. Reasoning goes into `reasoning_content`.
    pub(super) fn push_assistant(&mut self, answer: &AssistantMessage) {
        let mut message = json!({ "role": "assistant", "content": answer.content });
        if !answer.reasoning.is_empty() {
            message["reasoning_content"] = json!(answer.reasoning);
        }
        self.0.push(message);
    }

    /// Replaces the system message; an empty text removes it.
    pub(super) fn set_system(&mut self, text: &str) {
        let system = usize::from(self.has_system());
        self.0.drain(..system);
        if !text.is_empty() {
            self.0
                .insert(0, json!({ "role": "system", "content": text }));
        }
    }

    fn has_system(&self) -> bool {
        self.0.first().is_some_and(|first| role(first) == "system")
    }

    /// Removes all messages except the system message.
    pub(super) fn reset(&mut self) {
        self.0.truncate(usize::from(self.has_system()));
    }

    /// Indices of the user messages, which start the turns.
    fn turns(&self) -> impl DoubleEndedIterator<Item = usize> {
        let roles = self.0.iter().map(role).enumerate();
        let users: Vec<usize> = roles
            .filter(|(_, role)| *role == "user")
            .map(|(at, _)| at)
            .collect();
        users.into_iter()
    }

    /// Whether there is a user message.
    pub(super) fn has_turns(&self) -> bool {
        self.turns().next().is_some()
    }

    /// Removes a turn and all later ones; `None`: the last turn. Returns the removed user message.
    pub(super) fn undo(&mut self, turn: Option<usize>) -> Result<String, Failure> {
        let start = match turn {
            Some(turn) => turn.checked_sub(1).and_then(|at| self.turns().nth(at)),
            None => self.turns().next_back(),
        };
        let Some(at) = start else {
            let turns = self.turns().count();
            return Err(Failure::new(match turn {
                Some(turn) => format!("no turn {turn}: the chat has {}", counted(turns, "turn")),
                None => "the chat has no messages".to_string(),
            }));
        };
        let text = content(&self.0[at]).to_string();
        self.0.truncate(at);
        Ok(text)
    }

    /// Removes the response to the last user message.
    pub(super) fn remove_response(&mut self) -> Result<(), Failure> {
        let text = self.undo(None)?;
        self.push_user(&text);
        Ok(())
    }

    /// Returns a line per message: turn number, role and content.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut turn = 0;
        let line = |message: &Value| {
            let (role, content) = (role(message), content(message));
            turn += usize::from(role == "user");
            format!("{turn:3} {role:9} {content}")
        };
        self.0.iter().map(line).collect()
    }

    /// Writes the messages as JSON, to a temporary file that replaces `path`. Replaces a saved chat or an
    /// empty file only.
    pub(super) fn save(&self, path: &Path) -> Result<(), Failure> {
        let has_data = path
            .metadata()
            .is_ok_and(|file| file.is_dir() || file.len() > 0);
        if has_data && Self::load(path).is_err() {
            return Err(Failure::new(format!(
                "{} exists and is not a saved chat: use another name",
                path.display()
            )));
        }
        let object = json!({ "messages": self.0 });
        let text = serde_json::to_string_pretty(&object).map_err(Failure::new)?;
        let mut part = OsString::from(path);
        part.push(".part");
        let written = std::fs::write(&part, text + "\n");
        let moved = written.and_then(|()| std::fs::rename(&part, path));
        moved.map_err(|cause| {
            // The first error is the one to report.
            let _ = std::fs::remove_file(&part);
            Failure::file("save", path, cause)
        })
    }

    /// Reads and validates a file in the format of [`Messages::save`].
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        let text = prompt::file(path)?;
        Self::parse(&text).map_err(|why| Failure::new(format!("{}: {why}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("invalid JSON: {error}"))?;
        let Some(messages) = value.get("messages").and_then(Value::as_array) else {
            return Err("expected an object with an array \"messages\"".to_string());
        };
        let count = messages.len();
        if count > MESSAGES_MAX {
            return Err(format!(
                "{count} messages exceed the limit of {MESSAGES_MAX}"
            ));
        }
        for (at, message) in messages.iter().enumerate() {
            let Some(fields) = message.as_object() else {
                return Err(format!("message {at}: expected an object"));
            };
            check(fields, at).map_err(|why| format!("message {at}: {why}"))?;
        }
        Ok(Self(messages.clone()))
    }
}

/// Validates the role and fields of a message.
fn check(fields: &Map<String, Value>, at: usize) -> Result<(), String> {
    let role = fields.get("role").and_then(Value::as_str);
    let allows_reasoning = match role {
        Some("system") if at > 0 => {
            return Err("a system message must be the first message".to_string());
        }
        Some("system" | "user") => false,
        Some("assistant") => true,
        Some(other) => return Err(format!("unsupported role {other:?}")),
        None => return Err("missing role".to_string()),
    };
    for (name, value) in fields {
        let known = match name.as_str() {
            "role" | "content" => true,
            "reasoning_content" => allows_reasoning,
            _ => false,
        };
        if !known {
            return Err(format!("unsupported field {name:?}"));
        }
        if !value.is_string() {
            return Err(format!("{name:?} is not a string"));
        }
    }
    match fields.get("content") {
        Some(_) => Ok(()),
        None => Err("missing content".to_string()),
    }
}

fn role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

fn content(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system message and two turns.
    fn two_turns() -> Messages {
        let mut messages = Messages::default();
        messages.set_system("Be brief.");
        for (text, content, reasoning) in [("a", "b", ""), ("c", "d", "hm")] {
            messages.push_user(text);
            messages.push_assistant(&AssistantMessage {
                content: content.to_string(),
                reasoning: reasoning.to_string(),
                tool_calls: Vec::new(),
            });
        }
        messages
    }

    fn undo(turn: Option<usize>) -> (String, usize) {
        let mut messages = two_turns();
        let text = messages.undo(turn).expect("existing turn");
        (text, messages.all().len())
    }

    #[test]
    fn removes_turns() {
        assert_eq!(undo(None), ("c".to_string(), 3));
        assert_eq!(undo(Some(2)), ("c".to_string(), 3));
        assert_eq!(undo(Some(1)), ("a".to_string(), 1));
        for turn in [Some(0), Some(3)] {
            let mut messages = two_turns();
            assert!(messages.undo(turn).is_err(), "{turn:?}");
            assert_eq!(messages, two_turns());
        }
        let mut messages = two_turns();
        messages.remove_response().expect("existing turn");
        assert_eq!(messages.all().len(), 4);
        assert_eq!(messages.all()[3]["content"], "c");
        messages.reset();
        assert_eq!(messages.all().len(), 1);
        assert!(messages.undo(None).is_err() && messages.remove_response().is_err());
    }

    #[test]
    fn replaces_and_removes_the_system_message() {
        let mut messages = two_turns();
        messages.set_system("Be kind.");
        assert_eq!(messages.all()[0]["content"], "Be kind.");
        assert_eq!(messages.all().len(), 5);
        messages.set_system("");
        messages.set_system("");
        assert_eq!(messages.all().len(), 4);
        assert_eq!(messages.lines()[3], "  2 assistant d");
    }

    #[test]
    fn loads_saved_messages() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("chat.json");
        two_turns().save(&path).expect("writable folder");
        assert_eq!(Messages::load(&path).expect("valid file"), two_turns());
        two_turns().save(&path).expect("a saved chat is replaced");
        std::fs::remove_file(&path).expect("existing file");
        assert!(Messages::load(&path).is_err());
    }

    #[test]
    fn other_files_are_not_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "my notes").expect("writable folder");
        let error = two_turns().save(&path).expect_err("another file");
        assert!(
            format!("{error:?}").contains("not a saved chat"),
            "{error:?}"
        );
        assert_eq!(std::fs::read(&path).expect("existing file"), b"my notes");
        std::fs::write(&path, "").expect("writable folder");
        two_turns().save(&path).expect("an empty file is replaced");
    }

    #[test]
    fn rejects_invalid_files_with_the_position() {
        for (text, expected) in [
            ("", "invalid JSON"),
            ("[]", "expected an object"),
            (r#"{"messages": {}}"#, "expected an object"),
            (r#"{"messages": [3]}"#, "message 0: expected an object"),
            (r#"{"messages": [{}]}"#, "message 0: missing role"),
            (r#"{"messages": [{"role": "user"}]}"#, "missing content"),
            (
                r#"{"messages": [{"role": "user", "content": [1]}]}"#,
                "is not a string",
            ),
            (
                r#"{"messages": [{"role": "tool", "content": ""}]}"#,
                "unsupported role \"tool\"",
            ),
            (
                r#"{"messages": [{"role": "user", "content": "", "reasoning_content": ""}]}"#,
                "unsupported field \"reasoning_content\"",
            ),
            (
                r#"{"messages": [{"role": "user", "content": ""}, {"role": "system", "content": ""}]}"#,
                "message 1: a system message must be the first",
            ),
        ] {
            let why = Messages::parse(text).expect_err(text);
            assert!(why.contains(expected), "{text}: {why}");
        }
        let deep = format!(r#"{{"messages": {}"#, "[".repeat(100_000));
        assert!(Messages::parse(&deep).is_err());
    }
}
