//! Fields of structs of options in Rust.

use super::schema::{Differences, Kind, Language, Row, Schema, Value, schema};
use super::text::{NOTE, described, lines, uncapitalized, with_null};
use crate::tree::Result;
use std::fmt::Write as _;

/// Generates the macro that declares the fields of a struct and their setters, and the defaults.
pub(super) fn fields(list: &str) -> Result<String> {
    written(&schema(list)?)
}

/// As `fields`, for a macro that other crates use too.
pub(super) fn exported_fields(list: &str) -> Result<String> {
    Ok(fields(list)?.replace("macro_rules!", "#[macro_export]\nmacro_rules!"))
}

fn written(schema: &Schema) -> Result<String> {
    let list = &schema.file;
    let mut fields = String::new();
    let mut defaults = String::new();
    let rows = schema.rows.iter().map(Some);
    let rows = rows.filter_map(|row| Some((row, row?.of(Language::Rust)?)));
    for (row, rust) in rows.chain(schema.fields.iter().map(|field| (None, field))) {
        let name = rust.name.as_ref().or(row.map(|row| &row.name));
        let name = name.ok_or("a field has a name")?;
        let doc = row.map(doc).unwrap_or_default();
        fields += &lines(rust.doc.as_ref().unwrap_or(&doc), "            /// ", 110);
        let kind = kind(row, rust).ok_or("a field has a type")?;
        writeln!(fields, "            pub {name}: {kind},")?;
        let default = default(row, rust, &kind).map_err(|e| format!("{name}: {e}"))?;
        writeln!(defaults, "            {name}: {default},")?;
    }
    let out = format!(
        "//! {NOTE}\n\n\
         /// Passes the fields of `{}` and their default values to the macro `$each`, after the tokens\n\
         /// `$start`.\n\
         macro_rules! {list}_options {{\n    ($each:path, $($start:tt)*) => {{\n        \
         $each! {{ $($start)* {{\n{fields}        }} {{\n{defaults}        }} }}\n    }};\n}}\n\
         pub(crate) use {list}_options;\n",
        schema.name()
    );
    Ok(in_crate(&out))
}

/// Returns the description of a field, which is that of the row with the default value.
fn doc(row: &Row) -> String {
    let doc = &row.doc;
    match (row.kind, row.choices.first()) {
        (Kind::Choice, Some(first)) if first.rust == "None" => {
            let none = first.doc.as_deref().unwrap_or(&first.name);
            format!("{doc} `None`: {}", uncapitalized(none))
        }
        (Kind::Choice, Some(first)) => {
            let name = first.rust.rsplit("::").next().unwrap_or_default();
            format!("{doc} Default: [`{name}`]({}).", first.rust)
        }
        (Kind::Bool, _) => format!("`true`: {}", described(&uncapitalized(doc), row)),
        (Kind::Other, _) => doc.clone(),
        (Kind::Text | Kind::Path, _) if !doc.contains("Default:") => format!("{doc} `None`: none."),
        _ => with_null(&described(doc, row), "`None`"),
    }
}

/// Returns the type of a field.
fn kind(row: Option<&Row>, rust: &Differences) -> Option<String> {
    let of_row = || match row?.kind {
        Kind::Text => Some("Option<String>".to_string()),
        Kind::Path => Some("Option<std::path::PathBuf>".to_string()),
        kind => kind.rust().map(str::to_string),
    };
    rust.kind.clone().or_else(of_row)
}

/// Returns the default value of a field with the type `kind`.
fn default(row: Option<&Row>, rust: &Differences, kind: &str) -> Result<String> {
    let choice = row.and_then(|row| row.choices.first());
    let number = row.and_then(|row| row.default).map(Value::literal);
    Ok(match (&rust.value, choice, number) {
        (Some(value), _, _) => value.clone(),
        (None, Some(first), _) => first.rust.clone(),
        (None, None, Some(number)) if rust.kind.is_none() => number,
        (None, None, Some(number)) if number != "0" && number != "false" => {
            return Err("the default value in Rust is missing".into());
        }
        _ if kind.starts_with("Option<") => "None".to_string(),
        _ => "Default::default()".to_string(),
    })
}

/// Returns a text in which paths of the library are those within the crate of the macro: they begin with `$crate`,
/// and in links of comments with `crate`. Names in the root are imported where the macro is used.
fn in_crate(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let root = match line.trim_start().starts_with("///") {
            true => "crate::",
            false => "$crate::",
        };
        let mut parts = line.split("tabla::");
        let first = parts.next().unwrap_or_default().to_string();
        parts.fold(first, |line, part| {
            let in_root = part.starts_with(|letter: char| letter.is_uppercase());
            line + if in_root && root == "$crate::" {
                ""
            } else {
                root
            } + part
        })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::super::schema::parse;
    use super::*;

    const LIST: &str = r#"
        c = "TablaXOptions"
        rust = "tabla::XOptions"
        doc = "Options of X."

        [[option]]
        name = "in_c"
        type = "u32"
        doc = "Number."
        default = 2
        c = 1
        rust = { name = "in_rust" }

        [[option]]
        name = "mode"
        type = "choice"
        doc = "Mode."
        rust = { type = "tabla::Mode" }
        choices = [{ name = "one", rust = "tabla::Mode::One" }]

        [[option]]
        name = "kind"
        type = "choice"
        doc = "Kind."
        rust = { type = "Option<tabla::Kind>" }
        choices = [{ name = "same", rust = "None", doc = "The same." }]

        [[option]]
        name = "limit"
        type = "f64"
        doc = "Limit."
        default = -1.0
        rust = { type = "Option<f64>", value = "None" }

        [[option]]
        name = "folder"
        type = "path"
        doc = "Folder. Default: the current one."

        [[option]]
        name = "reserved"
        type = "u32"
        doc = "Must be 0."
        lacks = ["rust"]
    "#;

    #[test]
    fn fields_have_the_names_types_and_defaults_of_rust() {
        let text = written(&parse(LIST).expect("a valid list")).expect("fields");
        for expected in [
            "/// Number. Default 2.\n            pub in_rust: u32,",
            "/// Mode. Default: [`One`](crate::Mode::One).\n            pub mode: Mode,",
            "/// Kind. `None`: the same.\n            pub kind: Option<Kind>,",
            "/// Folder. `None`: the current one.\n            pub folder: Option<std::path::PathBuf>,",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        assert!(!text.contains("reserved"), "{text}");
        for expected in [
            " in_rust: 2,",
            " mode: Mode::One,",
            " kind: None,",
            " limit: None,",
            " folder: None,",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }

    #[test]
    fn a_default_value_of_another_type_must_be_given() {
        let list = LIST.replace(", value = \"None\"", "");
        let error = written(&parse(&list).expect("a valid list")).expect_err("no value");
        assert_eq!(
            error.to_string(),
            "limit: the default value in Rust is missing"
        );
    }
}
