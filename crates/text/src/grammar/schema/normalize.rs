//! Normalization of schemas: every keyword is converted to what llguidance enforces, or refused.

use super::close::{self, Closing, Part, Plan};
use super::fields::{Position, add, allow_null, conjoin, names_pattern};
use super::keywords::{COUNTS, TYPES, UNSUPPORTED};
use super::numbers;
use super::references::{References, Scope, child};
use super::strings;
use serde_json::{Map, Value as Json, json};
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::rc::Rc;
use tabla_core::error::{Context, Result, bail, excerpt};

/// Maximum number of subschemas. Those that are referenced by several pointers count several times.
const SCHEMAS_MAX: usize = 20_000;
/// Maximum sum of the nesting depths of the schema and its definitions.
const LEVELS_MAX: usize = 2_048;

/// What happens to a restriction that a grammar cannot express.
pub(super) enum Unsupported<'w> {
    /// It is an error.
    Refuse,
    /// It is removed with a warning.
    Remove(&'w mut Vec<String>),
}

/// Key of a definition: its pointer, the dynamic anchors in scope, and whether it is open.
type DefinitionKey = (String, Scope, bool);

/// Normalizes a schema.
pub(super) struct Normalizer<'a, 'w> {
    references: References<'a>,
    position: Position,
    unsupported: Unsupported<'w>,
    /// New names of definitions.
    names: HashMap<DefinitionKey, String>,
    used: HashSet<String>,
    /// Referenced definitions that are not normalized yet, with their names.
    pending: Vec<(String, DefinitionKey)>,
    root_scope: Scope,
    /// Number of subschemas so far.
    schemas: usize,
    /// Sum of the depths of definitions.
    levels: usize,
    /// Depth of the current definition.
    depth: usize,
}

/// A schema and where it is.
struct Place<'a> {
    schema: &'a Json,
    pointer: String,
    base: Rc<str>,
    scope: Scope,
    level: usize,
}

/// A schema of which the keywords are converted.
struct Node<'a> {
    part: Part<'a>,
    pointer: String,
    level: usize,
    plan: Plan,
}

impl<'a> Node<'a> {
    fn child(&self, path: String, schema: &'a Json) -> Place<'a> {
        Place {
            schema,
            pointer: path,
            base: self.part.base.clone(),
            scope: self.part.scope.clone(),
            level: self.level + 1,
        }
    }
}

impl<'a, 'w> Normalizer<'a, 'w> {
    pub(super) fn new(
        root: &'a Json,
        position: Position,
        unsupported: Unsupported<'w>,
    ) -> Result<Self> {
        let references = References::new(root)?;
        let root_scope = references.enter(&Scope::default(), &references.base(""));
        Ok(Self {
            references,
            position,
            unsupported,
            names: HashMap::new(),
            used: HashSet::new(),
            pending: Vec::new(),
            root_scope,
            schemas: 0,
            levels: 0,
            depth: 0,
        })
    }

    /// Normalizes the schema and its definitions.
    pub(super) fn root(&mut self) -> Result<Json> {
        let mut root = self.definition("", self.root_scope.clone(), false)?;
        // A prepared schema has options.
        let is_silent = |schema: &Json| schema.is_object() && schema.get("x-guidance").is_none();
        let is_silent = is_silent(self.references.schema(""));
        if root == true {
            root = json!({});
        }
        let mut definitions = Map::new();
        while let Some((name, (pointer, scope, is_open))) = self.pending.pop() {
            let definition = self.definition(&pointer, scope, is_open)?;
            definitions.insert(name, definition);
        }
        if let Json::Object(fields) = &mut root {
            if fields.is_empty() && is_silent && self.position == Position::Root {
                // As in llama.cpp, a schema that restricts nothing is for objects.
                fields.insert("type".into(), "object".into());
            }
            if !definitions.is_empty() {
                fields.insert("$defs".into(), definitions.into());
            }
        }
        Ok(root)
    }

