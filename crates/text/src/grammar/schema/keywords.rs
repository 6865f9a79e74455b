//! Keywords of JSON schemas, of all drafts.

/// Value of a keyword with schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::grammar) enum KeywordValue {
    /// A schema or a list of schemas.
    Schemas,
    /// A map from names to schemas.
    Named,
}

/// Keywords with schemas. The values of other keywords are data.
const SCHEMAS: &[(&str, KeywordValue)] = &[
    ("$defs", KeywordValue::Named),
    ("additionalItems", KeywordValue::Schemas),
    ("additionalProperties", KeywordValue::Schemas),
    ("allOf", KeywordValue::Schemas),
    ("anyOf", KeywordValue::Schemas),
    ("contains", KeywordValue::Schemas),
    ("contentSchema", KeywordValue::Schemas),
    ("definitions", KeywordValue::Named),
    ("dependencies", KeywordValue::Named),
    ("dependentSchemas", KeywordValue::Named),
    ("else", KeywordValue::Schemas),
    ("if", KeywordValue::Schemas),
    ("items", KeywordValue::Schemas),
    ("not", KeywordValue::Schemas),
    ("oneOf", KeywordValue::Schemas),
    ("patternProperties", KeywordValue::Named),
    ("prefixItems", KeywordValue::Schemas),
    ("properties", KeywordValue::Named),
    ("propertyNames", KeywordValue::Schemas),
    ("then", KeywordValue::Schemas),
    ("unevaluatedItems", KeywordValue::Schemas),
    ("unevaluatedProperties", KeywordValue::Schemas),
];

/// Returns the value of a keyword with schemas.
pub(in crate::grammar) fn value_of(key: &str) -> Option<KeywordValue> {
    let found = SCHEMAS.iter().find(|(name, _)| *name == key);
    found.map(|(_, value)| *value)
}

/// Types of values.
pub(in crate::grammar) const TYPES: &[&str] = &[
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// Keywords that restrict values in a way that grammars cannot express. Some of their values restrict
/// nothing.
pub(super) const UNSUPPORTED: &[&str] = &[
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "if",
    "not",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

/// Keywords whose value is a number of elements.
pub(super) const COUNTS: &[&str] = &[
    "maxItems",
    "maxLength",
    "maxProperties",
    "minItems",
    "minLength",
    "minProperties",
];

/// Keywords that allow or require properties that an object does not declare.
pub(super) const FURTHER: &[&str] = &[
    "additionalProperties",
    "const",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "enum",
    "if",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
];

/// Keywords with references.
pub(super) const REFERENCES: &[&str] = &["$ref", "$dynamicRef", "$recursiveRef"];
