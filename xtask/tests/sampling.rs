//! Hand-written interfaces have all sampling parameters of crates/core/src/op/sampling.rs.

use tabla_core::op::sampling::{Number, Parameter, parameters};
use xtask::root;

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Selects the type name of a parameter.
fn type_of<'a>(row: &Parameter, float: &'a str, integer: &'a str) -> &'a str {
    match row.default {
        Number::F32(_) => float,
        Number::U32(_) => integer,
    }
}

/// Returns whether a description states the default: `Default 0.8`, `Default 0: off`, `Default:
/// all`.
fn states_default(description: &str, row: &Parameter) -> bool {
    let default = match row.default {
        Number::U32(u32::MAX) => ": all".to_string(),
        number => format!(" {number}"),
    };
    let mut after = description.split("Default").skip(1);
    after.any(|text| {
        let rest = text.strip_prefix(default.as_str());
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

#[test]
fn c_options_have_all_sampling_parameters() {
    let path = "include/tabla.h";
    let header = text(path);
    for row in parameters() {
        let line = format!(" {} {};", type_of(&row, "float", "uint32_t"), row.name);
        let Some((before, _)) = header.split_once(&line) else {
            panic!("{path}: TablaGenerateOptions has no field{line}");
        };
        let (_, comment) = before.rsplit_once("/*").expect("fields have comments");
        let (name, default) = (row.name, row.default);
        assert!(
            states_default(comment, &row),
            "{path}: {name}: the comment does not state the default {default}"
        );
    }
}

#[test]
fn python_options_have_all_sampling_parameters() {
    let path = "bindings/python/tabla/_options.py";
    let options = text(path);
    for row in parameters() {
        let name = row.name;
        let line = format!("\n    {name}: {} | None\n", type_of(&row, "float", "int"));
        let Some((_, after)) = options.split_once(&line) else {
            panic!("{path}: GenerateOptions has no field `{}`", line.trim());
        };
        let docstring = after
            .split("\"\"\"")
            .nth(1)
            .expect("fields have docstrings");
        let default = row.default;
        assert!(
            states_default(docstring, &row),
            "{path}: {name}: the docstring does not state the default {default}"
        );
    }
}

#[test]
fn swift_options_have_all_sampling_parameters() {
    let path = "bindings/swift/Sources/Tabla/GenerateOptions.swift";
    let options = text(path);
    for row in parameters() {
        let (name, kind) = (row.name, type_of(&row, "Float", "UInt32"));
        let found = options.lines().any(|line| {
            line.contains(&format!(
                ": {kind} {{ get {{ c.{name} }} set {{ c.{name} = newValue }}"
            ))
        });
        assert!(found, "{path}: GenerateOptions has no {kind} of c.{name}");
    }
}

#[test]
fn documentation_has_all_sampling_parameters() {
    let path = "docs/sampling.md";
    let page = text(path);
    for Parameter { name, .. } in parameters() {
        assert!(
            page.contains(&format!("`{name}`")),
            "{path}: `{name}` is missing"
        );
    }
}
