//! Jinja's filters of strings.

use super::arguments::{CallArguments, flag, integer, optional_text, required, size, text};
use super::attributes::AttributePath;
use super::build::{Entries, tuple};
use super::failure::{Outcome, fail, too_large};
use super::format::percent;
use super::heap::Heap;
use super::json::{Escape, Json, Order};
use super::ops::{iterate, len};
use super::repr::{str_of, write_str};
use super::sink::{Sink, written};
use super::strings::{
    Side, capitalize, characters, html_escape, is_space, length, lines, strip, title, without_end,
};
use super::text_methods::{justify, replace};
use super::value::{ListKind, Value};
use super::wrap::wrap;

/// Maximum indentation in columns of `tojson`.
const INDENT_MAX: usize = 64;

/// Applies a filter; `None` if it is not one of these.
pub(super) fn text_filter(
    heap: &Heap,
    name: &str,
    value: &Value,
    arguments: CallArguments,
) -> Outcome<Option<Value>> {
    let text = match name {
        "upper" => simple(heap, name, value, arguments, str::to_uppercase)?,
        "lower" => simple(heap, name, value, arguments, str::to_lowercase)?,
        "capitalize" => simple(heap, name, value, arguments, capitalize)?,
        "title" => simple(heap, name, value, arguments, |text| {
            title(text, |c| is_space(c) || "-({[<".contains(c))
        })?,
        "string" | "safe" => simple(heap, name, value, arguments, str::to_string)?,
        "e" | "escape" | "forceescape" => {
            arguments.none(name)?;
            let text = str_of(heap, value)?;
            written(&heap.budget, |out| write_escaped(&text, out))?
        }
        "trim" => {
            let [chars] = arguments.bind(name, ["chars"])?;
            let text = str_of(heap, value)?;
            let chars = optional_text(name, chars)?;
            let work = chars.as_ref().map_or(1, |chars| chars.len());
            heap.budget.work(text.len().saturating_mul(work) / 8)?;
            strip(&text, chars.as_deref(), &[Side::Left, Side::Right]).to_string()
        }
        "center" => {
            let [width] = arguments.bind(name, ["width"])?;
            let width = size(name, width.as_ref(), 80)?;
            justify(heap, &str_of(heap, value)?, name, width, " ")?
        }
        "replace" => {
            let [old, new, count] = arguments.bind(name, ["old", "new", "count"])?;
            let (old, new) = (required(name, old)?, required(name, new)?);
            let count = count.filter(|count| !matches!(count, Value::None));
            let count = integer(name, count.as_ref(), -1)?;
            let [text, old, new] = [value, &old, &new].map(|value| str_of(heap, value));
            replace(heap, &text?, [&old?, &new?], count)?
        }
        "format" => {
            if !arguments.keywords.is_empty() && !arguments.positional.is_empty() {
                return fail("format: positional and keyword arguments are mixed");
            }
            percent(
                heap,
                &str_of(heap, value)?,
                &format_values(heap, arguments)?,
            )?
        }
        "indent" => indent(heap, value, arguments)?,
        "join" => join(heap, value, arguments)?,
        "striptags" => {
            arguments.none(name)?;
            strip_tags(heap, &str_of(heap, value)?)?
        }
        "tojson" => to_json(heap, value, arguments)?,
        "truncate" => truncate(heap, value, arguments)?,
        "urlencode" => {
            arguments.none(name)?;
            url_encode(heap, value)?
        }
        "wordwrap" => word_wrap(heap, value, arguments)?,
        "xmlattr" => xml_attributes(heap, value, arguments)?,
        _ => return Ok(None),
    };
    heap.budget.charge(text.len())?;
    Ok(Some(Value::Str(text.into())))
}

/// A filter without arguments that changes a text.
fn simple(
    heap: &Heap,
    name: &str,
    value: &Value,
    arguments: CallArguments,
    change: impl FnOnce(&str) -> String,
) -> Outcome<String> {
    arguments.none(name)?;
    Ok(change(&str_of(heap, value)?))
}

/// The values of the filter `format`: a dict of the keyword arguments, or a tuple.
fn format_values(heap: &Heap, arguments: CallArguments) -> Outcome<Value> {
    if arguments.keywords.is_empty() {
        let mut items = heap.items();
        items.extend(&arguments.positional)?;
        return items.finish(ListKind::Tuple);
    }
    let mut entries = Entries::new(&heap.budget);
    for (name, value) in arguments.keywords {
        entries.insert(Value::Str(name), value)?;
    }
    entries.dict()
}

fn write_escaped(text: &str, out: &mut Sink<'_>) -> Outcome<()> {
    let mut rest = text;
    while let Some(at) = rest.find(|c| html_escape(c).is_some()) {
        out.push(&rest[..at])?;
        let c = rest[at..].chars().next().unwrap_or_default();
        out.push(html_escape(c).unwrap_or_default())?;
        rest = &rest[at + c.len_utf8()..];
    }
    out.push(rest)
}

