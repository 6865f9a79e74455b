//! Methods of strings, as in Python.

use super::arguments::{CallArguments, flag, integer, optional_text, required, size, text};
use super::build::{Entries, tuple};
use super::failure::{Outcome, fail};
use super::format::{format_map, str_format};
use super::heap::Heap;
use super::ops::iterate;
use super::repr::is_printable;
use super::sink::written;
use super::strings::{
    Side, all, capitalize, characters, has_case, is_space, is_title, length, lines, split, strip,
    swap_case, tab_columns, title, without_end,
};
use super::value::Value;

/// The methods of strings without arguments that return a bool.
fn predicate(receiver: &str, name: &str) -> Option<Value> {
    Some(match name {
        "isalnum" => all(receiver, char::is_alphanumeric),
        "isalpha" => all(receiver, char::is_alphabetic),
        "isascii" => Value::Bool(receiver.is_ascii()),
        "isdecimal" => all(receiver, is_decimal),
        "isdigit" => all(receiver, |c| is_decimal(c) || is_superscript(c)),
        "isnumeric" => all(receiver, char::is_numeric),
        "isprintable" => Value::Bool(receiver.chars().all(is_printable)),
        "isspace" => all(receiver, is_space),
        "islower" => has_case(receiver, char::is_lowercase, char::is_uppercase),
        "isupper" => has_case(receiver, char::is_uppercase, char::is_lowercase),
        "istitle" => Value::Bool(is_title(receiver)),
        "isidentifier" => {
            let starts = receiver.starts_with(|c: char| c.is_alphabetic() || c == '_');
            let word = |c: char| c.is_alphanumeric() || c == '_';
            Value::Bool(starts && receiver.chars().all(word))
        }
        _ => return None,
    })
}

/// ASCII digits, and digits of common scripts.
fn is_decimal(c: char) -> bool {
    const ZEROS: [u32; 15] = [
        0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66,
        0xe50, 0xff10,
    ];
    let code = u32::from(c);
    ZEROS.iter().any(|zero| (*zero..zero + 10).contains(&code))
}

fn is_superscript(c: char) -> bool {
    matches!(c, '\u{b2}' | '\u{b3}' | '\u{b9}' | '\u{2070}' | '\u{2074}'..='\u{2079}' | '\u{2080}'..='\u{2089}' | '\u{2460}'..='\u{2468}')
}

/// The methods of strings without arguments that change the case.
fn change_case(receiver: &str, name: &str) -> Option<String> {
    Some(match name {
        "upper" => receiver.to_uppercase(),
        "lower" => receiver.to_lowercase(),
        "casefold" => receiver.to_lowercase().replace('ß', "ss").replace('ς', "σ"),
        "capitalize" => capitalize(receiver),
        "swapcase" => swap_case(receiver),
        "title" => title(receiver, |c| !c.is_alphabetic()),
        _ => return None,
    })
}

/// Calls a method of a string.
pub(super) fn str_method(
    heap: &Heap,
    receiver: &str,
    name: &str,
    arguments: CallArguments,
) -> Outcome<Value> {
    heap.budget.work(receiver.len())?;
    if let Some(value) = predicate(receiver, name) {
        arguments.none(name)?;
        return Ok(value);
    }
    if let Some(changed) = change_case(receiver, name) {
        arguments.none(name)?;
        return heap.text(&changed);
    }
    if name == "format" {
        let text = str_format(heap, receiver, &arguments)?;
        return Ok(Value::Str(text.into()));
    }
    let names = match name {
        "split" | "rsplit" => ["sep", "maxsplit", "-"],
        "replace" => ["old", "new", "count"],
        "splitlines" => ["keepends", "-", "--"],
        "expandtabs" => ["tabsize", "-", "--"],
        _ => ["-", "--", "---"],
    };
    let bound = arguments.bind(name, names)?;
    match name {
        "split" | "rsplit" | "splitlines" | "partition" | "rpartition" => {
            split_method(heap, receiver, name, bound)
        }
        "startswith" | "endswith" | "find" | "rfind" | "index" | "rindex" | "count" => {
            search(heap, receiver, name, bound)
        }
        "join" => {
            let [items, ..] = bound;
            join(heap, receiver, &required(name, items)?)
        }
        "maketrans" => maketrans(heap, bound),
        _ => change(heap, receiver, name, bound).map(|text| Value::Str(text.into())),
    }
}

