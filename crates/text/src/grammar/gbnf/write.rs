//! The writer: rules and terminals in Lark's syntax.

use super::facts::Grammar;
use super::rule::Node;
use super::set::Set;
use std::collections::HashSet;
use std::fmt::Write as _;

/// The grammar as text, and the terminals that clash with what may follow them: if there are any,
/// the text is to be written again without them.
pub(super) fn lark(grammar: &Grammar<'_>, root: usize) -> (String, HashSet<usize>) {
    let mut writer = Writer {
        grammar,
        terminals: String::new(),
        count: 0,
        clashes: HashSet::new(),
    };
    let mut text = format!("start: {}\n", writer.name(root));
    for (at, rule) in grammar.rules.iter().enumerate() {
        let body = if grammar.terminal[at] {
            writer.expression(&rule.body)
        } else {
            writer.alternatives(&rule.body, &grammar.follow[at])
        };
        let _ = writeln!(text, "{}: {body}", writer.name(at));
    }
    text.push_str(&writer.terminals);
    (text, writer.clashes)
}

struct Writer<'g> {
    grammar: &'g Grammar<'g>,
    /// Definitions of what stands together within rules.
    terminals: String,
    count: usize,
    clashes: HashSet<usize>,
}

impl Writer<'_> {
    /// What a rule is called in Lark, where capitals tell terminals from rules.
    fn name(&self, at: usize) -> String {
        let name = self.grammar.rules[at].name.replace('-', "_");
        if self.grammar.terminal[at] {
            format!("T{at}_{}", name.to_ascii_uppercase())
        } else {
            format!("r{at}_{}", name.to_ascii_lowercase())
        }
    }

    /// Sequences of a rule, behind which `follow` may come.
    fn alternatives(&mut self, all: &[Vec<Node>], follow: &Set) -> String {
        let all = all.iter().map(|nodes| self.sequence(nodes, follow));
        all.collect::<Vec<_>>().join(" | ")
    }

    /// A sequence from its end to its start: as much as can be of what stands together is one
    /// terminal.
    fn sequence(&mut self, nodes: &[Node], follow: &Set) -> String {
        let (mut parts, mut rest, mut next) = (Vec::new(), nodes, follow.clone());
        while let Some(node) = rest.last() {
            let others = rest.iter().rev();
            let mut length = others.take_while(|n| self.grammar.is_terminal(n)).count();
            let mut run = &rest[rest.len() - length..];
            if length == 0 || self.grammar.of_sequence(run).clashes(&next) {
                parts.push(self.node(node, &next));
                length = 1;
                run = std::slice::from_ref(node);
            } else {
                parts.push(self.terminal(run));
            }
            next = self.grammar.before(&self.grammar.of_sequence(run), &next);
            rest = &rest[..rest.len() - length];
        }
        if parts.is_empty() {
            return r#""""#.into();
        }
        parts.reverse();
        parts.join(" ")
    }

    /// A new terminal for a part of a sequence.
    fn terminal(&mut self, run: &[Node]) -> String {
        let name = format!("RUN{}", self.count);
        self.count += 1;
        let expression = self.expression_of(run);
        let _ = writeln!(self.terminals, "{name}: {expression}");
        name
    }

    /// A part of a rule on its own: taken apart as far as it goes.
    fn node(&mut self, node: &Node, next: &Set) -> String {
        match node {
            Node::Rule(name, _) => {
                let at = self.grammar.place(name);
                if self.grammar.terminal[at] {
                    self.clashes.insert(at);
                }
                self.name(at)
            }
            Node::Group(all) => format!("({})", self.alternatives(all, next)),
            Node::Repeated(node, min, max) => {
                let next = self.grammar.inside(node, *max, next);
                let node = self.sequence(std::slice::from_ref(node), &next);
                repetition(&node, *min, *max)
            }
            Node::Token(name) => name.clone(),
            Node::Text(_) | Node::Class(_) => self.terminal(std::slice::from_ref(node)),
        }
    }

    /// Sequences of a terminal.
    fn expression(&self, all: &[Vec<Node>]) -> String {
        let all = all.iter().map(|nodes| self.expression_of(nodes));
        all.collect::<Vec<_>>().join(" | ")
    }

    fn expression_of(&self, nodes: &[Node]) -> String {
        let parts: Vec<_> = nodes.iter().map(|node| self.part(node)).collect();
        if parts.is_empty() {
            return r#""""#.into();
        }
        parts.join(" ")
    }

    fn part(&self, node: &Node) -> String {
        match node {
            Node::Text(text) => quoted(text),
            Node::Class(set) => format!("/{set}/"),
            Node::Rule(name, _) => self.name(self.grammar.place(name)),
            Node::Group(all) => format!("({})", self.expression(all)),
            Node::Repeated(node, min, max) => repetition(&self.part(node), *min, *max),
            Node::Token(_) => unreachable!("no part of a terminal"),
        }
    }
}

fn repetition(what: &str, min: u32, max: Option<u32>) -> String {
    match (min, max) {
        (_, Some(0)) => r#""""#.into(),
        (0, None) => format!("({what})*"),
        (1, None) => format!("({what})+"),
        (0, Some(1)) => format!("({what})?"),
        (min, None) => format!("({what}){{{min},}}"),
        (min, Some(max)) => format!("({what}){{{min},{max}}}"),
    }
}

/// A text as Lark writes it.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\0'..=' ' | '\x7f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