    #[expect(clippy::fn_params_excessive_bools, reason = "the only option")]
    fn definition(&mut self, pointer: &str, scope: Scope, is_open: bool) -> Result<Json> {
        let place = Place {
            schema: self.references.schema(pointer),
            pointer: pointer.to_string(),
            base: self.references.base(pointer),
            scope,
            level: 1,
        };
        let closing = match is_open {
            true => Closing::Open,
            false => Closing::Closed(Rc::default()),
        };
        let schema = self.schema(place, &closing)?;
        self.levels += std::mem::take(&mut self.depth);
        if self.levels > LEVELS_MAX {
            bail!(
                TooLarge,
                "schema: the depths of the schema and its definitions exceed the limit of {LEVELS_MAX} levels in total"
            );
        }
        Ok(schema)
    }

    /// Refuses a restriction that a grammar cannot express, or adds a warning.
    pub(super) fn unsupported(&mut self, pointer: &str, reason: impl Display) -> Result<()> {
        match &mut self.unsupported {
            Unsupported::Refuse => bail!(Grammar, "schema: #{}: {reason}", excerpt(pointer)),
            Unsupported::Remove(warnings) => {
                warnings.push(format!("#{} is not enforced: {reason}", excerpt(pointer)));
                Ok(())
            }
        }
    }

    fn is_strict(&self) -> bool {
        matches!(self.unsupported, Unsupported::Refuse)
    }

    fn schema(&mut self, place: Place<'a>, closing: &Closing) -> Result<Json> {
        self.schemas += 1;
        if self.schemas > SCHEMAS_MAX {
            bail!(
                TooLarge,
                "the schema and its definitions exceed the limit of {SCHEMAS_MAX} subschemas"
            );
        }
        self.depth = self.depth.max(place.level);
        let Json::Object(fields) = place.schema else {
            return self.boolean(&place);
        };
        let base = self
            .references
            .own_base(&place.pointer)
            .unwrap_or(place.base);
        let part = Part {
            fields,
            scope: self.references.enter(&place.scope, &base),
            base,
        };
        let node = Node {
            plan: self.references.plan(&part, closing),
            part,
            pointer: place.pointer,
            level: place.level,
        };
        let mut out = Map::new();
        for (key, value) in fields {
            let is_absent = value.is_null() && !["const", "default"].contains(&&**key);
            if is_absent && !self.is_strict() {
                // Some clients write null for no restriction.
                continue;
            }
            self.keyword(&node, key, value, &mut out)?;
        }
        self.finish(&node, &mut out)?;
        Ok(out.into())
    }

    /// Returns a schema that is no object.
    fn boolean(&mut self, place: &Place<'a>) -> Result<Json> {
        if let Json::Bool(value) = place.schema {
            return Ok((*value).into());
        }
        if self.is_strict() || !place.schema.is_null() {
            let reason = format!("expected an object or a boolean, got {}", place.schema);
            self.unsupported(&place.pointer, reason)?;
        }
        Ok(json!({}))
    }

    /// Adds the form of a keyword that llguidance compiles.
    fn keyword(
        &mut self,
        node: &Node<'a>,
        key: &'a str,
        value: &'a Json,
        out: &mut Map<String, Json>,
    ) -> Result<()> {
        let path = child(&node.pointer, key);
        let closed = Closing::Closed(Rc::default());
        match key {
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                let reference = self.reference(node, key, value);
                let reference = reference.context(format_args!("schema: #{}", excerpt(&path)))?;
                add(out, "$ref", reference.into());
            }
            "type" => self.types(&path, value, out)?,
            "const" => self.constant(&path, value, out)?,
            "enum" => self.values(&path, value, out)?,
            "required" => self.required(&path, value, out)?,
            "pattern" | "format" => self.string(&path, key, value, out)?,
            "properties" => self.named(node, key, value, out)?,
            "patternProperties" => self.named(node, key, value, out)?,
            "allOf" => {
                for schema in self.list(node, key, value, &node.plan.parts)? {
                    conjoin(out, schema);
                }
            }
            "anyOf" | "oneOf" => {
                let schemas = self.list(node, key, value, &node.plan.alternatives)?;
                out.insert(key.into(), schemas.into());
            }
            "prefixItems" => {
                let schemas = self.list(node, key, value, &closed)?;
                out.insert(key.into(), schemas.into());
            }
            // A tuple of drafts before 2020-12.
            "items" if value.is_array() => {
                let schemas = self.list(node, key, value, &closed)?;
                out.insert("prefixItems".into(), schemas.into());
            }
            "additionalItems" if node.part.fields.get("items").is_some_and(Json::is_array) => {
                let schema = self.schema(node.child(path, value), &closed)?;
                out.insert("items".into(), schema);
            }
            "items" | "additionalProperties" => {
                let schema = self.schema(node.child(path, value), &closed)?;
                out.insert(key.into(), schema);
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                out.insert(key.into(), value.clone());
            }
            "multipleOf" => self.multiple_of(&path, value, out)?,
            _ if COUNTS.contains(&key) => self.count(&path, key, value, out)?,
            _ if UNSUPPORTED.contains(&key) => self.restriction(node, key, value, out)?,
            _ => {}
        }
        Ok(())
    }

