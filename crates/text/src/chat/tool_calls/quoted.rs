//! Grammar of call bodies in the notation of Gemma 4: objects with plain keys, and strings between
//! quote tokens.

use super::bodies::QUOTE;
use super::lark::{self, Rules, marker};
use super::parameters::{required, root_object};
use super::types::target;
use serde_json::{Map, Value as Json};
use std::collections::HashMap;
use tabla_core::error::{Result, bail};

/// Returns the Lark expression of a call body.
///
/// # Errors
/// `Argument` for a property whose name the notation cannot express.
pub(super) fn body(name: &str, schema: &Json, rules: &mut Rules<'_>) -> Result<String> {
    let mut translation = Translation {
        root: schema,
        rules,
        names: HashMap::new(),
    };
    let object = root_object(schema);
    let arguments = match object.get("properties") {
        Some(Json::Object(_)) => translation.object(object)?,
        _ => translation.any_object(),
    };
    let name = lark::string(&format!("call:{name}"));
    Ok(format!("{name} {arguments}"))
}

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
            return self.reference(reference);
        }
        if let Some(constant) = fields.get("const") {
            return Ok(self.literal(constant));
        }
        if let Some(Json::Array(values)) = fields.get("enum") {
            let values = values.iter().map(|value| self.literal(value));
            return Ok(alternatives(values.collect()));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Json::Array(items)) = fields.get(key) {
                let items = items.iter().map(|item| self.value(item));
                return Ok(alternatives(items.collect::<Result<_>>()?));
            }
        }
        match fields.get("type") {
            Some(Json::String(name)) => self.typed(name, schema),
            Some(Json::Array(names)) => {
                let names = names.iter().filter_map(Json::as_str);
                let types = names.map(|name| self.typed(name, schema));
                Ok(alternatives(types.collect::<Result<_>>()?))
            }
            None if fields.contains_key("properties") => self.object(schema),
            _ => match fields
                .get("allOf")
                .and_then(Json::as_array)
                .map(Vec::as_slice)
            {
                Some([item]) => self.value(item),
                _ => Ok(self.any()),
            },
        }
    }

    /// Returns the expression of a value of one type.
    fn typed(&mut self, name: &str, schema: &'a Json) -> Result<String> {
        Ok(match name {
            "string" => self.string(),
            "number" | "integer" => number(name, schema),
            "boolean" => r#"("true" | "false")"#.into(),
            "null" => r#"("null" | "None")"#.into(),
            "array" => self.array(schema)?,
            "object" => match schema.get("properties") {
                Some(Json::Object(properties)) if !properties.is_empty() => self.object(schema)?,
                _ => self.map(schema)?,
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

    /// Returns the expression of an object with the properties of a schema, in the order in which
    /// chat templates write them: by name, without case.
    fn object(&mut self, schema: &'a Json) -> Result<String> {
        let required = required(schema);
        let properties = schema.get("properties").and_then(Json::as_object);
        let mut keys: Vec<&str> = properties
            .into_iter()
            .flat_map(Map::keys)
            .map(String::as_str)
            .collect();
        keys.extend(
            required
                .iter()
                .filter(|key| !properties.is_some_and(|properties| properties.contains_key(**key))),
        );
        keys.sort_by_cached_key(|key| (key.to_lowercase(), (*key).to_string()));
        let mut pairs = Vec::new();
        for key in keys {
            let property = properties.and_then(|properties| properties.get(key));
            let value = self.value(property.unwrap_or(&Json::Null))?;
            let pair = format!("{} \":\" {value}", plain_key(key)?);
            pairs.push((self.rules.add(&pair), required.contains(&key)));
        }
        let members = self.rules.sequence(&pairs, ",");
        Ok(format!("\"{{\" {members} \"}}\""))
    }

    /// Returns the expression of an object without declared properties.
    fn map(&mut self, schema: &'a Json) -> Result<String> {
        match schema.get("additionalProperties") {
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

    fn array(&mut self, schema: &'a Json) -> Result<String> {
        let item = match schema.get("items") {
            Some(items) => self.value(items)?,
            None => self.any(),
        };
        let item = self.rules.add(&item);
        let bound = |key: &str| schema.get(key).and_then(Json::as_u64);
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
    fn literal(&mut self, value: &Json) -> String {
        let quote = marker(QUOTE, self.rules.tokenizer);
        match value {
            Json::String(text) if !text.contains(QUOTE) => {
                format!("{quote} {} {quote}", lark::string(text))
            }
            Json::String(_) => self.string(),
            Json::Null => r#"("null" | "None")"#.into(),
            Json::Bool(_) | Json::Number(_) => lark::string(&value.to_string()),
            Json::Array(_) | Json::Object(_) => self.any(),
        }
    }

    fn string(&mut self) -> String {
        let quote = marker(QUOTE, self.rules.tokenizer);
        let text = self.rules.text_until("QUOTED_TEXT", (QUOTE, QUOTE));
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
        let value =
            r#"%json {"type":"number"} | "true" | "false" | "null" | any_object | any_array"#;
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
fn number(name: &str, schema: &Json) -> String {
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
    format!("%json {}", Json::from(fields))
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
