//! The structs of options in C, their defaults, and the constants of their choices.

use super::schema::{Kind, LISTS, Language, Row, Schema, Value, schema};
use super::text::{NOTE, described, lines, uncapitalized, with_null};
use crate::tree::Result;
use std::fmt::Write as _;

/// Generates the list of modules.
pub(super) fn modules() -> String {
    let mut lists = LISTS.to_vec();
    lists.sort_unstable();
    let modules = lists.iter().map(|list| format!("pub(crate) mod {list};\n"));
    format!("//! {NOTE}\n\n{}", modules.collect::<String>())
}

/// Generates a struct.
pub(super) fn options(file: &str) -> Result<String> {
    let schema = schema(file)?;
    let rows = schema.c_rows();
    let mut out = format!("//! {NOTE}\n\n");
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
                pub(crate) fn sampling(&self) -> tabla::Sampling {\n        tabla::Sampling::default()\n";
        for row in rows.iter().filter(|row| row.sampler.is_some()) {
            writeln!(out, "            .{0}(self.{0})", row.name)?;
        }
        out += "            .seed(self.seed)\n    }\n";
    }
    if let Some(path) = &schema.rust {
        out += &conversion(path, &rows)?;
    }
    Ok(out + "}\n")
}

/// Generates the conversion of the options that have the same type in C and Rust.
fn conversion(path: &str, rows: &[&Row]) -> Result<String> {
    let rows = || rows.iter().filter(|row| row.is_plain());
    let mut out = format!(
        "\n    /// Converts the options that have the same type in Rust.\n    ///\n    \
         /// # Safety\n    ///\n    /// Texts and paths are NULL or C strings.\n    \
         #[expect(unsafe_code, reason = \"pointers from C\")]\n    \
         pub(crate) unsafe fn plain_options(&self) -> tabla::Result<{path}> {{\n"
    );
    for Row { name, kind, .. } in rows() {
        let value = match kind {
            Kind::Text => format!("crate::pointers::optional_text(self.{name}, \"{name}\") }}?"),
            Kind::Path => format!("crate::pointers::path_of(self.{name}) }}"),
            _ => continue,
        };
        let safety = "        // SAFETY: guaranteed by the caller.\n";
        writeln!(out, "{safety}        let {name} = unsafe {{ {value};")?;
    }
    write!(out, "        Ok({path}::default()")?;
    for row in rows() {
        let name = &row.name;
        let value = match row.kind {
            Kind::Text | Kind::Path => name.clone(),
            Kind::Bool => format!("self.{name} != 0"),
            Kind::Choice => {
                let values = name.to_uppercase();
                format!("crate::pointers::choose(\"{name}\", self.{name}, &{values})?")
            }
            _ => format!("self.{name}"),
        };
        let setter = row.of(Language::Rust).and_then(|rust| rust.name.as_ref());
        write!(out, "\n            .{}({value})", setter.unwrap_or(name))?;
    }
    Ok(out + ")\n    }\n")
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
    let (kind, count) = (row.rust_type()?, row.choices.len());
    writeln!(out, "\n/// Values of {place}.")?;
    writeln!(
        out,
        "pub(crate) const {name}: [crate::pointers::Choice<{kind}>; {count}] = ["
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
        Kind::Bool => "u32",
        Kind::Choice => "i32",
        Kind::Text | Kind::Path | Kind::Json => "*const std::ffi::c_char",
        Kind::Texts => "*const *const std::ffi::c_char",
        Kind::Tokens => "*const u32",
        Kind::Biases => "*const crate::logit_bias::TablaLogitBias",
        Kind::Model => "*const crate::sequence::TablaModel",
        Kind::Grammar => "*const crate::grammar::TablaGrammar",
        Kind::Chat => "*const crate::options::chat::TablaChatOptions",
        Kind::Progress => "crate::progress::TablaProgressCallback",
        Kind::Pointer => "*mut std::ffi::c_void",
        number => number.rust().unwrap_or_default(),
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
