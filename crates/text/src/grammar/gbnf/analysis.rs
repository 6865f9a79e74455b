//! Grammar analysis: nullable, FIRST and FOLLOW sets, and which rules can be terminals.

use super::char_set::CharSet;
use super::rule::{Node, Rule};
use std::collections::{HashMap, HashSet};
use tabla_core::error::{Result, bail};

/// Properties of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Properties {
    /// Whether it matches the empty text.
    pub(super) nullable: bool,
    /// FIRST set: characters that a match may start with.
    pub(super) first: CharSet,
    /// Characters that may continue a complete match; may be an overestimate.
    continuation: CharSet,
    /// All characters of the node.
    chars: CharSet,
}

impl Properties {
    fn empty() -> Self {
        Self {
            nullable: true,
            ..Self::default()
        }
    }

    fn of(c: char) -> Self {
        Self::class(&CharSet::of(c))
    }

    fn class(set: &CharSet) -> Self {
        Self {
            first: set.clone(),
            chars: set.clone(),
            ..Self::default()
        }
    }

    /// Properties of a concatenation.
    fn then(mut self, next: &Self) -> Self {
        self.chars.add(&next.chars);
        // If the boundary between the two is ambiguous, the end of the match is too.
        let mut continuation = if self.continuation.intersects(&next.first) {
            self.chars.clone()
        } else {
            CharSet::default()
        };
        continuation.add(&next.continuation);
        if next.nullable {
            continuation.add(&self.continuation);
            continuation.add(&next.first);
        }
        if self.nullable {
            self.first.add(&next.first);
        }
        self.continuation = continuation;
        self.nullable &= next.nullable;
        self
    }

    /// Properties of an alternation.
    fn or(mut self, other: &Self) -> Self {
        let is_unambiguous = !self.first.intersects(&other.first);
        self.nullable |= other.nullable;
        self.first.add(&other.first);
        self.chars.add(&other.chars);
        if is_unambiguous {
            self.continuation.add(&other.continuation);
        } else {
            self.continuation = self.chars.clone();
        }
        self
    }

    fn repeated(self, min: u32, max: Option<u32>) -> Self {
        if max == Some(0) {
            return Self::empty();
        }
        let once = self.clone();
        let mut all = if max == Some(1) {
            self
        } else {
            self.then(&once)
        };
        if max != Some(min) {
            all.continuation.add(&once.first);
        }
        all.nullable = once.nullable || min == 0;
        all
    }

    /// Whether a greedy terminal for it could consume characters of what follows.
    pub(super) fn clashes(&self, follow: &CharSet) -> bool {
        self.continuation.intersects(follow) || (self.nullable && self.first.intersects(follow))
    }
}

/// The rules of a grammar and their properties.
pub(super) struct AnalyzedGrammar<'r> {
    pub(super) rules: &'r [Rule],
    indices: HashMap<&'r str, usize>,
    /// Rules that reference each rule.
    users: Vec<Vec<usize>>,
    /// Whether each rule is a terminal: it is not recursive, has no tokens, and does not clash.
    pub(super) terminal: Vec<bool>,
    properties: Vec<Properties>,
    /// FOLLOW set of each rule.
    pub(super) follow: Vec<CharSet>,
}

impl<'r> AnalyzedGrammar<'r> {
    pub(super) fn new(rules: &'r [Rule]) -> Result<Self> {
        let indices = rules.iter().enumerate();
        let mut grammar = Self {
            rules,
            indices: indices.map(|(at, rule)| (rule.name.as_str(), at)).collect(),
            users: vec![Vec::new(); rules.len()],
            terminal: vec![false; rules.len()],
            properties: vec![Properties::default(); rules.len()],
            follow: vec![CharSet::default(); rules.len()],
        };
        grammar.find_terminals()?;
        grammar.find_properties();
        grammar.find_follow();
        Ok(grammar)
    }

    /// The index of an existing rule.
    pub(super) fn index(&self, name: &str) -> usize {
        self.indices[name]
    }

    /// Marks the rules as terminals whose references are all terminals. Recursive rules are not.
    fn find_terminals(&mut self) -> Result<()> {
        let mut unresolved = vec![0; self.rules.len()];
        for (at, rule) in self.rules.iter().enumerate() {
            let mut open: Vec<&Node> = rule.body.iter().flatten().collect();
            while let Some(node) = open.pop() {
                match node {
                    Node::Rule(name, line) => {
                        let Some(&to) = self.indices.get(name.as_str()) else {
                            bail!(Grammar, "line {line}: undefined rule `{name}`");
                        };
                        self.users[to].push(at);
                        unresolved[at] += 1;
                    }
                    Node::Token(_) => unresolved[at] += 1,
                    Node::Group(all) => open.extend(all.iter().flatten()),
                    Node::Repeated(node, ..) => open.push(node),
                    Node::Text(_) | Node::Class(_) => {}
                }
            }
        }
        let indices = 0..self.rules.len();
        let mut ready: Vec<_> = indices.filter(|at| unresolved[*at] == 0).collect();
        while let Some(at) = ready.pop() {
            self.terminal[at] = true;
            for &user in &self.users[at] {
                unresolved[user] -= 1;
                if unresolved[user] == 0 {
                    ready.push(user);
                }
            }
        }
        Ok(())
    }

