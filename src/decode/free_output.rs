//! Output before the grammar of a generation applies: searches for the markers of reasoning and
//! for triggers.

use super::generate::GenerateOptions;
use super::reasoning::ReasoningMarkers;
use crate::op::params::Logprobs;
use std::collections::VecDeque;

/// Maximum number of tokens that are held back before it is decided whether the output begins with
/// reasoning.
const HELD_MAX: usize = 16;
/// Maximum number of tokens of white space after reasoning.
const GAP_TOKENS_MAX: u32 = 8;
/// Maximum length of an incomplete character in bytes.
const INCOMPLETE_BYTES_MAX: usize = 3;

/// The part of the output that is being generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before it is decided whether the output begins with reasoning.
    Start,
    Reasoning,
    /// White space between reasoning and the grammar.
    Gap,
    /// Output in which a trigger may occur.
    Triggers,
    /// Output of a generation without a grammar.
    Content,
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
    /// A stop token: this text is output instead, and the grammar applies after it.
    Replaced(String),
    /// Output up to this number of bytes, which complete the closing marker of reasoning. The
    /// grammar applies after them.
    Close(usize),
    /// Output that completes a trigger, and the text after the trigger.
    Trigger(Vec<u8>),
}

/// State of the output before the grammar applies.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent states")]
pub(super) struct FreeOutput {
    /// Opening and closing marker of reasoning.
    markers: [String; 2],
    /// The closing marker with the white space that is appended with it.
    close_text: String,
    /// Whether the closing marker is one token, so that its parts are other text.
    closes_with_token: bool,
    triggers: Vec<String>,
    opening: Option<String>,
    /// The phase after reasoning.
    next: Phase,
    phase: Phase,
    /// Text that was not searched completely: a marker may start in it.
    text: Vec<u8>,
    gap_tokens: u32,
    /// Number of tokens that reasoning may still have; `None`: any number.
    budget: Option<u32>,
    /// Whether only white space followed the reasoning so far.
    is_after_reasoning: bool,
    /// Number of bytes at the end of the last token that are content.
    content_bytes: usize,
    /// Tokens that are held back until it is decided whether they are reasoning.
    held: VecDeque<(u32, Option<Logprobs>)>,
}

impl FreeOutput {
    /// Creates the state at the start of an output; `None` if the grammar applies immediately, or
    /// nothing depends on the reasoning of an output without a grammar.
    pub(super) fn new(options: &GenerateOptions) -> Option<Box<Self>> {
        let reasoning = options.reasoning.as_ref();
        let start = &options.grammar_start;
        let next = match &options.grammar {
            None => Phase::Content,
            Some(_) if start.is_immediate() => Phase::Gap,
            Some(_) => Phase::Triggers,
        };
        let is_needed = match next {
            Phase::Triggers => true,
            Phase::Gap => reasoning.is_some(),
            _ => {
                let depends = options.reasoning_budget.is_some() || !options.stop.is_empty();
                reasoning.is_some() && depends
            }
        };
        let phase = match reasoning {
            None => next,
            Some(reasoning) if reasoning.is_open => Phase::Reasoning,
            Some(_) => Phase::Start,
        };
        let marker = |of: fn(&ReasoningMarkers) -> &String| {
            reasoning.map_or("", |reasoning| of(reasoning).trim())
        };
        let markers = [marker(|r| &r.open), marker(|r| &r.close)];
        is_needed.then(|| {
            Box::new(Self {
                markers: markers.map(str::to_string),
                close_text: reasoning.map_or(String::new(), |r| r.close.clone()),
                closes_with_token: false,
                triggers: start.triggers.clone(),
                opening: start.opening.clone(),
                next,
                phase,
                text: Vec::new(),
                gap_tokens: 0,
                budget: options.reasoning_budget,
                is_after_reasoning: false,
                content_bytes: 0,
                held: VecDeque::new(),
            })
        })
    }

    /// Sets whether a marker is one token.
    pub(super) fn set_tokens(&mut self, is_token: impl Fn(&str) -> bool) {
        self.closes_with_token = is_token(&self.markers[1]);
    }

    /// Processes a stop token. It ends the output only if no grammar must apply.
    pub(super) fn push_stop_token(&self) -> FreeToken {
        match (self.phase, &self.opening) {
            (Phase::Gap, _) => FreeToken::Rejected,
            (Phase::Start, _) if self.is_undecided() => FreeToken::Rejected,
            (Phase::Reasoning, Some(opening)) => {
                FreeToken::Replaced(self.closing_text().to_string() + opening)
            }
            (Phase::Reasoning, None) if self.next == Phase::Gap => {
                FreeToken::Replaced(self.closing_text().to_string())
            }
            (Phase::Start | Phase::Triggers, Some(opening)) => FreeToken::Replaced(opening.clone()),
            _ => FreeToken::Output,
        }
    }

