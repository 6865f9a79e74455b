//! Output before the grammar of a generation applies: searches for the markers of reasoning and
//! for triggers.

use super::grammar_start::{GrammarStart, ReasoningMarkers};
use crate::op::params::Logprobs;
use std::collections::VecDeque;

/// Maximum number of tokens that are held back before it is decided whether the output begins with
/// reasoning.
const HELD_MAX: usize = 16;
/// Maximum number of tokens of white space after reasoning.
const GAP_TOKENS_MAX: u32 = 8;

/// The part of the output that is being generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before it is decided whether the output begins with reasoning.
    Start,
    Reasoning,
    /// White space after reasoning.
    Gap,
    /// Output in which a trigger may occur.
    Triggers,
}

/// What a free token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FreeToken {
    /// Output.
    Output,
    /// A part of what may be the opening marker of reasoning.
    Undecided,
    /// The token that completes the opening marker of reasoning: held tokens and this one are
    /// output.
    Reasoning,
    /// Not output: the grammar applies instead of held tokens and this one.
    Rejected,
    /// Output up to this number of bytes, which complete the closing marker of reasoning. The
    /// grammar applies after them.
    Close(usize),
    /// Output that completes a trigger, and the text after the trigger.
    Trigger(Vec<u8>),
}

/// State of the output before the grammar applies.
#[derive(Debug)]
pub(super) struct FreeOutput {
    /// Opening and closing marker of reasoning.
    markers: [String; 2],
    triggers: Vec<String>,
    phase: Phase,
    /// Text that was not searched completely: a marker may start in it.
    text: Vec<u8>,
    gap_tokens: u32,
    /// Tokens that are held back until it is decided whether they are reasoning.
    held: VecDeque<(u32, Option<Logprobs>)>,
}

impl FreeOutput {
    /// Creates the state at the start of an output; `None` if the grammar applies immediately.
    pub(super) fn new(start: &GrammarStart) -> Option<Box<Self>> {
        if start.is_immediate() {
            return None;
        }
        let phase = match &start.reasoning {
            None => Phase::Triggers,
            Some(reasoning) if reasoning.is_open => Phase::Reasoning,
            Some(_) => Phase::Start,
        };
        let marker = |of: fn(&ReasoningMarkers) -> &String| {
            let reasoning = start.reasoning.as_ref();
            reasoning.map_or("", |reasoning| of(reasoning).trim())
        };
        let markers = [marker(|r| &r.open), marker(|r| &r.close)];
        Some(Box::new(Self {
            markers: markers.map(str::to_string),
            triggers: start.triggers.clone(),
            phase,
            text: Vec::new(),
            gap_tokens: 0,
            held: VecDeque::new(),
        }))
    }

    /// Processes a stop token. Within reasoning and before a trigger it ends the output.
    pub(super) fn push_stop_token(&self) -> FreeToken {
        match self.is_undecided() || self.phase == Phase::Gap {
            true => FreeToken::Rejected,
            false => FreeToken::Output,
        }
    }

    /// Processes a token with its text, of a control token too.
    pub(super) fn push(&mut self, bytes: &[u8]) -> FreeToken {
        let is_held = self.is_undecided();
        if self.phase == Phase::Gap {
            return self.gap(bytes);
        }
        self.text.extend_from_slice(bytes);
        if self.phase == Phase::Start {
            let decided = self.start();
            return match (is_held, decided) {
                (true, None) if self.held.len() < HELD_MAX => FreeToken::Undecided,
                (true, Some(Phase::Reasoning)) => FreeToken::Reasoning,
                (true, _) => FreeToken::Rejected,
                (false, Some(Phase::Triggers)) => self.next_trigger(),
                (false, _) => FreeToken::Output,
            };
        }
        match self.phase {
            Phase::Reasoning => self.reasoning(bytes),
            _ => self.next_trigger(),
        }
    }

