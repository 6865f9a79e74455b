//! Breaks lines of streamed text between words. Code blocks are not changed.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Free columns with which a word is written before its end is known. A longer word is broken by the
/// terminal. Words near the end of the line are held back until they are complete.
const FREE_COLUMNS: usize = 24;

/// Columns of a tab, at most.
const TAB_COLUMNS: usize = 8;

/// Zero width joiner.
const JOINER: char = '\u{200d}';

/// Maximum number of bytes of a line that starts or ends a code block.
const FENCE_BYTES_MAX: usize = 200;

/// Breaks lines at the width of a terminal.
#[derive(Default)]
pub(crate) struct Wrapper {
    /// Columns of a line; `None`: lines are not broken.
    columns: Option<usize>,
    /// Columns of the current line that are written.
    column: usize,
    /// Spaces that are not written yet.
    spaces: String,
    /// The beginning of a word after them, which is not written yet.
    word: String,
    /// Columns of `spaces` and of `word`.
    held_columns: [usize; 2],
    /// Whether the written text ends within a word.
    in_word: bool,
    /// The last character of a word. A joiner continues a sequence of emoji.
    last: char,
    /// The beginning of the line of the text, to find code blocks.
    line: String,
    /// The fence of the current code block: its character and length.
    fence: Option<(char, usize)>,
}

impl Wrapper {
    /// Sets the width of the terminal; `None`: unknown, lines are not broken.
    pub(crate) fn set_columns(&mut self, columns: Option<usize>) {
        // Some terminals continue on the next line after a character in the last column.
        self.columns = columns.map(|columns| columns.saturating_sub(1).max(1));
    }

    /// Returns the text to write, which may not include the last word.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + self.spaces.len() + self.word.len());
        for c in text.chars() {
            if self.line.len() < FENCE_BYTES_MAX && c != '\n' {
                self.line.push(c);
            }
            match c {
                '\n' => self.end_line(&mut out),
                _ if self.fence.is_some() => out.push(c),
                ' ' | '\t' => self.push_space(c, &mut out),
                _ => self.push_char(c, &mut out),
            }
        }
        out
    }

    /// Returns the text that is not written yet, at the end of the text or before an escape sequence.
    pub(crate) fn flush(&mut self) -> String {
        let mut out = String::new();
        self.write_word(&mut out);
        out.push_str(&std::mem::take(&mut self.spaces));
        self.column += std::mem::take(&mut self.held_columns[0]);
        out
    }

    fn end_line(&mut self, out: &mut String) {
        self.write_word(out);
        // Spaces at the end of a line are invisible.
        self.spaces.clear();
        self.held_columns = [0, 0];
        out.push('\n');
        self.column = 0;
        self.fence = fence_after(&self.line, self.fence);
        self.line.clear();
    }

    fn push_space(&mut self, c: char, out: &mut String) {
        self.write_word(out);
        self.in_word = false;
        self.spaces.push(c);
        self.held_columns[0] += if c == '\t' { TAB_COLUMNS } else { 1 };
    }

    fn push_char(&mut self, c: char, out: &mut String) {
        let columns = c.width().unwrap_or(0);
        let is_joined = std::mem::replace(&mut self.last, c) == JOINER || columns == 0;
        // A line can be broken before and after a wide character.
        let breaks = columns > 1 && !is_joined;
        if breaks {
            self.write_word(out);
            self.in_word = false;
        }
        if self.in_word || (is_joined && self.spaces.is_empty() && self.word.is_empty()) {
            out.push(c);
            self.advance(columns);
            return;
        }
        self.word.push(c);
        self.held_columns[1] += columns;
        let held = self.held_columns[0] + self.held_columns[1];
        let limit = self.columns.unwrap_or(usize::MAX);
        let has_space = self.column + held + FREE_COLUMNS <= limit;
        if breaks {
            self.write_word(out);
        } else if has_space || self.held_columns[1] > limit {
            self.write_word(out);
            self.in_word = true;
        }
    }

    /// Writes the spaces and the word, on a new line if the word does not fit.
    fn write_word(&mut self, out: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let [spaces, word] = self.held_columns;
        let limit = self.columns.unwrap_or(usize::MAX);
        if self.column > 0 && self.column + spaces + word > limit {
            out.push('\n');
            self.column = 0;
        } else {
            out.push_str(&self.spaces);
            self.column += spaces;
        }
        out.push_str(&self.word);
        self.advance(word);
        self.spaces.clear();
        self.word.clear();
        self.held_columns = [0, 0];
    }

    /// Moves the column. The terminal breaks a word that is longer than a line.
    fn advance(&mut self, columns: usize) {
        self.column += columns;
        if let Some(width) = self.columns.filter(|width| self.column > width + 1) {
            self.column %= width + 1;
        }
    }
}

/// Breaks a line between words. The lines after the first one are indented.
pub(crate) fn indented(text: &str, columns: Option<usize>, indent: usize) -> String {
    let limit = columns.map_or(usize::MAX, |columns| columns.saturating_sub(1));
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_inclusive(' ') {
        let end = column + word.trim_end().width();
        if end > limit && column > indent {
            out.truncate(out.trim_end().len());
            out.push_str(&format!("\n{:indent$}", ""));
            column = indent;
        }
        out.push_str(word);
        column += word.width();
    }
    out
}

