//! Checks the limits of JSON schemas and resolves their references before llguidance compiles them.
//!
//! llguidance follows each reference recursively, which could overflow the stack. So the depth is
//! limited first: the sum of the depths of the schema and of each definition that it references.
//! Referenced definitions are moved to `$defs`, under names that need no escapes in a JSON pointer.

use serde_json::{Map, Value as Json, json};
use std::collections::{HashMap, HashSet};
use tabla_core::error::{Context, Result, bail};

/// Maximum length of a schema as text in bytes.
const BYTES_MAX: usize = 256 << 10;
/// Maximum nesting depth of JSON values, as in `serde_json`.
const DEPTH_MAX: usize = 127;
/// Maximum number of subschemas. Those that are referenced by several pointers count several times.
const SCHEMAS_MAX: usize = 20_000;
/// Maximum sum of the nesting depths of the schema and its definitions.
const LEVELS_MAX: usize = 2_048;

/// White space in the output: a space, or newlines and an indent. It is limited because small models
/// may otherwise generate white space without end.
const WHITE_SPACE: &str = r"\x20|\n{1,2}[\x20\t]{0,40}";

/// Type of a keyword's value.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum KeywordValue {
    /// A schema or a list of schemas.
    Schemas,
    /// A map from names to schemas.
    NamedSchemas,
    /// Definitions, of which only the referenced ones are used.
    Definitions,
}

/// Keywords with subschemas. The values of other keywords are data.
pub(super) const KEYWORDS: &[(&str, KeywordValue)] = &[
    ("$defs", KeywordValue::Definitions),
    ("definitions", KeywordValue::Definitions),
    ("additionalItems", KeywordValue::Schemas),
    ("additionalProperties", KeywordValue::Schemas),
    ("allOf", KeywordValue::Schemas),
    ("anyOf", KeywordValue::Schemas),
    ("contains", KeywordValue::Schemas),
    ("contentSchema", KeywordValue::Schemas),
    ("dependencies", KeywordValue::NamedSchemas),
    ("dependentSchemas", KeywordValue::NamedSchemas),
    ("else", KeywordValue::Schemas),
    ("if", KeywordValue::Schemas),
    ("items", KeywordValue::Schemas),
    ("not", KeywordValue::Schemas),
    ("oneOf", KeywordValue::Schemas),
    ("patternProperties", KeywordValue::NamedSchemas),
    ("prefixItems", KeywordValue::Schemas),
    ("properties", KeywordValue::NamedSchemas),
    ("propertyNames", KeywordValue::Schemas),
    ("then", KeywordValue::Schemas),
    ("unevaluatedItems", KeywordValue::Schemas),
    ("unevaluatedProperties", KeywordValue::Schemas),
];