fn indent(heap: &Heap, value: &Value, arguments: CallArguments) -> Outcome<String> {
    let text = text("indent", value)?;
    let [width, first, blank] = arguments.bind("indent", ["width", "first", "blank"])?;
    let space = match &width {
        Some(Value::Str(space)) => space.to_string(),
        width => {
            let width = size("indent", width.as_ref(), 4)?;
            written(&heap.budget, |out| out.repeat(" ", width))?
        }
    };
    let (first, blank) = (flag(first.as_ref()), flag(blank.as_ref()));
    written(&heap.budget, |out| {
        // The text has one more line end, so that its last line may be empty.
        let is_open = text.is_empty() || lines(&text).last().is_some_and(|l| without_end(l) != l);
        let tail = is_open.then_some("");
        for (at, line) in lines(&text).map(without_end).chain(tail).enumerate() {
            out.push(if at == 0 { "" } else { "\n" })?;
            let indented = match at {
                0 => first,
                _ => blank || !line.is_empty(),
            };
            out.push(if indented { &space } else { "" })?;
            out.push(line)?;
        }
        Ok(())
    })
}

fn join(heap: &Heap, value: &Value, arguments: CallArguments) -> Outcome<String> {
    let [between, attribute] = arguments.bind("join", ["d", "attribute"])?;
    let between = match between {
        Some(between) => str_of(heap, &between)?,
        None => String::new(),
    };
    let path = match attribute {
        Some(path) if !matches!(path, Value::None) => Some(AttributePath::new(heap, &path)?),
        _ => None,
    };
    let list = iterate(heap, value)?;
    written(&heap.budget, |out| {
        for (at, item) in list.items.iter().enumerate() {
            out.push(if at == 0 { "" } else { &between })?;
            match &path {
                Some(path) => write_str(heap, &path.get(heap, item, &Value::None)?, out)?,
                None => write_str(heap, item, out)?,
            }
        }
        Ok(())
    })
}

/// `striptags`: without comments and tags, with single spaces, and with characters instead of
/// references.
fn strip_tags(heap: &Heap, text: &str) -> Outcome<String> {
    let mut text = text.to_string();
    for (start, end) in [("<!--", "-->"), ("<", ">")] {
        text = written(&heap.budget, |out| {
            let mut rest = &*text;
            while let Some((before, tail)) = rest.split_once(start) {
                let Some((_, after)) = tail.split_once(end) else {
                    break;
                };
                out.push(before)?;
                rest = after;
            }
            out.push(rest)
        })?;
    }
    let words = written(&heap.budget, |out| {
        for (at, word) in text
            .split(is_space)
            .filter(|word| !word.is_empty())
            .enumerate()
        {
            out.push(if at == 0 { "" } else { " " })?;
            out.push(word)?;
        }
        Ok(())
    })?;
    written(&heap.budget, |out| {
        let mut rest = &*words;
        while let Some((before, tail)) = rest.split_once('&') {
            out.push(before)?;
            let reference = tail
                .split_once(';')
                .and_then(|(name, after)| character(name).map(|c| (c, after)));
            match reference {
                Some((c, after)) => {
                    out.push_char(c)?;
                    rest = after;
                }
                None => {
                    out.push("&")?;
                    rest = tail;
                }
            }
        }
        out.push(rest)
    })
}

/// The character of a reference such as `lt` or `#39`.
fn character(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        };
        return code.ok().and_then(char::from_u32);
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => '\u{a0}',
        _ => return None,
    })
}

fn truncate(heap: &Heap, value: &Value, arguments: CallArguments) -> Outcome<String> {
    let name = "truncate";
    let [limit, kill, end, leeway] =
        arguments.bind(name, ["length", "killwords", "end", "leeway"])?;
    let limit = integer(name, limit.as_ref(), 255)?;
    let end = optional_text(name, end)?.unwrap_or("...".into());
    let leeway = leeway.filter(|leeway| !matches!(leeway, Value::None));
    let leeway = integer(name, leeway.as_ref(), 5)?;
    let (Ok(limit), Ok(leeway)) = (usize::try_from(limit), usize::try_from(leeway)) else {
        return fail("truncate: the length and the leeway must be at least 0");
    };
    let Some(kept) = limit.checked_sub(length(&end)) else {
        return fail(format_args!(
            "truncate: the length {limit} is less than that of the end"
        ));
    };
    if len(heap, value)? <= limit.saturating_add(leeway) {
        return str_of(heap, value);
    }
    let text = text(name, value)?;
    let head = characters(&text, 0, kept);
    let head = match flag(kill.as_ref()) {
        true => head,
        false => head.rsplit_once(' ').map_or(head, |(head, _)| head),
    };
    written(&heap.budget, |out| {
        out.push(head)?;
        out.push(&end)
    })
}

