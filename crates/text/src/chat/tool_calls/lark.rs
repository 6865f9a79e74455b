//! Parts of Lark grammars: literals, markers, and rules with generated names.

use crate::Tokenizer;
use serde_json::Value as Json;
use std::fmt::Write;
use std::ops::Range;
use tabla_core::error::{Result, bail};

/// Returns a Lark string literal. JSON escapes are equivalent for the strings used here.
pub(super) fn string(text: &str) -> String {
    Json::from(text).to_string()
}

/// Returns the Lark expression of a marker: its control tokens by id, the rest as strings.
pub(super) fn marker(text: &str, tokenizer: &Tokenizer) -> String {
    let control = |range: Range<usize>| {
        let id = tokenizer.special_id(text.get(range)?)?;
        tokenizer.is_control(id).then_some(id)
    };
    let mut parts = Vec::new();
    let (mut plain, mut at) = (0, 0);
    while at < text.len() {
        let mut ends = (at + 1..=text.len()).rev();
        let Some((id, end)) = ends.find_map(|end| Some((control(at..end)?, end))) else {
            at += 1;
            continue;
        };
        parts.extend((plain < at).then(|| string(&text[plain..at])));
        parts.push(format!("<[{id}]>"));
        (plain, at) = (end, end);
    }
    if plain < at || parts.is_empty() {
        parts.push(string(&text[plain..]));
    }
    parts.join(" ")
}

/// Returns the regex terms of texts that do not contain `text`.
pub(super) fn without(text: &str) -> String {
    let escape = |c: char| match r"\.+*?()|[]{}^$/".contains(c) {
        true => format!(r"\{c}"),
        false => c.to_string(),
    };
    let escaped: String = text.chars().map(escape).collect();
    format!("/(?s:.*)/ & ~/(?s:.*){escaped}(?s:.*)/")
}

/// Returns the expression of a JSON value for a schema, which is a part of the prepared schema `root`.
pub(super) fn json(schema: &Json, root: &Json) -> String {
    let mut fields = schema.as_object().cloned().unwrap_or_default();
    let has_references = schema.to_string().contains("\"$ref\"");
    for (key, is_used) in [("$defs", has_references), ("x-guidance", true)] {
        if let Some(value) = root.get(key).filter(|_| is_used) {
            fields.insert(key.into(), value.clone());
        }
    }
    format!("%json {}", Json::from(fields))
}

/// Rules and terminals of a grammar.
#[derive(Debug)]
pub(super) struct Rules<'t> {
    pub(super) tokenizer: &'t Tokenizer,
    /// Whether a restriction that the notation cannot express is an error.
    pub(super) is_strict: bool,
    text: String,
    count: usize,
    terminals: Vec<&'static str>,
}

impl<'t> Rules<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> Self {
        Self {
            tokenizer,
            is_strict: false,
            text: String::new(),
            count: 0,
            terminals: Vec::new(),
        }
    }

    /// Returns an unused name for a rule.
    pub(super) fn name(&mut self) -> String {
        self.count += 1;
        format!("r{}", self.count)
    }

    /// Defines a rule.
    pub(super) fn define(&mut self, name: &str, expression: &str) {
        let written = writeln!(self.text, "{name}: {expression}");
        written.expect("writing to a string succeeds");
    }

    /// Adds a rule and returns its name.
    pub(super) fn add(&mut self, expression: &str) -> String {
        let name = self.name();
        self.define(&name, expression);
        name
    }

    /// Checks a restriction that the notation cannot express.
    ///
    /// # Errors
    /// `Grammar` for a strict tool.
    pub(super) fn inexpressible(&self, what: &str) -> Result<()> {
        if self.is_strict {
            bail!(
                Grammar,
                "{what}: the tool-call format of this model cannot express it in a strict tool"
            );
        }
        Ok(())
    }

    /// Returns the expression of the texts that match an expression of terminals and do not contain `tag`,
    /// and of the marker `end` after them, which contains the tag.
    #[expect(clippy::fn_params_excessive_bools, reason = "the only option")]
    pub(super) fn restricted_until(
        &mut self,
        text: &str,
        end: &str,
        tag: &str,
        may_be_empty: bool,
    ) -> String {
        let end = marker(end, self.tokenizer);
        self.count += 1;
        let name = format!("T{}", self.count);
        let text = format!("({text}) & {}", without(tag));
        match end.contains("<[") {
            true => {
                self.define(&name, &format!("{text} & /(?s:.+)/"));
                let optional = if may_be_empty { "?" } else { "" };
                format!("{name}{optional} {end}")
            }
            false => {
                self.define(&name, &format!("({text}) {end}"));
                name
            }
        }
    }

    /// Defines a terminal or a rule with a fixed name unless it exists. Returns the name.
    pub(super) fn once(&mut self, name: &'static str, expression: &str) -> &'static str {
        if !self.terminals.contains(&name) {
            self.terminals.push(name);
            self.define(name, expression);
        }
        name
    }

    /// Returns the expression of any text that does not contain `tag`, and of the marker `end` after it,
    /// which contains the tag. The text is a terminal with this name.
    pub(super) fn text_until(&mut self, name: &'static str, end: &str, tag: &str) -> String {
        let end = marker(end, self.tokenizer);
        match end.contains("<[") {
            // The marker has a control token, which cannot be a part of a terminal.
            true => {
                let text = format!("/(?s:.+)/ & {}", without(tag));
                format!("{}? {end}", self.once(name, &text))
            }
            // The text ends at the first marker.
            false => self
                .once(name, &format!("({}) {end}", without(tag)))
                .to_string(),
        }
    }

    /// Returns the expression of a sequence of items, of which some are required, with a separator between
    /// two items. The order is fixed.
    pub(super) fn sequence(&mut self, items: &[(String, bool)], separator: &str) -> String {
        // From the last item on: the items after another one, and the items from here on if none comes
        // before them.
        let separator = string(separator);
        let mut after = String::from("\"\"");
        let mut first: Vec<String> = Vec::new();
        let mut may_be_empty = true;
        for (item, is_required) in items.iter().rev() {
            if *is_required {
                first.clear();
                may_be_empty = false;
            }
            first.push(format!("{item} {after}"));
            let optional = if *is_required { "" } else { "?" };
            after = self.add(&format!("({separator} {item}){optional} {after}"));
        }
        let optional = if may_be_empty { "?" } else { "" };
        match items.is_empty() {
            true => after,
            false => format!("({}){optional}", first.join(" | ")),
        }
    }

    /// Returns the text of the grammar.
    pub(super) fn into_text(self) -> String {
        self.text
    }
}
