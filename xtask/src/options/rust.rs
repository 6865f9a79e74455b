//! `Sampling`, and the sampler of the device with all samplers off.

use super::schema::{Kind, Role, Row, Sampler, Stage, samplers};
use super::text::{NOTE, described, lines};
use crate::tree::{Result, root};
use std::fmt::Write as _;

/// Generates `sampler_off`.
pub(super) fn sampler_off() -> Result<String> {
    let mut out = format!(
        "//! {NOTE}\n\nuse crate::op::params::Sampler;\n\n\
         /// Returns the sampler with all samplers off: greedy sampling.\n\
         pub fn sampler_off() -> Sampler {{\n    Sampler {{\n"
    );
    let known = sampler_fields()?;
    for (row, sampler) in samplers()? {
        let (field, off) = (row.field(&sampler), sampler.off.literal());
        // The library would not compile, and neither would this program.
        if !known.iter().any(|known| known == field) {
            return Err(format!(
                "options/generate.toml: {}: `Sampler` in shaders/lib/sampler.wgsl has no field {field}, \
                 or cargo reflect was not run",
                row.name
            )
            .into());
        }
        writeln!(out, "        {field}: {off},")?;
    }
    Ok(out + "        ..Sampler::default()\n    }\n}\n")
}

/// Returns the fields of the sampler of the device.
fn sampler_fields() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root().join("crates/core/src/op/params.rs"))?;
    let fields = text.split_once("pub struct Sampler {");
    let fields = fields.and_then(|(_, rest)| rest.split_once('}'));
    let (fields, _) = fields.ok_or("params.rs has no struct Sampler")?;
    let fields = fields.lines().filter_map(|line| {
        let (name, _) = line.trim().strip_prefix("pub ")?.split_once(':')?;
        Some(name.to_string())
    });
    Ok(fields.collect())
}

const HEAD: &str = "
use crate::error::{Result, bail};
use crate::exec::state::sampler_off;
use crate::op::params::Sampler;
use crate::op::table::SamplingStage;
use std::fmt::Display;

/// Sampling parameters: how the next token is chosen from the logits. Fields are in the default order
/// of the samplers; `docs/sampling.md` defines each.
///
/// The default has `top_k` 40, `top_p` 0.95, `min_p` 0.05, `temperature` 0.8 and `seed` 0; all other
/// samplers are off. Set a random [`seed`](Self::seed) for different outputs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sampling {
";

const SEED: &str = "\
/// Key of the counter-based random numbers, default 0: the same seed draws the same tokens.
";

const IN_RANGE: &str = "
fn in_range<T: PartialOrd + Display + Copy>(name: &str, value: T, min: T, max: T) -> Result<()> {
    if !(min..=max).contains(&value) {
        bail!(Argument, \"{name} {value} is outside {min}..={max}\");
    }
    Ok(())
}
";

/// Generates `Sampling`.
pub(super) fn sampling() -> Result<String> {
    let rows = samplers()?;
    let mut out = format!("//! {NOTE}\n{HEAD}");
    for (row, _) in &rows {
        out += &doc(row);
        writeln!(out, "    pub {}: {},", row.name, kind(row))?;
    }
    write!(
        out,
        "    {SEED}    pub seed: u64,\n}}\n\nimpl Default for Sampling {{\n"
    )?;
    out += "    /// The defaults of llama.cpp.\n    fn default() -> Self {\n        Self {\n";
    for (row, _) in &rows {
        let default = row.default.ok_or("no default")?.literal();
        writeln!(out, "            {}: {default},", row.name)?;
    }
    out += "            seed: 0,\n        }\n    }\n}\n\nimpl Sampling {\n";
    out += "    /// Greedy decoding: all samplers are off.\n    pub const GREEDY: Self = Self {\n";
    for (row, sampler) in &rows {
        writeln!(out, "        {}: {},", row.name, sampler.off.literal())?;
    }
    out += "        seed: 0,\n    };\n";
    let setters = rows
        .iter()
        .map(|(row, _)| (&*row.name, kind(row), doc(row)));
    for (name, kind, doc) in setters.chain([("seed", "u64", format!("    {SEED}"))]) {
        write!(
            out,
            "\n    /// Sets `{name}`.\n    ///\n{doc}    #[must_use]\n    \
             pub const fn {name}(mut self, {name}: {kind}) -> Self {{\n        \
             self.{name} = {name};\n        self\n    }}\n"
        )?;
    }
    Ok(out + &check(&rows)? + &device(&rows)? + IN_RANGE)
}

fn kind(row: &Row) -> &'static str {
    match row.kind {
        Kind::F32 => "f32",
        _ => "u32",
    }
}

