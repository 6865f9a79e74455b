//! The line editor of a chat: keys, completion and messages of several lines.

use super::commands;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Behavior, Cmd, CompletionType, ConditionalEventHandler, Config, Context, Editor, Event,
    EventContext, EventHandler, Helper, KeyCode, KeyEvent, Modifiers, RepeatCount,
};
use std::fs;
use std::path::{MAIN_SEPARATOR, Path, is_separator};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of lines in the history.
const HISTORY_LINES_MAX: usize = 1000;

/// The commands that are followed by a file name.
const FILE_COMMANDS: [&str; 2] = ["/save ", "/load "];

pub(super) type ChatEditor = Editor<ChatHelper, FileHistory>;

/// Creates the line editor.
pub(super) fn new() -> rustyline::Result<ChatEditor> {
    let config = Config::builder()
        // Standard output is for responses and may be redirected: the editor uses the terminal.
        .behavior(Behavior::PreferTerm)
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_LINES_MAX)?
        .build();
    let history = FileHistory::with_config(&config);
    let mut editor = Editor::with_history(config, history)?;
    let helper = ChatHelper::default();
    let handler = InterruptHandler(Arc::clone(&helper.interrupted_text));
    editor.bind_sequence(
        KeyEvent::ctrl('C'),
        EventHandler::Conditional(Box::new(handler)),
    );
    editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
    editor.set_helper(Some(helper));
    Ok(editor)
}

/// Completion and validation of lines.
#[derive(Default)]
pub(super) struct ChatHelper {
    /// Whether the line had text at the last Ctrl-C.
    interrupted_text: Arc<AtomicBool>,
}

impl ChatHelper {
    /// Whether the last Ctrl-C interrupted a line with text.
    pub(super) fn interrupted_text(&self) -> bool {
        self.interrupted_text.load(Ordering::Relaxed)
    }
}

/// Stores whether the line has text: the error of an interrupted line does not contain it.
struct InterruptHandler(Arc<AtomicBool>);

impl ConditionalEventHandler for InterruptHandler {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, line: &EventContext<'_>) -> Option<Cmd> {
        self.0.store(!line.line().is_empty(), Ordering::Relaxed);
        Some(Cmd::Interrupt)
    }
}

impl Helper for ChatHelper {}
impl Highlighter for ChatHelper {}

impl Hinter for ChatHelper {
    type Hint = String;
}

impl Validator for ChatHelper {
    /// Enter inserts a line break into a quoted message without its closing quotes.
    fn validate(&self, line: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match commands::is_open(line.input()) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for ChatHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok(complete(&line[..position]))
    }
}

/// Returns the completions of the text before the cursor, and the position where they start.
fn complete(before: &str) -> (usize, Vec<Pair>) {
    if let Some(path) = FILE_COMMANDS
        .iter()
        .find_map(|command| before.strip_prefix(command))
    {
        let path = path.trim_start();
        let name = path.rfind(is_separator).map_or(0, |at| at + 1);
        let (folder, name) = path.split_at(name);
        return (before.len() - name.len(), files(folder, name));
    }
    let mut names: Vec<&str> = commands::names()
        .filter(|name| before.starts_with('/') && name.starts_with(before))
        .collect();
    names.sort_unstable();
    let pair = |name: &str| Pair {
        display: name.to_string(),
        replacement: match FILE_COMMANDS.iter().find(|other| other.trim_end() == name) {
            Some(with_space) => (*with_space).to_string(),
            None => name.to_string(),
        },
    };
    (0, names.into_iter().map(pair).collect())
}

/// Returns the files of a folder whose names start with `name`, sorted. Hidden files need the dot.
fn files(folder: &str, name: &str) -> Vec<Pair> {
    let path = match folder {
        "" => Path::new("."),
        folder => Path::new(folder),
    };
    // A folder that cannot be read has no completions.
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut pairs: Vec<Pair> = entries
        .filter_map(|entry| {
            let mut file = entry.file_name().into_string().ok()?;
            let hidden = file.starts_with('.') && !name.starts_with('.');
            if hidden || !file.starts_with(name) || file.contains(char::is_control) {
                return None;
            }
            if entry.path().is_dir() {
                file.push(MAIN_SEPARATOR);
            }
            Some(Pair {
                display: file.clone(),
                replacement: file,
            })
        })
        .collect();
    pairs.sort_by(|a, b| a.display.cmp(&b.display));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completions(before: &str) -> (usize, Vec<String>) {
        let (start, pairs) = complete(before);
        (
            start,
            pairs.into_iter().map(|pair| pair.replacement).collect(),
        )
    }

    #[test]
    fn completes_commands() {
        for (before, expected) in [
            ("/re", &["/regen", "/reset"][..]),
            ("/sa", &["/save "]),
            ("/q", &["/quit"]),
            ("/x", &[]),
            ("", &[]),
            ("re", &[]),
            ("/help me", &[]),
        ] {
            assert_eq!(completions(before).1, expected, "{before:?}");
        }
        assert_eq!(completions("/").1.len(), commands::names().count());
    }

    #[test]
    fn completes_file_names() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for file in ["my chat.json", "my-2.json", "other", ".my"] {
            fs::write(folder.path().join(file), "").expect("writable folder");
        }
        fs::create_dir(folder.path().join("my folder")).expect("writable folder");
        let folder = folder.path().to_str().expect("UTF-8 path");
        for (name, expected) in [
            ("my", &["my chat.json", "my folder/", "my-2.json"][..]),
            ("my c", &["my chat.json"]),
            (".", &[".my"]),
            ("none", &[]),
        ] {
            let before = format!("/save {folder}/{name}");
            let start = before.len() - name.len();
            let expected: Vec<String> = expected
                .iter()
                .map(|file| file.replace('/', std::path::MAIN_SEPARATOR_STR))
                .collect();
            assert_eq!(completions(&before), (start, expected), "{name}");
        }
        assert!(completions("/load /no/such/folder/").1.is_empty());
    }
}
