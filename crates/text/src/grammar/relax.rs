//! Relaxation of JSON schemas: removes restrictions that grammars cannot express, so that the schemas
//! of arbitrary tools compile.

use super::close::allows_further;
use super::schema::check_depth;
use serde_json::{Map, Value as Json, json};

/// A schema without the restrictions that a grammar cannot express.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RelaxedSchema {
    /// The schema, without annotations such as `description`: it is for a grammar, not for a prompt.
    pub schema: Json,
    /// A message for each removed restriction, with its path.
    pub warnings: Vec<String>,
}

/// Formats that grammars enforce.
const FORMATS: &[&str] = &[
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "time",
    "uri",
    "uuid",
];
/// Formats of numbers, which restrict nothing that a grammar could enforce.
const NUMBER_FORMATS: &[&str] = &["double", "float", "int32", "int64", "uint32", "uint64"];
pub(super) const TYPES: &[&str] = &[
    "array", "boolean", "integer", "null", "number", "object", "string",
];
/// Keywords that restrict values in a way that grammars cannot express.
const UNSUPPORTED: &[&str] = &[
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "if",
    "not",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a number.
const NUMBERS: &[&str] = &[
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maximum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "minimum",
    "minItems",
    "minLength",
    "minProperties",
    "multipleOf",
];

impl RelaxedSchema {
    /// Removes what grammars cannot express, without compiling the result.
    pub(super) fn new(schema: &Json) -> Self {
        let mut relaxer = Relaxer {
            root: schema,
            path: Vec::new(),
            warnings: Vec::new(),
        };
        let schema = match check_depth(schema) {
            Ok(()) => relaxer.schema(schema),
            Err(e) => {
                relaxer.warn(&format!("the schema is not enforced ({})", e.message()));
                json!({})
            }
        };
        Self {
            schema,
            warnings: relaxer.warnings,
        }
    }
}

struct Relaxer<'a> {
    root: &'a Json,
    /// Keys from the root to the current schema.
    path: Vec<String>,
    warnings: Vec<String>,
}

