//! The GBNF parser.

use super::char_set::CharSet;
use super::rule::{Node, Rule};
use tabla_core::error::{Error, ErrorKind, Result};

/// Maximum nesting depth of groups. llguidance allows thirty, and rules add a few.
const NESTING_MAX: usize = 24;
/// Maximum repetition count. llguidance limits the resulting size.
const REPETITIONS_MAX: u32 = 1_000_000;

/// Parser of GBNF.
pub(super) struct Parser<'t> {
    text: &'t str,
    at: usize,
    nesting: usize,
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            nesting: 0,
        }
    }

    fn line(&self) -> usize {
        self.text[..self.at].matches('\n').count() + 1
    }

    fn error(&self, what: &str) -> Error {
        let line = self.line();
        Error::new(ErrorKind::Grammar, format_args!("line {line}: {what}"))
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn take(&mut self, text: &str) -> bool {
        let matches = self.rest().starts_with(text);
        self.at += if matches { text.len() } else { 0 };
        matches
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        if self.take(text) {
            return Ok(());
        }
        Err(self.error(&format!("expected `{text}`")))
    }

    fn character(&mut self) -> Result<char> {
        let Some(c) = self.rest().chars().next() else {
            return Err(self.error("unexpected end of the grammar"));
        };
        self.at += c.len_utf8();
        Ok(c)
    }

    fn word(&mut self, is_part: fn(&char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !is_part(&c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Skips white space and comments, but not newlines.
    fn space(&mut self) {
        self.word(|c| " \t\r".contains(*c));
        if self.rest().starts_with('#') {
            self.word(|c| *c != '\n');
        }
    }

    fn lines(&mut self) {
        self.space();
        while self.take("\n") {
            self.space();
        }
    }

    pub(super) fn rules(&mut self) -> Result<Vec<Rule>> {
        let mut rules: Vec<Rule> = Vec::new();
        self.lines();
        while !self.rest().is_empty() {
            let name = self.name();
            if name.is_empty() {
                return Err(self.error("expected a rule name"));
            }
            if rules.iter().any(|rule| rule.name == name) {
                return Err(self.error(&format!("duplicate rule `{name}`")));
            }
            self.space();
            self.expect("::=")?;
            self.lines();
            let body = self.alternatives()?;
            if !self.rest().is_empty() && !self.rest().starts_with('\n') {
                return Err(self.error("unexpected character in a rule"));
            }
            self.lines();
            rules.push(Rule {
                name: name.to_string(),
                body,
            });
        }
        Ok(rules)
    }

    fn name(&mut self) -> &'t str {
        self.word(|c| c.is_ascii_alphanumeric() || "-_".contains(*c))
    }

    fn alternatives(&mut self) -> Result<Vec<Vec<Node>>> {
        let mut all = vec![self.sequence()?];
        loop {
            // The next alternative may be on a new line.
            let end = self.at;
            self.lines();
            if !self.take("|") {
                self.at = end;
                return Ok(all);
            }
            self.lines();
            all.push(self.sequence()?);
        }
    }

    fn sequence(&mut self) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        loop {
            if self.nesting > 0 {
                self.lines();
            } else {
                self.space();
            }
            let Some(node) = self.node()? else {
                return Ok(nodes);
            };
            nodes.push(self.repeated(node)?);
        }
    }

    fn node(&mut self) -> Result<Option<Node>> {
        let Some(first) = self.rest().chars().next() else {
            return Ok(None);
        };
        Ok(Some(match first {
            '"' => self.literal()?,
            '[' => self.class()?,
            '.' => {
                self.at += 1;
                Node::Class(CharSet::default().complement())
            }
            '(' => self.group()?,
            '<' | '!' => self.token()?,
            c if c.is_ascii_alphanumeric() || c == '_' => {
                let line = self.line();
                Node::Rule(self.name().to_string(), line)
            }
            _ => return Ok(None),
        }))
    }

    fn literal(&mut self) -> Result<Node> {
        self.at += 1;
        let mut text = String::new();
        while !self.take("\"") {
            text.push(self.maybe_escaped()?);
        }
        Ok(Node::Text(text))
    }

    fn class(&mut self) -> Result<Node> {
        self.at += 1;
        let is_negated = self.take("^");
        let mut set = CharSet::default();
        while !self.take("]") {
            let first = self.maybe_escaped()?;
            let mut last = first;
            // A minus before the closing bracket is literal.
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                last = self.maybe_escaped()?;
            }
            if last < first {
                return Err(self.error(&format!("empty range {first:?}-{last:?}")));
            }
            set.add(&CharSet::range(first, last));
        }
        let set = if is_negated { set.complement() } else { set };
        if set.is_empty() {
            return Err(self.error("empty character class"));
        }
        Ok(Node::Class(set))
    }

    fn group(&mut self) -> Result<Node> {
        self.at += 1;
        if self.nesting == NESTING_MAX {
            return Err(self.error(&format!(
                "groups are nested deeper than {NESTING_MAX} levels"
            )));
        }
        self.nesting += 1;
        let group = Node::Group(self.alternatives()?);
        self.lines();
        self.expect(")")?;
        self.nesting -= 1;
        Ok(group)
    }

    /// `<name>`, `<[7]>`, or `!<[7]>` for any other token.
    fn token(&mut self) -> Result<Node> {
        let negated = self.take("!");
        self.expect("<")?;
        let name = self.word(|c| !"<>\n".contains(*c) && !c.is_whitespace());
        self.expect(">")?;
        let id = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
        let id = id.and_then(|n| n.parse::<u32>().ok());
        Ok(Node::Token(match (id, negated) {
            (Some(id), true) => format!("<[^{id}]>"),
            (Some(id), false) => format!("<[{id}]>"),
            (None, false) if !name.is_empty() && !name.starts_with('[') => format!("<{name}>"),
            _ => return Err(self.error("expected a token `<name>`, `<[7]>` or `!<[7]>`")),
        }))
    }

    /// Parses a character of a literal or a class.
    fn maybe_escaped(&mut self) -> Result<char> {
        let c = self.character()?;
        if c == '\n' {
            return Err(self.error("newline in a literal or character class"));
        }
        if c != '\\' {
            return Ok(c);
        }
        let digits = match self.character()? {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            c @ ('\\' | '"' | '[' | ']' | '-' | '^' | '/' | '.') => return Ok(c),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            c => return Err(self.error(&format!("unknown escape \\{c}"))),
        };
        let hex = self.rest().get(..digits).unwrap_or_default();
        let is_hex = !hex.is_empty() && hex.chars().all(|c| c.is_ascii_hexdigit());
        let code = u32::from_str_radix(hex, 16).ok().filter(|_| is_hex);
        self.at += hex.len();
        let c = code.and_then(char::from_u32);
        c.ok_or_else(|| {
            self.error(&format!(
                "expected {digits} hexadecimal digits of a character"
            ))
        })
    }

    fn repeated(&mut self, mut node: Node) -> Result<Node> {
        loop {
            let end = self.at;
            self.space();
            let (min, max) = match self.rest().chars().next() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    self.at += 1;
                    self.space();
                    let min = self.number()?;
                    self.space();
                    let max = if self.take(",") {
                        self.space();
                        let is_open = self.rest().starts_with('}');
                        if is_open { None } else { Some(self.number()?) }
                    } else {
                        Some(min)
                    };
                    self.space();
                    (min, max)
                }
                _ => {
                    self.at = end;
                    return Ok(node);
                }
            };
            if max.is_some_and(|max| max < min) {
                return Err(self.error("the maximum of a repetition is below its minimum"));
            }
            if self.rest().starts_with(['*', '+', '?']) {
                self.at += 1;
            } else {
                self.expect("}")?;
            }
            node = Node::Repeated(Box::new(node), min, max);
        }
    }

    fn number(&mut self) -> Result<u32> {
        let digits = self.word(char::is_ascii_digit);
        let number = digits.parse().ok().filter(|n| *n <= REPETITIONS_MAX);
        number.ok_or_else(|| {
            self.error(&format!(
                "expected a number from 0 to {REPETITIONS_MAX}, got {digits:?}"
            ))
        })
    }
}
