//! Grammar of call bodies in the notation of Gemma 4: objects with plain keys, and strings between
//! quote tokens.

use super::bodies::QUOTE;
use super::lark::{self, Rules, marker};
use super::parameters::{allows_any, arguments, required};
use super::texts::{Texts, texts};
use crate::grammar::schema::types::target;
use serde_json::{Map, Value as Json};
use std::collections::HashMap;
use tabla_core::error::{Result, bail};

/// Returns the Lark expression of a call body.
///
/// # Errors
/// `Argument` for a property whose name the notation cannot express; `Grammar` for a restriction of a strict
/// tool that it cannot express.
pub(super) fn body(name: &str, schema: &Json, rules: &mut Rules<'_>) -> Result<String> {
    let all = arguments(schema, |_| true, rules)?;
    let mut translation = Translation {
        root: schema,
        rules,
        names: HashMap::new(),
    };
    let arguments = match all.is_empty() && allows_any(schema) {
        true => translation.any_object(),
        false => {
            let all = all.iter();
            translation.members(
                all.map(|one| (&*one.key, &one.schema, one.is_required))
                    .collect(),
            )?
        }
    };
    let name = lark::string(&format!("call:{name}"));
    Ok(format!("{name} {arguments}"))
}

/// Keywords that the rules express.
const EXPRESSED: &[&str] = &[
    "additionalProperties",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "multipleOf",
    "pattern",
    "properties",
    "required",
    "type",
];

/// Translates a schema to rules.
struct Translation<'a, 't, 'r> {
    root: &'a Json,
    rules: &'r mut Rules<'t>,
    /// Rules of definitions by reference.
    names: HashMap<String, String>,
}

