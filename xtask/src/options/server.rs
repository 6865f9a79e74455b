//! Fields of the server's requests: the sampling parameters, and the names of all that a test looks for.

use super::schema::{Kind, Row, Sampler, Value, samplers, schema};
use super::text::{NOTE, lines, sentence, with_switch};
use crate::tree::Result;
use std::fmt::Write as _;

const HEAD: &str = "
use super::numbers::{Int, count_or, float_in, int_in};
use crate::http::error::ApiResult;
use serde::Deserialize;
use tabla::Sampling;
use utoipa::ToSchema;

/// Sampling parameters of a request, with the names of OpenAI, llama.cpp and vLLM.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SamplingFields {
";

/// Generates the names of the fields of requests.
pub(super) fn names() -> Result<String> {
    let mut out = format!(
        "//! {NOTE}\n\n/// Names of options in requests, by the list of options.\n\
         pub(crate) const NAMES: [(&str, &[&str]); 3] = [\n"
    );
    for list in ["generate", "chat", "embed"] {
        writeln!(out, "    (\"{list}\", &[")?;
        let schema = schema(list)?;
        for name in schema.rows.iter().flat_map(Row::requests) {
            writeln!(out, "        \"{name}\",")?;
        }
        out += "    ]),\n";
    }
    Ok(out + "];\n")
}

/// Generates the fields of the sampling parameters.
pub(super) fn fields() -> Result<String> {
    let rows = samplers()?;
    let mut out = format!("//! {NOTE}\n{HEAD}");
    for (row, sampler) in &rows {
        let default = row.switched_default(sampler)?;
        let names = row.requests();
        for name in &names {
            let doc = match *name == names[0] {
                true => {
                    let doc = with_switch(&row.doc, sampler, |name| format!("`{name}`"));
                    sentence(&(doc + "."), accepted(row, sampler), Some(default))
                }
                false => format!("Same as `{}`, which has precedence.", names[0]),
            };
            out += &lines(&doc, "    /// ", 100);
            match row.kind {
                Kind::F32 => writeln!(out, "    pub(super) {name}: Option<f32>,")?,
                _ => {
                    out += "    #[schema(value_type = Option<i64>)]\n";
                    writeln!(out, "    pub(super) {name}: Option<Int>,")?;
                }
            }
        }
    }
    Ok(out + "}\n\nimpl SamplingFields {\n" + &check(&rows)? + &sampling(&rows)? + "}\n")
}

/// Returns the range that requests accept. A negative number selects a value.
fn accepted(row: &Row, sampler: &Sampler) -> Option<[Value; 2]> {
    let [min, max] = row.range?;
    Some(match (sampler.negative, max) {
        (None, _) => [min, max],
        (Some(_), Value::Real(most)) => [Value::Real(-most), max],
        (Some(_), _) => [row.minus_one(), max],
    })
}

/// Generates the function that checks the ranges.
fn check(rows: &[(Row, Sampler)]) -> Result<String> {
    let mut out = "    /// Checks the ranges.
    pub(super) fn check(&self) -> ApiResult<()> {
"
    .to_string();
    for (row, sampler) in rows {
        let Some([min, max]) = accepted(row, sampler) else {
            continue;
        };
        let min = min.literal();
        let function = if row.kind == Kind::F32 {
            "float_in"
        } else {
            "int_in"
        };
        for name in row.requests() {
            let max = max.literal();
            writeln!(
                out,
                "        {function}(\"{name}\", self.{name}, {min}, {max})?;"
            )?;
        }
    }
    Ok(out + "        Ok(())\n    }\n")
}

/// Generates the conversion.
fn sampling(rows: &[(Row, Sampler)]) -> Result<String> {
    let mut out = "
    /// Returns the sampling parameters.
    pub(super) fn sampling(&self) -> Sampling {
        Sampling::default()
"
    .to_string();
    for (row, sampler) in rows {
        let default = row.switched_default(sampler)?.literal();
        let names = row.requests();
        let (first, others) = names.split_first().ok_or("no name")?;
        let value = others.iter().fold(format!("self.{first}"), |value, name| {
            format!("{value}.or(self.{name})")
        });
        let name = &row.name;
        let negative = sampler.negative.map(Value::literal);
        let line = match (row.kind, negative) {
            (Kind::F32, None) => format!(".{name}({value}.unwrap_or({default}))"),
            (Kind::F32, Some(negative)) => {
                format!(".{name}({value}.unwrap_or({default}).max({negative}))")
            }
            (_, negative) => {
                let negative = negative.ok_or("no value of negative numbers")?;
                format!(".{name}(count_or({value}, {default}, {negative}))")
            }
        };
        writeln!(out, "            {line}")?;
    }
    Ok(out + "    }\n")
}
