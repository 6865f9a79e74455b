//! Relaxed schemas that compile: restrictions that grammars cannot express, and parts that the compiler
//! rejects, are removed.

use super::Grammar;
use super::engine::GrammarEngine;
use super::schema::{prepare_relaxed, prepare_schema};
use serde_json::{Map, Value as Json, json};
use std::time::{Duration, Instant};
use tabla_core::error::{Context, ErrorKind, Result, excerpt};

/// Maximum number of compilations, and maximum time for them. Then a part of the schema that was not
/// tried is not enforced.
const ATTEMPTS_MAX: usize = 256;
const TIME_MAX: Duration = Duration::from_secs(10);

/// Keywords that are removed one by one from a schema that does not compile.
const RESTRICTIONS: &[&str] = &[
    "pattern",
    "format",
    "patternProperties",
    "multipleOf",
    "required",
    "minProperties",
    "maxProperties",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "allOf",
];

/// A schema without the restrictions that a grammar cannot express.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RelaxedSchema {
    /// The schema in the form of [`prepare_schema`], without annotations such as `description`: it is for a
    /// grammar, not for a prompt.
    pub schema: Json,
    /// A message for each removed restriction, with its JSON pointer.
    pub warnings: Vec<String>,
}

impl GrammarEngine {
    /// Removes what a grammar cannot express from a JSON schema, so that the result compiles: patterns
    /// with look-around, unknown formats, `not` and similar keywords. Parts that still do not compile become
    /// `{}`, which allows any value.
    ///
    /// # Errors
    /// `Grammar` for a reference to something that is not in the schema; `Busy` if too many grammars are
    /// being compiled; `Memory`.
    pub fn relax(&self, schema: &Json) -> Result<RelaxedSchema> {
        let mut warnings = Vec::new();
        let prepared = prepare_relaxed(schema, &mut warnings);
        let schema = match prepared {
            Err(e) if e.kind() == ErrorKind::TooLarge => {
                warnings.push(format!("the schema is not enforced: {}", e.message()));
                prepare_schema(&json!({}))?
            }
            prepared => prepared?,
        };
        if self.compiles(&schema)? {
            return Ok(RelaxedSchema { schema, warnings });
        }
        let mut repair = Repair {
            engine: self,
            root: schema,
            warnings,
            attempts: 0,
            started: Instant::now(),
        };
        for key in ["$defs", "definitions"] {
            let names = repair.root.get(key).and_then(Json::as_object);
            let names = names.map(|map| map.keys().cloned().collect::<Vec<_>>());
            for name in names.unwrap_or_default() {
                repair.repair(&[key.into(), name])?;
            }
        }
        repair.repair(&[])?;
        Ok(RelaxedSchema {
            schema: repair.root,
            warnings: repair.warnings,
        })
    }

    /// Relaxes the parameter schemas of tools, for
    /// [`ChatFormat::detect`](crate::ChatFormat::detect). A parameter schema that is absent, null or
    /// `true` allows any object. Tools with `strict` set to true are not relaxed. Returns the tools and the
    /// warnings. The prompt should have the original tools: relaxed schemas have no descriptions.
    ///
    /// # Errors
    /// See [`GrammarEngine::relax`]; `Grammar` for a strict tool with a schema that a grammar cannot express.
    pub fn relax_tools(&self, tools: &[Json]) -> Result<(Vec<Json>, Vec<String>)> {
        let mut warnings = Vec::new();
        let mut relaxed_tools = tools.to_vec();
        for tool in &mut relaxed_tools {
            let has_function = tool.get("function").is_some_and(Json::is_object);
            let function = if has_function {
                &mut tool["function"]
            } else {
                tool
            };
            let Json::Object(function) = function else {
                continue;
            };
            let name = function.get("name").and_then(Json::as_str);
            let name = format!("tool {:?}", name.unwrap_or_default());
            let given = object(function.get("parameters").unwrap_or(&Json::Null));
            let parameters = if function.get("strict") == Some(&Json::Bool(true)) {
                self.check(&Grammar::JsonSchema(given.clone()))
                    .context(name)?;
                given
            } else {
                let relaxed = self.relax(&given).context(&name)?;
                let named = relaxed.warnings.iter();
                warnings.extend(named.map(|warning| format!("{name}: {warning}")));
                object(&relaxed.schema)
            };
            function.insert("parameters".into(), parameters);
        }
        Ok((relaxed_tools, warnings))
    }

