//! Jinja's tests, and the names of filters and tests.

use super::arguments::{CallArguments, required};
use super::failure::{Outcome, fail};
use super::heap::Heap;
use super::methods::call_method;
use super::ops::binary;
use super::repr::str_of;
use super::syntax::Binary;
use super::value::{ListKind, Value};
use std::rc::Rc;
use std::sync::Arc;

/// Names of the filters.
const FILTERS: &str = "abs attr batch capitalize center count d default dictsort e escape filesizeformat first \
    float forceescape format groupby indent int items join last length list lower map max \
    min pprint reject rejectattr replace reverse round safe select selectattr slice sort \
    string striptags sum title tojson trim truncate unique upper urlencode wordcount \
    wordwrap xmlattr";

/// Names of the tests.
const TESTS: &str = "!= < <= == > >= boolean callable defined divisibleby eq equalto escaped even false \
    filter float ge greaterthan gt in integer iterable le lessthan lower lt mapping ne none \
    number odd sameas sequence string test true undefined upper";

/// Whether a value passes a test that is not a comparison.
pub(super) fn predicate(
    heap: &Heap,
    name: &str,
    value: &Value,
    arguments: CallArguments,
) -> Outcome<bool> {
    let remainder = |divisor: &Value| binary(heap, Binary::Rem, value, divisor);
    match name {
        "divisibleby" => {
            let [number] = arguments.bind(name, ["num"])?;
            let remainder = remainder(&required(name, number)?)?;
            return Ok(remainder.float() == Some(0.0));
        }
        "sameas" => {
            let [other] = arguments.bind(name, ["other"])?;
            return Ok(same(value, &required(name, other)?));
        }
        _ => arguments.none(name)?,
    }
    Ok(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => value.float().is_some(),
        "string" => value.str().is_some(),
        "mapping" => matches!(value, Value::Dict(_)),
        "escaped" => false,
        "even" => remainder(&Value::Int(2))?.float() == Some(0.0),
        "odd" => remainder(&Value::Int(2))?.float() == Some(1.0),
        "filter" | "test" if is_unhashable(value) => {
            return fail(format_args!("test {name}: expected a name"));
        }
        "filter" => value.str().is_some_and(|name| is_listed(FILTERS, name)),
        "test" => value.str().is_some_and(|name| is_listed(TESTS, name)),
        "lower" | "upper" => {
            let text = Value::Str(str_of(heap, value)?.into());
            let method = if name == "lower" {
                "islower"
            } else {
                "isupper"
            };
            call_method(heap, &text, method, CallArguments::default())?.is_true()
        }
        "callable" => matches!(
            value,
            Value::Undefined(_)
                | Value::Function(_)
                | Value::Macro(_)
                | Value::Method(_)
                | Value::Joiner(_)
                | Value::Loop(_)
                | Value::Block(_)
        ),
        "iterable" => is_container(value) || matches!(value, Value::Loop(_)),
        "sequence" => match value {
            Value::List(list) => list.kind == ListKind::List || list.kind.is_tuple(),
            other => is_container(other),
        },
        _ => return fail(format_args!("no test named {name:.40}")),
    })
}

fn is_unhashable(value: &Value) -> bool {
    match value {
        Value::List(list) => !list.kind.is_tuple(),
        other => matches!(other, Value::Dict(_)),
    }
}

fn is_listed(names: &str, name: &str) -> bool {
    names.split(' ').any(|existing| existing == name)
}

/// Whether there is a test of this name.
pub(super) fn is_test(name: &str) -> bool {
    is_listed(TESTS, name)
}

fn is_container(value: &Value) -> bool {
    matches!(
        value,
        Value::Undefined(_) | Value::Str(_) | Value::List(_) | Value::Dict(_) | Value::Range(_)
    )
}

/// Python's `a is b`; equal constants are the same object.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Float(a), Value::Float(b)) => a == b,
        (Value::Str(a), Value::Str(b)) => Arc::ptr_eq(a, b) || a == b,
        (Value::List(a), Value::List(b)) => Rc::ptr_eq(a, b),
        (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b),
        (Value::Namespace(a), Value::Namespace(b)) | (Value::Loop(a), Value::Loop(b)) => a == b,
        (Value::Macro(a), Value::Macro(b)) => Rc::ptr_eq(a, b),
        (Value::Cycler(a), Value::Cycler(b)) => Rc::ptr_eq(a, b),
        (Value::Joiner(a), Value::Joiner(b)) => Rc::ptr_eq(a, b),
        _ => false,
    }
}
