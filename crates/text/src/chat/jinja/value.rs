//! Values of templates: Python's, all immutable.
//!
//! Only namespaces and loops change. They are numbers here, and their state is in an arena, so
//! values form no reference cycles and dropping a value recurs at most [`DEPTH_MAX`] times.

use super::budget::Budget;
use super::failure::{Outcome, fail, too_large};
use super::syntax::Macro;
use hashbrown::HashTable;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;

/// Maximum nesting depth of values.
const DEPTH_MAX: u16 = 200;
/// Memory of a list item.
pub(super) const ITEM_BYTES: usize = size_of::<Value>();
/// Memory of a container without its items, and of other objects.
pub(super) const OBJECT_BYTES: usize = 128;
/// Number of entries from which a dict has a hash table.
pub(super) const INDEXED_LENGTH: usize = 9;

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A missing variable, attribute or item, with its name.
    Undefined(Option<Arc<str>>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    List(Rc<List>),
    Dict(Rc<Dict>),
    Range(Range),
    /// Number of a namespace.
    Namespace(usize),
    /// Number of a loop.
    Loop(usize),
    Macro(Rc<MacroValue>),
    Cycler(Rc<Cycler>),
    Joiner(Rc<Joiner>),
    Function(Function),
    Method(Rc<Method>),
    /// `self`, whose attributes are the blocks.
    Blocks,
    /// Number of a block.
    Block(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) start: i128,
    pub(super) stop: i128,
    pub(super) step: i128,
}

#[derive(Debug)]
pub(super) struct MacroValue {
    pub(super) definition: Arc<Macro>,
    /// The frame in which the macro is defined.
    pub(super) frame: usize,
}

#[derive(Debug)]
pub(super) struct Cycler {
    pub(super) items: Rc<List>,
    pub(super) at: Cell<usize>,
}

#[derive(Debug)]
pub(super) struct Joiner {
    pub(super) separator: Arc<str>,
    pub(super) used: Cell<bool>,
}

/// A method of a value, as in `text.upper`.
#[derive(Debug)]
pub(super) struct Method {
    pub(super) receiver: Value,
    pub(super) name: Arc<str>,
}

/// A global function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    RaiseException,
    StrftimeNow,
}

/// The kind of a list, which determines its text and what it equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    List,
    Tuple,
    /// A tuple of `groupby` with the attributes `grouper` and `list`.
    Group,
    Keys,
    Values,
    Items,
}

impl ListKind {
    pub(super) fn is_tuple(self) -> bool {
        matches!(self, Self::Tuple | Self::Group)
    }
}

/// How a value nests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nesting {
    depth: u16,
    /// Whether the value contains a namespace or a loop.
    mutable: bool,
}

#[derive(Debug)]
pub(super) struct List {
    pub(super) kind: ListKind,
    pub(super) items: Vec<Value>,
    pub(super) nesting: Nesting,
}

/// A dict in the order of insertion.
#[derive(Debug)]
pub(super) struct Dict {
    pub(super) entries: Vec<(Value, Value)>,
    /// Numbers of entries; empty for a short dict.
    pub(super) index: HashTable<u32>,
    pub(super) nesting: Nesting,
}

