//! Schemas are held to bounds and made plain before the library sees them.
//!
//! The library follows references recursively, each once, and would run over any stack. So what is
//! deep is counted first: the levels of the schema and of each definition that it refers to, as if
//! one lay below the other. Definitions that are referred to come to lie in `$defs`, under names
//! without characters that a pointer would have to escape.

use serde_json::{Map, Value as Json, json};
use std::collections::{HashMap, HashSet};
use tabla_core::error::{Context, Result, bail};

/// Bytes of a schema as text.
const BYTES_MAX: usize = 256 << 10;
/// Levels of values within values: as many as are read from a text.
const DEPTH_MAX: usize = 127;
/// Schemas within it, those counted again that are referred to in more than one way.
const SCHEMAS_MAX: usize = 20_000;
/// Levels of schemas, all definitions one below the other.
const LEVELS_MAX: usize = 2_048;

/// White space in answers: a space, or line breaks and what a line is indented by. Without an end to
/// it a weak model never comes to one.
const WHITE_SPACE: &str = r"\x20|\n{1,2}[\x20\t]{0,40}";

/// What lies behind a keyword.
#[derive(Clone, Copy, PartialEq)]
enum Holds {
    /// A schema, or a list of them.
    Schemas,
    /// A schema for each name.
    Named,
    /// Definitions: what is used of them is found by references.
    Definitions,
}

/// The keywords that hold schemas. What lies behind others is data, or nothing that is known.
const KEYWORDS: &[(&str, Holds)] = &[
    ("$defs", Holds::Definitions),
    ("definitions", Holds::Definitions),
    ("additionalItems", Holds::Schemas),
    ("additionalProperties", Holds::Schemas),
    ("allOf", Holds::Schemas),
    ("anyOf", Holds::Schemas),
    ("contains", Holds::Schemas),
    ("contentSchema", Holds::Schemas),
    ("dependencies", Holds::Named),
    ("dependentSchemas", Holds::Named),
    ("else", Holds::Schemas),
    ("if", Holds::Schemas),
    ("items", Holds::Schemas),
    ("not", Holds::Schemas),
    ("oneOf", Holds::Schemas),
    ("patternProperties", Holds::Named),
    ("prefixItems", Holds::Schemas),
    ("properties", Holds::Named),
    ("propertyNames", Holds::Schemas),
    ("then", Holds::Schemas),
    ("unevaluatedItems", Holds::Schemas),
    ("unevaluatedProperties", Holds::Schemas),
];

/// The schema, plain and within bounds.
///
/// # Errors
/// `TooLarge` over the bounds, `Grammar` for references that lead nowhere or out of the schema.
pub(crate) fn bounded(schema: &Json) -> Result<Json> {
    check_depth(schema)?;
    let bytes = schema.to_string().len();
    if bytes > BYTES_MAX {
        bail!(
            TooLarge,
            "schema: {bytes} bytes are over the limit of {BYTES_MAX}"
        );
    }
    let mut walk = Walk::new(schema);
    let mut plain = walk.schema(schema, 1).context("schema")?;
    walk.end_of_definition()?;
    let mut definitions = Map::new();
    while let Some((pointer, name, target)) = walk.waiting.pop() {
        let definition = walk.schema(target, 1).context(format_args!("#{pointer}"))?;
        walk.end_of_definition()?;
        definitions.insert(name, definition);
    }
    if let Json::Object(fields) = &mut plain {
        if !definitions.is_empty() {
            fields.insert("$defs".into(), definitions.into());
        }
        let options = fields.entry("x-guidance").or_insert_with(|| json!({}));
        if let Json::Object(options) = options {
            options.entry("coerce_one_of").or_insert(true.into());
            if !options.contains_key("whitespace_flexible") {
                let pattern = options.entry("whitespace_pattern");
                pattern.or_insert(WHITE_SPACE.into());
            }
        }
    }
    Ok(plain)
}

