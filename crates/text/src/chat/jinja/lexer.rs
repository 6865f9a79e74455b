//! Splits a template into text and tokens, with Jinja's rules of white space.

use super::failure::{Failure, Outcome};
use super::literals::{number, string};
use super::token::Token;
use tabla_core::error::ErrorKind;

/// Maximum number of tokens in a tag. The longest tag of a known template has 500.
const TAG_TOKENS_MAX: usize = 4000;

/// Operators, longest first.
const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";",
];

/// Splits a template into tokens with their lines.
pub(super) fn tokenize(source: &str) -> Outcome<Vec<(Token, u32)>> {
    let lexer = Lexer {
        source: source.strip_suffix('\n').unwrap_or(source),
        at: 0,
        line: 1,
        line_start: true,
        tokens: Vec::new(),
    };
    lexer.run()
}

struct Lexer<'s> {
    source: &'s str,
    /// Position in bytes.
    at: usize,
    line: u32,
    /// Whether the end of the previous tag includes a line end.
    line_start: bool,
    tokens: Vec<(Token, u32)>,
}

impl<'s> Lexer<'s> {
    fn run(mut self) -> Outcome<Vec<(Token, u32)>> {
        loop {
            let rest = self.rest();
            let Some(start) = find_tag(rest) else {
                self.text(rest);
                return Ok(self.tokens);
            };
            let sign = sign(&rest[start + 2..]);
            let tag = &rest[start..start + 2];
            let text = self.trimmed_end(&rest[..start], sign, tag);
            self.text(text);
            self.advance(start + 2 + sign.len());
            match tag {
                "{#" => self.comment()?,
                "{%" if self.raw_start() => self.raw()?,
                _ => self.tag(tag)?,
            }
        }
    }

    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn advance(&mut self, bytes: usize) {
        let lines = self.rest()[..bytes].matches('\n').count();
        self.line = self
            .line
            .saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.at += bytes;
    }