impl<'a> Translation<'a, '_, '_> {
    /// Returns the expression of a value.
    fn value(&mut self, schema: &'a Json) -> Result<String> {
        let Some(fields) = schema.as_object() else {
            return Ok(self.any());
        };
        if let Some(reference) = fields.get("$ref") {
            self.check(fields, &["$ref"])?;
            return self.reference(reference);
        }
        if let Some(constant) = fields.get("const") {
            self.check(fields, &["const", "type"])?;
            return self.literal(constant);
        }
        if let Some(Json::Array(values)) = fields.get("enum") {
            self.check(fields, &["enum", "type"])?;
            let values = values.iter().map(|value| self.literal(value));
            return Ok(alternatives(values.collect::<Result<_>>()?));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Json::Array(items)) = fields.get(key) {
                self.check(fields, &[key])?;
                let items = items.iter().map(|item| self.value(item));
                return Ok(alternatives(items.collect::<Result<_>>()?));
            }
        }
        match fields.get("type") {
            Some(Json::String(name)) => self.typed(name, fields),
            Some(Json::Array(names)) => {
                let names = names.iter().filter_map(Json::as_str);
                let types = names.map(|name| self.typed(name, fields));
                Ok(alternatives(types.collect::<Result<_>>()?))
            }
            None if fields.contains_key("properties") => self.typed("object", fields),
            _ => match fields
                .get("allOf")
                .and_then(Json::as_array)
                .map(Vec::as_slice)
            {
                Some([item]) if fields.len() == 1 => self.value(item),
                _ => {
                    self.check(fields, &[])?;
                    Ok(self.any())
                }
            },
        }
    }

    /// Checks that a schema has only keywords that the rules express.
    ///
    /// # Errors
    /// `Grammar` for a strict tool.
    fn check(&self, fields: &Map<String, Json>, expressed: &[&str]) -> Result<()> {
        let mut others = fields.keys().filter(|key| !expressed.contains(&&***key));
        others.try_for_each(|key| self.rules.inexpressible(key))
    }

    /// Returns the expression of a value of one type.
    fn typed(&mut self, name: &str, fields: &'a Map<String, Json>) -> Result<String> {
        // Keywords of other types restrict nothing.
        let mut others = fields.keys().filter(|key| {
            let is_text = name == "string" && *key == "allOf";
            !is_text && !EXPRESSED.contains(&&***key)
        });
        others.try_for_each(|key| self.rules.inexpressible(key))?;
        Ok(match name {
            "string" => self.text(fields)?,
            "number" | "integer" => number(name, fields, self.root),
            "boolean" => r#"("true" | "false")"#.into(),
            "null" => r#"("null" | "None")"#.into(),
            "array" => self.array(fields)?,
            "object" => match fields.get("properties") {
                Some(Json::Object(properties)) if !properties.is_empty() => self.object(fields)?,
                _ => self.map(fields)?,
            },
            _ => self.any(),
        })
    }

    /// Returns the rule of a definition.
    fn reference(&mut self, reference: &'a Json) -> Result<String> {
        let key = reference.as_str().unwrap_or_default();
        if let Some(name) = self.names.get(key) {
            return Ok(name.clone());
        }
        let Some(definition) = target(reference, self.root) else {
            return Ok(self.any());
        };
        let name = self.rules.name();
        self.names.insert(key.to_string(), name.clone());
        let value = self.value(definition)?;
        // A definition that refers only to itself has no value.
        let value = if value == name { self.any() } else { value };
        self.rules.define(&name, &value);
        Ok(name)
    }

    /// Returns the expression of an object with the properties of a schema.
    fn object(&mut self, fields: &'a Map<String, Json>) -> Result<String> {
        static ANY: Json = Json::Bool(true);
        if fields
            .get("additionalProperties")
            .is_some_and(|other| *other != true && *other != false)
        {
            self.rules.inexpressible("additionalProperties")?;
        }
        let required = required(fields);
        let properties = fields.get("properties").and_then(Json::as_object);
        let declared = properties.into_iter().flatten();
        let mut members: Vec<_> = declared
            .filter(|(_, schema)| **schema != false)
            .map(|(key, schema)| (key.as_str(), schema, required.contains(&&**key)))
            .collect();
        for key in required {
            if !properties.is_some_and(|properties| properties.contains_key(key)) {
                members.push((key, &ANY, true));
            }
        }
        self.members(members)
    }

    /// Returns the expression of an object with these properties, of which some are required, in the order in
    /// which chat templates write them: by name, without case.
    fn members(&mut self, mut members: Vec<(&'a str, &'a Json, bool)>) -> Result<String> {
        members.sort_by_cached_key(|(key, ..)| (key.to_lowercase(), (*key).to_string()));
        let mut pairs = Vec::new();
        for (key, schema, is_required) in members {
            let value = self.value(schema)?;
            let pair = format!("{} \":\" {value}", plain_key(key)?);
            pairs.push((self.rules.add(&pair), is_required));
        }
        let members = self.rules.sequence(&pairs, ",");
        Ok(format!("\"{{\" {members} \"}}\""))
    }

    /// Returns the expression of an object without declared properties.
    fn map(&mut self, fields: &'a Map<String, Json>) -> Result<String> {
        match fields.get("additionalProperties") {
            Some(Json::Bool(false)) => Ok(r#""{" "}""#.into()),
            Some(values @ Json::Object(_)) => {
                let value = self.value(values)?;
                let key = self.any_key();
                let pair = self.rules.add(&format!("{key} \":\" {value}"));
                Ok(format!("\"{{\" ({pair} (\",\" {pair})*)? \"}}\""))
            }
            _ => Ok(self.any_object()),
        }
    }

    fn array(&mut self, fields: &'a Map<String, Json>) -> Result<String> {
        let item = match fields.get("items") {
            Some(items) => self.value(items)?,
            None => self.any(),
        };
        let item = self.rules.add(&item);
        let bound = |key: &str| fields.get(key).and_then(Json::as_u64);
        let (min, max) = (bound("minItems").unwrap_or(0), bound("maxItems"));
        if max == Some(0) {
            return Ok(r#""[" "]""#.into());
        }
        let more = match (min.saturating_sub(1), max) {
            (0, None) => "*".to_string(),
            (min, None) => format!("{{{min},}}"),
            (min, Some(max)) => format!("{{{min},{}}}", max - 1),
        };
        let optional = if min == 0 { "?" } else { "" };
        Ok(format!(
            "\"[\" ({item} (\",\" {item}){more}){optional} \"]\""
        ))
    }

    /// Returns the expression of one value.
    fn literal(&mut self, value: &Json) -> Result<String> {
        let quote = marker(QUOTE, self.rules.tokenizer);
        Ok(match value {
            Json::String(text) if !text.contains(QUOTE) => {
                format!("{quote} {} {quote}", lark::string(text))
            }
            Json::Null => r#"("null" | "None")"#.into(),
            Json::Bool(_) | Json::Number(_) => lark::string(&value.to_string()),
            Json::String(_) => {
                self.rules.inexpressible("const")?;
                self.string()
            }
            Json::Array(_) | Json::Object(_) => {
                self.rules.inexpressible("const")?;
                self.any()
            }
        })
    }

    /// Returns the expression of a string within the restrictions of a schema.
    fn text(&mut self, fields: &Map<String, Json>) -> Result<String> {
        let restrictions = ["pattern", "minLength", "maxLength", "allOf"].iter();
        let restrictions =
            restrictions.filter_map(|key| Some((key.to_string(), fields.get(*key)?.clone())));
        match texts(&Json::Object(restrictions.collect()), self.root) {
            Some(Texts::Matching { text, may_be_empty }) => {
                let quote = marker(QUOTE, self.rules.tokenizer);
                let text = self
                    .rules
                    .restricted_until(&text, QUOTE, QUOTE, may_be_empty);
                Ok(format!("{quote} {text}"))
            }
            Some(_) => Ok(self.string()),
            None => {
                self.rules.inexpressible("pattern")?;
                Ok(self.string())
            }
        }
    }

    fn string(&mut self) -> String {
        let quote = marker(QUOTE, self.rules.tokenizer);
        let text = self.rules.text_until("QUOTED_TEXT", QUOTE, QUOTE);
        let string = format!("{quote} {text}");
        self.rules.once("quoted_string", &string).into()
    }

    fn any_key(&mut self) -> String {
        self.rules.once("PLAIN_KEY", "/[A-Za-z0-9_$.@-]+/").into()
    }

    /// Returns the rule of any value.
    fn any(&mut self) -> String {
        self.define_any();
        "any_value".into()
    }

    /// Returns the rule of any object.
    fn any_object(&mut self) -> String {
        self.define_any();
        "any_object".into()
    }

    /// Defines the rules of any value.
    fn define_any(&mut self) {
        let (string, key) = (self.string(), self.any_key());
        let number = number("number", &Map::new(), self.root);
        let value = format!(r#"{number} | "true" | "false" | "null" | any_object | any_array"#);
        for (name, expression) in [
            ("any_value", &*format!("{string} | {value}")),
            ("any_pair", &*format!("{key} \":\" any_value")),
            ("any_object", r#""{" (any_pair ("," any_pair)*)? "}""#),
            ("any_array", r#""[" (any_value ("," any_value)*)? "]""#),
        ] {
            self.rules.once(name, expression);
        }
    }
}

/// Returns the expression of a number within the bounds of a schema.
fn number(name: &str, schema: &Map<String, Json>, root: &Json) -> String {
    let mut fields = Map::new();
    fields.insert("type".into(), name.into());
    let bounds = [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    ];
    for key in bounds {
        if let Some(bound) = schema.get(key).filter(|bound| bound.is_number()) {
            fields.insert(key.into(), bound.clone());
        }
    }
    lark::json(&Json::from(fields), root)
}

/// Returns the expression of a key.
fn plain_key(key: &str) -> Result<String> {
    let is_plain = !key.starts_with(['}', '<']) && !key.contains(':') && key.trim() == key;
    if !is_plain || key.is_empty() {
        bail!(
            Argument,
            "the tool-call format cannot express the property name {key:?}"
        );
    }
    Ok(lark::string(key))
}

fn alternatives(mut items: Vec<String>) -> String {
    items.dedup();
    format!("({})", items.join(" | "))
}
