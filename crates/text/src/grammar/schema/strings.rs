//! Restrictions of strings: patterns and formats.

/// Days of every year: without February 29.
macro_rules! date {
    () => {
        r"[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    };
}

/// Times with an offset, without leap seconds.
macro_rules! time {
    () => {
        r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
    };
}

macro_rules! label {
    () => {
        r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    };
}

/// Characters of a segment of a path.
macro_rules! segment {
    () => {
        r"(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})*"
    };
}

macro_rules! ipv4 {
    () => {
        r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
    };
}

/// Formats as patterns of whole texts. Every match is valid; some valid texts, such as leap seconds, do not
/// match.
const FORMATS: &[(&str, &str)] = &[
    ("date", date!()),
    ("date-time", concat!(date!(), "T", time!())),
    (
        "duration",
        r"P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?|T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))",
    ),
    (
        "email",
        concat!(
            r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+)*@",
            label!(),
            r"(?:\.",
            label!(),
            ")*"
        ),
    ),
    ("hostname", concat!(label!(), r"(?:\.", label!(), ")*")),
    ("ipv4", ipv4!()),
    (
        "ipv6",
        r"(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|(?:[0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|(?:[0-9a-fA-F]{1,4}:){1,5}(?::[0-9a-fA-F]{1,4}){2}|(?:[0-9a-fA-F]{1,4}:){1,4}(?::[0-9a-fA-F]{1,4}){3}|(?:[0-9a-fA-F]{1,4}:){1,3}(?::[0-9a-fA-F]{1,4}){4}|(?:[0-9a-fA-F]{1,4}:){1,2}(?::[0-9a-fA-F]{1,4}){5}|[0-9a-fA-F]{1,4}:(?::[0-9a-fA-F]{1,4}){1,6}|(?:[0-9a-fA-F]{1,4}:){1,7}:|:(?::[0-9a-fA-F]{1,4}){1,7}|::",
    ),
    ("time", time!()),
    (
        "uri",
        concat!(
            r"[a-zA-Z][a-zA-Z0-9+.-]*:(?://(?:",
            r"[a-zA-Z0-9._~-]+@)?",
            label!(),
            r"(?:\.",
            label!(),
            r")*(?::[0-9]{1,5})?(?:/",
            segment!(),
            ")*|[a-zA-Z0-9]",
            segment!(),
            "(?:/",
            segment!(),
            r")*)(?:\?",
            segment!(),
            ")?(?:#",
            segment!(),
            ")?"
        ),
    ),
    (
        "uuid",
        r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
    ),
];

/// Formats of numbers in `OpenAPI`, which are annotations.
pub(super) const NUMBER_FORMATS: &[&str] = &[
    "double", "float", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
];

/// Returns the pattern of a format.
pub(super) fn format_pattern(format: &str) -> Option<String> {
    let found = FORMATS.iter().find(|(name, _)| *name == format);
    found.map(|(_, regex)| format!("^(?:{regex})$"))
}

/// White space of ECMA-262 that other dialects match, too.
const SPACES: &str = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000";
/// Characters that are white space in some dialects.
const FURTHER_SPACES: &str = r"\u0085\ufeff\x1c-\x1f";

/// Converts a pattern of ECMA-262 to the dialect of grammars, so that every match is a match in ECMA-262.
/// Conversion of a converted pattern changes nothing.
///
/// # Errors
/// The reason for a pattern that grammars cannot express.
pub(super) fn pattern(ecma: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(ecma.len());
    let mut chars = ecma.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next().ok_or("incomplete escape")? {
                's' => out.extend(["[", SPACES, "]"]),
                'S' => out.extend(["[^", SPACES, FURTHER_SPACES, "]"]),
                'b' | 'B' => return Err("word boundaries are not supported"),
                '1'..='9' | 'k' => return Err("back-references are not supported"),
                escaped => out.extend(['\\', escaped]),
            },
            '.' => out.push_str(r"[^\n\r\u2028\u2029]"),
            '[' => class(&mut chars, &mut out)?,
            '(' => {
                out.push('(');
                if chars.peek() == Some(&'?') {
                    group(chars.clone().skip(1))?;
                }
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

/// Checks what follows `(?`.
fn group(mut chars: impl Iterator<Item = char>) -> Result<(), &'static str> {
    match (chars.next(), chars.next()) {
        (Some('=' | '!'), _) | (Some('<'), Some('=' | '!')) => Err("look-around is not supported"),
        _ => Ok(()),
    }
}

/// Copies a character class after its opening bracket. `[`, `&`, `~` and a hyphen after another have a
/// meaning in the dialect of grammars that they do not have in ECMA-262.
fn class(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    out: &mut String,
) -> Result<(), &'static str> {
    out.push('[');
    if chars.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut is_after_hyphen = false;
    loop {
        let c = chars.next().ok_or("unclosed character class")?;
        match c {
            ']' => break,
            '\\' => match chars.next().ok_or("incomplete escape")? {
                's' => out.push_str(SPACES),
                'b' => out.push_str(r"\x08"),
                escaped => out.extend(['\\', escaped]),
            },
            '[' | '&' | '~' => out.extend(['\\', c]),
            '-' if is_after_hyphen => out.push_str(r"\-"),
            other => out.push(other),
        }
        is_after_hyphen = c == '-';
    }
    out.push(']');
    Ok(())
}