    /// Processes a token with its text, of a control token too.
    pub(super) fn push(&mut self, bytes: &[u8]) -> FreeToken {
        let is_held = self.is_undecided();
        self.content_bytes = 0;
        match self.phase {
            Phase::Gap => return self.gap(bytes),
            Phase::Content => {
                self.count_content(bytes);
                return FreeToken::Output;
            }
            Phase::Start | Phase::Reasoning | Phase::Triggers => {}
        }
        self.text.extend_from_slice(bytes);
        match self.phase {
            Phase::Reasoning => self.reasoning(bytes),
            Phase::Start => match (is_held, self.start()) {
                (true, None) if self.held.len() < HELD_MAX => FreeToken::Undecided,
                (true, Some(Phase::Reasoning)) => FreeToken::Reasoning,
                (true, _) => FreeToken::Rejected,
                (false, Some(Phase::Reasoning)) => FreeToken::Output,
                (false, decided) => {
                    self.content_bytes = bytes.len();
                    match decided {
                        Some(Phase::Triggers) => self.next_trigger(),
                        _ => FreeToken::Output,
                    }
                }
            },
            _ => {
                self.count_content(bytes);
                self.next_trigger()
            }
        }
    }

    /// Returns the number of bytes at the end of the last token to which stop strings apply: reasoning
    /// and the white space after it are not content.
    pub(super) fn content_bytes(&self) -> usize {
        self.content_bytes
    }

    /// Returns whether all further output is content without a grammar.
    pub(super) fn is_finished(&self) -> bool {
        self.phase == Phase::Content && !self.is_after_reasoning
    }

    /// Returns whether it is not decided yet that the held tokens are output.
    pub(super) fn is_undecided(&self) -> bool {
        self.phase == Phase::Start && self.next == Phase::Gap
    }