/// The methods that return another string.
fn change(
    heap: &Heap,
    receiver: &str,
    name: &str,
    [first, second, third]: [Option<Value>; 3],
) -> Outcome<String> {
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let chars = optional_text(name, first)?;
            let sides: &[Side] = match name {
                "strip" => &[Side::Left, Side::Right],
                "lstrip" => &[Side::Left],
                _ => &[Side::Right],
            };
            let work = chars.as_ref().map_or(1, |chars| chars.len());
            heap.budget.work(receiver.len().saturating_mul(work) / 8)?;
            let stripped = strip(receiver, chars.as_deref(), sides);
            written(&heap.budget, |out| out.push(stripped))
        }
        "replace" => {
            let (old, new) = (required(name, first)?, required(name, second)?);
            let count = integer(name, third.as_ref(), -1)?;
            let (old, new) = (text(name, &old)?, text(name, &new)?);
            replace(heap, receiver, [&old, &new], count)
        }
        "removeprefix" | "removesuffix" => {
            let affix = text(name, &required(name, first)?)?;
            let rest = match name {
                "removeprefix" => receiver.strip_prefix(&*affix),
                _ => receiver.strip_suffix(&*affix),
            };
            written(&heap.budget, |out| out.push(rest.unwrap_or(receiver)))
        }
        "ljust" | "rjust" | "center" | "zfill" => {
            let width = size(name, Some(&required(name, first)?), 0)?;
            let fill = optional_text(name, second)?.unwrap_or(" ".into());
            justify(heap, receiver, name, width, &fill)
        }
        "expandtabs" => expand_tabs(heap, receiver, size(name, first.as_ref(), 8)?),
        "translate" => translate(heap, receiver, &required(name, first)?),
        "format_map" => format_map(heap, receiver, &required(name, first)?),
        _ => fail(format_args!("unknown method {name}")),
    }
}

/// The methods that return a list or tuple of parts.
fn split_method(
    heap: &Heap,
    receiver: &str,
    name: &str,
    [first, second, _]: [Option<Value>; 3],
) -> Outcome<Value> {
    let mut items = heap.items();
    match name {
        "splitlines" => {
            for line in lines(receiver) {
                items.push_text(match flag(first.as_ref()) {
                    true => line,
                    false => without_end(line),
                })?;
            }
        }
        "split" | "rsplit" => {
            let separator = optional_text(name, first)?;
            let max = integer(name, second.as_ref(), -1)?;
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            let side = match name {
                "split" => Side::Left,
                _ => Side::Right,
            };
            split(receiver, separator.as_deref(), max, side, &mut items)?;
        }
        _ => return partition(heap, receiver, name, &required(name, first)?),
    }
    items.list()
}

/// The methods that search a string, in a part of it.
fn search(
    heap: &Heap,
    receiver: &str,
    name: &str,
    [wanted, start, end]: [Option<Value>; 3],
) -> Outcome<Value> {
    let wanted = required(name, wanted)?;
    match name {
        "startswith" | "endswith" => affix(heap, receiver, name, &wanted, [start, end]),
        _ => find(heap, receiver, name, &text(name, &wanted)?, [start, end]),
    }
}

/// `text.replace(old, new, count)`; a negative count replaces all.
pub(super) fn replace(
    heap: &Heap,
    receiver: &str,
    [old, new]: [&str; 2],
    count: i128,
) -> Outcome<String> {
    heap.budget.work(receiver.len())?;
    let mut left = usize::try_from(count).unwrap_or(usize::MAX);
    written(&heap.budget, |out| {
        let mut done = 0;
        for (at, _) in receiver.match_indices(old) {
            if left == 0 {
                break;
            }
            left -= 1;
            out.push(&receiver[done..at])?;
            out.push(new)?;
            done = at + old.len();
        }
        out.push(&receiver[done..])
    })
}

