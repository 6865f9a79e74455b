//! Closes objects: those that declare properties have no others, unless the schema says otherwise.
//!
//! JSON Schema allows undeclared properties then, but authors of schemas for a model seldom mean that, and
//! small models add them without end. OpenAI, llama.cpp and vLLM close these objects too. A closed object is
//! valid for the schema. If several parts (`allOf`, references, alternatives) describe an object, the parts
//! stay open and the object that combines them is closed.

use super::fields::list;
use super::keywords::{FURTHER, REFERENCES};
use super::references::{References, Scope};
use serde_json::{Map, Value as Json, json};
use std::rc::Rc;

/// Key for the keywords that closing added to a schema.
const MARK: &str = "\0closed";
/// Maximum number of parts of an object. An object with more is not closed.
const PARTS_MAX: usize = 64;

/// Names in the order of the schema. The values are null.
pub(super) type Names = Map<String, Json>;

/// Whether a schema is to be closed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Closing {
    /// The schema is a part of an object that is closed elsewhere, or not at all.
    Open,
    /// The object is closed, with these names in addition to those that the schema declares.
    Closed(Rc<Names>),
}

/// How to close a schema and its parts.
#[derive(Debug)]
pub(super) struct Plan {
    /// Names of all properties, if the schema itself is closed.
    pub(super) names: Option<Names>,
    /// Closing of the schemas of `allOf` and of references.
    pub(super) parts: Closing,
    /// Closing of the schemas of `anyOf` and `oneOf`.
    pub(super) alternatives: Closing,
}

/// What the parts of a schema say of an object.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
struct Object {
    names: Names,
    required: Names,
    /// Whether a part has `properties`.
    declares: bool,
    /// Whether undeclared properties are allowed or required.
    is_open: bool,
}

impl Object {
    fn add(&mut self, other: Self) {
        self.names.extend(other.names);
        self.required.extend(other.required);
        self.declares |= other.declares;
        self.is_open |= other.is_open;
    }

    fn describes(&self) -> bool {
        self.declares || self.is_open || !self.required.is_empty()
    }
}

/// A schema before its references are resolved.
#[derive(Clone)]
pub(super) struct Part<'a> {
    pub(super) fields: &'a Map<String, Json>,
    pub(super) base: Rc<str>,
    pub(super) scope: Scope,
}

impl<'a> References<'a> {
    /// Returns how to close a schema.
    pub(super) fn plan(&self, part: &Part<'a>, closing: &Closing) -> Plan {
        let plan = |names, parts, alternatives| Plan {
            names,
            parts,
            alternatives,
        };
        let Closing::Closed(inherited) = closing else {
            return plan(None, Closing::Open, Closing::Open);
        };
        let mut steps = 0;
        let mut object = own(part.fields);
        let own_describes = object.describes();
        let parts = self.conjunction(part, &mut steps);
        let alternatives = self.alternatives(part, &mut steps);
        let count = |key: &&str| usize::from(part.fields.contains_key(*key));
        let references: usize = REFERENCES.iter().map(count).sum();
        let conjuncts = references + list(part.fields, "allOf").len();
        let lists: usize = ["anyOf", "oneOf"].iter().map(count).sum();
        let is_sole = conjuncts + lists == 1 && (references == 0 || inherited.is_empty());
        let is_silent = conjuncts + lists == 0 && inherited.is_empty();
        if !own_describes && (is_sole || is_silent) {
            // The only part describes the object.
            return plan(None, closing.clone(), closing.clone());
        }
        object.add(parts);
        if object.is_open {
            return plan(None, Closing::Open, Closing::Open);
        }
        let declares = object.declares || !inherited.is_empty();
        object
            .names
            .extend(inherited.iter().map(|(name, _)| (name.clone(), Json::Null)));
        let is_declared = |name: &String| object.names.contains_key(name);
        if alternatives.declares || alternatives.is_open {
            // Names that an alternative declares may be required here.
            let is_known =
                |name: &String| is_declared(name) || alternatives.names.contains_key(name);
            let is_closed =
                lists == 1 && !alternatives.is_open && object.required.keys().all(is_known);
            return match is_closed {
                true => plan(None, Closing::Open, Closing::Closed(Rc::new(object.names))),
                false if object.describes() || conjuncts > 0 || lists > 1 => {
                    plan(None, Closing::Open, Closing::Open)
                }
                false => plan(None, Closing::Open, closing.clone()),
            };
        }
        let mut required = object.required.keys().chain(alternatives.required.keys());
        let min = part.fields.get("minProperties").and_then(Json::as_u64);
        let is_enough = min.is_none_or(|min| min <= object.names.len() as u64);
        let is_closed = declares && is_enough && required.all(is_declared);
        plan(
            is_closed.then_some(object.names),
            Closing::Open,
            Closing::Open,
        )
    }