/// Returns the code block after a line, as in `CommonMark`.
fn fence_after(line: &str, block: Option<(char, usize)>) -> Option<(char, usize)> {
    let line = line.trim();
    let Some(mark) = line.chars().next().filter(|c| matches!(c, '`' | '~')) else {
        return block;
    };
    let rest = line.trim_start_matches(mark);
    let length = line.len() - rest.len();
    match block {
        None if length >= 3 && !rest.contains('`') => Some((mark, length)),
        Some((other, open)) if mark == other && length >= open && rest.is_empty() => None,
        block => block,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wraps a text that arrives in pieces of this many characters.
    fn wrapped(text: &str, columns: usize, piece: usize) -> String {
        let mut wrapper = Wrapper::default();
        let mut out = String::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(piece) {
            wrapper.set_columns(Some(columns));
            out.push_str(&wrapper.push(&piece.iter().collect::<String>()));
        }
        out + &wrapper.flush()
    }

    fn check(text: &str, columns: usize, expected: &str) {
        for piece in [1, 2, 5, 1000] {
            assert_eq!(wrapped(text, columns, piece), expected, "pieces of {piece}");
        }
    }

    #[test]
    fn breaks_lines_between_words() {
        check("the cat sat on the mat", 12, "the cat sat\non the mat");
        check("the cat sat\n\n  on it", 12, "the cat sat\n\n  on it");
        check("- one\n- two", 80, "- one\n- two");
        check("", 12, "");
        check("a b ", 12, "a b ");
        // A space at the break is removed, not the indentation of the next line.
        check("aaaa bbbb \n  cc", 6, "aaaa\nbbbb\n  cc");
    }

    #[test]
    fn lines_fit_and_keep_their_words() {
        let text = "Once upon a time, there was a little girl who lived in a big house with \
                    twenty-seven incomprehensible, interoperable grandmothers and a dog.";
        for columns in [19, 20, 21, 40, 79, 80, 1000] {
            let out = wrapped(text, columns, 3);
            let words: Vec<&str> = out.split_whitespace().collect();
            assert_eq!(words, text.split_whitespace().collect::<Vec<_>>());
            for line in out.lines().filter(|line| line.contains(' ')) {
                assert!(line.width() < columns, "{columns}: {line:?}");
            }
        }
    }

    #[test]
    fn counts_columns_of_wide_and_combining_characters() {
        // Five wide characters are ten columns.
        check("日本語日本語日本", 11, "日本語日本\n語日本");
        // Each of these letters has a combining accent.
        let accents = "e\u{301}e\u{301}e\u{301}";
        let text = format!("{accents} {accents} {accents}");
        check(&text, 8, &format!("{accents} {accents}\n{accents}"));
        // A joined sequence stays in one piece.
        let family = "👩\u{200d}👧";
        assert!(wrapped(&format!("aaaa {family}"), 6, 1).contains(family));
        check("🎉\u{fe0f} 🎉\u{fe0f}", 80, "🎉\u{fe0f} 🎉\u{fe0f}");
    }

    #[test]
    fn leaves_code_blocks_unchanged() {
        let code = "```rust\nlet the_cat = sat(on, the, mat);\n\n``\n```";
        check(&format!("{code}\naaa bbb"), 6, &format!("{code}\naaa\nbbb"));
        let nested = "  ~~~~\na b c d e f g\n~~~\n``` x y z\n~~~~";
        check(
            &format!("{nested}\naaa bbb"),
            6,
            &format!("{nested}\naaa\nbbb"),
        );
        // Not a code block: its first line has a backtick after the marks.
        check("```a```\naaa bbb", 6, "```a```\naaa\nbbb");
    }

    #[test]
    fn breaks_words_that_are_longer_than_a_line() {
        let url = "https://example.org/a/very/long/path";
        check(&format!("see {url} now"), 20, &format!("see\n{url}\nnow"));
    }

    #[test]
    fn writes_words_at_once_where_a_line_has_space() {
        let mut wrapper = Wrapper::default();
        assert_eq!(wrapper.push("the ca"), "the ca");
        wrapper.set_columns(Some(40));
        assert_eq!(wrapper.push("t s"), "t s");
        wrapper.set_columns(Some(30));
        assert_eq!(wrapper.push("at on the m"), "at on the");
        assert_eq!(wrapper.push("at."), "");
        assert_eq!(wrapper.flush(), " mat.");
    }

    #[test]
    fn indents_lines_after_the_first() {
        let help = "/list    list the messages with their numbers";
        let expected = "/list    list the\n         messages with\n         their numbers";
        assert_eq!(indented(help, Some(24), 9), expected);
        assert_eq!(indented(help, Some(80), 9), help);
        assert_eq!(indented(help, None, 9), help);
        // Words that are wider than the terminal have their own lines.
        assert_eq!(indented("a bbbbbbbb cc", Some(5), 1), "a\n bbbbbbbb\n cc");
    }

    #[test]
    fn does_not_break_lines_of_unknown_width() {
        let mut wrapper = Wrapper::default();
        let text = "word ".repeat(100);
        assert_eq!(wrapper.push(&text) + &wrapper.flush(), text);
    }
}
