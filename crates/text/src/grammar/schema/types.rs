//! JSON types that a schema allows.

use serde_json::Value as Json;

/// Set of JSON types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Types(u8);

/// Maximum number of references and alternatives that are followed to a type.
const STEPS_MAX: usize = 256;

impl Types {
    pub(crate) const ALL: Self = Self(0b11_1111);
    pub(crate) const STRING: Self = Self(0b1000);
    pub(crate) const BOOLEAN: Self = Self(0b10);
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const NULL: Self = Self(0b1);
    pub(crate) const NUMBER: Self = Self(0b100);
    pub(crate) const ARRAY: Self = Self(0b1_0000);
    pub(crate) const OBJECT: Self = Self(0b10_0000);

    /// Returns the types that a schema allows. `root` is the schema that references start at.
    pub(crate) fn of(schema: &Json, root: &Json) -> Self {
        Self::within(schema, root, &mut 0)
    }

    fn within(schema: &Json, root: &Json, steps: &mut usize) -> Self {
        *steps += 1;
        let Some(fields) = schema.as_object().filter(|_| *steps <= STEPS_MAX) else {
            return match schema {
                Json::Bool(false) => Self::NONE,
                _ => Self::ALL,
            };
        };
        let mut types = Self::ALL;
        match fields.get("type") {
            Some(Json::String(name)) => types = Self::named(name),
            Some(Json::Array(names)) => {
                types = names
                    .iter()
                    .filter_map(Json::as_str)
                    .map(Self::named)
                    .collect();
            }
            _ => {}
        }
        if let Some(Json::Array(values)) = fields.get("enum") {
            types = types.and(values.iter().map(Self::of_value).collect());
        }
        if let Some(value) = fields.get("const") {
            types = types.and(Self::of_value(value));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Json::Array(items)) = fields.get(key) {
                let items = items.iter().map(|item| Self::within(item, root, steps));
                types = types.and(items.collect());
            }
        }
        if let Some(Json::Array(items)) = fields.get("allOf") {
            let items = items.iter().map(|item| Self::within(item, root, steps));
            types = items.fold(types, Self::and);
        }
        if let Some(target) = fields.get("$ref").and_then(|to| target(to, root)) {
            types = types.and(Self::within(target, root, steps));
        }
        types
    }

    fn named(name: &str) -> Self {
        match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "number" | "integer" => Self::NUMBER,
            "string" => Self::STRING,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => Self::ALL,
        }
    }

    /// Returns the type of a value.
    pub(crate) fn of_value(value: &Json) -> Self {
        match value {
            Json::Null => Self::NULL,
            Json::Bool(_) => Self::BOOLEAN,
            Json::Number(_) => Self::NUMBER,
            Json::String(_) => Self::STRING,
            Json::Array(_) => Self::ARRAY,
            Json::Object(_) => Self::OBJECT,
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether all types of `other` are in the set.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl FromIterator<Self> for Types {
    fn from_iter<I: IntoIterator<Item = Self>>(items: I) -> Self {
        let union = |all: Self, item: Self| Self(all.0 | item.0);
        items.into_iter().fold(Self::NONE, union)
    }
}

/// Returns the schema that a reference within `root` points to.
pub(crate) fn target<'a>(reference: &Json, root: &'a Json) -> Option<&'a Json> {
    root.pointer(reference.as_str()?.strip_prefix('#')?)
}