fn word_wrap(heap: &Heap, value: &Value, arguments: CallArguments) -> Outcome<String> {
    let name = "wordwrap";
    let text = text(name, value)?;
    let parameters = [
        "width",
        "break_long_words",
        "wrapstring",
        "break_on_hyphens",
    ];
    let [width, long, between, hyphens] = arguments.bind(name, parameters)?;
    let width = size(name, width.as_ref(), 79)?;
    if width == 0 {
        return fail("wordwrap: the width must be at least 1");
    }
    let between = optional_text(name, between)?.unwrap_or("\n".into());
    let is_set = |value: Option<Value>| value.is_none_or(|value| value.is_true());
    let options = [is_set(long), is_set(hyphens)];
    written(&heap.budget, |out| {
        for (at, line) in lines(&text).map(without_end).enumerate() {
            out.push(if at == 0 { "" } else { &between })?;
            for (at, line) in wrap(heap, line, width, options)?.iter().enumerate() {
                out.push(if at == 0 { "" } else { &between })?;
                out.push(line)?;
            }
        }
        Ok(())
    })
}

fn url_encode(heap: &Heap, value: &Value) -> Outcome<String> {
    let quote = |value: &Value, safe: &str, space: &str, out: &mut Sink<'_>| {
        for byte in str_of(heap, value)?.bytes() {
            let c = char::from(byte);
            match c {
                ' ' => out.push(space)?,
                c if c.is_ascii_alphanumeric() || "_.-~".contains(c) || safe.contains(c) => {
                    out.push_char(c)?;
                }
                _ => out.format(format_args!("%{byte:02X}"))?,
            }
        }
        Ok(())
    };
    let pairs = match value {
        Value::Dict(dict) => {
            let mut pairs = heap.items();
            for (key, value) in dict.iter() {
                pairs.push(tuple(&heap.budget, [key.clone(), value.clone()])?)?;
            }
            pairs.into_vec()
        }
        Value::List(list) => list.items.clone(),
        other => return written(&heap.budget, |out| quote(other, "/", "%20", out)),
    };
    written(&heap.budget, |out| {
        for (at, pair) in pairs.iter().enumerate() {
            let [key, value] = &iterate(heap, pair)?.items[..] else {
                return fail("urlencode: an item is not a pair");
            };
            out.push(if at == 0 { "" } else { "&" })?;
            quote(key, "", "+", out)?;
            out.push("=")?;
            quote(value, "", "+", out)?;
        }
        Ok(())
    })
}

fn xml_attributes(heap: &Heap, value: &Value, arguments: CallArguments) -> Outcome<String> {
    let [space] = arguments.bind("xmlattr", ["autospace"])?;
    let Value::Dict(dict) = value else {
        return fail("xmlattr requires a dict");
    };
    let mut separator = match space.is_none_or(|space| space.is_true()) {
        true => " ",
        false => "",
    };
    written(&heap.budget, |out| {
        for (key, value) in dict.iter() {
            if matches!(value, Value::None | Value::Undefined(_)) {
                continue;
            }
            let key = text("xmlattr", key)?;
            if key.contains(|c: char| c.is_ascii_whitespace() || c == '\x0b' || "/>=".contains(c)) {
                return fail(format_args!("xmlattr: invalid attribute name {key:.40}"));
            }
            out.push(separator)?;
            write_escaped(&key, out)?;
            out.push("=\"")?;
            write_escaped(&str_of(heap, value)?, out)?;
            out.push("\"")?;
            separator = " ";
        }
        Ok(())
    })
}

/// `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, as `transformers`
/// defines it.
fn to_json(heap: &Heap, value: &Value, arguments: CallArguments) -> Outcome<String> {
    let parameters = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let [ascii, indent, separators, sorted] = arguments.bind("tojson", parameters)?;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Str(indent)) => Some(indent.to_string()),
        Some(width) => {
            let width = size("tojson", Some(&width), 0)?;
            Some(" ".repeat(width.min(INDENT_MAX + 1)))
        }
    };
    if indent
        .as_ref()
        .is_some_and(|indent| indent.len() > INDENT_MAX)
    {
        return too_large(format_args!(
            "tojson: the indent exceeds the limit of {INDENT_MAX} columns"
        ));
    }
    // With an indent Python's item separator has no space.
    let default = if indent.is_some() { "," } else { ", " };
    let [item_separator, key_separator] = match separators {
        None | Some(Value::None) => [default.to_string(), ": ".to_string()],
        Some(pair) => match &iterate(heap, &pair)?.items[..] {
            [item, key] => [
                text("tojson", item)?.to_string(),
                text("tojson", key)?.to_string(),
            ],
            _ => return fail("tojson: separators is not a pair"),
        },
    };
    let json = Json {
        escape: match flag(ascii.as_ref()) {
            true => Escape::NonAscii,
            false => Escape::Minimal,
        },
        indent,
        item_separator,
        key_separator,
        order: match flag(sorted.as_ref()) {
            true => Order::Sorted,
            false => Order::Insertion,
        },
    };
    json.dumps(heap, value)
}
