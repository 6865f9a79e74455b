//! Checks that the alternatives of `oneOf` exclude each other. Grammars interpret `oneOf` as `anyOf`, which is
//! the same then.

use super::close::is_added;
use super::fields::list;
use super::keywords::{KeywordValue, value_of};
use super::normalize::Normalizer;
use super::references::child;
use super::types::{Types, target};
use serde_json::Value as Json;
use std::cell::Cell;
use tabla_core::error::Result;

/// Maximum number of comparisons of two schemas. Alternatives that need more count as overlapping.
const STEPS_MAX: usize = 100_000;

/// Checks every `oneOf` of a prepared schema. Without an error, one whose alternatives overlap becomes
/// `anyOf`.
pub(super) fn check(schema: &mut Json, normalizer: &mut Normalizer<'_, '_>) -> Result<()> {
    let mut found = Vec::new();
    find(schema, String::new(), &mut found);
    let mut overlapping = Vec::new();
    let comparison = Comparison {
        root: schema,
        steps: Cell::new(0),
    };
    for pointer in found {
        let options = schema.pointer(&format!("{pointer}/oneOf"));
        let options = options.and_then(Json::as_array);
        let options = options.map_or(&[][..], Vec::as_slice);
        if let Some((first, second)) = comparison.overlap(options) {
            overlapping.push((pointer, first, second));
        }
    }
    for (pointer, first, second) in overlapping {
        normalizer.unsupported(
            &format!("{pointer}/oneOf"),
            format_args!(
                "alternatives {first} and {second} do not exclude each other; use anyOf, or a required property with another const in each"
            ),
        )?;
        let fields = schema.pointer_mut(&pointer).and_then(Json::as_object_mut);
        if let Some((fields, options)) = fields.and_then(|fields| {
            let options = fields.remove("oneOf")?;
            Some((fields, options))
        }) {
            super::fields::add(fields, "anyOf", options);
        }
    }
    Ok(())
}

/// Adds the pointers of schemas with `oneOf`.
fn find(schema: &Json, pointer: String, found: &mut Vec<String>) {
    for (key, value) in schema.as_object().into_iter().flatten() {
        let path = child(&pointer, key);
        match (value_of(key), value) {
            (Some(KeywordValue::Named), Json::Object(fields)) => {
                for (name, schema) in fields {
                    find(schema, child(&path, name), found);
                }
            }
            (Some(KeywordValue::Schemas), Json::Array(items)) => {
                for (at, schema) in items.iter().enumerate() {
                    find(schema, format!("{path}/{at}"), found);
                }
            }
            (Some(KeywordValue::Schemas), schema) => find(schema, path, found),
            _ => {}
        }
    }
    if schema.get("oneOf").is_some() {
        found.push(pointer);
    }
}

/// A schema in a comparison.
#[derive(Clone, Copy)]
struct View<'a> {
    schema: &'a Json,
    /// Whether the keywords that closing added count: they restrict the output of the grammar, but not the
    /// values that are valid.
    is_closed: bool,
}

impl<'a> View<'a> {
    fn with(self, schema: &'a Json) -> Self {
        Self { schema, ..self }
    }

    fn get(self, key: &str) -> Option<&'a Json> {
        let fields = self.schema.as_object()?;
        let counts = self.is_closed || !is_added(fields, key);
        fields.get(key).filter(|_| counts)
    }
}

struct Comparison<'a> {
    root: &'a Json,
    steps: Cell<usize>,
}

impl<'a> Comparison<'a> {
    /// Returns two alternatives of which the output for one may be valid for the other.
    fn overlap(&self, options: &'a [Json]) -> Option<(usize, usize)> {
        let pairs = (0..options.len()).flat_map(|a| (0..options.len()).map(move |b| (a, b)));
        let view = |at: usize, is_closed| View {
            schema: &options[at],
            is_closed,
        };
        let mut pairs = pairs.filter(|(a, b)| a != b);
        pairs.find(|(a, b)| !self.excludes(view(*a, true), view(*b, false), 0))
    }

