//! The structs of options in Swift.

use super::schema::Language::Swift;
use super::schema::{Choice, Differences, Kind, Row, Schema, Value, schemas};
use super::text::{NOTE, camel_case, lines, sentence, with_names, with_null};
use crate::tree::Result;
use std::fmt::Write as _;

/// Generates the structs.
pub(super) fn options() -> Result<String> {
    let mut out = format!("// {NOTE}\n\ninternal import CTabla\n");
    for schema in schemas()? {
        out += &structure(&schema)?;
    }
    Ok(out)
}

/// Generates a struct.
fn structure(schema: &Schema) -> Result<String> {
    let mut out = "\n// One line for each field:\n// swift-format-ignore\n".to_string();
    out += &lines(&schema.doc, "/// ", 100);
    let is_text = |row: &Row| matches!(row.kind, Kind::Text | Kind::Path | Kind::Json);
    let has_pointers = schema.rows.iter().any(|row| is_text(row) || is_array(row));
    let sendable = match has_pointers {
        true => {
            out += "///\n/// `@unchecked Sendable`: the C struct has pointers, but they are NULL outside `withC`.\n";
            "@unchecked Sendable"
        }
        false => "Sendable",
    };
    write!(
        out,
        "public struct {}: {sendable} {{\n    \
         /// The fields that are plain values; `withC` sets the others.\n    \
         var c = {}()\n\n    public init() {{\n",
        schema.name(),
        schema.c
    )?;
    out += &init(schema)?;
    out += "    }\n\n";
    let rows = schema.rows.iter();
    let rows = rows.filter_map(|row| Some((row, row.of(Swift)?)));
    let rows: Vec<_> = rows.collect();
    for (row, swift) in &rows {
        out += &lines(&doc(row, swift, schema), "    /// ", 100);
        writeln!(out, "    public var {}", variable(row, swift)?)?;
    }
    for (row, swift) in rows.iter().filter(|(row, _)| row.kind == Kind::Choice) {
        out += &choices(row, swift)?;
    }
    // Arrays are converted by hand.
    if !schema.rows.iter().any(is_array) {
        out += &with_c(schema, &rows)?;
    }
    Ok(out + "}\n")
}

/// Returns whether a row is an array in C.
fn is_array(row: &Row) -> bool {
    matches!(row.kind, Kind::Texts | Kind::Tokens | Kind::Biases)
}

/// Generates the statements that set the defaults.
fn init(schema: &Schema) -> Result<String> {
    if !schema.zeros {
        let init = format!("tabla_{}_options_init", schema.file);
        return Ok(format!(
            "        let status = {init}(&c, MemoryLayout.size(ofValue: c))\n        \
             precondition(status == TABLA_OK, \"\\(TablaError.Code(rawValue: status))\")\n"
        ));
    }
    let mut out = "        c.struct_size = UInt32(MemoryLayout.size(ofValue: c))\n".to_string();
    for row in &schema.rows {
        if let Some(Differences {
            kind: None,
            value: Some(value),
            ..
        }) = row.of(Swift)
        {
            writeln!(out, "        c.{} = {value}", row.name)?;
        }
    }
    Ok(out)
}

fn name(row: &Row, swift: &Differences) -> String {
    let name = || camel_case(&row.name);
    swift.name.clone().unwrap_or_else(name)
}

fn doc(row: &Row, swift: &Differences, schema: &Schema) -> String {
    let doc = match &swift.doc {
        Some(doc) => doc.clone(),
        None if row.kind == Kind::Choice => {
            format!("{} Default `.{}`.", row.doc, choice_name(&row.choices[0]))
        }
        None => {
            let value = swift.value.as_ref().filter(|_| swift.kind.is_none());
            let value = value.and_then(|value| value.parse().ok().map(Value::Integer));
            with_null(&sentence(&row.doc, row.range, value.or(row.default)), "nil")
        }
    };
    with_names(&doc, &schema.rows, |row| match row.of(Swift) {
        Some(swift) => format!("`{}`", name(row, swift)),
        None => format!("`{}`", row.name),
    })
}