    /// Returns the number of held tokens.
    pub(super) fn held_len(&self) -> usize {
        self.held.len()
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

    /// Closes reasoning that has used its budget, before the next token, and returns the text that closes
    /// it. A character is completed first.
    pub(super) fn close_exhausted(&mut self) -> Option<String> {
        let is_exhausted = self.phase == Phase::Reasoning && self.budget == Some(0);
        if !is_exhausted || ends_within_character(&self.text) {
            return None;
        }
        let text = self.closing_text().to_string();
        self.text.clear();
        (self.phase, self.is_after_reasoning) = (self.next, true);
        Some(text)
    }

    /// Returns whether the grammar applies from the next token.
    pub(super) fn is_before_grammar(&self) -> bool {
        self.phase == Phase::Gap
    }

    /// Returns the text that closes reasoning after its text so far.
    fn closing_text(&self) -> &str {
        let (close, text) = (&self.markers[1], &self.close_text);
        let is_begun = |bytes: &usize| self.text.ends_with(&close.as_bytes()[..*bytes]);
        let begun = (1..close.len()).rev().find(is_begun);
        let begun = begun.filter(|_| !self.closes_with_token).unwrap_or(0);
        let marker = text.len() - text.trim_start().len();
        match begun {
            0 if self.text.ends_with(b"\n") => text.trim_start(),
            0 => text,
            // The model has written a part of the marker.
            begun => text.get(marker + begun..).unwrap_or(text),
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
        } else if !self.is_undecided() {
            self.phase = self.next;
        }
        Some(self.phase)
    }

    /// Processes a token of reasoning, which is at the end of the text.
    fn reasoning(&mut self, token: &[u8]) -> FreeToken {
        let close = self.markers[1].as_bytes();
        let Some(at) = find(&self.text, close) else {
            drop_searched(&mut self.text, close.len().max(INCOMPLETE_BYTES_MAX + 1));
            self.budget = self.budget.map(|tokens| tokens.saturating_sub(1));
            return FreeToken::Output;
        };
        self.text.drain(..at + close.len());
        (self.phase, self.is_after_reasoning) = (self.next, true);
        if self.next == Phase::Triggers {
            let rest = self.text.clone();
            self.count_content(&rest);
            return self.next_trigger();
        }
        let rest = std::mem::take(&mut self.text);
        match token.len().checked_sub(rest.len()) {
            _ if self.next == Phase::Content => {
                self.count_content(&rest);
                FreeToken::Output
            }
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

    /// Determines which bytes of text outside reasoning are content.
    fn count_content(&mut self, text: &[u8]) {
        let content = match self.is_after_reasoning {
            true => text.trim_ascii_start(),
            false => text,
        };
        self.is_after_reasoning &= content.is_empty();
        self.content_bytes = content.len();
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

/// Returns whether a text ends within a character.
fn ends_within_character(text: &[u8]) -> bool {
    let tail = &text[text.len().saturating_sub(INCOMPLETE_BYTES_MAX)..];
    let incomplete = |at: usize| {
        let end = str::from_utf8(&tail[at..]);
        end.is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (0..tail.len()).any(incomplete)
}

fn is_white_space(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GrammarStart;
    use crate::text::{Grammar, GrammarEngine};
    use FreeToken::{Close, Output, Rejected, Replaced, Trigger, Undecided};
    use std::sync::Arc;

    /// Returns options with a grammar.
    fn constrained() -> GenerateOptions {
        let tokenizer = crate::tools::load_tokenizer(&crate::Source::BuiltIn).expect("a tokenizer");
        let engine = GrammarEngine::new(&Arc::new(tokenizer)).expect("an engine");
        let grammar = engine.compile(&Grammar::JsonObject).expect("a grammar");
        GenerateOptions::default().grammar(grammar)
    }

    fn reasoning() -> GenerateOptions {
        constrained().reasoning(ReasoningMarkers::new("<think>", "</think>"))
    }

    /// Returns options with reasoning that the prompt opens.
    fn open(close: &str) -> GenerateOptions {
        constrained().reasoning(ReasoningMarkers::new("<think>\n", close).is_open(true))
    }

    fn triggers(options: GenerateOptions) -> GenerateOptions {
        let start = GrammarStart::default().triggers(vec!["<call>".into(), "[CALL]".into()]);
        options.grammar_start(start)
    }

    fn check(options: &GenerateOptions, tokens: &[(&str, FreeToken)]) {
        let mut free = FreeOutput::new(options).expect("the output starts free");
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
        assert!(FreeOutput::new(&constrained()).is_none());
        let markers = ReasoningMarkers::new("<think>", "</think>");
        let plain = GenerateOptions::default().reasoning(markers);
        assert!(FreeOutput::new(&plain).is_none());
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
        let end = Replaced("</think>".into());
        check(&start, &[opened(), ("a", Output), ("EOS", end)]);
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
        check(
            &open("</think>"),
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
        let start = triggers(constrained());
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

    #[test]
    fn stop_tokens_close_reasoning() {
        let text = "\n</think>\n\n";
        let replaced = |text: &str| Replaced(text.into());
        let options = open(text);
        check(&options, &[("EOS", replaced(text))]);
        check(&options, &[("a", Output), ("EOS", replaced(text))]);
        // The model has written the line break, or a part of the marker.
        let line = replaced("</think>\n\n");
        check(&options, &[("a\n", Output), ("EOS", line)]);
        let part = replaced("ink>\n\n");
        check(&options, &[("a</", Output), ("th", Output), ("EOS", part)]);
        let mut free = FreeOutput::new(&options).expect("free");
        free.set_tokens(|marker| marker == "</think>");
        assert_eq!(free.push(b"a<"), Output);
        assert_eq!(free.push_stop_token(), replaced(text));
    }

    #[test]
    fn stop_tokens_become_the_opening() {
        let opened = |options: GenerateOptions| {
            let start = triggers(constrained())
                .grammar_start
                .opening("<call>".to_string());
            options.grammar_start(start)
        };
        let replaced = |text: &str| Replaced(text.into());
        check(&opened(constrained()), &[("EOS", replaced("<call>"))]);
        check(&opened(reasoning()), &[("EOS", replaced("<call>"))]);
        let closed = replaced("</think><call>");
        check(&opened(open("</think>")), &[("a", Output), ("EOS", closed)]);
        let rest = [
            ("</think>", Output),
            ("b", Output),
            ("EOS", replaced("<call>")),
        ];
        check(&opened(open("</think>")), &rest);
    }

    #[test]
    fn budgets_close_reasoning() {
        let text = "\n</think>\n\n";
        for (options, is_before_grammar) in [(open(text), true), (triggers(open(text)), false)] {
            let mut free = FreeOutput::new(&options.reasoning_budget(2)).expect("free");
            assert_eq!(free.close_exhausted(), None);
            free.push(b"a");
            assert_eq!(free.close_exhausted(), None);
            // A character is completed first.
            free.push(b"\xe2\x82");
            assert_eq!(free.close_exhausted(), None);
            free.push(b"\xac");
            assert_eq!(free.close_exhausted().as_deref(), Some(text));
            assert_eq!(free.close_exhausted(), None);
            assert_eq!(free.is_before_grammar(), is_before_grammar);
        }
        let mut free = FreeOutput::new(&reasoning().reasoning_budget(0)).expect("free");
        assert_eq!(free.push(b"<think>"), FreeToken::Reasoning);
        assert_eq!(free.close_exhausted().as_deref(), Some("</think>"));
    }

    #[test]
    fn content_begins_after_reasoning() {
        let markers = ReasoningMarkers::new("<think>", "</think>");
        let options = GenerateOptions::default().stop(vec!["x".into()]);
        let options = options.reasoning(markers);
        let mut free = FreeOutput::new(&options).expect("free");
        for (text, content) in [
            ("<thi", 4),
            ("nk>", 0),
            ("x", 0),
            ("</think>\n", 0),
            ("\n", 0),
            ("\nab", 2),
            ("\nx", 2),
        ] {
            assert_eq!(free.push(text.as_bytes()), Output);
            assert_eq!(free.content_bytes(), content, "{text:?}");
        }
        assert!(free.is_finished());
        assert_eq!(free.push_stop_token(), Output);
        let mut free = FreeOutput::new(&options).expect("free");
        free.push(b"<table>");
        assert_eq!((free.content_bytes(), free.is_finished()), (7, true));
    }
}
