//! JSON in tests.

use serde_json::Value;

/// JSON without expressions, parsed when the test runs. Trailing commas are permitted, as in `json!` of `serde_json`,
/// which compiles to code for every value.
#[macro_export]
macro_rules! fixed_json {
    ($($json:tt)+) => {
        $crate::json::parse(stringify!($($json)+))
    };
}

/// Parses JSON with trailing commas.
///
/// # Panics
///
/// Panics if the text is not JSON.
pub fn parse(text: &str) -> Value {
    let mut json = String::with_capacity(text.len());
    let (mut in_string, mut is_escaped) = (false, false);
    // Length of the text before a comma that nothing but white space has followed.
    let mut comma = None;
    for c in text.chars() {
        if in_string {
            in_string = is_escaped || c != '"';
            is_escaped = c == '\\' && !is_escaped;
            json.push(c);
            continue;
        }
        match c {
            ',' => comma = Some(json.len()),
            '}' | ']' => {
                if let Some(len) = comma.take() {
                    json.truncate(len);
                }
            }
            c if !c.is_whitespace() => comma = None,
            _ => {}
        }
        in_string = c == '"';
        json.push(c);
    }
    serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}"))
}