fn doc(row: &Row) -> String {
    lines(&described(&row.doc, row), "    /// ", 100)
}

/// Generates the function that checks the ranges.
fn check(rows: &[(Row, Sampler)]) -> Result<String> {
    let mut out = "
    /// Checks the range of every field.
    ///
    /// # Errors
    ///
    /// `Argument`, with the field, the value and the range.
    pub fn check(&self) -> Result<()> {
"
    .to_string();
    for (row, _) in rows {
        if let Some([min, max]) = row.range {
            let (name, min, max) = (&row.name, min.literal(), max.literal());
            writeln!(
                out,
                "        in_range(\"{name}\", self.{name}, {min}, {max})?;"
            )?;
        }
    }
    Ok(out + "        Ok(())\n    }\n")
}

/// Generates the conversions to the sampler of the device.
fn device(rows: &[(Row, Sampler)]) -> Result<String> {
    let mut out = "
    /// Returns a copy with all samplers that remove tokens switched off.
    pub(super) fn without_filters(self) -> Self {
        Self {
"
    .to_string();
    for (row, sampler) in rows.iter().filter(|(_, s)| s.role == Role::Filter) {
        writeln!(out, "            {}: {},", row.name, sampler.off.literal())?;
    }
    out += "            ..self
        }
    }

    /// Returns the parameters in the layout of the device.
    pub(super) fn parameters(&self) -> Sampler {
        let [seed_lo, seed_hi] = bytemuck::cast(self.seed.to_le());
        Sampler {
";
    for (row, sampler) in rows {
        writeln!(
            out,
            "            {}: self.{},",
            row.field(sampler),
            row.name
        )?;
    }
    out += "            seed_lo,
            seed_hi,
            ..sampler_off()
        }
    }
}

/// Returns the smallest sampling stage that applies all parameters that are not off.
pub(super) fn stage_of_parameters(s: &Sampler) -> SamplingStage {
    let stages = [
";
    for (row, sampler) in rows {
        let stage = match sampler.stage {
            Some(Stage::Sampled) => "Sampled",
            Some(Stage::Full) => "Full",
            None => continue,
        };
        let (field, off) = (row.field(sampler), sampler.off.literal());
        writeln!(out, "        (s.{field} != {off}, SamplingStage::{stage}),")?;
    }
    Ok(out
        + "    ];
    let used = stages.into_iter().filter(|(on, _)| *on);
    let last = used.map(|(_, stage)| stage).max();
    last.unwrap_or(SamplingStage::Greedy)
}
")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of `Sampler` that are not sampling parameters; 0 is off.
    const OTHER_FIELDS: &[&str] = &[
        "seed_lo",
        "seed_hi",
        "mirostat_mu",
        "logprobs",
        "masked",
        "bias_count",
        "stop_from",
        "first",
        "initial_timestamps",
        "stop_count",
        "stops",
    ];

    #[test]
    fn every_field_of_the_sampler_is_a_parameter_or_listed() {
        let rows = samplers().expect("a valid list");
        let rows = rows.iter().map(|(row, sampler)| row.field(sampler));
        let mut expected: Vec<_> = rows.chain(OTHER_FIELDS.iter().copied()).collect();
        let mut fields = sampler_fields().expect("the reflected parameters");
        expected.sort_unstable();
        fields.sort_unstable();
        assert_eq!(fields, expected);
    }
}