impl Relaxer<'_> {
    fn warn(&mut self, message: &str) {
        let warning = match self.path.is_empty() {
            true => message.to_string(),
            false => format!("{message}: {}", self.path.join(".")),
        };
        self.warnings.push(warning);
    }

    /// Runs `work` with `key` at the end of the path.
    fn at<T>(&mut self, key: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(key.to_string());
        let result = work(self);
        self.path.pop();
        result
    }

    fn schema(&mut self, schema: &Json) -> Json {
        let Json::Object(fields) = schema else {
            if !schema.is_boolean() && !schema.is_null() {
                self.warn("a schema that is no object is not enforced");
            }
            return schema.as_bool().map_or_else(|| json!({}), Json::from);
        };
        let mut relaxed = Map::new();
        for (key, value) in fields {
            self.at(key, |relaxer| relaxer.keyword(key, value, &mut relaxed));
        }
        if fields.contains_key("properties") && allows_further(fields) {
            // Also if the keyword is not enforced.
            relaxed.entry("additionalProperties").or_insert(true.into());
        }
        bounds(fields, &mut relaxed);
        if fields.get("nullable") == Some(&Json::Bool(true)) {
            allow_null(&mut relaxed);
        }
        relaxed.into()
    }

    /// Adds the relaxed form of a keyword to a schema.
    fn keyword(&mut self, key: &str, value: &Json, out: &mut Map<String, Json>) {
        let relaxed = match key {
            "$ref" => self.reference(value),
            "type" => self.types(value),
            "const" => Some(value.clone()),
            "enum" => self.values(value),
            "required" => names(value),
            "pattern" => self.pattern(value),
            "format" => self.format(value),
            "properties" | "patternProperties" | "$defs" | "definitions" => self.named(key, value),
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => self.list(value),
            "items" if value.is_array() => {
                // A tuple of drafts before 2020-12.
                if let Some(items) = self.list(value) {
                    out.insert("prefixItems".into(), items);
                }
                None
            }
            "additionalItems" => {
                let items = self.schema(value);
                out.entry("items").or_insert(items);
                None
            }
            "items" | "additionalProperties" if value.is_null() => None,
            "items" | "additionalProperties" => Some(self.schema(value)),
            _ if NUMBERS.contains(&key) => Some(value.clone()).filter(Json::is_number),
            "uniqueItems" if *value == Json::Bool(true) => self.unsupported(key),
            _ if UNSUPPORTED.contains(&key) => self.unsupported(key),
            _ => None,
        };
        if let Some(relaxed) = relaxed {
            out.insert(key.into(), relaxed);
        }
    }

    fn unsupported(&mut self, key: &str) -> Option<Json> {
        self.warn(&format!("{key} is not enforced"));
        None
    }

    fn reference(&mut self, value: &Json) -> Option<Json> {
        let reference = value.as_str().unwrap_or_default();
        let pointer = reference.strip_prefix('#').filter(|pointer| {
            // Percent escapes are decoded when the schema is compiled.
            pointer.contains('%') || self.root.pointer(pointer).is_some()
        });
        if pointer.is_none() {
            self.warn(&format!("reference {value} is not followed"));
        }
        pointer.map(|_| value.clone())
    }

    fn types(&mut self, value: &Json) -> Option<Json> {
        let is_type = |name: &Json| name.as_str().is_some_and(|name| TYPES.contains(&name));
        let is_valid = match value {
            Json::Array(names) => !names.is_empty() && names.iter().all(is_type),
            name => is_type(name),
        };
        if !is_valid && !value.is_null() {
            self.warn(&format!("unknown type {value} is not enforced"));
        }
        Some(value.clone()).filter(|_| is_valid)
    }

    fn values(&mut self, value: &Json) -> Option<Json> {
        let values = value.as_array().filter(|values| !values.is_empty());
        if values.is_none() && !value.is_null() {
            self.warn("an enum without values is not enforced");
        }
        values.map(|_| value.clone())
    }

    fn pattern(&mut self, value: &Json) -> Option<Json> {
        let pattern = value.as_str()?;
        let is_supported = self.check_pattern(pattern);
        is_supported.then(|| value.clone())
    }

    /// Returns whether a pattern may be supported, and warns otherwise.
    fn check_pattern(&mut self, pattern: &str) -> bool {
        if ["(?=", "(?!", "(?<=", "(?<!"]
            .iter()
            .any(|group| pattern.contains(group))
        {
            self.warn("patterns with look-around are not enforced");
            return false;
        }
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            let escaped = if c == '\\' { chars.next() } else { None };
            if escaped.is_some_and(|c| matches!(c, '1'..='9' | 'k')) {
                self.warn("patterns with back-references are not enforced");
                return false;
            }
        }
        true
    }

    fn format(&mut self, value: &Json) -> Option<Json> {
        let format = value.as_str()?;
        if FORMATS.contains(&format) {
            return Some(value.clone());
        }
        if !NUMBER_FORMATS.contains(&format) {
            self.warn(&format!("unknown format {format:?} is not enforced"));
        }
        None
    }

    fn list(&mut self, value: &Json) -> Option<Json> {
        let items = value.as_array().filter(|items| !items.is_empty())?;
        let relaxed = items.iter().enumerate();
        let relaxed = relaxed.map(|(at, item)| self.at(&at.to_string(), |r| r.schema(item)));
        Some(Json::Array(relaxed.collect()))
    }

    fn named(&mut self, key: &str, value: &Json) -> Option<Json> {
        let mut relaxed = Map::new();
        for (name, schema) in value.as_object()? {
            self.at(name, |relaxer| {
                if key != "patternProperties" || relaxer.check_pattern(name) {
                    relaxed.insert(name.clone(), relaxer.schema(schema));
                }
            });
        }
        Some(relaxed.into())
    }
}

/// Returns a list of names without other values.
fn names(value: &Json) -> Option<Json> {
    let names = value.as_array()?.iter().filter(|name| name.is_string());
    Some(names.cloned().collect())
}

/// Converts the exclusive bounds of draft 4, which are flags.
fn bounds(fields: &Map<String, Json>, relaxed: &mut Map<String, Json>) {
    let keys = [
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ];
    for (exclusive, inclusive) in keys {
        if fields.get(exclusive) == Some(&Json::Bool(true))
            && let Some(bound) = relaxed.remove(inclusive)
        {
            relaxed.insert(exclusive.into(), bound);
        }
    }
}