/// `between.join(items)`.
fn join(heap: &Heap, between: &str, items: &Value) -> Outcome<Value> {
    let list = iterate(heap, items)?;
    let joined = written(&heap.budget, |out| {
        for (at, item) in list.items.iter().enumerate() {
            out.push(if at == 0 { "" } else { between })?;
            let Some(text) = item.str() else {
                return fail(format_args!(
                    "join: item {at} is not a string, but {}",
                    item.type_name()
                ));
            };
            out.push(text)?;
        }
        Ok(())
    })?;
    Ok(Value::Str(joined.into()))
}

fn partition(heap: &Heap, receiver: &str, name: &str, separator: &Value) -> Outcome<Value> {
    let separator = text(name, separator)?;
    if separator.is_empty() {
        return fail(format_args!("{name}: the separator is empty"));
    }
    let parts = match name {
        "partition" => receiver.split_once(&*separator),
        _ => receiver.rsplit_once(&*separator),
    };
    let parts = match parts {
        Some((before, after)) => [before, &separator, after],
        None if name == "partition" => [receiver, "", ""],
        None => ["", "", receiver],
    };
    let [a, b, c] = parts.map(|part| heap.text(part));
    tuple(&heap.budget, [a?, b?, c?])
}

/// `ljust`, `rjust`, `center` and `zfill`.
pub(super) fn justify(
    heap: &Heap,
    receiver: &str,
    name: &str,
    width: usize,
    fill: &str,
) -> Outcome<String> {
    if length(fill) != 1 {
        return fail(format_args!("{name}: the fill is not one character"));
    }
    let missing = width.saturating_sub(length(receiver));
    let left = match name {
        "ljust" => 0,
        "center" => missing / 2 + (missing & width & 1),
        _ => missing,
    };
    let sign = match name {
        "zfill" => receiver.len() - receiver.strip_prefix(['+', '-']).unwrap_or(receiver).len(),
        _ => 0,
    };
    written(&heap.budget, |out| {
        out.push(&receiver[..sign])?;
        out.repeat(if name == "zfill" { "0" } else { fill }, left)?;
        out.push(&receiver[sign..])?;
        out.repeat(fill, missing - left)
    })
}

fn expand_tabs(heap: &Heap, receiver: &str, size: usize) -> Outcome<String> {
    written(&heap.budget, |out| {
        let mut column = 0;
        for c in receiver.chars() {
            match c {
                '\t' => {
                    let columns = tab_columns(column, size);
                    out.repeat(" ", columns)?;
                    column += columns;
                }
                c => {
                    out.push_char(c)?;
                    column = if matches!(c, '\n' | '\r') {
                        0
                    } else {
                        column + 1
                    };
                }
            }
        }
        Ok(())
    })
}

/// The part of a string from `start` to `end`, and the index of its first character; `None` if
/// `start` is after the end.
fn part<'t>(
    receiver: &'t str,
    name: &str,
    [start, end]: [Option<Value>; 2],
) -> Outcome<Option<(&'t str, usize)>> {
    if matches!(start, None | Some(Value::None)) && matches!(end, None | Some(Value::None)) {
        return Ok(Some((receiver, 0)));
    }
    let length = length(receiver);
    let total = i128::try_from(length).unwrap_or(i128::MAX);
    let bound = |value: Option<Value>, default: i128| -> Outcome<i128> {
        let value = value.filter(|value| !matches!(value, Value::None));
        let number = integer(name, value.as_ref(), default)?;
        Ok(if number < 0 {
            number.saturating_add(total).max(0)
        } else {
            number
        })
    };
    let (start, end) = (bound(start, 0)?, bound(end, total)?.min(total));
    if start > end {
        return Ok(None);
    }
    let index = |number: i128| usize::try_from(number).unwrap_or(0);
    let (start, end) = (index(start), index(end));
    Ok(Some((characters(receiver, start, end), start)))
}

