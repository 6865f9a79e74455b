//! The syntax tree of a grammar.

use super::char_set::CharSet;

/// A node of a rule's body.
#[derive(Debug, PartialEq)]
pub(super) enum Node {
    /// A literal.
    Text(String),
    /// A character class.
    Class(CharSet),
    /// A token, in Lark syntax.
    Token(String),
    /// A reference to a rule by name, and its line.
    Rule(String, usize),
    /// Alternative sequences.
    Group(Vec<Vec<Self>>),
    /// A repetition with minimum and maximum; `None` is unbounded.
    Repeated(Box<Self>, u32, Option<u32>),
}

/// A rule: alternative sequences.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) body: Vec<Vec<Node>>,
}
