//! Calls of macros, global functions and methods.

use super::arguments::{CallArguments, integer, required, text};
use super::attributes::{attribute, undefined_error};
use super::build::Entries;
use super::failure::{Failure, Outcome, fail, too_large};
use super::heap::Heap;
use super::method_names::has_method;
use super::methods::{call_method, from_keys};
use super::ops::{RANGE_MAX, iterate};
use super::renderer::Renderer;
use super::repr::str_of;
use super::syntax::{Arguments, Call, Expr, Macro};
use super::value::{Cycler, Function, Joiner, ListKind, OBJECT_BYTES, Range, Value, equal};
use crate::chat::time::strftime;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tabla_core::error::{ErrorKind, excerpt};

/// Maximum length of a `strftime_now` format in bytes.
const FORMAT_BYTES_MAX: usize = 256;

/// The remaining arguments of a macro: keyword arguments and positional ones.
type Remaining = (Vec<(Arc<str>, Value)>, Vec<Value>);

impl Renderer<'_> {
    pub(super) fn call(&mut self, call: &Call, frame: usize) -> Outcome<Value> {
        let Expr::Attribute(object, name) = &call.callee else {
            let callee = self.eval_unkept(&call.callee, frame)?;
            let arguments = self.arguments(&call.arguments, frame)?;
            return self.call_value(&callee, arguments);
        };
        let receiver = self.eval_unkept(object, frame)?;
        if has_method(&receiver, name) {
            let arguments = self.arguments(&call.arguments, frame)?;
            return self.method(&receiver, name, arguments);
        }
        if let (Value::Function(Function::Dict), "fromkeys") = (&receiver, &**name) {
            let arguments = self.arguments(&call.arguments, frame)?;
            return from_keys(&self.heap, arguments);
        }
        let callee = self.attribute(&receiver, name)?;
        let arguments = self.arguments(&call.arguments, frame)?;
        self.call_value(&callee, arguments)
    }

    /// Evaluates the arguments of a call.
    pub(super) fn arguments(
        &mut self,
        arguments: &Arguments,
        frame: usize,
    ) -> Outcome<CallArguments> {
        let mut out = CallArguments::default();
        for expr in &arguments.positional {
            out.positional.push(self.eval(expr, frame)?);
        }
        for (name, expr) in &arguments.keywords {
            let value = self.eval(expr, frame)?;
            out.keywords.push((Arc::clone(name), value));
        }
        if let Some(list) = &arguments.list {
            let value = self.eval(list, frame)?;
            let list = iterate(&self.heap, &value)?;
            self.heap
                .budget
                .charge(list.items.len().saturating_mul(size_of::<Value>()))?;
            out.positional.extend(list.items.iter().cloned());
        }
        if let Some(dict) = &arguments.dict {
            let Value::Dict(dict) = self.eval(dict, frame)? else {
                return fail("the argument after ** is not a dict");
            };
            for (key, value) in dict.iter() {
                self.heap.budget.charge(2 * size_of::<Value>())?;
                out.keywords.push((text("**", key)?, value.clone()));
            }
        }
        let mut names: Vec<&Arc<str>> = out.keywords.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => fail(format_args!("two values for the argument {:.40}", pair[0])),
            None => Ok(out),
        }
    }

    pub(super) fn call_value(
        &mut self,
        callee: &Value,
        arguments: CallArguments,
    ) -> Outcome<Value> {
        match callee {
            Value::Macro(value) => self.call_macro(value, arguments),
            Value::Method(method) => self.method(&method.receiver, &method.name, arguments),
            Value::Loop(number) => self.recur(*number, arguments),
            Value::Block(number) => {
                arguments.none("a block")?;
                self.block_text(*number)
            }
            Value::Joiner(joiner) => {
                arguments.none("a joiner")?;
                Ok(match joiner.used.replace(true) {
                    true => Value::Str(Arc::clone(&joiner.separator)),
                    false => Value::Str("".into()),
                })
            }
            Value::Function(function) => self.function(*function, arguments),
            Value::Undefined(name) => undefined_error(name.as_ref()),
            other => fail(format_args!("{} object is not callable", other.type_name())),
        }
    }

    fn method(&mut self, receiver: &Value, name: &str, arguments: CallArguments) -> Outcome<Value> {
        match receiver {
            Value::Loop(number) => self.loop_method(*number, name, arguments),
            receiver => call_method(&self.heap, receiver, name, arguments),
        }
    }

    fn loop_method(
        &mut self,
        number: usize,
        name: &str,
        arguments: CallArguments,
    ) -> Outcome<Value> {
        let values = arguments.positional;
        if !arguments.keywords.is_empty() {
            return fail(format_args!("loop.{name} has no keyword arguments"));
        }
        if name == "cycle" {
            return match values.is_empty() {
                true => fail("loop.cycle: no items for cycling given"),
                false => Ok(values[self.loops[number].index % values.len()].clone()),
            };
        }
        if values.iter().any(Value::is_mutable) {
            return fail("loop.changed: a value contains a namespace or a loop");
        }
        let state = &mut self.loops[number];
        if let Some(before) = &state.changed
            && before.len() == values.len()
        {
            let mut same = true;
            for (before, value) in before.iter().zip(&values) {
                same &= equal(before, value, &self.heap.budget)?;
            }
            if same {
                return Ok(Value::Bool(false));
            }
        }
        self.heap
            .budget
            .charge(values.len().saturating_mul(size_of::<Value>()))?;
        state.changed = Some(values);
        Ok(Value::Bool(true))
    }

    fn function(&mut self, function: Function, arguments: CallArguments) -> Outcome<Value> {
        match function {
            Function::Range => range(arguments),
            Function::Dict => dict(&self.heap, arguments),
            Function::Namespace => {
                let number = self.heap.namespace()?;
                let Value::Dict(attributes) = dict(&self.heap, arguments)? else {
                    return fail("namespace: not a dict");
                };
                for (name, value) in attributes.iter() {
                    let name = text("namespace", name)?;
                    self.heap.add_attribute(number, &name, value.clone())?;
                }
                Ok(Value::Namespace(number))
            }
            Function::Cycler => cycler(&self.heap, arguments),
            Function::Joiner => {
                let [separator] = arguments.bind("joiner", ["sep"])?;
                self.heap.budget.charge(OBJECT_BYTES)?;
                let separator = match separator {
                    Some(separator) => str_of(&self.heap, &separator)?.into(),
                    None => ", ".into(),
                };
                Ok(Value::Joiner(Rc::new(Joiner {
                    separator,
                    used: Cell::new(false),
                })))
            }
            Function::RaiseException => {
                let [message] = arguments.bind("raise_exception", ["message"])?;
                let message = str_of(&self.heap, &required("raise_exception", message)?)?;
                Err(Failure::new(ErrorKind::Argument, excerpt(&message)))
            }
            Function::StrftimeNow => {
                let [format] = arguments.bind("strftime_now", ["format"])?;
                let format = text("strftime_now", &required("strftime_now", format)?)?;
                if format.len() > FORMAT_BYTES_MAX {
                    return too_large(format_args!(
                        "strftime_now: a format of {} bytes exceeds the limit of {FORMAT_BYTES_MAX}",
                        format.len()
                    ));
                }
                match strftime(self.now, &format) {
                    Ok(text) => self.heap.text(&text),
                    Err(directive) => {
                        let message = format!("strftime_now: unknown directive {directive}");
                        Err(Failure::new(ErrorKind::Unsupported, message))
                    }
                }
            }
        }
    }

    /// `value.name`.
    pub(super) fn attribute(&mut self, value: &Value, name: &Arc<str>) -> Outcome<Value> {
        match value {
            Value::Loop(number) if !has_method(value, name) => {
                let found = self.loop_attribute(*number, name)?;
                Ok(found.unwrap_or_else(|| Value::Undefined(Some(Arc::clone(name)))))
            }
            Value::Blocks => {
                let mut blocks = self.program.blocks.iter();
                match blocks.position(|block| block.name == *name) {
                    Some(number) => Ok(Value::Block(number)),
                    None => Ok(Value::Undefined(Some(Arc::clone(name)))),
                }
            }
            value => attribute(&self.heap, value, name),
        }
    }

    fn loop_attribute(&mut self, number: usize, name: &str) -> Outcome<Option<Value>> {
        let count = |n: usize| Some(Value::Int(i128::try_from(n).unwrap_or(i128::MAX)));
        let state = &self.loops[number];
        Ok(match name {
            "index" => count(state.index + 1),
            "index0" => count(state.index),
            "first" => Some(Value::Bool(state.index == 0)),
            "depth" => count(state.depth + 1),
            "depth0" => count(state.depth),
            "previtem" => Some(state.previous.clone()),
            "nextitem" => {
                let next = self.peek_item(number)?;
                Some(next.unwrap_or(Value::Undefined(None)))
            }
            "last" => Some(Value::Bool(self.peek_item(number)?.is_none())),
            "length" => count(self.loop_length(number)?),
            "revindex" | "revindex0" => {
                let length = self.loop_length(number)?;
                let left = length.saturating_sub(self.loops[number].index);
                count(if name == "revindex" {
                    left
                } else {
                    left.saturating_sub(1)
                })
            }
            _ => None,
        })
    }

    /// Sets `caller`, `kwargs` and `varargs` of a macro, if its body uses them.
    pub(super) fn set_implicit(
        &mut self,
        definition: &Macro,
        frame: usize,
        (mut keywords, varargs): Remaining,
    ) -> Outcome<()> {
        let [caller, kwargs, rest] = definition.implicit;
        let name = &definition.name;
        if let Some(id) = caller {
            let at = keywords.iter().position(|(name, _)| **name == *"caller");
            let value = at.map(|at| keywords.remove(at).1);
            let value = value.unwrap_or_else(|| Value::Undefined(Some("caller".into())));
            self.set(frame, id, value);
        }
        match (kwargs, keywords.first()) {
            (Some(id), _) => {
                let mut entries = Entries::new(&self.heap.budget);
                for (name, value) in keywords {
                    entries.insert(Value::Str(name), value)?;
                }
                let value = entries.dict()?;
                self.set(frame, id, value);
            }
            (None, Some((keyword, _))) => {
                return fail(format_args!(
                    "macro {name:.40} has no parameter {keyword:.40}"
                ));
            }
            (None, None) => {}
        }
        match rest {
            Some(id) => {
                let mut items = self.heap.items();
                items.extend(&varargs)?;
                let value = items.finish(ListKind::Tuple)?;
                self.set(frame, id, value);
            }
            None if !varargs.is_empty() => {
                let count = definition.parameters.len();
                return fail(format_args!(
                    "macro {name:.40} takes at most {count} arguments"
                ));
            }
            None => {}
        }
        Ok(())
    }
}