    /// Returns whether no value is valid for both schemas. May return false if none is.
    fn excludes(&self, a: View<'a>, b: View<'a>, depth: usize) -> bool {
        self.steps.set(self.steps.get() + 1);
        if depth > 8 || self.steps.get() > STEPS_MAX {
            return false;
        }
        let types = self.types(a).and(self.types(b));
        if types == Types::NONE {
            return true;
        }
        if let (Some(a), Some(b)) = (values(a), values(b)) {
            return !a.iter().any(|a| b.iter().any(|b| is_equal(a, b)));
        }
        let next = |a, b| self.excludes(a, b, depth + 1);
        for key in ["anyOf", "oneOf"] {
            let options = |view: View<'a>| {
                view.get(key)
                    .and_then(Json::as_array)
                    .filter(|all| !all.is_empty())
            };
            if options(a).is_some_and(|all| all.iter().all(|part| next(a.with(part), b)))
                || options(b).is_some_and(|all| all.iter().all(|part| next(a, b.with(part))))
            {
                return true;
            }
        }
        self.parts(a).any(|part| next(a.with(part), b))
            || self.parts(b).any(|part| next(a, b.with(part)))
            || Types::OBJECT.contains(types) && self.properties_exclude(a, b, depth)
            || Types::NUMBER.contains(types) && (is_below(a, b) || is_below(b, a))
            || Types::STRING.contains(types) && (is_shorter(a, b) || is_shorter(b, a))
    }

    /// Returns whether a property that one of the schemas requires excludes the other.
    fn properties_exclude(&self, a: View<'a>, b: View<'a>, depth: usize) -> bool {
        let required = |view: View<'a>| {
            let names = view.get("required").and_then(Json::as_array);
            names.into_iter().flatten().filter_map(Json::as_str)
        };
        let mut names = required(a).chain(required(b));
        names.any(|name| match (property(a, name), property(b, name)) {
            (Some(first), Some(second)) => self.excludes(a.with(first), b.with(second), depth + 1),
            (Some(Json::Bool(false)), _) | (_, Some(Json::Bool(false))) => true,
            _ => false,
        })
    }

    fn types(&self, view: View<'a>) -> Types {
        let added = view
            .schema
            .as_object()
            .is_some_and(|fields| is_added(fields, "type"));
        match added && !view.is_closed {
            true => Types::ALL,
            false => Types::of(view.schema, self.root),
        }
    }

    /// Returns the schemas of `allOf` and of a reference.
    fn parts(&self, view: View<'a>) -> impl Iterator<Item = &'a Json> {
        let fields = view.schema.as_object();
        let all = fields
            .map_or(&[][..], |fields| list(fields, "allOf"))
            .iter();
        let reference = view
            .get("$ref")
            .and_then(|reference| target(reference, self.root));
        all.chain(reference)
    }
}

/// Returns the schema of a property, `None` if any value is allowed.
fn property<'a>(view: View<'a>, name: &str) -> Option<&'a Json> {
    let declared = view.get("properties").and_then(|all| all.get(name));
    let other = || {
        let has_patterns = view.get("patternProperties").is_some();
        view.get("additionalProperties").filter(|_| !has_patterns)
    };
    declared.or_else(other)
}

/// Returns the values of `const` or `enum`.
fn values(view: View<'_>) -> Option<&[Json]> {
    match (view.get("const"), view.get("enum")) {
        (Some(value), _) => Some(std::slice::from_ref(value)),
        (None, Some(Json::Array(values))) => Some(values),
        _ => None,
    }
}

/// Returns whether two values are equal in JSON Schema, where 1 is 1.0.
fn is_equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a.as_f64() == b.as_f64(),
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            let is_in = |(key, value)| b.get(key).is_some_and(|other| is_equal(value, other));
            a.len() == b.len() && a.iter().all(is_in)
        }
        _ => a == b,
    }
}

/// Returns whether the numbers of `a` are below those of `b`.
fn is_below(a: View<'_>, b: View<'_>) -> bool {
    let bound = |view: View<'_>, key: &str| view.get(key).and_then(Json::as_f64);
    let max = (bound(a, "maximum"), bound(a, "exclusiveMaximum"));
    let min = (bound(b, "minimum"), bound(b, "exclusiveMinimum"));
    let is = |max: Option<f64>, min: Option<f64>, compare: fn(f64, f64) -> bool| {
        max.zip(min).is_some_and(|(max, min)| compare(max, min))
    };
    is(max.0, min.0, |max, min| max < min)
        || is(max.0, min.1, |max, min| max <= min)
        || is(max.1, min.0, |max, min| max <= min)
        || is(max.1, min.1, |max, min| max <= min)
}

/// Returns whether the strings of `a` are shorter than those of `b`.
fn is_shorter(a: View<'_>, b: View<'_>) -> bool {
    let length = |view: View<'_>, key: &str| view.get(key).and_then(Json::as_u64);
    let max = length(a, "maxLength");
    max.zip(length(b, "minLength"))
        .is_some_and(|(max, min)| max < min)
}