    /// Returns a reference with its new name.
    fn reference(&mut self, node: &Node<'a>, key: &str, value: &Json) -> Result<String> {
        let Some(reference) = value.as_str() else {
            bail!(Grammar, "expected a string, got {value}");
        };
        let Part { base, scope, .. } = &node.part;
        let target = self.references.target(key, reference, base, scope)?;
        let scope = self.references.enter(scope, &target.base);
        let is_open = node.plan.parts == Closing::Open;
        let is_root = target.pointer.is_empty() && self.position == Position::Root;
        if is_root && !is_open && scope == self.root_scope {
            return Ok("#".into());
        }
        let definition = (target.pointer, scope, is_open);
        if let Some(name) = self.names.get(&definition) {
            return Ok(format!("#/$defs/{name}"));
        }
        let name = self.new_name(&definition.0);
        let reference = format!("#/$defs/{name}");
        self.names.insert(definition.clone(), name.clone());
        self.pending.push((name, definition));
        Ok(reference)
    }

    /// Returns an unused name: the last part of the pointer without special characters, and a number
    /// if that name is used.
    fn new_name(&mut self, pointer: &str) -> String {
        let last = pointer.rsplit('/').next().unwrap_or_default();
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || "_.-".contains(*c);
        let base: String = last.chars().filter(is_plain).collect();
        let numbered = (self.used.len()..).map(|n| format!("{base}-{n}"));
        let mut names = std::iter::once(base.clone()).chain(numbered);
        let name = names.find(|name| !name.is_empty() && self.used.insert(name.clone()));
        name.expect("the sequence of numbers is infinite")
    }

    fn list(
        &mut self,
        node: &Node<'a>,
        key: &str,
        value: &'a Json,
        closing: &Closing,
    ) -> Result<Vec<Json>> {
        let path = child(&node.pointer, key);
        let items = value.as_array().filter(|items| !items.is_empty());
        let Some(items) = items else {
            self.unsupported(
                &path,
                format_args!("expected a list of schemas, got {value}"),
            )?;
            return Ok(vec![json!({})]);
        };
        let items = items.iter().enumerate();
        let items =
            items.map(|(at, item)| self.schema(node.child(format!("{path}/{at}"), item), closing));
        items.collect()
    }

    fn named(
        &mut self,
        node: &Node<'a>,
        key: &str,
        value: &'a Json,
        out: &mut Map<String, Json>,
    ) -> Result<()> {
        let path = child(&node.pointer, key);
        let closed = Closing::Closed(Rc::default());
        let Some(fields) = value.as_object() else {
            return self.unsupported(
                &path,
                format_args!("expected an object with schemas, got {value}"),
            );
        };
        let mut schemas = Map::new();
        for (name, schema) in fields {
            let path = child(&path, name);
            let schema = self.schema(node.child(path.clone(), schema), &closed)?;
            let name = match key {
                "properties" => Ok(name.clone()),
                _ => strings::pattern(name),
            };
            match name {
                Ok(name) => drop(schemas.insert(name, schema)),
                Err(reason) => self.unsupported(&path, reason)?,
            }
        }
        out.insert(key.into(), schemas.into());
        Ok(())
    }

