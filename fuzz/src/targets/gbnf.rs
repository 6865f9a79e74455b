//! GBNF grammars. Every output that the engine allows must match the grammar by a naive search.

use super::choices::Choices;
use super::grammar_walk::walk;
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use tabla::text::Grammar;

/// Number of rules.
const RULES: usize = 4;

enum Node {
    Text(&'static str),
    /// Whether negated, and the ranges.
    Class(bool, Vec<(char, char)>),
    Any,
    Rule(usize),
    Group(Vec<Vec<Self>>),
    Repeat(Box<Self>, u32, Option<u32>),
}

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    if choices.rarely(16) {
        // Any text: errors only.
        let text = String::from_utf8_lossy(choices.rest()).into_owned();
        walk(&Grammar::Gbnf(text), &mut Choices::new(&[]));
        return;
    }
    let rules: Vec<_> = (0..RULES).map(|_| alternatives(&mut choices, 3)).collect();
    let mut text = String::new();
    for (index, rule) in rules.iter().enumerate() {
        let _ = write!(text, "{} ::= ", name(index));
        write_alternatives(&mut text, rule);
        text.push('\n');
    }
    let Some(output) = walk(&Grammar::Gbnf(text.clone()), &mut choices) else {
        return;
    };
    let output = String::from_utf8(output).expect("characters of the grammar");
    let matches = Naive::new(&rules, &output).matches();
    assert!(matches != Some(false), "{output:?} does not match:\n{text}");
}

fn name(rule: usize) -> String {
    if rule == 0 {
        "root".to_string()
    } else {
        format!("r{rule}")
    }
}

fn alternatives(choices: &mut Choices<'_>, depth: usize) -> Vec<Vec<Node>> {
    let sequence = |choices: &mut Choices<'_>| {
        (0..choices.below(4))
            .map(|_| node(choices, depth))
            .collect()
    };
    (0..1 + choices.below(3))
        .map(|_| sequence(choices))
        .collect()
}

fn node(choices: &mut Choices<'_>, depth: usize) -> Node {
    match choices.below(12) {
        0..4 => {
            Node::Text(choices.pick::<&str>(&["a", "ab", "b", "", "\u{4f60}", "\"", "{\"", "\n"]))
        }
        4 | 5 => Node::Class(choices.rarely(4), classes(choices)),
        6 => Node::Any,
        7 | 8 => Node::Rule(choices.below(RULES)),
        9 if depth > 0 => Node::Group(alternatives(choices, depth - 1)),
        10 if depth > 0 => {
            let min = choices.below(3) as u32;
            let max = if choices.rarely(2) {
                None
            } else {
                Some(min + choices.below(3) as u32)
            };
            Node::Repeat(Box::new(node(choices, depth - 1)), min, max)
        }
        _ => Node::Text("b"),
    }
}

fn classes(choices: &mut Choices<'_>) -> Vec<(char, char)> {
    let ranges = [
        ('a', 'c'),
        ('b', 'b'),
        ('0', '9'),
        ('\u{e0}', '\u{ff}'),
        ('\u{4e00}', '\u{9fff}'),
        (' ', '~'),
    ];
    (0..1 + choices.below(2))
        .map(|_| *choices.pick(&ranges))
        .collect()
}

fn write_alternatives(text: &mut String, all: &[Vec<Node>]) {
    for (index, sequence) in all.iter().enumerate() {
        *text += if index > 0 { " | " } else { "" };
        for node in sequence {
            write_node(text, node);
            text.push(' ');
        }
    }
}

