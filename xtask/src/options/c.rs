//! The structs of options in C, their defaults, and the constants of their choices.

use super::schema::{Kind, Row, Schema, Value, schema};
use super::text::{NOTE, described, lines, uncapitalized, with_null};
use crate::tree::Result;
use std::fmt::Write as _;

/// Generates a struct.
pub(super) fn options(file: &str) -> Result<String> {
    let schema = schema(file)?;
    let rows = schema.c_rows();
    let mut out = format!("//! {NOTE}\n\n{}\n", imports(&rows));
    for row in rows.iter().filter(|row| row.kind == Kind::Choice) {
        out += &constants(row, &schema)?;
    }
    out += &lines(&head(&schema), "/// ", 100);
    write!(
        out,
        "#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct {0} {{\n    \
         /// `sizeof({0})`.\n    pub struct_size: u32,\n",
        schema.c
    )?;
    for row in &rows {
        let (name, kind) = (&row.name, c_type(row.kind));
        out += &lines(&doc(row)?, "    /// ", 100);
        writeln!(out, "    pub {name}: {kind},")?;
        if has_count(row.kind) {
            writeln!(out, "    /// Number of elements of `{name}`.")?;
            writeln!(out, "    pub {name}_count: usize,")?;
        }
    }
    write!(
        out,
        "}}\n\nimpl {} {{\n    \
         #[expect(clippy::cast_possible_truncation, reason = \"a small struct\")]\n    \
         const SIZE: u32 = size_of::<Self>() as u32;\n\n    \
         /// The default options.\n    \
         pub(crate) const DEFAULT: Self = Self {{\n        struct_size: Self::SIZE,\n",
        schema.c
    )?;
    for row in &rows {
        writeln!(out, "        {}: {},", row.name, default(row)?)?;
        if has_count(row.kind) {
            writeln!(out, "        {}_count: 0,", row.name)?;
        }
    }
    out += "    };\n";
    if rows.iter().any(|row| row.sampler.is_some()) {
        out += "\n    /// Returns the sampling parameters.\n    \
                pub(crate) fn sampling(&self) -> Sampling {\n        Sampling::default()\n";
        for row in rows.iter().filter(|row| row.sampler.is_some()) {
            writeln!(out, "            .{0}(self.{0})", row.name)?;
        }
        out += "            .seed(self.seed)\n    }\n";
    }
    Ok(out + "}\n")
}

/// Returns the description of the struct.
fn head(schema: &Schema) -> String {
    let Schema { c, doc, zeros, .. } = schema;
    if *zeros {
        return format!("{doc} Zeros are the defaults.");
    }
    let snake_case = c.chars().fold(String::new(), |name, letter| {
        let start = if letter.is_uppercase() && !name.is_empty() {
            "_"
        } else {
            ""
        };
        name + start + &letter.to_lowercase().to_string()
    });
    format!(
        "{doc} Zeros are not the defaults: initialize the struct with `{snake_case}_init`, which \
         also sets `struct_size` and sets pointers to NULL."
    )
}

/// Returns the imports that the fields need.
fn imports(rows: &[&Row]) -> String {
    let has = |kinds: &[Kind]| rows.iter().any(|row| kinds.contains(&row.kind));
    let texts = has(&[Kind::Text, Kind::Path, Kind::Json, Kind::Texts]);
    let imports = [
        (has(&[Kind::Grammar]), "use crate::grammar::TablaGrammar;\n"),
        (
            has(&[Kind::Biases]),
            "use crate::logit_bias::TablaLogitBias;\n",
        ),
        (
            has(&[Kind::Chat]),
            "use crate::options::chat::TablaChatOptions;\n",
        ),
        (has(&[Kind::Choice]), "use crate::pointers::Choice;\n"),
        (
            has(&[Kind::Progress]),
            "use crate::progress::TablaProgressCallback;\n",
        ),
        (has(&[Kind::Model]), "use crate::sequence::TablaModel;\n"),
        (texts && !has(&[Kind::Pointer]), "use std::ffi::c_char;\n"),
        (
            texts && has(&[Kind::Pointer]),
            "use std::ffi::{c_char, c_void};\n",
        ),
        (
            rows.iter().any(|row| row.sampler.is_some()),
            "use tabla::Sampling;\n",
        ),
    ];
    let needed = imports.iter().filter(|(needed, _)| *needed);
    needed.map(|(_, import)| *import).collect()
}

