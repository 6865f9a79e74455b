//! The beginning of a call body and the end of its arguments, so that arguments are returned while the
//! model writes them.

use super::bodies::is_name;
use super::formats::{Named, Notation, Repeat, ToolCallFormat};
use super::harmony;

/// What the text after the marker of a call begins with.
#[derive(Debug, PartialEq)]
pub(super) enum Head {
    /// Perhaps the head of a call: more text is needed.
    Incomplete,
    /// A call of this tool; its arguments begin at this index. An id after the arguments is not known yet.
    Call {
        name: String,
        id: Option<String>,
        arguments: usize,
    },
    /// Nothing that can be returned in pieces.
    Other,
}

/// Returns the head of a call.
pub(super) fn head(format: &ToolCallFormat, text: &str) -> Head {
    let found = match format.notation {
        Notation::Object(key, ..) => object_head(text, key, format.repeat),
        Notation::Named(named) => named_head(text, named),
        Notation::Recipient => recipient_head(text),
        Notation::Tagged(_) | Notation::Python | Notation::QuotedByTokens => Err(Mismatch::Other),
    };
    match found {
        Ok((name, id, arguments)) => Head::Call {
            name,
            id,
            arguments,
        },
        Err(Mismatch::Incomplete) => Head::Incomplete,
        Err(Mismatch::Other) => Head::Other,
    }
}

/// Why a text is not the head of a call.
enum Mismatch {
    Incomplete,
    Other,
}

type Found<T> = Result<T, Mismatch>;

/// `{"name": "f", "arguments": {`, within a list if calls repeat in one
fn object_head(text: &str, key: &str, repeat: Repeat) -> Found<(String, Option<String>, usize)> {
    let mut rest = text;
    if matches!(repeat, Repeat::List) && rest.trim_start().starts_with('[') {
        rest = expect(rest, "[")?;
    }
    rest = expect(rest, "{")?;
    rest = expect(rest, "\"name\"")?;
    rest = expect(rest, ":")?;
    let (name, after) = string(rest)?;
    rest = expect(after, ",")?;
    rest = expect(rest, &format!("\"{key}\""))?;
    rest = expect(rest, ":")?;
    let arguments = object_start(rest)?;
    Ok((name, None, text.len() - arguments.len()))
}

/// `f[ARGS]{`, and `f[CALL_ID]id[ARGS]{`
fn named_head(text: &str, named: Named) -> Found<(String, Option<String>, usize)> {
    if text.trim_start().starts_with(['[', '{']) {
        return Err(Mismatch::Other);
    }
    let rest = match named.before {
        "" => text,
        before => expect(text, before)?,
    };
    let Some((before, after)) = rest.split_once(named.separator) else {
        // Names of tools have no white space; the separator may have some.
        let name = rest.trim();
        let end = name.find(char::is_whitespace);
        return match end.is_some_and(|end| !named.separator.starts_with(&name[end..])) {
            true => Err(Mismatch::Other),
            false => Err(Mismatch::Incomplete),
        };
    };
    let arguments = object_start(after)?;
    let (name, id) = match before.split_once("[CALL_ID]") {
        Some((name, id)) => (name, Some(id.trim().to_string())),
        None => (before, None),
    };
    let name = name.trim();
    match is_name(name) {
        true => Ok((name.to_string(), id, text.len() - arguments.len())),
        false => Err(Mismatch::Other),
    }
}

/// `functions.f <|constrain|>json<|message|>{`
fn recipient_head(text: &str) -> Found<(String, Option<String>, usize)> {
    let (name, arguments) = harmony::call(text).ok_or(Mismatch::Incomplete)?;
    let arguments = object_start(arguments)?;
    Ok((name.to_string(), None, text.len() - arguments.len()))
}

/// Returns the text after `word`, which white space may precede.
fn expect<'t>(text: &'t str, word: &str) -> Found<&'t str> {
    let text = text.trim_start();
    match text.strip_prefix(word) {
        Some(rest) => Ok(rest),
        None if word.starts_with(text) => Err(Mismatch::Incomplete),
        None => Err(Mismatch::Other),
    }
}

/// Returns a JSON string and the text after it.
fn string(text: &str) -> Found<(String, &str)> {
    let text = text.trim_start();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
    match values.next() {
        Some(Ok(value)) => Ok((value, &text[values.byte_offset()..])),
        Some(Err(error)) if !error.is_eof() => Err(Mismatch::Other),
        Some(Err(_)) | None => Err(Mismatch::Incomplete),
    }
}

/// Returns the text from the start of an object on.
fn object_start(text: &str) -> Found<&str> {
    expect(text, "{").map(|_| text.trim_start())
}

/// Finds the end of a JSON object that arrives in pieces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ObjectScanner {
    depth: u32,
    place: Place,
}

/// Where a scanner is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Structure,
    String,
    /// After a backslash in a string.
    Escape,
}

impl ObjectScanner {
    /// Scanner for text that begins with an object.
    pub(super) const BEFORE: Self = Self {
        depth: 0,
        place: Place::Structure,
    };
    /// Scanner for the rest of an object.
    pub(super) const WITHIN: Self = Self {
        depth: 1,
        ..Self::BEFORE
    };

    /// Reads the next text. Returns it without white space between tokens, and the index after the end of
    /// the object.
    pub(super) fn push(&mut self, text: &str) -> (String, Option<usize>) {
        let mut kept = String::with_capacity(text.len());
        for (at, character) in text.char_indices() {
            if self.place != Place::Structure || !character.is_ascii_whitespace() {
                kept.push(character);
            }
            if self.step(character) {
                return (kept, Some(at + character.len_utf8()));
            }
        }
        (kept, None)
    }

    /// Reads a character. Returns whether it ends the object.
    fn step(&mut self, character: char) -> bool {
        self.place = match (self.place, character) {
            (Place::Structure, '"') | (Place::Escape, _) => Place::String,
            (Place::String, '"') => Place::Structure,
            (Place::String, '\\') => Place::Escape,
            (place, _) => place,
        };
        match (self.place, character) {
            (Place::Structure, '{' | '[') => self.depth += 1,
            (Place::Structure, '}' | ']') => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}