fn write_node(text: &mut String, node: &Node) {
    let _ = match node {
        Node::Text(literal) => write!(
            text,
            "\"{}\"",
            literal.replace('"', "\\\"").replace('\n', "\\n")
        ),
        Node::Class(negated, ranges) => {
            let ranges: String = ranges
                .iter()
                .map(|(from, to)| format!("{from}-{to}"))
                .collect();
            write!(text, "[{}{ranges}]", if *negated { "^" } else { "" })
        }
        Node::Any => write!(text, "."),
        Node::Rule(rule) => write!(text, "{}", name(*rule)),
        Node::Group(all) => {
            text.push('(');
            write_alternatives(text, all);
            write!(text, ")")
        }
        Node::Repeat(node, min, max) => {
            text.push('(');
            write_node(text, node);
            let max = max.map_or(String::new(), |max| max.to_string());
            write!(text, "){{{min},{max}}}")
        }
    };
}

/// Positions where a match that starts at a position may end.
type Ends = BTreeSet<usize>;

/// Number of steps after which the search gives up: nested repetitions take minutes.
const STEPS_MAX: u32 = 1_000_000;

/// Search in a text: the ends of each rule from each position, grown until nothing is added.
struct Naive<'g> {
    rules: &'g [Vec<Vec<Node>>],
    text: Vec<char>,
    ends: HashMap<(usize, usize), Ends>,
    steps: Cell<u32>,
}

impl<'g> Naive<'g> {
    fn new(rules: &'g [Vec<Vec<Node>>], text: &str) -> Self {
        Self {
            rules,
            text: text.chars().collect(),
            ends: HashMap::new(),
            steps: Cell::new(0),
        }
    }

    /// Returns whether the text matches; `None` if the search takes too long.
    fn matches(mut self) -> Option<bool> {
        loop {
            let mut grew = false;
            for (rule, start) in (0..self.rules.len())
                .flat_map(|rule| (0..=self.text.len()).map(move |at| (rule, at)))
            {
                let new = self.alternatives(&self.rules[rule], start);
                let ends = self.ends.entry((rule, start)).or_default();
                grew |= new.len() > ends.len();
                *ends = new;
            }
            if self.steps.get() > STEPS_MAX {
                return None;
            }
            if !grew {
                return Some(self.ends[&(0, 0)].contains(&self.text.len()));
            }
        }
    }

    fn alternatives(&self, all: &[Vec<Node>], start: usize) -> Ends {
        let sequence = |nodes: &Vec<Node>| {
            let starts = Ends::from([start]);
            nodes
                .iter()
                .fold(starts, |starts, node| self.after(node, &starts))
        };
        all.iter().flat_map(sequence).collect()
    }

    /// Returns the ends of matches that start at any of several positions.
    fn after(&self, node: &Node, starts: &Ends) -> Ends {
        starts
            .iter()
            .flat_map(|start| self.node(node, *start))
            .collect()
    }

    fn node(&self, node: &Node, start: usize) -> Ends {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if steps > STEPS_MAX {
            return Ends::new();
        }
        let one = |fits: bool| {
            if fits {
                Ends::from([start + 1])
            } else {
                Ends::new()
            }
        };
        let next = self.text.get(start);
        match node {
            Node::Text(literal) => {
                let literal: Vec<char> = literal.chars().collect();
                let fits = self.text[start..].starts_with(&literal);
                if fits {
                    Ends::from([start + literal.len()])
                } else {
                    Ends::new()
                }
            }
            Node::Class(negated, ranges) => {
                let is_in = |c: &char| ranges.iter().any(|(from, to)| (from..=to).contains(&c));
                one(next.is_some_and(|c| is_in(c) != *negated))
            }
            Node::Any => one(next.is_some()),
            Node::Rule(rule) => self.ends.get(&(*rule, start)).cloned().unwrap_or_default(),
            Node::Group(all) => self.alternatives(all, start),
            Node::Repeat(node, min, max) => {
                let (mut reached, mut ends) = (Ends::from([start]), Ends::new());
                // More repetitions than characters add nothing.
                let most = max.unwrap_or(u32::MAX).min(min + self.text.len() as u32);
                for count in 0..=most {
                    if count >= *min {
                        ends.extend(&reached);
                    }
                    reached = self.after(node, &reached);
                }
                ends
            }
        }
    }
}