/// Values may be made without a text, and be deeper than one can say: no recursion here.
fn check_depth(schema: &Json) -> Result<()> {
    let mut open = vec![(schema, 1)];
    while let Some((value, depth)) = open.pop() {
        if depth > DEPTH_MAX {
            bail!(TooLarge, "schema: it nests deeper than {DEPTH_MAX} levels");
        }
        match value {
            Json::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Json::Object(fields) => open.extend(fields.values().map(|v| (v, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

/// A walk over all that can be reached.
struct Walk<'a> {
    root: &'a Json,
    /// New names by pointers.
    names: HashMap<String, String>,
    used: HashSet<String>,
    /// Pointer, name and target of definitions that were referred to and not yet walked.
    waiting: Vec<(String, String, &'a Json)>,
    schemas: usize,
    /// Levels of the definitions that were walked, and of the one that is.
    levels: usize,
    deepest: usize,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Json) -> Self {
        Self {
            root,
            names: HashMap::new(),
            used: HashSet::new(),
            waiting: Vec::new(),
            schemas: 0,
            levels: 0,
            deepest: 0,
        }
    }

    fn end_of_definition(&mut self) -> Result<()> {
        self.levels += std::mem::take(&mut self.deepest);
        if self.levels > LEVELS_MAX {
            bail!(
                TooLarge,
                "schema: with its definitions one below the other it is over the limit of {LEVELS_MAX} levels"
            );
        }
        Ok(())
    }

    /// A schema with its references renamed.
    fn schema(&mut self, schema: &'a Json, level: usize) -> Result<Json> {
        self.schemas += 1;
        if self.schemas > SCHEMAS_MAX {
            bail!(
                TooLarge,
                "it and its definitions are over the limit of {SCHEMAS_MAX} schemas"
            );
        }
        self.deepest = self.deepest.max(level);
        let Json::Object(fields) = schema else {
            return Ok(schema.clone());
        };
        let mut plain = Map::new();
        for (key, value) in fields {
            let holds = KEYWORDS.iter().find(|(name, _)| name == key);
            let value = match holds.map(|(_, holds)| *holds) {
                Some(Holds::Definitions) => continue,
                Some(Holds::Schemas) => self.list(value, level).context(key)?,
                Some(Holds::Named) => self.named(value, level).context(key)?,
                None if key == "$ref" => self.reference(value)?,
                None => value.clone(),
            };
            plain.insert(key.clone(), value);
        }
        Ok(plain.into())
    }

    fn list(&mut self, value: &'a Json, level: usize) -> Result<Json> {
        let Json::Array(items) = value else {
            return self.schema(value, level + 1);
        };
        let items = items.iter().map(|item| self.schema(item, level + 1));
        Ok(Json::Array(items.collect::<Result<_>>()?))
    }

    fn named(&mut self, value: &'a Json, level: usize) -> Result<Json> {
        let Json::Object(fields) = value else {
            return Ok(value.clone());
        };
        let mut plain = Map::new();
        for (name, value) in fields {
            plain.insert(name.clone(), self.list(value, level).context(name)?);
        }
        Ok(plain.into())
    }

    /// The reference by its new name.
    fn reference(&mut self, value: &'a Json) -> Result<Json> {
        let Some(reference) = value.as_str() else {
            bail!(Grammar, "$ref: {value} is no text");
        };
        let Some(pointer) = reference.strip_prefix('#').and_then(percent_decoded) else {
            bail!(
                Grammar,
                "$ref: {reference:?} leads out of the schema; references within it begin with #/"
            );
        };
        if pointer.is_empty() {
            return Ok("#".into());
        }
        let Some(target) = self.root.pointer(&pointer) else {
            bail!(Grammar, "$ref: {reference:?} leads nowhere");
        };
        if let Some(name) = self.names.get(&pointer) {
            return Ok(format!("#/$defs/{name}").into());
        }
        let name = self.new_name(&pointer);
        let plain = format!("#/$defs/{name}").into();
        self.names.insert(pointer.clone(), name.clone());
        self.waiting.push((pointer, name, target));
        Ok(plain)
    }

    /// The last part of a pointer, or what is left of it, with a number where it is taken.
    fn new_name(&mut self, pointer: &str) -> String {
        let last = pointer.rsplit('/').next().unwrap_or_default();
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || "_.-".contains(*c);
        let plain: String = last.chars().filter(is_plain).collect();
        let numbered = (self.used.len()..).map(|n| format!("{plain}-{n}"));
        let mut names = std::iter::once(plain.clone()).chain(numbered);
        let name = names.find(|name| self.used.insert(name.clone()));
        name.expect("there is no end of numbers")
    }
}

/// `%3C` and the like become what they stand for; `None` for what is no text then.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let hex = behind.get(..2).filter(|_| *first == b'%');
        let hex = hex.filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let code = hex.and_then(|hex| u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = &behind[if code.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8(bytes).ok()
}
