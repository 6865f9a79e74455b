//! What can be said of the parts of a grammar: how they begin, what may follow them, and whether a
//! terminal may stand for them.

use super::rule::{Node, Rule};
use super::set::Set;
use std::collections::{HashMap, HashSet};
use tabla_core::error::{Result, bail};

/// What can be said of a part.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// Whether it may be nothing.
    pub(super) nullable: bool,
    /// Characters that it may begin with.
    pub(super) first: Set,
    /// Characters that may go on where it could have ended; maybe more than those.
    more: Set,
    /// Characters that are in it.
    within: Set,
}

impl Facts {
    fn nothing() -> Self {
        Self {
            nullable: true,
            ..Self::default()
        }
    }

    fn of(c: char) -> Self {
        Self::class(&Set::of(c))
    }

    fn class(set: &Set) -> Self {
        Self {
            first: set.clone(),
            within: set.clone(),
            ..Self::default()
        }
    }

    /// This one and then another.
    fn then(mut self, next: &Self) -> Self {
        self.within.add(&next.within);
        // Where the border between them is not clear, an end is not clear either.
        let mut more = if self.more.meets(&next.first) {
            self.within.clone()
        } else {
            Set::default()
        };
        more.add(&next.more);
        if next.nullable {
            more.add(&self.more);
            more.add(&next.first);
        }
        if self.nullable {
            self.first.add(&next.first);
        }
        self.more = more;
        self.nullable &= next.nullable;
        self
    }

    /// This one or another.
    fn or(mut self, other: &Self) -> Self {
        let is_clear = !self.first.meets(&other.first);
        self.nullable |= other.nullable;
        self.first.add(&other.first);
        self.within.add(&other.within);
        if is_clear {
            self.more.add(&other.more);
        } else {
            self.more = self.within.clone();
        }
        self
    }

    fn repeated(self, min: u32, max: Option<u32>) -> Self {
        if max == Some(0) {
            return Self::nothing();
        }
        let once = self.clone();
        let mut all = if max == Some(1) {
            self
        } else {
            self.then(&once)
        };
        if max != Some(min) {
            all.more.add(&once.first);
        }
        all.nullable = once.nullable || min == 0;
        all
    }

    /// Whether a terminal for it could take what was to follow.
    pub(super) fn clashes(&self, follow: &Set) -> bool {
        self.more.meets(follow) || (self.nullable && self.first.meets(follow))
    }
}

/// Rules, and what is known of them.
pub(super) struct Grammar<'r> {
    pub(super) rules: &'r [Rule],
    places: HashMap<&'r str, usize>,
    /// Whose bodies name each rule.
    users: Vec<Vec<usize>>,
    /// Which rules are terminals: they lead neither to themselves nor to tokens, and do not clash.
    pub(super) terminal: Vec<bool>,
    facts: Vec<Facts>,
    /// What may follow each rule.
    pub(super) follow: Vec<Set>,
}

impl<'r> Grammar<'r> {
    pub(super) fn new(rules: &'r [Rule]) -> Result<Self> {
        let places = rules.iter().enumerate();
        let mut grammar = Self {
            rules,
            places: places.map(|(at, rule)| (rule.name.as_str(), at)).collect(),
            users: vec![Vec::new(); rules.len()],
            terminal: vec![false; rules.len()],
            facts: vec![Facts::default(); rules.len()],
            follow: vec![Set::default(); rules.len()],
        };
        grammar.find_terminals()?;
        grammar.find_facts();
        grammar.find_follow();
        Ok(grammar)
    }

    /// The rule of a name that was found to be one.
    pub(super) fn place(&self, name: &str) -> usize {
        self.places[name]
    }