    fn types(&mut self, path: &str, value: &Json, out: &mut Map<String, Json>) -> Result<()> {
        let is_type = |name: &Json| name.as_str().is_some_and(|name| TYPES.contains(&name));
        let is_valid = match value {
            Json::Array(names) => !names.is_empty() && names.iter().all(is_type),
            name => is_type(name),
        };
        if is_valid {
            add(out, "type", value.clone());
            return Ok(());
        }
        let types = TYPES.join(", ");
        self.unsupported(
            path,
            format_args!("unknown type {value}, expected one of {types}"),
        )
    }

    fn constant(&mut self, path: &str, value: &Json, out: &mut Map<String, Json>) -> Result<()> {
        match numbers::constant(value) {
            Some(value) => add(out, "const", value),
            None => self.unsupported(path, format_args!("{value}: {}", numbers::INEXACT))?,
        }
        Ok(())
    }

    fn values(&mut self, path: &str, value: &Json, out: &mut Map<String, Json>) -> Result<()> {
        let mut values = Vec::new();
        for value in value.as_array().into_iter().flatten() {
            match numbers::constant(value) {
                Some(value) => values.push(value),
                None => self.unsupported(path, format_args!("{value}: {}", numbers::INEXACT))?,
            }
        }
        if values.is_empty() {
            return self.unsupported(path, format_args!("expected a list of values, got {value}"));
        }
        out.insert("enum".into(), values.into());
        Ok(())
    }

    fn required(&mut self, path: &str, value: &Json, out: &mut Map<String, Json>) -> Result<()> {
        let names = value.as_array();
        let is_valid = names.is_some_and(|names| names.iter().all(Json::is_string));
        if !is_valid && self.is_strict() {
            self.unsupported(path, format_args!("expected a list of names, got {value}"))?;
        }
        let names = names.into_iter().flatten().filter(|name| name.is_string());
        let names: Vec<Json> = names.cloned().collect();
        if value.is_array() {
            out.insert("required".into(), names.into());
        }
        Ok(())
    }

    fn string(
        &mut self,
        path: &str,
        key: &str,
        value: &Json,
        out: &mut Map<String, Json>,
    ) -> Result<()> {
        let Some(text) = value.as_str() else {
            return self.unsupported(path, format_args!("expected a string, got {value}"));
        };
        if key == "format" && strings::NUMBER_FORMATS.contains(&text) {
            return Ok(());
        }
        let pattern = match key {
            "format" => strings::format_pattern(text).ok_or("unknown format"),
            _ => strings::pattern(text),
        };
        match pattern {
            Ok(pattern) => add(out, "pattern", pattern.into()),
            Err(reason) => self.unsupported(path, format_args!("{text:?}: {reason}"))?,
        }
        Ok(())
    }