/// Checks the limits of a schema and resolves its references.
///
/// # Errors
/// `TooLarge` over the limits, `Grammar` for invalid references.
pub(crate) fn resolve(schema: &Json) -> Result<Json> {
    check_depth(schema)?;
    let bytes = schema.to_string().len();
    if bytes > BYTES_MAX {
        bail!(
            TooLarge,
            "schema: {bytes} bytes exceed the limit of {BYTES_MAX}"
        );
    }
    let mut resolver = Resolver::new(schema);
    let mut resolved = resolver.schema(schema, 1).context("schema")?;
    resolver.end_definition()?;
    let mut definitions = Map::new();
    while let Some((pointer, name, target)) = resolver.pending.pop() {
        let definition = resolver
            .schema(target, 1)
            .context(format_args!("#{pointer}"))?;
        resolver.end_definition()?;
        definitions.insert(name, definition);
    }
    if let Json::Object(fields) = &mut resolved {
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
    Ok(resolved)
}

/// Checks the nesting depth. Not recursive, because values that were not parsed from text have no
/// depth limit.
pub(super) fn check_depth(schema: &Json) -> Result<()> {
    let mut open = vec![(schema, 1)];
    while let Some((value, depth)) = open.pop() {
        if depth > DEPTH_MAX {
            bail!(TooLarge, "schema: nested deeper than {DEPTH_MAX} levels");
        }
        match value {
            Json::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Json::Object(fields) => open.extend(fields.values().map(|v| (v, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

/// Resolves the references of a schema.
struct Resolver<'a> {
    root: &'a Json,
    /// New names of definitions by pointer.
    names: HashMap<String, String>,
    used: HashSet<String>,
    /// Pointer, name and target of referenced definitions that are not resolved yet.
    pending: Vec<(String, String, &'a Json)>,
    /// Number of subschemas so far.
    schemas: usize,
    /// Sum of the depths of resolved definitions.
    levels: usize,
    /// Depth of the current definition.
    depth: usize,
}

impl<'a> Resolver<'a> {
    fn new(root: &'a Json) -> Self {
        Self {
            root,
            names: HashMap::new(),
            used: HashSet::new(),
            pending: Vec::new(),
            schemas: 0,
            levels: 0,
            depth: 0,
        }
    }

    fn end_definition(&mut self) -> Result<()> {
        self.levels += std::mem::take(&mut self.depth);
        if self.levels > LEVELS_MAX {
            bail!(
                TooLarge,
                "schema: the depths of the schema and its definitions exceed the limit of {LEVELS_MAX} levels in total"
            );
        }
        Ok(())
    }

    /// Returns a schema with its references renamed.
    fn schema(&mut self, schema: &'a Json, level: usize) -> Result<Json> {
        self.schemas += 1;
        if self.schemas > SCHEMAS_MAX {
            bail!(
                TooLarge,
                "the schema and its definitions exceed the limit of {SCHEMAS_MAX} subschemas"
            );
        }
        self.depth = self.depth.max(level);
        let Json::Object(fields) = schema else {
            return Ok(schema.clone());
        };
        let mut resolved = Map::new();
        for (key, value) in fields {
            let keyword = KEYWORDS.iter().find(|(name, _)| name == key);
            let value = match keyword.map(|(_, value)| *value) {
                Some(KeywordValue::Definitions) => continue,
                Some(KeywordValue::Schemas) => self.schemas(value, level).context(key)?,
                Some(KeywordValue::NamedSchemas) => {
                    self.named_schemas(value, level).context(key)?
                }
                None if key == "$ref" => self.reference(value)?,
                None => value.clone(),
            };
            resolved.insert(key.clone(), value);
        }
        Ok(resolved.into())
    }

    fn schemas(&mut self, value: &'a Json, level: usize) -> Result<Json> {
        let Json::Array(items) = value else {
            return self.schema(value, level + 1);
        };
        let items = items.iter().map(|item| self.schema(item, level + 1));
        Ok(Json::Array(items.collect::<Result<_>>()?))
    }

    fn named_schemas(&mut self, value: &'a Json, level: usize) -> Result<Json> {
        let Json::Object(fields) = value else {
            return Ok(value.clone());
        };
        let mut resolved = Map::new();
        for (name, value) in fields {
            resolved.insert(name.clone(), self.schemas(value, level).context(name)?);
        }
        Ok(resolved.into())
    }

    /// Returns a reference with its new name.
    fn reference(&mut self, value: &'a Json) -> Result<Json> {
        let Some(reference) = value.as_str() else {
            bail!(Grammar, "$ref: expected a string, got {value}");
        };
        let Some(pointer) = reference.strip_prefix('#').and_then(percent_decoded) else {
            bail!(
                Grammar,
                "$ref: {reference:?} is not within the schema; expected a reference that starts with #/"
            );
        };
        if pointer.is_empty() {
            return Ok("#".into());
        }
        let Some(target) = self.root.pointer(&pointer) else {
            bail!(Grammar, "$ref: {reference:?} does not exist");
        };
        if let Some(name) = self.names.get(&pointer) {
            return Ok(format!("#/$defs/{name}").into());
        }
        let name = self.new_name(&pointer);
        let renamed = format!("#/$defs/{name}").into();
        self.names.insert(pointer.clone(), name.clone());
        self.pending.push((pointer, name, target));
        Ok(renamed)
    }

    /// Returns an unused name: the last part of the pointer without special characters, and a number
    /// if that name is used.
    fn new_name(&mut self, pointer: &str) -> String {
        let last = pointer.rsplit('/').next().unwrap_or_default();
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || "_.-".contains(*c);
        let base: String = last.chars().filter(is_plain).collect();
        let numbered = (self.used.len()..).map(|n| format!("{base}-{n}"));
        let mut names = std::iter::once(base.clone()).chain(numbered);
        let name = names.find(|name| self.used.insert(name.clone()));
        name.expect("the sequence of numbers is infinite")
    }
}

/// Decodes percent escapes such as `%3C`. Returns `None` for invalid UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).filter(|_| *first == b'%');
        let hex = hex.filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let code = hex.and_then(|hex| u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = &after[if code.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8(bytes).ok()
}