/// Returns whether a row is a variable of its own, which `withC` converts.
fn is_stored(row: &Row, swift: &Differences) -> bool {
    let is_text = matches!(row.kind, Kind::Text | Kind::Path | Kind::Json);
    is_text || (swift.kind.is_some() && row.kind != Kind::Choice)
}

/// Returns the declaration of a variable: of a field of the C struct, or of a value that `withC` converts.
fn variable(row: &Row, swift: &Differences) -> Result<String> {
    let (name, c) = (name(row, swift), &row.name);
    if is_stored(row, swift) {
        let kind = swift.kind.as_deref().unwrap_or("String?");
        let value = swift.value.as_ref().map(|value| format!(" = {value}"));
        return Ok(format!("{name}: {kind}{}", value.unwrap_or_default()));
    }
    let (kind, get, set) = match row.kind {
        Kind::Bool => (
            "Bool",
            format!("c.{c} != 0"),
            "newValue ? 1 : 0".to_string(),
        ),
        Kind::Choice => {
            let kind = swift
                .kind
                .as_deref()
                .ok_or("a choice has a type in Swift")?;
            let get = format!("{kind}(rawValue: c.{c})");
            (kind, get, "newValue.rawValue".to_string())
        }
        kind => (number(kind)?, format!("c.{c}"), "newValue".to_string()),
    };
    Ok(format!(
        "{name}: {kind} {{ get {{ {get} }} set {{ c.{c} = {set} }} }}"
    ))
}

fn number(kind: Kind) -> Result<&'static str> {
    Ok(match kind {
        Kind::F32 => "Float",
        Kind::F64 => "Double",
        Kind::U32 => "UInt32",
        Kind::U64 => "UInt64",
        Kind::I32 => "Int32",
        Kind::I64 => "Int64",
        _ => return Err("a type in Swift is missing".into()),
    })
}

fn choice_name(choice: &Choice) -> String {
    let name = || camel_case(&choice.name);
    choice.swift.clone().unwrap_or_else(name)
}

/// Generates the type of a choice.
fn choices(row: &Row, swift: &Differences) -> Result<String> {
    let kind = swift.kind.as_deref().unwrap_or_default();
    let mut out = format!(
        "\n    public struct {kind}: RawRepresentable, Hashable, Sendable {{\n        \
         public let rawValue: Int32\n        \
         public init(rawValue: Int32) {{ self.rawValue = rawValue }}\n\n"
    );
    let prefix = row.prefix.as_deref().unwrap_or_default();
    for choice in &row.choices {
        if let Some(doc) = &choice.doc {
            out += &lines(doc, "        /// ", 100);
        }
        let name = choice_name(choice);
        let constant = format!("{prefix}_{}", choice.name.to_uppercase());
        writeln!(
            out,
            "        public static let {name} = {kind}(rawValue: {constant})"
        )?;
    }
    Ok(out + "    }\n")
}

/// Generates the conversion to C.
fn with_c(schema: &Schema, rows: &[(&Row, &Differences)]) -> Result<String> {
    let mut out = format!(
        "\n    /// Calls `body` with the C struct, which is valid during the call.\n    \
         func withC<R>(_ body: (UnsafeMutablePointer<{}>) throws -> R) throws -> R {{\n        \
         var c = c\n",
        schema.c
    );
    for (row, swift) in rows {
        if let Some(value) = &swift.c {
            writeln!(out, "        c.{} = {value}", row.name)?;
        }
    }
    let is_text = |kind| matches!(kind, Kind::Text | Kind::Path | Kind::Json);
    let texts: Vec<_> = rows.iter().filter(|(row, _)| is_text(row.kind)).collect();
    if texts.is_empty() {
        return Ok(out + "        return try body(&c)\n    }\n");
    }
    let names = texts.iter().map(|(row, swift)| name(row, swift));
    let names = names.collect::<Vec<_>>().join(", ");
    writeln!(
        out,
        "        return try withCStrings([{names}]) {{ texts in"
    )?;
    for (at, (row, _)) in texts.iter().enumerate() {
        writeln!(out, "            c.{} = texts[{at}]", row.name)?;
    }
    Ok(out + "            return try body(&c)\n        }\n    }\n")
}