    fn count(
        &mut self,
        path: &str,
        key: &str,
        value: &Json,
        out: &mut Map<String, Json>,
    ) -> Result<()> {
        // `2.0` is an integer.
        let float = value.as_f64().filter(|count| count.fract() == 0.0);
        let float = float.filter(|count| (0.0..1e15).contains(count));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above"
        )]
        let float = float.map(|count| count as u64);
        let count = value.as_u64().or(float);
        match count {
            Some(count) => drop(out.insert(key.into(), count.into())),
            None => self.unsupported(
                path,
                format_args!("expected a number of elements, got {value}"),
            )?,
        }
        Ok(())
    }

    fn multiple_of(&mut self, path: &str, value: &Json, out: &mut Map<String, Json>) -> Result<()> {
        let is_valid = value.as_f64().is_some_and(|step| step > 0.0);
        match is_valid {
            true => drop(out.insert("multipleOf".into(), value.clone())),
            false => {
                self.unsupported(path, format_args!("expected a number above 0, got {value}"))?;
            }
        }
        Ok(())
    }

    /// Adds a restriction that grammars express in some cases.
    fn restriction(
        &mut self,
        node: &Node<'a>,
        key: &str,
        value: &'a Json,
        out: &mut Map<String, Json>,
    ) -> Result<()> {
        let path = child(&node.pointer, key);
        let fields = node.part.fields;
        let has = |key: &str| fields.contains_key(key);
        let combines = [
            "$ref",
            "$dynamicRef",
            "$recursiveRef",
            "allOf",
            "anyOf",
            "oneOf",
        ];
        let is_alone = !combines.iter().any(|key| has(key));
        let is_any = *value == Json::Bool(true) || value.as_object().is_some_and(Map::is_empty);
        let restricts = match key {
            "uniqueItems" => *value != Json::Bool(false),
            "contains" => fields.get("minContains") != Some(&json!(0)) || has("maxContains"),
            "if" => has("then") || has("else"),
            "not" => *value != Json::Bool(false),
            "dependencies" | "dependentRequired" | "dependentSchemas" => !is_any,
            "propertyNames" => !is_any && value != &json!({ "type": "string" }),
            "unevaluatedProperties" => {
                !is_any
                    && !has("additionalProperties")
                    && (*value != Json::Bool(false) || node.plan.names.is_none())
            }
            "unevaluatedItems" => !is_any && !has("items"),
            _ => true,
        };
        let equivalent = match key {
            "unevaluatedProperties" if is_alone => "additionalProperties",
            "unevaluatedItems" if is_alone => "items",
            _ => "",
        };
        if !restricts {
            return Ok(());
        }
        if !equivalent.is_empty() {
            let closed = Closing::Closed(Rc::default());
            let schema = self.schema(node.child(path, value), &closed)?;
            out.insert(equivalent.into(), schema);
            return Ok(());
        }
        if key == "propertyNames"
            && !has("properties")
            && !has("patternProperties")
            && !has("required")
        {
            // `finish` converts it.
            if names_pattern(value).is_some() {
                return Ok(());
            }
        }
        self.unsupported(&path, format_args!("{key} is not supported"))
    }

    /// Converts keywords that depend on others, and closes the object.
    fn finish(&mut self, node: &Node<'a>, out: &mut Map<String, Json>) -> Result<()> {
        let fields = node.part.fields;
        let is_integer = match out.get("type") {
            Some(Json::Array(names)) => {
                names.contains(&"integer".into()) && !names.contains(&"number".into())
            }
            Some(name) => name == "integer",
            None => false,
        };
        if let Err((key, reason)) = numbers::convert(out, is_integer) {
            self.unsupported(&child(&node.pointer, key), reason)?;
        }
        let pattern = fields.get("propertyNames").and_then(names_pattern);
        if let Some(pattern) =
            pattern.filter(|_| !out.contains_key("properties") && !out.contains_key("required"))
        {
            let values = out.insert("additionalProperties".into(), false.into());
            let values = values.unwrap_or_else(|| true.into());
            out.insert("patternProperties".into(), json!({ pattern: values }));
        }
        if let Some(names) = &node.plan.names {
            close::close(out, names);
        } else if !self.is_strict()
            && fields.contains_key("properties")
            && close::allows_further(fields)
        {
            // Also if the keyword is not enforced.
            out.entry("additionalProperties").or_insert(true.into());
        }
        self.min_properties(node, out)?;
        if fields.get("nullable") == Some(&Json::Bool(true)) {
            allow_null(out);
        }
        Ok(())
    }

    /// Removes `minProperties` if the required properties suffice, and refuses it if properties that occur
    /// twice would count.
    fn min_properties(&mut self, node: &Node<'a>, out: &mut Map<String, Json>) -> Result<()> {
        let Some(min) = out.get("minProperties").and_then(Json::as_u64) else {
            return Ok(());
        };
        let required = out.get("required").and_then(Json::as_array);
        let further = min.saturating_sub(required.map_or(0, Vec::len) as u64);
        let is_closed = out.get("additionalProperties") == Some(&Json::Bool(false))
            && !out.contains_key("patternProperties");
        if further == 0 {
            out.remove("minProperties");
        } else if further > 1 && !is_closed {
            out.remove("minProperties");
            let path = child(&node.pointer, "minProperties");
            let reason = "a grammar cannot count properties without fixed names, because a name can occur twice";
            return self.unsupported(&path, format_args!("{min}: {reason}"));
        }
        Ok(())
    }
}
