//! Names of the methods of each type of value.

use super::value::Value;

const STR: &str = "capitalize casefold center count endswith expandtabs find format format_map index \
    isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable \
    isspace istitle isupper join ljust lower lstrip maketrans partition removeprefix \
    removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines \
    startswith strip swapcase title translate upper zfill";
const DICT: &str = "copy fromkeys get items keys values";
const LIST: &str = "copy count index";
const TUPLE: &str = "count index";
const INT: &str = "bit_count bit_length conjugate is_integer";
const FLOAT: &str = "conjugate is_integer";
const LOOP: &str = "changed cycle";
const CYCLER: &str = "next reset";

/// Methods that change a value. The sandbox of `transformers` makes them undefined.
const DICT_CHANGES: &str = "clear pop popitem setdefault update";
const LIST_CHANGES: &str = "append clear extend insert pop remove reverse sort";

/// Whether a value has a method.
pub(super) fn has_method(value: &Value, name: &str) -> bool {
    let names = match value {
        Value::Str(_) => STR,
        Value::Dict(_) => DICT,
        Value::List(list) if list.kind.is_tuple() => TUPLE,
        Value::List(_) => LIST,
        Value::Bool(_) | Value::Int(_) => INT,
        Value::Float(_) => FLOAT,
        Value::Loop(_) => LOOP,
        Value::Cycler(_) => CYCLER,
        _ => return false,
    };
    includes(names, name)
}

/// Whether the sandbox denies an attribute: methods that change a value.
pub(super) fn is_denied(value: &Value, name: &str) -> bool {
    let changes = match value {
        Value::Dict(_) => DICT_CHANGES,
        Value::List(list) if !list.kind.is_tuple() => LIST_CHANGES,
        _ => "",
    };
    includes(changes, name)
}

fn includes(names: &str, name: &str) -> bool {
    names.split(' ').any(|existing| existing == name)
}
