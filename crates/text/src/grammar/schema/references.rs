//! The places of a schema that references name: by JSON pointer, `$id`, `$anchor` and `$dynamicAnchor`.

use super::keywords::{KeywordValue, value_of};
use super::uri;
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use tabla_core::error::{Result, bail};

/// Maximum length of the JSON pointers of all subschemas together.
const POINTER_BYTES_MAX: usize = 16 << 20;

/// Dynamic anchors in scope: the pointer of the outermost schema with each name. The anchor that
/// `$recursiveAnchor` sets has the name "".
pub(super) type Scope = Rc<BTreeMap<String, String>>;

/// The place that a reference names.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// JSON pointer from the root.
    pub(super) pointer: String,
    /// Base URI of the references within it.
    pub(super) base: Rc<str>,
}

/// Index of a schema.
pub(super) struct References<'a> {
    root: &'a Json,
    /// Pointer of each schema with a URI, and the base URI by pointer.
    resources: HashMap<Rc<str>, String>,
    bases: HashMap<String, Rc<str>>,
    /// Pointer by base URI and name.
    anchors: HashMap<(Rc<str>, String), String>,
    /// Names and pointers of dynamic anchors by base URI.
    dynamic: HashMap<Rc<str>, Vec<(String, String)>>,
    /// Whether `id` is `$id`, as in draft 4.
    has_plain_ids: bool,
}

impl<'a> References<'a> {
    /// Indexes a schema.
    ///
    /// # Errors
    /// `TooLarge` for names so long that the paths exceed the limit.
    pub(super) fn new(root: &'a Json) -> Result<Self> {
        let draft = root.get("$schema").and_then(Json::as_str);
        let base: Rc<str> = uri::DEFAULT_BASE.into();
        let mut index = Self {
            root,
            resources: HashMap::from([(base.clone(), String::new())]),
            bases: HashMap::from([(String::new(), base.clone())]),
            anchors: HashMap::new(),
            dynamic: HashMap::new(),
            has_plain_ids: draft.is_some_and(|draft| draft.contains("draft-04")),
        };
        let (mut open, mut bytes) = (vec![(root, String::new(), base)], 0);
        while let Some((schema, pointer, base)) = open.pop() {
            bytes += pointer.len();
            if bytes > POINTER_BYTES_MAX {
                bail!(
                    TooLarge,
                    "schema: the paths of its subschemas exceed the limit of {POINTER_BYTES_MAX} bytes in total"
                );
            }
            let Some(fields) = schema.as_object() else {
                continue;
            };
            let base = index.add(fields, &pointer, base);
            for (key, value) in fields {
                let pointer = child(&pointer, key);
                match (value_of(key), value) {
                    (Some(KeywordValue::Named), Json::Object(fields)) => {
                        let all = fields.iter();
                        open.extend(
                            all.map(|(name, value)| (value, child(&pointer, name), base.clone())),
                        );
                    }
                    (Some(KeywordValue::Schemas), Json::Array(items)) => {
                        let all = items.iter().enumerate();
                        open.extend(
                            all.map(|(at, value)| (value, format!("{pointer}/{at}"), base.clone())),
                        );
                    }
                    (Some(KeywordValue::Schemas), value) => {
                        open.push((value, pointer, base.clone()));
                    }
                    _ => {}
                }
            }
        }
        Ok(index)
    }

    /// Adds the identifiers of a schema. Returns the base URI of the references within it.
    fn add(&mut self, fields: &Map<String, Json>, pointer: &str, base: Rc<str>) -> Rc<str> {
        let mut base = base;
        if let Some((uri, fragment)) = self.id(fields) {
            if !fragment.is_empty() {
                // An anchor of draft 7.
                let anchor = (base.clone(), fragment.to_string());
                self.anchors
                    .entry(anchor)
                    .or_insert_with(|| pointer.to_string());
            }
            if !uri.is_empty() {
                base = uri::resolve(&base, uri).into();
                self.resources
                    .entry(base.clone())
                    .or_insert_with(|| pointer.to_string());
                self.bases.insert(pointer.to_string(), base.clone());
            }
        }
        for key in ["$anchor", "$dynamicAnchor"] {
            if let Some(name) = fields.get(key).and_then(Json::as_str) {
                let anchor = (base.clone(), name.to_string());
                self.anchors
                    .entry(anchor)
                    .or_insert_with(|| pointer.to_string());
            }
        }
        let dynamic = fields.get("$dynamicAnchor").and_then(Json::as_str);
        let is_recursive = fields.get("$recursiveAnchor") == Some(&Json::Bool(true));
        for name in dynamic.into_iter().chain(is_recursive.then_some("")) {
            let anchors = self.dynamic.entry(base.clone()).or_default();
            anchors.push((name.to_string(), pointer.to_string()));
        }
        base
    }

