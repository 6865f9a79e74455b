//! Sampling arguments of the command line.

use super::schema::{Kind, Row, Sampler, Value, samplers, schema};
use super::text::{NOTE, lines, with_names, with_negative};
use crate::tree::Result;
use std::fmt::Write as _;

const HEAD: &str = "
use super::parsers::number;
use clap::Args;
use tabla::Sampling;

/// Sampling parameters.
#[derive(Args, Debug)]
pub(super) struct SamplingOptions {
";

/// Generates the arguments.
pub(super) fn options() -> Result<String> {
    let all = schema("generate")?.rows;
    let rows = samplers()?;
    let mut out = format!("//! {NOTE}\n{HEAD}");
    for (row, sampler) in &rows {
        let doc = with_names(&row.doc, &all, |row| format!("--{}", row.cli()));
        let doc = match &sampler.on {
            Some(on) => doc.replace("; 0: off", &format!(", with --{}; 0: off", on.by)),
            None => doc,
        };
        out += &lines(&with_negative(&doc, sampler), "    /// ", 100);
        writeln!(out, "    {}", attribute(row, sampler)?)?;
        let kind = match row.kind {
            Kind::F32 => "f32",
            _ => "i64",
        };
        writeln!(out, "    {}: {kind},", field(row))?;
    }
    out += "}\n\nimpl SamplingOptions {\n    /// Returns the sampling parameters.\n    \
            pub(super) fn sampling(&self) -> Sampling {\n        Sampling::default()\n";
    for (row, sampler) in &rows {
        let (name, field) = (&row.name, field(row));
        let value = match (row.kind, sampler.negative) {
            (Kind::F32, None) => format!("self.{field}"),
            (Kind::F32, Some(value)) => format!("self.{field}.max({})", value.literal()),
            (_, value) => {
                let value = value.ok_or("no value of negative numbers")?.literal();
                format!("u32::try_from(self.{field}).unwrap_or({value})")
            }
        };
        writeln!(out, "            .{name}({value})")?;
    }
    Ok(out + "    }\n}\n")
}

/// Returns the name of the field of an argument.
fn field(row: &Row) -> String {
    row.cli().replace('-', "_")
}

/// Returns the attribute of an argument. A default that a negative number selects is shown as -1.
fn attribute(row: &Row, sampler: &Sampler) -> Result<String> {
    let default = sampler.on.as_ref().map(|on| on.default);
    let default = default.or(row.default).ok_or("no default")?;
    let real = row.kind == Kind::F32;
    let minus_one = if real {
        Value::Real(-1.0)
    } else {
        Value::Integer(-1)
    };
    let default = match sampler.negative == Some(default) {
        true => minus_one,
        false => default,
    };
    let [min, max] = row
        .range
        .unwrap_or([Value::Integer(0), Value::Integer(u32::MAX.into())]);
    let min = sampler.negative.map_or(min, |_| minus_one);
    let is_negative = |value: Value| value.literal().starts_with('-');
    let mut out = "#[arg(long".to_string();
    if let Some(alias) = &row.alias {
        write!(out, ", visible_alias = \"{alias}\"")?;
    }
    let (value, default) = (if real { "X" } else { "N" }, default.literal());
    write!(
        out,
        ", value_name = \"{value}\", default_value_t = {default}"
    )?;
    if is_negative(min) {
        out += ", allow_negative_numbers = true";
    }
    let (min, max) = (min.literal(), max.literal());
    match row.kind {
        Kind::F32 => write!(out, ", value_parser = number({min}, {max})")?,
        _ => {
            let max = max.replace("u32::MAX", "u32::MAX.into()");
            write!(
                out,
                ", value_parser = clap::value_parser!(i64).range({min}..={max})"
            )?;
        }
    }
    Ok(out + ")]")
}
