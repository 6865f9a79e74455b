//! Filters and tests by name, and the filters that apply others to each item.

use super::arguments::CallArguments;
use super::attributes::AttributePath;
use super::failure::{Outcome, fail};
use super::filters_list::list_filter;
use super::ops::iterate;
use super::predicates::{is_test, predicate};
use super::renderer::Renderer;
use super::syntax::Comparison;
use super::value::Value;

impl Renderer<'_> {
    /// `value | name(arguments)`.
    pub(super) fn filter(
        &mut self,
        name: &str,
        value: &Value,
        arguments: CallArguments,
    ) -> Outcome<Value> {
        self.enter()?;
        let result = match name {
            "map" => self.map(value, arguments)?,
            "select" | "reject" | "selectattr" | "rejectattr" => {
                self.select(name, value, arguments)?
            }
            _ => match list_filter(&self.heap, name, value, arguments)? {
                Some(result) => result,
                None => return fail(format_args!("no filter named {name:.40}")),
            },
        };
        self.leave();
        Ok(result)
    }

    /// `map(attribute=path, default=value)` and `map(filter, arguments)`.
    fn map(&mut self, value: &Value, mut arguments: CallArguments) -> Outcome<Value> {
        if !value.is_true() {
            return self.heap.items().list();
        }
        let list = iterate(&self.heap, value)?;
        let mut results = Vec::new();
        if arguments.positional.is_empty() {
            let [attribute, default] = arguments.bind("map", ["attribute", "default"])?;
            let Some(attribute) = attribute else {
                return fail("map requires a filter or an attribute");
            };
            let path = AttributePath::new(&self.heap, &attribute)?;
            let default = default.unwrap_or(Value::None);
            for item in &list.items {
                results.push(path.get(&self.heap, item, &default)?);
                self.heap.budget.charge(size_of::<Value>())?;
            }
        } else {
            let name = arguments.positional.remove(0);
            let Some(name) = name.str() else {
                return fail("map: the name of the filter is not a string");
            };
            for item in &list.items {
                self.charge_arguments(&arguments)?;
                results.push(self.filter(name, item, arguments.clone())?);
                self.heap.budget.charge(size_of::<Value>())?;
            }
        }
        let mut items = self.heap.items();
        for result in results {
            items.push(result)?;
        }
        items.list()
    }

    /// Charges the work of copying arguments.
    fn charge_arguments(&self, arguments: &CallArguments) -> Outcome<()> {
        let count = arguments.positional.len() + arguments.keywords.len();
        self.heap
            .budget
            .work(count.saturating_mul(size_of::<Value>()))
    }

    /// `select`, `reject`, `selectattr` and `rejectattr`.
    fn select(
        &mut self,
        name: &str,
        value: &Value,
        mut arguments: CallArguments,
    ) -> Outcome<Value> {
        if !value.is_true() {
            return self.heap.items().list();
        }
        let mut next = || match arguments.positional.is_empty() {
            true => None,
            false => Some(arguments.positional.remove(0)),
        };
        let path = match name.ends_with("attr") {
            true => match next() {
                Some(path) => Some(AttributePath::new(&self.heap, &path)?),
                None => return fail(format_args!("{name} requires an attribute")),
            },
            false => None,
        };
        let test = next();
        let wanted = name.starts_with("select");
        let list = iterate(&self.heap, value)?;
        let mut selected = Vec::new();
        for item in &list.items {
            let tested = match &path {
                Some(path) => path.get(&self.heap, item, &Value::None)?,
                None => item.clone(),
            };
            let accepted = match &test {
                Some(Value::Str(test)) => {
                    self.charge_arguments(&arguments)?;
                    self.test(test, &tested, arguments.clone())?
                }
                Some(_) => {
                    return fail(format_args!("{name}: the name of the test is not a string"));
                }
                None => tested.is_true(),
            };
            if accepted == wanted {
                self.heap.budget.charge(size_of::<Value>())?;
                selected.push(item.clone());
            }
        }
        let mut items = self.heap.items();
        items.extend(&selected)?;
        items.list()
    }

    /// `value is name(arguments)`.
    pub(super) fn test(
        &mut self,
        name: &str,
        value: &Value,
        arguments: CallArguments,
    ) -> Outcome<bool> {
        let comparison = match name {
            "eq" | "==" | "equalto" => Comparison::Eq,
            "ne" | "!=" => Comparison::Ne,
            "lt" | "<" | "lessthan" => Comparison::Lt,
            "le" | "<=" => Comparison::Le,
            "gt" | ">" | "greaterthan" => Comparison::Gt,
            "ge" | ">=" => Comparison::Ge,
            "in" => Comparison::In,
            _ if is_test(name) => return predicate(&self.heap, name, value, arguments),
            _ => return fail(format_args!("no test named {name:.40}")),
        };
        let [other] = arguments.bind(name, ["other"])?;
        let Some(other) = other else {
            return fail(format_args!("test {name} requires an argument"));
        };
        self.compare(comparison, value, &other)
    }
}