fn affix(
    heap: &Heap,
    receiver: &str,
    name: &str,
    affix: &Value,
    bounds: [Option<Value>; 2],
) -> Outcome<Value> {
    let Some((receiver, _)) = part(receiver, name, bounds)? else {
        return Ok(Value::Bool(false));
    };
    let has = |affix: &str| match name {
        "startswith" => receiver.starts_with(affix),
        _ => receiver.ends_with(affix),
    };
    match affix {
        Value::List(list) if list.kind.is_tuple() => {
            for affix in &list.items {
                let affix = text(name, affix)?;
                heap.budget.work(affix.len().min(receiver.len()))?;
                if has(&affix) {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        affix => Ok(Value::Bool(has(&text(name, affix)?))),
    }
}

/// `find`, `rfind`, `index`, `rindex` and `count`.
fn find(
    heap: &Heap,
    receiver: &str,
    name: &str,
    wanted: &str,
    bounds: [Option<Value>; 2],
) -> Outcome<Value> {
    let number = |n: usize| Value::Int(i128::try_from(n).unwrap_or(i128::MAX));
    let found = part(receiver, name, bounds)?;
    if name == "count" {
        let Some((receiver, _)) = found else {
            return Ok(Value::Int(0));
        };
        heap.budget.work(receiver.len())?;
        return Ok(number(receiver.matches(wanted).count()));
    }
    let at = found.and_then(|(receiver, start)| {
        let at = match name {
            "find" | "index" => receiver.find(wanted),
            _ => receiver.rfind(wanted),
        };
        at.map(|at| start + length(&receiver[..at]))
    });
    match (at, name) {
        (Some(at), _) => Ok(number(at)),
        (None, "find" | "rfind") => Ok(Value::Int(-1)),
        (None, _) => fail(format_args!("{name}: substring not found")),
    }
}

/// `str.maketrans(dict)` or `str.maketrans(from, to, deleted)`.
fn maketrans(heap: &Heap, [first, second, third]: [Option<Value>; 3]) -> Outcome<Value> {
    let name = "maketrans";
    let code = |c: char| Value::Int(u32::from(c).into());
    let mut entries = Entries::new(&heap.budget);
    let first = required(name, first)?;
    if let (Value::Dict(dict), None) = (&first, &second) {
        for (key, value) in dict.iter() {
            let key = match key.str().map(|text| (text.chars().next(), length(text))) {
                Some((Some(c), 1)) => code(c),
                Some(_) => return fail("maketrans: a key is not one character"),
                None => key.clone(),
            };
            entries.insert(key, value.clone())?;
        }
        return entries.dict();
    }
    let (from, to) = (text(name, &first)?, text(name, &required(name, second)?)?);
    if length(&from) != length(&to) {
        return fail("maketrans: the first two arguments have different lengths");
    }
    for (from, to) in from.chars().zip(to.chars()) {
        entries.insert(code(from), code(to))?;
    }
    for deleted in optional_text(name, third)?.unwrap_or_default().chars() {
        entries.insert(code(deleted), Value::None)?;
    }
    entries.dict()
}

fn translate(heap: &Heap, receiver: &str, table: &Value) -> Outcome<String> {
    let Value::Dict(table) = table else {
        return fail("translate requires a dict");
    };
    written(&heap.budget, |out| {
        for c in receiver.chars() {
            match table.get(&Value::Int(u32::from(c).into()), &heap.budget)? {
                None => out.push_char(c)?,
                Some(Value::None) => {}
                Some(Value::Str(text)) => out.push(text)?,
                Some(other) => {
                    let code = other.int().and_then(|code| u32::try_from(code).ok());
                    match code.and_then(char::from_u32) {
                        Some(c) => out.push_char(c)?,
                        None => return fail("translate: a value is not a character"),
                    }
                }
            }
        }
        Ok(())
    })
}
