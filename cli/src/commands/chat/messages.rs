//! The messages of a conversation: turns that can be taken back, and the file that keeps them.
//!
//! A turn begins with a message of the user. Turns are counted from 1.

use crate::args::prompt;
use crate::output::Failure;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::Path;
use tabla::text::AssistantMessage;

/// Messages of a file at most.
const MESSAGES_MAX: usize = 100_000;

/// The messages, as OpenAI's chat completions have them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Messages(Vec<Value>);

impl Messages {
    pub(super) fn all(&self) -> &[Value] {
        &self.0
    }

    /// Appends a message of the user.
    pub(super) fn ask(&mut self, text: &str) {
        self.0.push(json!({ "role": "user", "content": text }));
    }

    /// Appends what the model answered, its reasoning apart from it.
    pub(super) fn answer(&mut self, said: &AssistantMessage) {
        let mut message = json!({ "role": "assistant", "content": said.content });
        if !said.reasoning.is_empty() {
            message["reasoning_content"] = json!(said.reasoning);
        }
        self.0.push(message);
    }

    /// What the model is told in front of all other messages; nothing where the text is empty.
    pub(super) fn set_system(&mut self, text: &str) {
        let there = self.has_system();
        self.0.drain(..usize::from(there));
        if !text.is_empty() {
            self.0
                .insert(0, json!({ "role": "system", "content": text }));
        }
    }

    fn has_system(&self) -> bool {
        self.0.first().is_some_and(|first| role(first) == "system")
    }

    /// Forgets all but the system message.
    pub(super) fn reset(&mut self) {
        self.0.truncate(usize::from(self.has_system()));
    }

    /// Where turns begin.
    fn turns(&self) -> impl DoubleEndedIterator<Item = usize> {
        let roles = self.0.iter().map(role).enumerate();
        let users: Vec<usize> = roles
            .filter(|(_, role)| *role == "user")
            .map(|(at, _)| at)
            .collect();
        users.into_iter()
    }

    /// Whether somebody has asked something.
    pub(super) fn has_turns(&self) -> bool {
        self.turns().next().is_some()
    }

    /// Forgets a turn and all behind it, or the last one; returns what the user had said.
    pub(super) fn back_to(&mut self, turn: Option<usize>) -> Result<String, Failure> {
        let found = match turn {
            Some(turn) => turn.checked_sub(1).and_then(|at| self.turns().nth(at)),
            None => self.turns().next_back(),
        };
        let Some(at) = found else {
            let turns = self.turns().count();
            return Err(Failure::new(match turn {
                Some(turn) => format!("there is no turn {turn}: there are {turns}"),
                None => "nothing was said yet".to_string(),
            }));
        };
        let text = content(&self.0[at]).to_string();
        self.0.truncate(at);
        Ok(text)
    }

    /// Forgets the answer to what the user said last.
    pub(super) fn unanswer(&mut self) -> Result<(), Failure> {
        let text = self.back_to(None)?;
        self.ask(&text);
        Ok(())
    }

    /// A line for each message: the number of its turn, who said it, and what.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut turn = 0;
        let line = |message: &Value| {
            let (role, content) = (role(message), content(message));
            turn += usize::from(role == "user");
            format!("{turn:3} {role:9} {content}")
        };
        self.0.iter().map(line).collect()
    }

    /// Writes them as JSON. What stood in the file before stays until all is written.
    pub(super) fn save(&self, path: &Path) -> Result<(), Failure> {
        let object = json!({ "messages": self.0 });
        let text = serde_json::to_string_pretty(&object).map_err(Failure::new)?;
        let mut part = OsString::from(path);
        part.push(".part");
        let written = std::fs::write(&part, text + "\n");
        let moved = written.and_then(|()| std::fs::rename(&part, path));
        moved.map_err(|cause| {
            // Where it cannot be removed either, the failure says enough.
            let _ = std::fs::remove_file(&part);
            Failure::file("save", path, cause)
        })
    }

    /// Reads what [`Messages::save`] wrote, or somebody else: all of it, or nothing.
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        let text = prompt::file(path)?;
        Self::parse(&text).map_err(|why| Failure::new(format!("{}: {why}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        let Some(messages) = value.get("messages").and_then(Value::as_array) else {
            return Err("no object with a list of \"messages\"".to_string());
        };
        let count = messages.len();
        if count > MESSAGES_MAX {
            return Err(format!("{count} messages are over {MESSAGES_MAX}"));
        }
        for (at, message) in messages.iter().enumerate() {
            let Some(fields) = message.as_object() else {
                return Err(format!("message {at} is no object"));
            };
            check(fields, at).map_err(|why| format!("message {at}: {why}"))?;
        }
        Ok(Self(messages.clone()))
    }
}

