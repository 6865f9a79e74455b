//! Rules of a grammar and their parts.

use super::set::Set;

/// A part of a rule.
#[derive(Debug, PartialEq)]
pub(super) enum Node {
    /// These characters.
    Text(String),
    /// One character of these.
    Class(Set),
    /// One token, as Lark names it.
    Token(String),
    /// What the rule of this name says; the line where it is named.
    Rule(String, usize),
    /// One of several sequences.
    Group(Vec<Vec<Self>>),
    /// So many in a row, or any number from `min` on.
    Repeated(Box<Self>, u32, Option<u32>),
}

/// A rule: its sequences.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) body: Vec<Vec<Node>>,
}
