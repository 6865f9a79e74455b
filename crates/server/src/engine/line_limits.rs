//! Ends an answer at the end of a line, as `n_indent` and `t_max_predict_ms` of llama.cpp do, for editors.

use super::request::LineRules;
use std::time::Duration;

/// Lines of an answer so far.
pub(super) struct LineLimits {
    rules: LineRules,
    /// Indentation of the current line while it has only spaces and tabs; `None` after them, and in the first line.
    indent: Option<u32>,
}

impl LineLimits {
    pub(super) fn new(rules: LineRules) -> Self {
        Self {
            rules,
            indent: None,
        }
    }

    /// Adds text that was generated in this time. If the answer ends, returns the number of bytes that it has of the
    /// text.
    pub(super) fn push(&mut self, text: &str, time: Duration) -> Option<usize> {
        let is_late = self.rules.time.is_some_and(|max| time > max);
        if is_late && text.contains('\n') {
            return Some(text.len());
        }
        let mut chars = text.char_indices();
        let end = chars.find(|(_, char)| self.is_too_far_left(*char));
        end.map(|(at, _)| at)
    }

    /// Adds a character. Returns whether it begins the text of a line with too little indentation.
    fn is_too_far_left(&mut self, char: char) -> bool {
        match (char, self.indent) {
            ('\n', _) => {
                self.indent = Some(0);
                false
            }
            (' ' | '\t', Some(indent)) => {
                self.indent = Some(indent + 1);
                false
            }
            (_, Some(indent)) => {
                self.indent = None;
                indent < self.rules.indent
            }
            (_, None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the piece in which the answer ends, and its bytes.
    fn ends(indent: u32, pieces: &[&str]) -> Option<(usize, usize)> {
        let rules = LineRules { indent, time: None };
        let mut lines = LineLimits::new(rules);
        let mut pieces = pieces.iter().enumerate();
        pieces.find_map(|(at, piece)| Some((at, lines.push(piece, Duration::ZERO)?)))
    }

    #[test]
    fn a_line_with_less_indentation_ends_the_answer() {
        assert_eq!(ends(4, &["a\n", "    b", "\n\n", "  ", "  c\n"]), None);
        assert_eq!(ends(4, &["a\n", "    b\n  ", " c"]), Some((2, 1)));
        assert_eq!(ends(0, &["a\nb"]), None);
        assert_eq!(ends(1, &["  a\n b\nc"]), Some((0, 7)));
    }

    #[test]
    fn a_line_break_after_the_time_ends_the_answer() {
        let time = Some(Duration::from_secs(1));
        let mut lines = LineLimits::new(LineRules { indent: 0, time });
        assert_eq!(lines.push("a\n", Duration::from_secs(1)), None);
        assert_eq!(lines.push("b", Duration::from_secs(2)), None);
        assert_eq!(lines.push("c\nd", Duration::from_secs(2)), Some(3));
    }
}