/// Holds a message to what a conversation here has.
fn check(fields: &Map<String, Value>, at: usize) -> Result<(), String> {
    let role = fields.get("role").and_then(Value::as_str);
    let thinks = match role {
        Some("system") if at > 0 => return Err("a system message is the first".to_string()),
        Some("system" | "user") => false,
        Some("assistant") => true,
        Some(other) => return Err(format!("the role {other:?} has no place here")),
        None => return Err("no role".to_string()),
    };
    for (name, value) in fields {
        let known = match name.as_str() {
            "role" | "content" => true,
            "reasoning_content" => thinks,
            _ => false,
        };
        if !known {
            return Err(format!("{name:?} has no place here"));
        }
        if !value.is_string() {
            return Err(format!("{name:?} is no text"));
        }
    }
    match fields.get("content") {
        Some(_) => Ok(()),
        None => Err("no content".to_string()),
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
            messages.ask(text);
            messages.answer(&AssistantMessage {
                content: content.to_string(),
                reasoning: reasoning.to_string(),
                tool_calls: Vec::new(),
            });
        }
        messages
    }

    fn back_to(turn: Option<usize>) -> (String, usize) {
        let mut messages = two_turns();
        let text = messages.back_to(turn).expect("it is there");
        (text, messages.all().len())
    }

    #[test]
    fn turns_are_taken_back() {
        assert_eq!(back_to(None), ("c".to_string(), 3));
        assert_eq!(back_to(Some(2)), ("c".to_string(), 3));
        assert_eq!(back_to(Some(1)), ("a".to_string(), 1));
        for turn in [Some(0), Some(3)] {
            let mut messages = two_turns();
            assert!(messages.back_to(turn).is_err(), "{turn:?}");
            assert_eq!(messages, two_turns());
        }
        let mut messages = two_turns();
        messages.unanswer().expect("there is a turn");
        assert_eq!(messages.all().len(), 4);
        assert_eq!(messages.all()[3]["content"], "c");
        messages.reset();
        assert_eq!(messages.all().len(), 1);
        assert!(messages.back_to(None).is_err() && messages.unanswer().is_err());
    }

    #[test]
    fn a_system_message_is_the_first_or_none() {
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
    fn what_is_saved_is_loaded() {
        let path = std::env::temp_dir().join(format!("tabla-chat-{}.json", std::process::id()));
        two_turns().save(&path).expect("it can be written");
        assert_eq!(Messages::load(&path).expect("it is sound"), two_turns());
        std::fs::remove_file(&path).expect("it is there");
        assert!(Messages::load(&path).is_err());
    }

    #[test]
    fn what_strangers_write_is_refused_with_its_place() {
        for (text, clue) in [
            ("", "no JSON"),
            ("[]", "no object"),
            (r#"{"messages": {}}"#, "no object"),
            (r#"{"messages": [3]}"#, "message 0 is no object"),
            (r#"{"messages": [{}]}"#, "message 0: no role"),
            (r#"{"messages": [{"role": "user"}]}"#, "no content"),
            (
                r#"{"messages": [{"role": "user", "content": [1]}]}"#,
                "is no text",
            ),
            (
                r#"{"messages": [{"role": "tool", "content": ""}]}"#,
                "the role \"tool\"",
            ),
            (
                r#"{"messages": [{"role": "user", "content": "", "reasoning_content": ""}]}"#,
                "\"reasoning_content\" has no place",
            ),
            (
                r#"{"messages": [{"role": "user", "content": ""}, {"role": "system", "content": ""}]}"#,
                "message 1: a system message is the first",
            ),
        ] {
            let why = Messages::parse(text).expect_err(text);
            assert!(why.contains(clue), "{text}: {why}");
        }
        let deep = format!(r#"{{"messages": {}"#, "[".repeat(100_000));
        assert!(Messages::parse(&deep).is_err());
    }
}