impl Value {
    pub(super) fn str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined(_))
    }

    /// A bool or an integer as an integer.
    pub(super) fn int(&self) -> Option<i128> {
        match self {
            Self::Bool(value) => Some(i128::from(*value)),
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// A number that is an integer, as one.
    pub(super) fn integral(&self) -> Option<i128> {
        match self {
            Self::Float(number) => integral(*number),
            other => other.int(),
        }
    }

    /// A number as a float.
    #[expect(clippy::cast_precision_loss, reason = "as Python's float()")]
    pub(super) fn float(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            other => other.int().map(|number| number as f64),
        }
    }

    /// Python's `bool(value)`.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(value) => *value,
            Self::Int(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Str(text) => !text.is_empty(),
            Self::List(list) => !list.items.is_empty(),
            Self::Dict(dict) => !dict.entries.is_empty(),
            Self::Range(range) => range.len() > 0,
            _ => true,
        }
    }

    /// Python's name of the type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "Undefined",
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::List(list) => match list.kind {
                ListKind::List => "list",
                ListKind::Tuple | ListKind::Group => "tuple",
                ListKind::Keys => "dict_keys",
                ListKind::Values => "dict_values",
                ListKind::Items => "dict_items",
            },
            Self::Dict(_) => "dict",
            Self::Range(_) => "range",
            Self::Namespace(_) => "Namespace",
            Self::Loop(_) => "LoopContext",
            Self::Macro(_) => "Macro",
            Self::Cycler(_) => "Cycler",
            Self::Joiner(_) => "Joiner",
            Self::Function(_) => "function",
            Self::Method(_) => "method",
            Self::Blocks => "TemplateReference",
            Self::Block(_) => "BlockReference",
        }
    }

    fn nesting(&self) -> Nesting {
        match self {
            Self::List(list) => list.nesting,
            Self::Dict(dict) => dict.nesting,
            Self::Cycler(cycler) => cycler.items.nesting,
            Self::Method(method) => method.receiver.nesting(),
            Self::Namespace(_) | Self::Loop(_) => Nesting {
                depth: 0,
                mutable: true,
            },
            _ => Nesting::default(),
        }
    }

    /// Whether the value contains a namespace or a loop, or is one.
    pub(super) fn is_mutable(&self) -> bool {
        self.nesting().mutable
    }

    /// Creates a method of this value.
    pub(super) fn method(self, name: &Arc<str>, budget: &Budget) -> Outcome<Self> {
        budget.charge(OBJECT_BYTES)?;
        if self.nesting().depth >= DEPTH_MAX {
            return too_deep();
        }
        let name = Arc::clone(name);
        Ok(Self::Method(Rc::new(Method {
            receiver: self,
            name,
        })))
    }

    /// Creates a string.
    pub(super) fn text(text: &str, budget: &Budget) -> Outcome<Self> {
        budget.charge(text.len())?;
        Ok(Self::Str(text.into()))
    }
}

/// The nesting of a container of `items`.
pub(super) fn nesting<'v>(items: impl Iterator<Item = &'v Value>) -> Outcome<Nesting> {
    let mut all = Nesting::default();
    for item in items {
        let nesting = item.nesting();
        all.depth = all.depth.max(nesting.depth);
        all.mutable |= nesting.mutable;
    }
    all.depth += 1;
    if all.depth > DEPTH_MAX {
        return too_deep();
    }
    Ok(all)
}

pub(super) fn too_deep<T>() -> Outcome<T> {
    too_large(format_args!(
        "a value is nested deeper than {DEPTH_MAX} levels"
    ))
}

impl Dict {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &(Value, Value)> {
        self.entries.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn find(&self, key: &Value, hash: u64, budget: &Budget) -> Outcome<Option<usize>> {
        if self.entries.len() < INDEXED_LENGTH {
            for (at, (existing, _)) in self.entries.iter().enumerate() {
                if equal(existing, key, budget)? {
                    return Ok(Some(at));
                }
            }
            return Ok(None);
        }
        let mut failure = None;
        let found = self.index.find(hash, |at| {
            equal(&self.entries[*at as usize].0, key, budget).unwrap_or_else(|e| {
                failure = Some(e);
                true
            })
        });
        match failure {
            Some(failure) => Err(failure),
            None => Ok(found.map(|at| *at as usize)),
        }
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &Value, budget: &Budget) -> Outcome<Option<&Value>> {
        let found = self.find(key, hash(key, budget)?, budget)?;
        Ok(found.map(|at| &self.entries[at].1))
    }

    /// Returns the value of a string key.
    pub(super) fn get_str(&self, key: &str) -> Option<&Value> {
        let is_key = |existing: &Value| existing.str() == Some(key);
        if self.entries.len() < INDEXED_LENGTH {
            let mut entries = self.entries.iter();
            return entries.find(|(k, _)| is_key(k)).map(|(_, value)| value);
        }
        let found = self
            .index
            .find(hash_str(key), |at| is_key(&self.entries[*at as usize].0));
        found.map(|at| &self.entries[*at as usize].1)
    }
}

impl Range {
    pub(super) fn len(&self) -> usize {
        let distance = match self.step > 0 {
            true => self.stop.saturating_sub(self.start),
            false => self.start.saturating_sub(self.stop),
        };
        let step = self.step.saturating_abs().max(1);
        usize::try_from(distance.max(0).saturating_add(step - 1) / step).unwrap_or(usize::MAX)
    }