    /// Returns the URI and the fragment of the identifier of a schema.
    fn id<'f>(&self, fields: &'f Map<String, Json>) -> Option<(&'f str, &'f str)> {
        let plain = fields.get("id").filter(|_| self.has_plain_ids);
        let id = fields.get("$id").or(plain)?.as_str()?;
        Some(id.split_once('#').unwrap_or((id, "")))
    }

    /// Returns the schema at a pointer.
    pub(super) fn schema(&self, pointer: &str) -> &'a Json {
        self.root.pointer(pointer).unwrap_or(&Json::Null)
    }

    /// Returns the base URI of the references within the schema at a pointer.
    pub(super) fn base(&self, pointer: &str) -> Rc<str> {
        let mut pointer = pointer;
        loop {
            if let Some(base) = self.bases.get(pointer) {
                return base.clone();
            }
            pointer = &pointer[..pointer.rfind('/').unwrap_or(0)];
        }
    }

    /// Returns the base URI that a schema with an identifier sets.
    pub(super) fn own_base(&self, pointer: &str) -> Option<Rc<str>> {
        self.bases.get(pointer).cloned()
    }

    /// Returns the scope within a schema with this base URI.
    pub(super) fn enter(&self, scope: &Scope, base: &str) -> Scope {
        let mut entered = scope.clone();
        for (name, pointer) in self.dynamic.get(base).into_iter().flatten() {
            if !entered.contains_key(name) {
                Rc::make_mut(&mut entered).insert(name.clone(), pointer.clone());
            }
        }
        entered
    }

    /// Returns the target of a reference by the keyword `key`.
    ///
    /// # Errors
    /// `Grammar` for a reference to something that is not in the schema.
    pub(super) fn target(
        &self,
        key: &str,
        reference: &str,
        base: &Rc<str>,
        scope: &Scope,
    ) -> Result<Target> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let uri: Rc<str> = match uri.is_empty() {
            true => base.clone(),
            false => uri::resolve(base, uri).into(),
        };
        let Some(resource) = self.resources.get(&uri) else {
            bail!(
                Grammar,
                "{reference:?} is not within the schema; expected a reference to a place (#/$defs/name), an $anchor or an $id in the schema"
            );
        };
        let fragment = percent_decoded(fragment);
        let pointer = match fragment.as_deref() {
            Some(path) if path.is_empty() || path.starts_with('/') => {
                Some(format!("{resource}{path}"))
            }
            Some(name) => self.anchors.get(&(uri.clone(), name.to_string())).cloned(),
            None => None,
        };
        let pointer = pointer.filter(|pointer| self.root.pointer(pointer).is_some());
        let Some(pointer) = pointer else {
            bail!(Grammar, "{reference:?} does not exist");
        };
        let name = match key {
            "$dynamicRef" => fragment.as_deref(),
            "$recursiveRef" => Some(""),
            _ => None,
        };
        let is_dynamic = |name: &&str| {
            let mut anchors = self.dynamic.get(&uri).into_iter().flatten();
            anchors.any(|(other, at)| other == name && *at == pointer)
        };
        let outermost = name.filter(is_dynamic).and_then(|name| scope.get(name));
        let pointer = outermost.cloned().unwrap_or(pointer);
        let base = self.base(&pointer);
        Ok(Target { pointer, base })
    }
}

/// Returns the pointer of the value of a key.
pub(super) fn child(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Decodes percent escapes such as `%3C`. Returns `None` for invalid UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).filter(|_| *first == b'%');
        let hex = hex.filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let code = hex.and_then(|hex| u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = &after[if code.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8(bytes).ok()
}