/// Adds null to the values of a schema, as the keyword `nullable` does.
fn allow_null(fields: &mut Map<String, Json>) {
    if let Some(Json::Array(values)) = fields.get_mut("enum")
        && !values.contains(&Json::Null)
    {
        values.push(Json::Null);
    }
    match fields.get_mut("type") {
        Some(Json::Array(names)) if !names.contains(&"null".into()) => names.push("null".into()),
        Some(name) if name.is_string() && name != "null" => *name = json!([name, "null"]),
        Some(_) => {}
        None => {
            let schema = std::mem::take(fields);
            fields.insert("anyOf".into(), json!([schema, { "type": "null" }]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Json, expected: Json, warnings: &[&str]) {
        let relaxed = RelaxedSchema::new(&schema);
        assert_eq!(relaxed.schema, expected, "{schema}");
        assert_eq!(relaxed.warnings, warnings, "{schema}");
    }

    #[test]
    fn removes_unsupported_restrictions() {
        check(
            json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x", "title": "T",
                "type": "object", "properties": {
                    "email": { "type": "string", "pattern": "^(?!\\.)a@b$", "format": "email", "description": "An address" },
                    "twice": { "pattern": "(a)\\1" },
                    "name": { "type": "string", "format": "idn-email" },
                    "list": { "type": "array", "items": { "type": "integer", "format": "int32" }, "uniqueItems": true },
                    "no": { "not": { "type": "null" } },
                    "some": { "enum": [] },
                    "far": { "$ref": "https://example.com/schema.json" },
                } }),
            json!({ "type": "object", "properties": {
                "email": { "type": "string", "format": "email" },
                "twice": {},
                "name": { "type": "string" },
                "list": { "type": "array", "items": { "type": "integer" } },
                "no": {},
                "some": {},
                "far": {},
            } }),
            &[
                "patterns with look-around are not enforced: properties.email.pattern",
                "patterns with back-references are not enforced: properties.twice.pattern",
                "unknown format \"idn-email\" is not enforced: properties.name.format",
                "uniqueItems is not enforced: properties.list.uniqueItems",
                "not is not enforced: properties.no.not",
                "an enum without values is not enforced: properties.some.enum",
                "reference \"https://example.com/schema.json\" is not followed: properties.far.$ref",
            ],
        );
    }

    #[test]
    fn converts_older_and_invalid_keywords() {
        check(
            json!({ "items": [{ "type": "string" }], "additionalItems": false, "x-order": 1 }),
            json!({ "prefixItems": [{ "type": "string" }], "items": false }),
            &[],
        );
        check(
            json!({ "type": "number", "minimum": 1, "exclusiveMinimum": true, "exclusiveMaximum": false }),
            json!({ "type": "number", "exclusiveMinimum": 1 }),
            &[],
        );
        check(
            json!({ "type": "string", "nullable": true, "enum": ["a"] }),
            json!({ "type": ["string", "null"], "enum": ["a", null] }),
            &[],
        );
        check(
            json!({ "properties": { "a": null, "b": true }, "required": true, "items": null, "type": null }),
            json!({ "properties": { "a": {}, "b": true } }),
            &[],
        );
        check(
            json!({ "type": "str" }),
            json!({}),
            &["unknown type \"str\" is not enforced: type"],
        );
        for any in [json!(null), json!({})] {
            check(any, json!({}), &[]);
        }
        check(json!(true), json!(true), &[]);
    }

    #[test]
    fn keeps_what_grammars_express() {
        let schema = json!({
            "type": "object",
            "properties": {
                "a": { "anyOf": [{ "$ref": "#/$defs/a" }, { "type": "null" }] },
                "b": { "const": "b" },
                "c": { "type": "string", "format": "uri", "minLength": 1, "pattern": "^a[^(?=]" },
                "d": { "type": "array", "prefixItems": [{}], "minItems": 1 },
            },
            "required": ["a"],
            "additionalProperties": false,
            "$defs": { "a": { "type": "integer", "exclusiveMinimum": 0 } },
        });
        let kept = RelaxedSchema::new(&schema);
        let mut expected = schema;
        // A character class with the characters of a look-around.
        let field = expected
            .pointer_mut("/properties/c")
            .and_then(Json::as_object_mut);
        field.expect("an object").remove("pattern");
        assert_eq!(kept.schema, expected);
    }
}