    /// Turns terminals into rules, and also the terminals that contain them.
    pub(super) fn demote_terminals(&mut self, rules: &HashSet<usize>) {
        let mut open: Vec<_> = rules.iter().copied().collect();
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut self.terminal[at], false) {
                open.extend(&self.users[at]);
            }
        }
    }

    fn find_properties(&mut self) {
        let mut open: Vec<_> = (0..self.rules.len()).collect();
        while let Some(at) = open.pop() {
            let properties = self.of_group(&self.rules[at].body);
            if properties != self.properties[at] {
                self.properties[at] = properties;
                open.extend(&self.users[at]);
            }
        }
    }

    fn of_group(&self, all: &[Vec<Node>]) -> Properties {
        let mut all = all.iter().map(|nodes| self.of_sequence(nodes));
        let first = all.next().unwrap_or_default();
        all.fold(first, |properties, other| properties.or(&other))
    }

    pub(super) fn of_sequence(&self, nodes: &[Node]) -> Properties {
        let nodes = nodes.iter().map(|node| self.of_node(node));
        nodes.fold(Properties::empty(), |properties, next| {
            properties.then(&next)
        })
    }

    fn of_node(&self, node: &Node) -> Properties {
        match node {
            Node::Text(text) => text.chars().fold(Properties::empty(), |properties, c| {
                properties.then(&Properties::of(c))
            }),
            Node::Class(set) => Properties::class(set),
            // A token matches no text.
            Node::Token(_) => Properties::default(),
            Node::Rule(name, _) => self.properties[self.index(name)].clone(),
            Node::Group(all) => self.of_group(all),
            Node::Repeated(node, min, max) => self.of_node(node).repeated(*min, *max),
        }
    }

    fn find_follow(&mut self) {
        let mut open: Vec<_> = (0..self.rules.len()).collect();
        while let Some(at) = open.pop() {
            let mut follow_sets = Vec::new();
            self.follow_in(&self.rules[at].body, &self.follow[at], &mut follow_sets);
            for (rule, set) in follow_sets {
                if self.follow[rule].add(&set) {
                    open.push(rule);
                }
            }
        }
    }

    /// Collects the FOLLOW sets of the rules in alternative sequences that are followed by `follow`.
    fn follow_in(&self, all: &[Vec<Node>], follow: &CharSet, out: &mut Vec<(usize, CharSet)>) {
        for nodes in all {
            let mut next = follow.clone();
            for node in nodes.iter().rev() {
                let properties = self.of_node(node);
                self.follow_of(node, &next, out);
                next = self.before(&properties, &next);
            }
        }
    }

    fn follow_of(&self, node: &Node, next: &CharSet, out: &mut Vec<(usize, CharSet)>) {
        match node {
            Node::Rule(name, _) => out.push((self.index(name), next.clone())),
            Node::Group(all) => self.follow_in(all, next, out),
            Node::Repeated(node, _, max) => {
                let next = self.inside(node, *max, next);
                self.follow_of(node, &next, out);
            }
            Node::Text(_) | Node::Class(_) | Node::Token(_) => {}
        }
    }

    /// Returns the characters that may start a node followed by `next`.
    pub(super) fn before(&self, properties: &Properties, next: &CharSet) -> CharSet {
        let mut set = properties.first.clone();
        if properties.nullable {
            set.add(next);
        }
        set
    }

    /// Returns the characters that may follow one iteration of a repeated node.
    pub(super) fn inside(&self, node: &Node, max: Option<u32>, next: &CharSet) -> CharSet {
        let mut set = next.clone();
        if max != Some(1) {
            set.add(&self.of_node(node).first);
        }
        set
    }

    pub(super) fn is_terminal(&self, node: &Node) -> bool {
        match node {
            Node::Text(_) | Node::Class(_) => true,
            Node::Token(_) => false,
            Node::Rule(name, _) => self.terminal[self.index(name)],
            Node::Group(all) => all.iter().flatten().all(|node| self.is_terminal(node)),
            Node::Repeated(node, ..) => self.is_terminal(node),
        }
    }
}