    /// Returns whether it is not decided yet that the held tokens are output.
    pub(super) fn is_undecided(&self) -> bool {
        self.phase == Phase::Start && self.triggers.is_empty()
    }

    /// Holds a token back.
    pub(super) fn hold(&mut self, token: u32, logprobs: Option<Logprobs>) {
        self.held.push_back((token, logprobs));
    }

    /// Returns the next held token, once it is decided that held tokens are output.
    pub(super) fn next_held(&mut self) -> Option<(u32, Option<Logprobs>)> {
        match self.is_undecided() {
            true => None,
            false => self.held.pop_front(),
        }
    }

    /// Decides whether the output begins with reasoning, and returns the new phase.
    fn start(&mut self) -> Option<Phase> {
        let text = self.text.trim_ascii_start();
        let open = self.markers[0].as_bytes();
        if let Some(rest) = text.strip_prefix(open) {
            self.text = rest.to_vec();
            self.phase = Phase::Reasoning;
        } else if open.starts_with(text) {
            return None;
        } else if !self.triggers.is_empty() {
            self.phase = Phase::Triggers;
        }
        Some(self.phase)
    }

    /// Processes a token of reasoning, which is at the end of the text.
    fn reasoning(&mut self, token: &[u8]) -> FreeToken {
        let close = self.markers[1].as_bytes();
        let Some(at) = find(&self.text, close) else {
            drop_searched(&mut self.text, close.len());
            return FreeToken::Output;
        };
        self.text.drain(..at + close.len());
        if !self.triggers.is_empty() {
            self.phase = Phase::Triggers;
            return self.next_trigger();
        }
        self.phase = Phase::Gap;
        let rest = std::mem::take(&mut self.text);
        match token.len().checked_sub(rest.len()) {
            _ if is_white_space(&rest) => FreeToken::Output,
            None | Some(0) => FreeToken::Rejected,
            Some(kept) => FreeToken::Close(kept),
        }
    }

    /// Processes a token after reasoning.
    fn gap(&mut self, token: &[u8]) -> FreeToken {
        self.gap_tokens += 1;
        let is_gap = is_white_space(token) && !token.is_empty();
        match is_gap && self.gap_tokens <= GAP_TOKENS_MAX {
            true => FreeToken::Output,
            false => FreeToken::Rejected,
        }
    }

    /// Searches for the trigger that ends first, and removes it and the text before it.
    pub(super) fn next_trigger(&mut self) -> FreeToken {
        let text = &self.text;
        let ends = self.triggers.iter().filter_map(|trigger| {
            let at = find(text, trigger.as_bytes())?;
            Some(at + trigger.len())
        });
        let Some(end) = ends.min() else {
            let longest = self.triggers.iter().map(String::len).max();
            drop_searched(&mut self.text, longest.unwrap_or(0));
            return FreeToken::Output;
        };
        self.text.drain(..end);
        FreeToken::Trigger(self.text.clone())
    }
}

/// Removes the text in which no marker of at most `longest` bytes can start any more.
fn drop_searched(text: &mut Vec<u8>, longest: usize) {
    let kept = longest.saturating_sub(1);
    text.drain(..text.len().saturating_sub(kept));
}

fn find(text: &[u8], marker: &[u8]) -> Option<usize> {
    text.windows(marker.len().max(1))
        .position(|window| window == marker)
}

