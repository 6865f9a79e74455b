//! An answer while it comes: what the model thinks apart from what it says.

use crate::output::Failure;
use crate::output::answer::{AnswerWriter, Form};
use crate::output::terminal::{self, DIM, PLAIN};
use tabla::text::{AssistantMessage, ChatFormat, ChatParser, MessageDelta, Tokenizer};
use tabla::{Flow, Piece, Stats};

/// What stands between reasoning that are dim and what is said.
const BETWEEN: &str = "\x1b[0m\n\n";

/// The answer so far, and where it is shown. Reasoning are dim where someone reads along in colours;
/// everybody else gets the answer as the model wrote it.
pub(super) struct Reply<'a> {
    tokenizer: &'a Tokenizer,
    stream: ChatParser,
    shown: AnswerWriter,
    look: Look,
    said: AssistantMessage,
}

/// How text looks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// As the model wrote it.
    Written,
    /// What is said, where reasoning look otherwise.
    Said,
    /// Dim.
    Thought,
}

impl<'a> Reply<'a> {
    /// An answer to a prompt.
    pub(super) fn new(format: &ChatFormat, tokenizer: &'a Tokenizer, prompt: &str) -> Self {
        Self {
            tokenizer,
            stream: format.parser(prompt),
            shown: AnswerWriter::new(Form::Text),
            look: if terminal::stdout_has_colours() {
                Look::Said
            } else {
                Look::Written
            },
            said: AssistantMessage::default(),
        }
    }

    pub(super) fn take(&mut self, piece: Piece<'_>) -> Flow {
        let format = self.stream.format();
        let text = format.token_text(self.tokenizer, piece.token, piece.text);
        let parts = self.stream.push(&text);
        if self.look == Look::Written {
            self.keep(parts);
            return self.shown.say(&text);
        }
        self.show(parts)
    }

    fn show(&mut self, parts: Vec<MessageDelta>) -> Flow {
        for part in &parts {
            let (text, look) = match part {
                MessageDelta::Content(text) => (text, Look::Said),
                MessageDelta::Reasoning(text) => (text, Look::Thought),
                // Without tools nothing is a call.
                MessageDelta::ToolCall(_) => continue,
            };
            let begins = match (self.look, look) {
                (Look::Said, Look::Thought) => DIM,
                (Look::Thought, Look::Said) => BETWEEN,
                _ => "",
            };
            self.look = look;
            if self.shown.style(begins) == Flow::Stop || self.shown.say(text) == Flow::Stop {
                self.keep(parts);
                return Flow::Stop;
            }
        }
        self.keep(parts);
        Flow::Continue
    }

    fn keep(&mut self, parts: Vec<MessageDelta>) {
        for part in parts {
            match part {
                MessageDelta::Content(text) => self.said.content.push_str(&text),
                MessageDelta::Reasoning(text) => self.said.reasoning.push_str(&text),
                MessageDelta::ToolCall(call) => self.said.tool_calls.push(call),
            }
        }
    }

    /// Ends the line that the answer stands on; what was said, and how it ended.
    pub(super) fn end(
        mut self,
        stats: tabla::Result<Stats>,
    ) -> Result<(AssistantMessage, Stats), Failure> {
        let parts = self.stream.finish();
        if self.look == Look::Written {
            self.keep(parts);
        } else {
            self.show(parts);
        }
        if self.look == Look::Thought {
            self.shown.style(PLAIN);
        }
        let stats = self.shown.end(stats)?;
        if !terminal::stdout_is_terminal() {
            terminal::line("")?;
            terminal::flush()?;
        }
        Ok((self.said, stats))
    }
}
