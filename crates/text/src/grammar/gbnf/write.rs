//! Writes rules and terminals in Lark syntax.

use super::analysis::AnalyzedGrammar;
use super::char_set::CharSet;
use super::rule::Node;
use std::collections::HashSet;
use std::fmt::Write as _;

/// Returns the grammar as text, and the terminals that clash with what may follow them. If there
/// are any, they must be demoted to rules and the text written again.
pub(super) fn lark(grammar: &AnalyzedGrammar<'_>, root: usize) -> (String, HashSet<usize>) {
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
    grammar: &'g AnalyzedGrammar<'g>,
    /// Definitions of terminals for parts of rules.
    terminals: String,
    count: usize,
    clashes: HashSet<usize>,
}

impl Writer<'_> {
    /// Returns the Lark name of a rule. Terminal names are upper case, rule names lower case.
    fn name(&self, at: usize) -> String {
        let name = self.grammar.rules[at].name.replace('-', "_");
        if self.grammar.terminal[at] {
            format!("T{at}_{}", name.to_ascii_uppercase())
        } else {
            format!("r{at}_{}", name.to_ascii_lowercase())
        }
    }

    /// Writes alternative sequences of a rule that are followed by `follow`.
    fn alternatives(&mut self, all: &[Vec<Node>], follow: &CharSet) -> String {
        let all = all.iter().map(|nodes| self.sequence(nodes, follow));
        all.collect::<Vec<_>>().join(" | ")
    }

    /// Writes a sequence, from its end to its start. Combines as many adjacent nodes as possible into
    /// one terminal.
    fn sequence(&mut self, nodes: &[Node], follow: &CharSet) -> String {
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

    /// Defines a terminal for a part of a sequence. Returns its name.
    fn terminal(&mut self, run: &[Node]) -> String {
        let name = format!("RUN{}", self.count);
        self.count += 1;
        let expression = self.expression_of(run);
        let _ = writeln!(self.terminals, "{name}: {expression}");
        name
    }

    /// Writes a single node of a rule, without a combined terminal.
    fn node(&mut self, node: &Node, next: &CharSet) -> String {
        match node {
            Node::Rule(name, _) => {
                let at = self.grammar.index(name);
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

    /// Writes alternative sequences of a terminal.
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
            Node::Rule(name, _) => self.name(self.grammar.index(name)),
            Node::Group(all) => format!("({})", self.expression(all)),
            Node::Repeated(node, min, max) => repetition(&self.part(node), *min, *max),
            Node::Token(_) => unreachable!("terminals do not contain tokens"),
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

/// Returns a Lark string literal.
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
