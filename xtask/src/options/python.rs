//! The types of options in Python.

use super::schema::Language::Python;
use super::schema::{Differences, Kind, Row, Schema, Value, schemas};
use super::text::{NOTE, lines, sentence, uncapitalized};
use crate::tree::Result;
use std::fmt::Write as _;

const HEAD: &str = "\
from __future__ import annotations

import os
from typing import Any, Mapping, Sequence, TypedDict

from ._grammar import Grammar
from ._model_handle import ModelHandle
";

/// Maximum length of a line.
const WIDTH: usize = 110;

/// Generates the types. The docstring of a type lists its options for `help`, and each option has its own for
/// editors.
pub(super) fn options() -> Result<String> {
    let mut out = format!("\"\"\"{NOTE}\"\"\"\n\n{HEAD}");
    let schemas = schemas()?;
    for schema in schemas.iter().filter(|schema| schema.file != "classify") {
        out += &class(schema)?;
    }
    out += "\n\nCHOICES: Mapping[str, tuple[str, Sequence[str]]] = {\n";
    let rows = || schemas.iter().flat_map(|schema| &schema.rows);
    for row in rows().filter(|row| row.kind == Kind::Choice && row.of(Python).is_some()) {
        let names = row
            .choices
            .iter()
            .map(|choice| format!("\"{}\"", choice.name));
        let names = names.collect::<Vec<_>>().join(", ");
        let prefix = row.prefix.as_deref().unwrap_or_default();
        writeln!(out, "    \"{}\": (\"{prefix}\", ({names})),", row.name)?;
    }
    out += "}\n\"\"\"Options with a few values: the beginning of their constants, and their values in order.\"\"\"\n";
    for (name, kind, doc) in [
        ("TEXTS", Kind::Text, "Options that are texts."),
        ("PATHS", Kind::Path, "Options that are paths."),
        ("JSON", Kind::Json, "Options that are JSON in C."),
    ] {
        let names = rows().filter(|row| row.kind == kind);
        let names = names
            .map(|row| format!("\"{}\"", row.name))
            .collect::<Vec<_>>();
        writeln!(out, "\n{name} = {{")?;
        for name in names {
            writeln!(out, "    {name},")?;
        }
        writeln!(out, "}}\n\"\"\"{doc}\"\"\"")?;
    }
    Ok(out)
}

/// Generates the type of a struct.
fn class(schema: &Schema) -> Result<String> {
    let mut out = format!("\n\nclass {}(TypedDict, total=False):\n", schema.name());
    out += &lines(&format!("\"\"\"{}", schema.doc), "    ", WIDTH);
    out += "\n    `None` is the default of each.\n";
    let rows = schema.rows.iter();
    let rows = rows.filter_map(|row| Some((row, row.of(Python)?)));
    let rows: Vec<_> = rows.collect();
    for (row, python) in &rows {
        writeln!(out, "\n    {}: {}", row.name, kind(row, python)?)?;
        out += &lines(&doc(row, python), "        ", WIDTH);
    }
    out += "    \"\"\"\n\n";
    for (row, python) in &rows {
        writeln!(out, "    {}: {} | None", row.name, kind(row, python)?)?;
        let doc = format!("\"\"\"{}\"\"\"", doc(row, python));
        out += &lines(&doc, "    ", WIDTH);
    }
    Ok(out)
}

fn kind<'a>(row: &Row, python: &'a Differences) -> Result<&'a str> {
    Ok(match (&python.kind, row.kind) {
        (Some(kind), _) => kind,
        (None, Kind::F32 | Kind::F64) => "float",
        (None, Kind::U32 | Kind::U64 | Kind::I32 | Kind::I64) => "int",
        (None, Kind::Bool) => "bool",
        (None, Kind::Choice | Kind::Text) => "str",
        (None, Kind::Path) => "str | os.PathLike[str]",
        (None, _) => return Err(format!("{}: the type in Python is missing", row.name).into()),
    })
}

fn doc(row: &Row, python: &Differences) -> String {
    if row.kind == Kind::Choice {
        let values = row.choices.iter().enumerate().map(|(number, choice)| {
            let default = if number == 0 { " (default)" } else { "" };
            let doc = choice.doc.as_deref().map(|doc| doc.trim_end_matches('.'));
            let doc = doc.map(|doc| format!(": {}", uncapitalized(doc)));
            format!("`\"{}\"`{default}{}", choice.name, doc.unwrap_or_default())
        });
        return format!("{} {}.", row.doc, values.collect::<Vec<_>>().join("; "));
    }
    match (&python.doc, row.default) {
        (Some(doc), _) => doc.clone(),
        (None, Some(Value::Bool(true))) => format!("{} Default `True`.", row.doc),
        (None, Some(Value::Bool(false))) => format!("{} Default `False`.", row.doc),
        (None, default) => sentence(&row.doc, row.range, default),
    }
}