/// Generates the constants of a choice, and the table of their values.
fn constants(row: &Row, schema: &Schema) -> Result<String> {
    let mut out = String::new();
    let place = format!("`{}.{}`", schema.c, row.name);
    for (number, choice) in row.choices.iter().enumerate() {
        let doc = match &choice.doc {
            Some(doc) => format!("{place}: {}", uncapitalized(doc)),
            None => format!("{place}: {}.", choice.name),
        };
        out += &lines(&doc, "/// ", 100);
        writeln!(
            out,
            "pub const {}: i32 = {number};",
            constant(row, &choice.name)?
        )?;
    }
    let name = row.name.to_uppercase();
    let (kind, count) = (row.rust.as_deref().unwrap_or_default(), row.choices.len());
    writeln!(out, "\n/// Values of {place}.")?;
    writeln!(
        out,
        "pub(crate) const {name}: [Choice<{kind}>; {count}] = ["
    )?;
    for choice in &row.choices {
        let (constant, name) = (constant(row, &choice.name)?, &choice.name);
        writeln!(out, "    ({constant}, \"{name}\", {}),", choice.rust)?;
    }
    Ok(out + "];\n\n")
}

/// Returns the name of the constant of a choice.
fn constant(row: &Row, choice: &str) -> Result<String> {
    let prefix = row.prefix.as_ref().ok_or("a choice has a prefix")?;
    Ok(format!("{prefix}_{}", choice.to_uppercase()))
}

/// Returns the description of a field.
fn doc(row: &Row) -> Result<String> {
    Ok(match row.kind {
        Kind::Bool => {
            let default = default(row)?;
            format!("Not 0: {} Default {default}.", uncapitalized(&row.doc))
        }
        Kind::Choice => {
            let names = row.choices.iter().map(|choice| choice.name.to_uppercase());
            let mut names = names.map(|name| format!("`_{name}`")).collect::<Vec<_>>();
            names[0] = format!("`{}` (default)", constant(row, &row.choices[0].name)?);
            let last = names.pop().unwrap_or_default();
            let doc = row.doc.trim_end_matches('.');
            format!("{doc}: {} or {last}.", names.join(", "))
        }
        Kind::Text | Kind::Path | Kind::Json if !row.doc.contains("Default:") => {
            format!("{} NULL: none.", row.doc)
        }
        _ => with_null(&described(&row.doc, row), "NULL"),
    })
}

/// Returns the type of a field.
fn c_type(kind: Kind) -> &'static str {
    match kind {
        Kind::F32 => "f32",
        Kind::F64 => "f64",
        Kind::U32 | Kind::Bool => "u32",
        Kind::U64 => "u64",
        Kind::I32 | Kind::Choice => "i32",
        Kind::I64 => "i64",
        Kind::Text | Kind::Path | Kind::Json => "*const c_char",
        Kind::Texts => "*const *const c_char",
        Kind::Tokens => "*const u32",
        Kind::Biases => "*const TablaLogitBias",
        Kind::Model => "*const TablaModel",
        Kind::Grammar => "*const TablaGrammar",
        Kind::Chat => "*const TablaChatOptions",
        Kind::Progress => "TablaProgressCallback",
        Kind::Pointer => "*mut c_void",
    }
}

/// Returns whether a field with the number of elements follows.
fn has_count(kind: Kind) -> bool {
    matches!(kind, Kind::Texts | Kind::Tokens | Kind::Biases)
}

/// Returns the default value of a field.
fn default(row: &Row) -> Result<String> {
    Ok(match (row.kind, row.default) {
        (Kind::Bool, Some(value)) => u8::from(value == Value::Bool(true)).to_string(),
        (_, Some(value)) => value.literal(),
        (Kind::Choice, None) => constant(row, &row.choices[0].name)?,
        (Kind::Progress, None) => "None".to_string(),
        (Kind::Pointer, None) => "std::ptr::null_mut()".to_string(),
        _ => "std::ptr::null()".to_string(),
    })
}
