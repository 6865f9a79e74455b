//! State of a rendering that values refer to: the budget, and namespaces.

use super::budget::Budget;
use super::build::Items;
use super::failure::{Failure, Outcome, fail};
use super::value::{List, OBJECT_BYTES, Value};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tabla_core::error::ErrorKind;

/// Maximum number of attributes of a namespace.
const ATTRIBUTES_MAX: usize = 1000;

type Attributes = Vec<(Arc<str>, Value)>;

#[derive(Debug)]
pub(super) struct Heap {
    pub(super) budget: Budget,
    namespaces: RefCell<Vec<Attributes>>,
    /// The lists over which loops iterate that are stored in a value, by number of the loop.
    loops: RefCell<Vec<Option<Rc<List>>>>,
}

impl Heap {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            budget,
            namespaces: RefCell::new(Vec::new()),
            loops: RefCell::new(Vec::new()),
        }
    }

    pub(super) fn items(&self) -> Items<'_> {
        Items::new(&self.budget)
    }

    pub(super) fn text(&self, text: &str) -> Outcome<Value> {
        Value::text(text, &self.budget)
    }

    /// Creates an empty namespace.
    pub(super) fn namespace(&self) -> Outcome<usize> {
        self.budget.charge(OBJECT_BYTES)?;
        let mut namespaces = self.namespaces.borrow_mut();
        namespaces.push(Vec::new());
        Ok(namespaces.len() - 1)
    }

    /// The attributes of a namespace.
    pub(super) fn attributes(&self, namespace: usize) -> Attributes {
        self.namespaces.borrow()[namespace].clone()
    }

    /// Returns an attribute of a namespace.
    pub(super) fn attribute(&self, namespace: usize, name: &str) -> Option<Value> {
        let namespaces = self.namespaces.borrow();
        let mut attributes = namespaces[namespace].iter();
        let found = attributes.find(|(existing, _)| **existing == *name);
        found.map(|(_, value)| value.clone())
    }

    /// Sets an attribute of a namespace. A value that contains the namespace is an error.
    pub(super) fn set_attribute(
        &self,
        namespace: usize,
        name: &Arc<str>,
        value: Value,
    ) -> Outcome<()> {
        self.check_cycle(namespace, name, &value)?;
        self.add_attribute(namespace, name, value)
    }

    /// Sets an attribute of a new namespace, which no value contains.
    pub(super) fn add_attribute(
        &self,
        namespace: usize,
        name: &Arc<str>,
        value: Value,
    ) -> Outcome<()> {
        if name.starts_with('_') {
            return fail(format_args!(
                "namespace attribute {name:.40}: names cannot begin with an underscore"
            ));
        }
        let mut namespaces = self.namespaces.borrow_mut();
        let attributes = &mut namespaces[namespace];
        if let Some((_, existing)) = attributes.iter_mut().find(|(n, _)| n == name) {
            *existing = value;
            return Ok(());
        }
        if attributes.len() >= ATTRIBUTES_MAX {
            let message = format!("a namespace has more than {ATTRIBUTES_MAX} attributes");
            return Err(Failure::new(ErrorKind::TooLarge, message));
        }
        self.budget.charge(OBJECT_BYTES + name.len())?;
        attributes.push((Arc::clone(name), value));
        Ok(())
    }

    /// Records the list of a loop that a value refers to.
    pub(super) fn keep_loop(&self, number: usize, items: &Rc<List>) {
        let mut loops = self.loops.borrow_mut();
        if loops.len() <= number {
            loops.resize(number + 1, None);
        }
        loops[number] = Some(Rc::clone(items));
    }

    /// Fails if `namespace` can be reached from `value`.
    fn check_cycle(&self, namespace: usize, name: &str, value: &Value) -> Outcome<()> {
        let namespaces = self.namespaces.borrow();
        let loops = self.loops.borrow();
        let mut open = vec![value.clone()];
        let (mut seen, mut seen_loops) = (Vec::new(), Vec::new());
        while let Some(value) = open.pop() {
            if !value.is_mutable() {
                continue;
            }
            self.budget.work(1)?;
            match value {
                Value::Namespace(number) if number == namespace => {
                    return fail(format_args!(
                        "namespace attribute {name:.40}: the value contains the namespace itself"
                    ));
                }
                Value::Namespace(number) => {
                    let before = std::mem::replace(visited(&mut seen, number), true);
                    if !before {
                        self.budget.charge(number / 64)?;
                        open.extend(namespaces[number].iter().map(|(_, value)| value.clone()));
                    }
                }
                Value::Loop(number) => {
                    if !std::mem::replace(visited(&mut seen_loops, number), true)
                        && let Some(Some(list)) = loops.get(number)
                    {
                        open.extend(list.items.iter().cloned());
                    }
                }
                Value::List(list) => open.extend(list.items.iter().cloned()),
                Value::Cycler(cycler) => open.extend(cycler.items.items.iter().cloned()),
                Value::Method(method) => open.push(method.receiver.clone()),
                Value::Dict(dict) => {
                    open.extend(
                        dict.iter()
                            .flat_map(|(key, value)| [key.clone(), value.clone()]),
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The mark of a number.
fn visited(marks: &mut Vec<bool>, number: usize) -> &mut bool {
    if marks.len() <= number {
        marks.resize(number + 1, false);
    }
    &mut marks[number]
}