    /// Returns what `allOf` and references say of an object.
    fn conjunction(&self, part: &Part<'a>, steps: &mut usize) -> Object {
        let mut object = Object::default();
        for part in self.conjuncts(part) {
            *steps += 1;
            if *steps > PARTS_MAX {
                object.is_open = true;
                return object;
            }
            let alternatives = self.alternatives(&part, steps);
            object.is_open |= alternatives.declares || alternatives.is_open;
            object.required.extend(alternatives.required);
            object.add(own(part.fields));
            object.add(self.conjunction(&part, steps));
        }
        object
    }

    /// Returns what `anyOf` and `oneOf` say of an object.
    fn alternatives(&self, part: &Part<'a>, steps: &mut usize) -> Object {
        let mut object = Object::default();
        let lists = ["anyOf", "oneOf"]
            .into_iter()
            .flat_map(|key| list(part.fields, key));
        for fields in lists.filter_map(Json::as_object) {
            *steps += 1;
            if *steps > PARTS_MAX {
                object.is_open = true;
                return object;
            }
            let part = Part {
                fields,
                ..part.clone()
            };
            object.add(own(fields));
            object.add(self.conjunction(&part, steps));
            object.add(self.alternatives(&part, steps));
        }
        object
    }

    /// Returns the schemas of `allOf` and of references.
    fn conjuncts(&self, part: &Part<'a>) -> Vec<Part<'a>> {
        let all = list(part.fields, "allOf")
            .iter()
            .filter_map(Json::as_object);
        let all = all.map(|fields| Part {
            fields,
            ..part.clone()
        });
        let references = REFERENCES.iter().filter_map(|key| {
            let reference = part.fields.get(*key)?.as_str()?;
            let target = self.target(key, reference, &part.base, &part.scope).ok()?;
            let fields = self.schema(&target.pointer).as_object()?;
            let scope = self.enter(&part.scope, &target.base);
            Some(Part {
                fields,
                base: target.base,
                scope,
            })
        });
        all.chain(references).collect()
    }
}

/// Returns what the keywords of a schema itself say of an object.
fn own(fields: &Map<String, Json>) -> Object {
    let properties = fields.get("properties").and_then(Json::as_object);
    let required = fields.get("required").and_then(Json::as_array);
    let required = required.into_iter().flatten().filter_map(Json::as_str);
    fn names(all: impl Iterator<Item = impl ToString>) -> Names {
        all.map(|name| (name.to_string(), Json::Null)).collect()
    }
    Object {
        names: names(properties.into_iter().flat_map(Map::keys)),
        required: names(required),
        declares: properties.is_some(),
        is_open: allows_further(fields),
    }
}

/// Returns whether a schema allows or requires properties that it does not declare.
pub(super) fn allows_further(fields: &Map<String, Json>) -> bool {
    FURTHER.iter().any(|key| {
        // This value closes an object.
        let closes =
            *key == "unevaluatedProperties" && fields.get(*key) == Some(&Json::Bool(false));
        fields.contains_key(*key) && !closes
    })
}

/// Closes a prepared schema, whose properties have these names.
pub(super) fn close(fields: &mut Map<String, Json>, names: &Names) {
    let mut added = vec!["additionalProperties"];
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Json::Object(properties) = properties {
        for name in names.keys() {
            properties.entry(name).or_insert(true.into());
        }
    }
    fields.insert("additionalProperties".into(), false.into());
    if !fields.contains_key("type") {
        fields.insert("type".into(), "object".into());
        added.push("type");
    }
    fields.insert(MARK.into(), added.into());
    let max = fields.get("maxProperties").and_then(Json::as_u64);
    if max.is_some_and(|max| max >= names.len() as u64) {
        fields.remove("maxProperties");
    }
}

/// Returns whether closing added a keyword to a schema.
pub(super) fn is_added(fields: &Map<String, Json>, key: &str) -> bool {
    let added = fields.get(MARK).and_then(Json::as_array);
    added.is_some_and(|added| added.iter().any(|name| name == key))
}

/// Removes the marks of added keywords.
pub(super) fn remove_marks(schema: &mut Json) {
    match schema {
        Json::Object(fields) => {
            fields.remove(MARK);
            fields.values_mut().for_each(remove_marks);
        }
        Json::Array(items) => items.iter_mut().for_each(remove_marks),
        _ => {}
    }
}