    /// Returns whether a schema compiles.
    fn compiles(&self, schema: &Json) -> Result<bool> {
        match self.check(&Grammar::JsonSchema(schema.clone())) {
            Ok(()) => Ok(true),
            Err(e) if matches!(e.kind(), ErrorKind::Busy | ErrorKind::Memory) => Err(e),
            Err(_) => Ok(false),
        }
    }
}

/// Returns a schema of objects.
fn object(schema: &Json) -> Json {
    let mut fields = schema.as_object().cloned().unwrap_or_default();
    if fields.get("type").is_none_or(|name| !name.is_string()) {
        fields.insert("type".into(), "object".into());
    }
    fields.into()
}

struct Repair<'a> {
    engine: &'a GrammarEngine,
    root: Json,
    warnings: Vec<String>,
    attempts: usize,
    started: Instant,
}

impl Repair<'_> {
    /// Removes the parts of the schema at a path that do not compile.
    fn repair(&mut self, path: &[String]) -> Result<()> {
        if self.compiles(path)? {
            return Ok(());
        }
        for child in children(self.part(path)) {
            self.repair(&[path, &child].concat())?;
        }
        if self.compiles(path)? {
            return Ok(());
        }
        let before = self.part(path).clone();
        for key in RESTRICTIONS {
            let fields = self.part_mut(path).as_object_mut();
            let Some(value) = fields.and_then(|fields| fields.remove(*key)) else {
                continue;
            };
            if self.compiles(path)? {
                let path = [path, &[(*key).to_string()]].concat();
                self.warn(&format!("{key} {value} is not enforced"), &path);
                return Ok(());
            }
            self.part_mut(path)[*key] = value;
        }
        let is_object = before.get("type") == Some(&"object".into());
        let mut any = match is_object || before.get("properties").is_some() {
            true => json!({ "type": "object" }),
            false => json!({}),
        };
        if path.is_empty() {
            // Nothing refers to the definitions any more.
            self.root = Json::Null;
        }
        std::mem::swap(self.part_mut(path), &mut any);
        self.warn("the schema cannot be compiled and is not enforced", path);
        Ok(())
    }

    /// Returns whether the schema at a path compiles, with the definitions of the root. Returns
    /// false after the maximum number of attempts.
    fn compiles(&mut self, path: &[String]) -> Result<bool> {
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX || self.started.elapsed() > TIME_MAX {
            return Ok(false);
        }
        let mut schema = self.part(path).clone();
        if let (Json::Object(fields), false) = (&mut schema, path.is_empty()) {
            // References to other parts of the root remain valid, too.
            let root = self.root.as_object().cloned().unwrap_or_default();
            for (key, value) in root {
                if value.is_object() && ["$defs", "definitions"].contains(&&*key) {
                    fields.insert(key, value);
                }
            }
        }
        self.engine.compiles(&schema)
    }

    fn warn(&mut self, message: &str, path: &[String]) {
        let pointer = pointer(path);
        self.warnings
            .push(format!("#{}: {message}", excerpt(&pointer)));
    }

    fn part(&self, path: &[String]) -> &Json {
        let part = self.root.pointer(&pointer(path));
        part.unwrap_or(&Json::Null)
    }

    fn part_mut(&mut self, path: &[String]) -> &mut Json {
        let pointer = pointer(path);
        let found = self.root.pointer(&pointer).is_some();
        let pointer = if found { &*pointer } else { "" };
        self.root.pointer_mut(pointer).expect("the root exists")
    }
}

fn pointer(path: &[String]) -> String {
    let escaped = path
        .iter()
        .map(|key| key.replace('~', "~0").replace('/', "~1"));
    escaped.map(|key| format!("/{key}")).collect()
}

/// Returns the paths of the schemas within a schema, without definitions.
fn children(schema: &Json) -> Vec<Vec<String>> {
    let empty = Map::new();
    let mut paths = Vec::new();
    for (key, value) in schema.as_object().unwrap_or(&empty) {
        let names: Vec<String> = match (key.as_str(), value) {
            ("properties" | "patternProperties", Json::Object(fields)) => {
                fields.keys().cloned().collect()
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Json::Array(items)) => {
                (0..items.len()).map(|at| at.to_string()).collect()
            }
            ("items" | "additionalProperties", Json::Object(_)) => {
                paths.push(vec![key.clone()]);
                continue;
            }
            _ => continue,
        };
        paths.extend(names.into_iter().map(|name| vec![key.clone(), name]));
    }
    paths
}