/// `range(stop)` and `range(start, stop, step)`.
fn range(arguments: CallArguments) -> Outcome<Value> {
    let [first, second, step] = arguments.bind("range", ["-", "--", "---"])?;
    let first = integer("range", Some(&required("range", first)?), 0)?;
    let (start, stop) = match second {
        Some(stop) => (first, integer("range", Some(&stop), 0)?),
        None => (0, first),
    };
    let step = integer("range", step.as_ref(), 1)?;
    if step == 0 {
        return fail("range: the step is 0");
    }
    let range = Range { start, stop, step };
    if range.len() > RANGE_MAX {
        return too_large(format_args!(
            "range: {} items exceed the limit of {RANGE_MAX}",
            range.len()
        ));
    }
    Ok(Value::Range(range))
}

/// `dict(pairs, name=value)`.
fn dict(heap: &Heap, arguments: CallArguments) -> Outcome<Value> {
    let mut entries = Entries::new(&heap.budget);
    let mut positional = arguments.positional.into_iter();
    match positional.next() {
        None => {}
        Some(Value::Dict(dict)) => {
            for (key, value) in dict.iter() {
                entries.insert(key.clone(), value.clone())?;
            }
        }
        Some(pairs) => {
            for pair in &iterate(heap, &pairs)?.items {
                let [key, value] = &iterate(heap, pair)?.items[..] else {
                    return fail("dict: an item is not a pair");
                };
                entries.insert(key.clone(), value.clone())?;
            }
        }
    }
    if positional.next().is_some() {
        return fail("dict takes at most 1 positional argument");
    }
    for (name, value) in arguments.keywords {
        entries.insert(Value::Str(name), value)?;
    }
    entries.dict()
}

fn cycler(heap: &Heap, arguments: CallArguments) -> Outcome<Value> {
    if arguments.positional.is_empty() || !arguments.keywords.is_empty() {
        return fail("cycler: expected items");
    }
    let mut items = heap.items();
    items.extend(&arguments.positional)?;
    match items.finish(ListKind::Tuple)? {
        Value::List(items) => Ok(Value::Cycler(Rc::new(Cycler {
            items,
            at: Cell::new(0),
        }))),
        _ => fail("not a list"),
    }
}