    /// A rule is a terminal once all that it leads to is: one that leads to itself never is.
    fn find_terminals(&mut self) -> Result<()> {
        let mut missing = vec![0; self.rules.len()];
        for (at, rule) in self.rules.iter().enumerate() {
            let mut open: Vec<&Node> = rule.body.iter().flatten().collect();
            while let Some(node) = open.pop() {
                match node {
                    Node::Rule(name, line) => {
                        let Some(&to) = self.places.get(name.as_str()) else {
                            bail!(Grammar, "line {line}: there is no rule `{name}`");
                        };
                        self.users[to].push(at);
                        missing[at] += 1;
                    }
                    Node::Token(_) => missing[at] += 1,
                    Node::Group(all) => open.extend(all.iter().flatten()),
                    Node::Repeated(node, ..) => open.push(node),
                    Node::Text(_) | Node::Class(_) => {}
                }
            }
        }
        let places = 0..self.rules.len();
        let mut ready: Vec<_> = places.filter(|at| missing[*at] == 0).collect();
        while let Some(at) = ready.pop() {
            self.terminal[at] = true;
            for &user in &self.users[at] {
                missing[user] -= 1;
                if missing[user] == 0 {
                    ready.push(user);
                }
            }
        }
        Ok(())
    }

    /// Takes terminals back, and with them those that they are in.
    pub(super) fn take_apart(&mut self, rules: &HashSet<usize>) {
        let mut open: Vec<_> = rules.iter().copied().collect();
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut self.terminal[at], false) {
                open.extend(&self.users[at]);
            }
        }
    }

    fn find_facts(&mut self) {
        let mut open: Vec<_> = (0..self.rules.len()).collect();
        while let Some(at) = open.pop() {
            let facts = self.of_group(&self.rules[at].body);
            if facts != self.facts[at] {
                self.facts[at] = facts;
                open.extend(&self.users[at]);
            }
        }
    }

    fn of_group(&self, all: &[Vec<Node>]) -> Facts {
        let mut all = all.iter().map(|nodes| self.of_sequence(nodes));
        let first = all.next().unwrap_or_default();
        all.fold(first, |facts, other| facts.or(&other))
    }

    pub(super) fn of_sequence(&self, nodes: &[Node]) -> Facts {
        let nodes = nodes.iter().map(|node| self.of_node(node));
        nodes.fold(Facts::nothing(), |facts, next| facts.then(&next))
    }

    fn of_node(&self, node: &Node) -> Facts {
        match node {
            Node::Text(text) => text
                .chars()
                .fold(Facts::nothing(), |facts, c| facts.then(&Facts::of(c))),
            Node::Class(set) => Facts::class(set),
            // No text spells a token.
            Node::Token(_) => Facts::default(),
            Node::Rule(name, _) => self.facts[self.place(name)].clone(),
            Node::Group(all) => self.of_group(all),
            Node::Repeated(node, min, max) => self.of_node(node).repeated(*min, *max),
        }
    }

    fn find_follow(&mut self) {
        let mut open: Vec<_> = (0..self.rules.len()).collect();
        while let Some(at) = open.pop() {
            let mut found = Vec::new();
            self.follow_in(&self.rules[at].body, &self.follow[at], &mut found);
            for (rule, set) in found {
                if self.follow[rule].add(&set) {
                    open.push(rule);
                }
            }
        }
    }

    /// What may follow the rules that are named in sequences, behind which `follow` may come.
    fn follow_in(&self, all: &[Vec<Node>], follow: &Set, found: &mut Vec<(usize, Set)>) {
        for nodes in all {
            let mut next = follow.clone();
            for node in nodes.iter().rev() {
                let facts = self.of_node(node);
                self.follow_of(node, &next, found);
                next = self.before(&facts, &next);
            }
        }
    }

    fn follow_of(&self, node: &Node, next: &Set, found: &mut Vec<(usize, Set)>) {
        match node {
            Node::Rule(name, _) => found.push((self.place(name), next.clone())),
            Node::Group(all) => self.follow_in(all, next, found),
            Node::Repeated(node, _, max) => {
                let next = self.inside(node, *max, next);
                self.follow_of(node, &next, found);
            }
            Node::Text(_) | Node::Class(_) | Node::Token(_) => {}
        }
    }

    /// What may come where a part begins, behind which `next` may come.
    pub(super) fn before(&self, facts: &Facts, next: &Set) -> Set {
        let mut set = facts.first.clone();
        if facts.nullable {
            set.add(next);
        }
        set
    }

    /// What may follow a part that is repeated.
    pub(super) fn inside(&self, node: &Node, max: Option<u32>, next: &Set) -> Set {
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
            Node::Rule(name, _) => self.terminal[self.place(name)],
            Node::Group(all) => all.iter().flatten().all(|node| self.is_terminal(node)),
            Node::Repeated(node, ..) => self.is_terminal(node),
        }
    }
}
