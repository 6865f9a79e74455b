//! JSON types that a schema allows.

use serde_json::Value as Json;

/// Set of JSON types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u8);

/// Maximum number of references and alternatives that are followed to a type.
const DEPTH_MAX: usize = 16;

impl Types {
    pub(super) const ALL: Self = Self(0b11_1111);
    pub(super) const STRING: Self = Self(0b1000);
    pub(super) const BOOLEAN: Self = Self(0b10);
    const NONE: Self = Self(0);
    pub(super) const NULL: Self = Self(0b1);
    const NUMBER: Self = Self(0b100);
    const ARRAY: Self = Self(0b1_0000);
    const OBJECT: Self = Self(0b10_0000);

    /// Returns the types that a schema allows. `root` is the schema that references start at.
    pub(super) fn of(schema: &Json, root: &Json) -> Self {
        Self::at_depth(schema, root, 0)
    }

    fn at_depth(schema: &Json, root: &Json, depth: usize) -> Self {
        let Some(fields) = schema.as_object().filter(|_| depth < DEPTH_MAX) else {
            return Self::ALL;
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
                let items = items
                    .iter()
                    .map(|item| Self::at_depth(item, root, depth + 1));
                types = types.and(items.collect());
            }
        }
        if let Some(Json::Array(items)) = fields.get("allOf") {
            let items = items
                .iter()
                .map(|item| Self::at_depth(item, root, depth + 1));
            types = items.fold(types, Self::and);
        }
        if let Some(target) = fields.get("$ref").and_then(|to| target(to, root)) {
            types = types.and(Self::at_depth(target, root, depth + 1));
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
    pub(super) fn of_value(value: &Json) -> Self {
        match value {
            Json::Null => Self::NULL,
            Json::Bool(_) => Self::BOOLEAN,
            Json::Number(_) => Self::NUMBER,
            Json::String(_) => Self::STRING,
            Json::Array(_) => Self::ARRAY,
            Json::Object(_) => Self::OBJECT,
        }
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether all types of `other` are in the set.
    pub(super) fn contains(self, other: Self) -> bool {
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
pub(super) fn target<'a>(reference: &Json, root: &'a Json) -> Option<&'a Json> {
    root.pointer(reference.as_str()?.strip_prefix('#')?)
}