/// Returns the regex of whole texts that contain a match of a converted pattern. Returns `None` for a
/// pattern with anchors within groups.
pub(crate) fn whole_text(pattern: &str) -> Option<String> {
    const ANY: &str = "(?s:.*)";
    let mut branches = Vec::new();
    for branch in alternatives(pattern) {
        let (start, branch) = match branch.strip_prefix('^') {
            Some(rest) => ("", rest),
            None => (ANY, branch),
        };
        let is_anchored = branch.ends_with('$') && !ends_escaped(&branch[..branch.len() - 1]);
        let (branch, end) = match is_anchored {
            true => (&branch[..branch.len() - 1], ""),
            false => (branch, ANY),
        };
        // `^(?:^a|b$)$` is anchored as a whole.
        branches.push(match (start, end, inner(branch)) {
            ("", "", Some(group)) => whole_branches(group)?,
            _ if has_anchor(branch) => return None,
            _ => format!("{start}(?:{branch}){end}"),
        });
    }
    Some(format!("(?:{})", branches.join("|")))
}

/// Returns the Lark expression of a regex.
pub(crate) fn lark_regex(regex: &str) -> String {
    format!("/{}/", llguidance::regex_to_lark(regex, "dw"))
}

/// Returns the alternatives of an anchored group, whose own anchors are redundant.
fn whole_branches(group: &str) -> Option<String> {
    let branches = alternatives(group).into_iter().map(|branch| {
        let branch = branch.strip_prefix('^').unwrap_or(branch);
        let end = branch.strip_suffix('$').filter(|rest| !ends_escaped(rest));
        let branch = end.unwrap_or(branch);
        (!has_anchor(branch)).then(|| format!("(?:{branch})"))
    });
    let branches: Option<Vec<String>> = branches.collect();
    branches.map(|branches| format!("(?:{})", branches.join("|")))
}

/// Returns the text within a group that spans a whole branch.
fn inner(branch: &str) -> Option<&str> {
    let group = branch.strip_prefix("(?:").or_else(|| {
        let rest = branch.strip_prefix('(');
        rest.filter(|rest| !rest.starts_with('?'))
    })?;
    let group = group
        .strip_suffix(')')
        .filter(|group| !ends_escaped(group))?;
    let mut depth = 0i32;
    let is_closed = scan(group, |c, _| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth < 0
    });
    (!is_closed).then_some(group)
}

fn ends_escaped(text: &str) -> bool {
    (text.len() - text.trim_end_matches('\\').len()) % 2 == 1
}

fn has_anchor(regex: &str) -> bool {
    scan(regex, |c, _| c == '^' || c == '$')
}

/// Returns the alternatives at the top of a regex.
fn alternatives(regex: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0i32, 0, Vec::new());
    scan(regex, |c, at| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if c == '|' && depth == 0 {
            found.push(&regex[start..at]);
            start = at + 1;
        }
        false
    });
    found.push(&regex[start..]);
    found
}

/// Visits the characters outside escapes and character classes with their positions, until `visit` returns
/// true. Returns whether it did.
fn scan(regex: &str, mut visit: impl FnMut(char, usize) -> bool) -> bool {
    let mut chars = regex.char_indices();
    let mut classes = 0usize;
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => classes += 1,
            ']' => classes = classes.saturating_sub(1),
            _ if classes == 0 && visit(c, at) => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::FullMatch;

    #[test]
    fn patterns_are_converted_once() {
        for (ecma, expected) in [
            (r"^\d{2}-\w$", r"^\d{2}-\w$"),
            ("a.b", r"a[^\n\r\u2028\u2029]b"),
            (r"\.[.]", r"\.[.]"),
            ("[a[b&&c~~d--e]", r"[a\[b\&\&c\~\~d-\-e]"),
            (
                r"[^\]\s]",
                concat!(
                    r"[^\]\t\n\v\f\r \u00a0\u1680\u2000-\u200a",
                    r"\u2028\u2029\u202f\u205f\u3000]"
                ),
            ),
            (r"(?:a|(?<n>b))", r"(?:a|(?<n>b))"),
        ] {
            let converted = pattern(ecma).expect(ecma);
            assert_eq!(converted, expected);
            assert_eq!(pattern(&converted).as_deref(), Ok(expected));
        }
        for (ecma, expected) in [
            ("^(?!a)", "look-around is not supported"),
            ("(?<=a)b", "look-around is not supported"),
            (r"(a)\1", "back-references are not supported"),
            (r"\ba", "word boundaries are not supported"),
            ("[a", "unclosed character class"),
        ] {
            assert_eq!(pattern(ecma), Err(expected));
        }
        assert!(
            pattern("a[^(?=]").is_ok(),
            "a class with the characters of a look-around"
        );
    }

    /// Compares with a search by another regex library.
    #[test]
    fn whole_texts_contain_a_match() {
        let texts = [
            "", "a", "b", "ab", "ba", "xa", "ax", "aa", "cab", "a$", "^a", "a|b", "x", "bb",
        ];
        for regex in [
            "a",
            "^a",
            "a$",
            "^a$",
            "^a|b$",
            "^(a|b)$",
            "^(?:^a$|b)$",
            "^(a)(b)$",
            r"a\$",
            "[$^|)]",
            "^[^a]$",
            "^(a|b)x?$",
            "(a|b)b",
            r"^\^a",
            "",
            "^$",
            "^(a|(b))+$",
        ] {
            let whole = whole_text(regex).expect(regex);
            let full = FullMatch::new(&whole).expect(regex);
            let search = FullMatch::new(&format!("(?s:.*)(?:{regex})(?s:.*)")).expect(regex);
            for text in texts {
                let [found, expected] =
                    [&full, &search].map(|regex| regex.matches(text).expect("a result"));
                assert_eq!(found, expected, "{regex} {text:?} {whole}");
            }
        }
        assert_eq!(whole_text("(^a|b)c"), None);
    }
}