fn is_white_space(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use FreeToken::{Close, Output, Rejected, Trigger, Undecided};

    fn reasoning() -> GrammarStart {
        GrammarStart::default().reasoning(ReasoningMarkers::new("<think>", "</think>"))
    }

    fn triggers(start: GrammarStart) -> GrammarStart {
        start.triggers(vec!["<call>".into(), "[CALL]".into()])
    }

    fn check(start: &GrammarStart, tokens: &[(&str, FreeToken)]) {
        let mut free = FreeOutput::new(start).expect("the output starts free");
        for (text, expected) in tokens {
            let found = match *text {
                "EOS" => free.push_stop_token(),
                text => free.push(text.as_bytes()),
            };
            assert_eq!(found, *expected, "{text:?} of {tokens:?}");
            if found == Undecided {
                free.hold(0, None);
            }
        }
    }

    #[test]
    fn default_is_immediate() {
        assert!(FreeOutput::new(&GrammarStart::default()).is_none());
    }

    #[test]
    fn grammar_applies_after_reasoning() {
        let opened = || ("<think>", FreeToken::Reasoning);
        let closed = [opened(), ("a", Output), ("</think>", Output)];
        let with = |rest: &[(&'static str, FreeToken)]| [&closed[..], rest].concat();
        let start = reasoning();
        check(&start, &with(&[("\n\n", Output), ("{", Rejected)]));
        check(&start, &with(&[("EOS", Rejected)]));
        check(&start, &with(&[(" {", Rejected)]));
        check(&start, &[opened(), ("a", Output), ("EOS", Output)]);
        check(&start, &[opened(), ("a</th", Output), ("ink>{", Close(4))]);
        check(
            &start,
            &[opened(), ("a</think>\n", Output), ("{", Rejected)],
        );
        let mut gap = vec![("\n", Output); GAP_TOKENS_MAX as usize];
        gap.push(("\n", Rejected));
        check(&start, &with(&gap));
    }

    #[test]
    fn prompt_opens_reasoning() {
        let markers = ReasoningMarkers::new("<think>\n", "</think>").is_open(true);
        let start = GrammarStart::default().reasoning(markers);
        check(
            &start,
            &[
                ("{", Output),
                ("</thin", Output),
                ("k>", Output),
                ("x", Rejected),
            ],
        );
    }

    #[test]
    fn output_without_reasoning_is_rejected() {
        let start = reasoning();
        check(&start, &[("{", Rejected)]);
        check(&start, &[("EOS", Rejected)]);
        check(
            &start,
            &[("\n", Undecided), (" <", Undecided), ("a", Rejected)],
        );
        check(
            &start,
            &[
                ("<", Undecided),
                ("think", Undecided),
                (">a", FreeToken::Reasoning),
                ("b", Output),
            ],
        );
        let mut spaces = vec![(" ", Undecided); HELD_MAX];
        spaces.push((" ", Rejected));
        check(&start, &spaces);
    }

    #[test]
    fn held_tokens_are_returned_after_the_decision() {
        let mut free = FreeOutput::new(&reasoning()).expect("free");
        assert_eq!(free.push(b"<"), Undecided);
        free.hold(1, None);
        assert!(free.next_held().is_none());
        assert_eq!(free.push(b"think>"), FreeToken::Reasoning);
        free.hold(2, None);
        let mut held = || free.next_held().map(|(token, _)| token);
        assert_eq!([held(), held(), held()], [Some(1), Some(2), None]);
    }

    #[test]
    fn triggers_start_the_grammar() {
        let start = triggers(GrammarStart::default());
        let trigger = |rest: &str| Trigger(rest.as_bytes().to_vec());
        check(&start, &[("a <", Output), ("call>", trigger(""))]);
        check(&start, &[("[CALL]{\"", trigger("{\"")), ("x", Output)]);
        check(&start, &[("EOS", Output)]);
        let mut free = FreeOutput::new(&start).expect("free");
        assert_eq!(free.push(b"<call>[CALL]x"), trigger("[CALL]x"));
        assert_eq!(free.next_trigger(), trigger("x"));
        assert_eq!(free.next_trigger(), Output);
    }

    #[test]
    fn triggers_within_reasoning_do_not_count() {
        let start = triggers(reasoning());
        let trigger = |rest: &str| Trigger(rest.as_bytes().to_vec());
        check(
            &start,
            &[
                ("<thi", Output),
                ("nk><call>", Output),
                ("[CALL]", Output),
                ("</think><call>", trigger("")),
            ],
        );
        check(&start, &[("<th", Output), ("<call>x", trigger("x"))]);
        check(&start, &[("EOS", Output)]);
    }
}