    fn push(&mut self, token: Token) {
        self.tokens.push((token, self.line));
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(Token::Text(text.into()));
        }
    }

    fn error<T>(&self, message: &str) -> Outcome<T> {
        Err(Failure::new(ErrorKind::Format, message).at(self.line))
    }

    /// Removes white space before a tag: all of it for `-`, and the indentation of blocks and
    /// comments (`lstrip_blocks`).
    fn trimmed_end(&self, text: &'s str, sign: &str, tag: &str) -> &'s str {
        if sign == "-" {
            return text.trim_end();
        }
        if sign == "+" || tag == "{{" {
            return text;
        }
        let line = text.rfind('\n').map_or(0, |at| at + 1);
        let blank = text[line..].chars().all(char::is_whitespace);
        if blank && (line > 0 || self.line_start) {
            &text[..line]
        } else {
            text
        }
    }

    /// Skips the end of a tag of `bytes` bytes and the white space after it: all of it for `-`, and
    /// a line end after blocks and comments (`trim_blocks`).
    fn end_tag(&mut self, sign: &str, tag: &str) {
        self.advance(sign.len() + tag.len());
        let rest = self.rest();
        let skipped = match sign {
            "-" => rest.len() - rest.trim_start().len(),
            "" if tag != "}}" => usize::from(rest.starts_with('\n')),
            _ => 0,
        };
        self.line_start = rest[..skipped].ends_with('\n');
        self.advance(skipped);
    }

    fn comment(&mut self) -> Outcome<()> {
        let rest = self.rest();
        let Some(end) = rest.find("#}") else {
            return self.error("a comment has no end");
        };
        let sign = match rest.as_bytes()[..end].last() {
            Some(b'-') => "-",
            Some(b'+') => "+",
            _ => "",
        };
        self.advance(end - sign.len());
        self.end_tag(sign, "#}");
        Ok(())
    }

    /// Whether the block tag at this position is `raw`; skips it.
    fn raw_start(&mut self) -> bool {
        let Some(rest) = self.rest().trim_start().strip_prefix("raw") else {
            return false;
        };
        let rest = rest.trim_start();
        let sign = if rest.starts_with('-') { "-" } else { "" };
        if !rest[sign.len()..].starts_with("%}") {
            return false;
        }
        self.advance(self.rest().len() - rest.len());
        // No line end is removed after this tag.
        self.end_tag(sign, if sign.is_empty() { "}}" } else { "%}" });
        true
    }

    fn raw(&mut self) -> Outcome<()> {
        let rest = self.rest();
        let mut from = 0;
        while let Some(start) = rest[from..].find("{%").map(|at| from + at) {
            from = start + 2;
            let before = sign(&rest[from..]);
            let Some(tail) = rest[from + before.len()..]
                .trim_start()
                .strip_prefix("endraw")
            else {
                continue;
            };
            let tail = tail.trim_start();
            let after = sign(tail);
            if tail[after.len()..].starts_with("%}") {
                let text = self.trimmed_end(&rest[..start], before, "{%");
                self.text(text);
                self.advance(rest.len() - tail.len());
                self.end_tag(after, "%}");
                return Ok(());
            }
        }
        self.error("a raw block has no end")
    }

    /// The tokens of an output or block tag.
    fn tag(&mut self, tag: &str) -> Outcome<()> {
        let (start, end) = match tag {
            "{{" => (Token::OutputStart, "}}"),
            _ => (Token::BlockStart, "%}"),
        };
        self.push(start);
        let first = self.tokens.len();
        let mut open = Vec::new();
        loop {
            let rest = self.rest();
            let space = rest.len() - rest.trim_start().len();
            self.advance(space);
            let rest = self.rest();
            let sign = sign(rest);
            let plus = sign == "+" && end == "}}";
            if open.is_empty() && !plus && rest[sign.len()..].starts_with(end) {
                self.push(Token::TagEnd);
                self.end_tag(sign, end);
                return Ok(());
            }
            if self.tokens.len() - first > TAG_TOKENS_MAX {
                let message = format!("a tag has more than {TAG_TOKENS_MAX} tokens");
                return Err(Failure::new(ErrorKind::TooLarge, message).at(self.line));
            }
            self.token(&mut open)?;
        }
    }

    /// Reads one token of a tag; `open` has the brackets that are open.
    fn token(&mut self, open: &mut Vec<&'static str>) -> Outcome<()> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return self.error("a tag has no end");
        };
        let (token, length) = if first.is_ascii_digit() {
            number(&self.source[..self.at], rest).map_err(|e| e.at(self.line))?
        } else if first.is_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            (Token::Name(name.into()), name.len())
        } else if first == '"' || first == '\'' {
            string(rest).map_err(|e| e.at(self.line))?
        } else {
            let operator = OPERATORS.iter().find(|o| rest.starts_with(**o));
            let Some(operator) = operator else {
                return self.error(&format!("unexpected character {first:?}"));
            };
            match *operator {
                "(" => open.push(")"),
                "[" => open.push("]"),
                "{" => open.push("}"),
                ")" | "]" | "}" if open.pop() != Some(operator) => {
                    return self.error(&format!("unexpected {operator:?}"));
                }
                _ => {}
            }
            (Token::Operator(operator), operator.len())
        };
        self.push(token);
        self.advance(length);
        Ok(())
    }
}

/// The sign at the start of a text that controls white space.
fn sign(text: &str) -> &'static str {
    match text.as_bytes().first() {
        Some(b'-') => "-",
        Some(b'+') => "+",
        _ => "",
    }
}

/// Position of the first start of a tag.
fn find_tag(text: &str) -> Option<usize> {
    let is_tag =
        |(at, _): &(usize, &str)| matches!(text.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#'));
    text.match_indices('{').find(is_tag).map(|(at, _)| at)
}