    pub(super) fn get(&self, index: usize) -> Value {
        let index = i128::try_from(index).unwrap_or(i128::MAX);
        Value::Int(self.start.saturating_add(index.saturating_mul(self.step)))
    }
}

thread_local! {
    static HASHER: RandomState = RandomState::new();
}

/// Tags that keep the hashes of different types apart.
#[derive(Hash)]
enum HashTag {
    Text,
    Other,
}

fn hash_str(text: &str) -> u64 {
    HASHER.with(|state| state.hash_one((HashTag::Text, text)))
}

/// Python's `hash(value)`: equal values have equal hashes.
pub(super) fn hash(value: &Value, budget: &Budget) -> Outcome<u64> {
    if let Value::Str(text) = value {
        budget.work(text.len())?;
        return Ok(hash_str(text));
    }
    let mut hasher = HASHER.with(BuildHasher::build_hasher);
    HashTag::Other.hash(&mut hasher);
    hash_into(value, &mut hasher, budget)?;
    Ok(hasher.finish())
}

fn hash_into(value: &Value, hasher: &mut impl Hasher, budget: &Budget) -> Outcome<()> {
    budget.work(1)?;
    match value {
        Value::Str(text) => text.hash(hasher),
        Value::Float(number) => match integral(*number) {
            Some(number) => number.hash(hasher),
            None => number.to_bits().hash(hasher),
        },
        Value::List(list) if list.kind.is_tuple() => {
            for item in &list.items {
                hash_into(item, hasher, budget)?;
            }
        }
        Value::List(_) | Value::Dict(_) => {
            return fail(format_args!("unhashable type: {:?}", value.type_name()));
        }
        Value::Namespace(number) | Value::Loop(number) | Value::Block(number) => {
            number.hash(hasher);
        }
        other => other.int().hash(hasher),
    }
    Ok(())
}

/// A float that is an integer as one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the result is compared with the number"
)]
fn integral(number: f64) -> Option<i128> {
    let integer = number as i128;
    (integer as f64 == number && integer != i128::MAX).then_some(integer)
}

/// Python's `left == right`.
pub(super) fn equal(left: &Value, right: &Value, budget: &Budget) -> Outcome<bool> {
    budget.work(1)?;
    Ok(match (left, right) {
        (Value::Undefined(_), Value::Undefined(_))
        | (Value::None, Value::None)
        | (Value::Blocks, Value::Blocks) => true,
        (Value::Str(a), Value::Str(b)) => {
            budget.work(a.len().min(b.len()))?;
            a == b
        }
        (Value::List(a), Value::List(b)) => {
            let same_type = a.kind == b.kind || a.kind.is_tuple() && b.kind.is_tuple();
            if !same_type || a.items.len() != b.items.len() {
                return Ok(false);
            }
            if Rc::ptr_eq(a, b) {
                return Ok(true);
            }
            for (a, b) in a.items.iter().zip(&b.items) {
                if !equal(a, b, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Dict(a), Value::Dict(b)) => {
            if Rc::ptr_eq(a, b) || a.len() != b.len() {
                return Ok(a.len() == b.len());
            }
            for (key, value) in a.iter() {
                match b.get(key, budget)? {
                    Some(other) if equal(value, other, budget)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Range(a), Value::Range(b)) => {
            let length = a.len();
            let first = length == 0 || a.start == b.start;
            length == b.len() && first && (length < 2 || a.step == b.step)
        }
        (Value::Namespace(a), Value::Namespace(b))
        | (Value::Loop(a), Value::Loop(b))
        | (Value::Block(a), Value::Block(b)) => a == b,
        (Value::Function(a), Value::Function(b)) => a == b,
        (Value::Macro(a), Value::Macro(b)) => Rc::ptr_eq(a, b),
        (Value::Cycler(a), Value::Cycler(b)) => Rc::ptr_eq(a, b),
        (Value::Joiner(a), Value::Joiner(b)) => Rc::ptr_eq(a, b),
        _ => match (left.int(), right.int()) {
            (Some(a), Some(b)) => a == b,
            (Some(a), None) => matches!(right, Value::Float(b) if integral(*b) == Some(a)),
            (None, Some(b)) => matches!(left, Value::Float(a) if integral(*a) == Some(b)),
            (None, None) => match (left, right) {
                (Value::Float(a), Value::Float(b)) => a == b,
                _ => false,
            },
        },
    })
}
