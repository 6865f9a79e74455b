//! Arguments of the command line.

use super::schema::{Differences, Kind, Language, Row, Schema, Value, schema};
use super::text::{NOTE, lines, with_names, with_switch};
use crate::tree::Result;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// Generates the arguments of the options of a list.
pub(super) fn arguments(list: &str) -> Result<String> {
    let schema = schema(list)?;
    let path = schema.rust.as_ref().ok_or("no struct in Rust")?;
    written(&schema, path, |row| row.cli.is_some())
}

/// Generates the arguments of the sampling parameters.
pub(super) fn sampling() -> Result<String> {
    let schema = schema("generate")?;
    let arguments = written(&schema, "tabla::Sampling", |row| row.sampler.is_some())?;
    Ok(arguments + &request_fields(&schema.rows)?)
}

/// Generates the conversion of sampling parameters to fields of requests. The name of a field is the last
/// one: a request with an earlier name overrides it.
fn request_fields(rows: &[Row]) -> Result<String> {
    let mut out = "
impl SamplingOptionArgs {
    /// Returns the fields of requests to the server for the arguments that differ from their defaults.
    pub(crate) fn request_fields(&self) -> serde_json::Map<String, serde_json::Value> {
        use serde_json::json;
        let fields = [
"
    .to_string();
    for row in rows.iter().filter(|row| row.sampler.is_some()) {
        let names = row.requests();
        let name = names.last().ok_or("no name in requests")?;
        let field = row.long().replace('-', "_");
        let default = Argument::of(row)?.default.ok_or("no default value")?;
        let default = default.literal();
        let kind = if row.kind == Kind::F32 { "f32" } else { "i64" };
        writeln!(
            out,
            "            (\"{name}\", json!(self.{field}), json!({default}_{kind})),"
        )?;
    }
    Ok(out
        + "        ];
        let changed = fields.into_iter().filter(|(_, value, default)| value != default);
        changed.map(|(name, value, _)| (name.to_string(), value)).collect()
    }
}
")
}

/// Generates the arguments of rows of a list, and their conversion to the struct at `path`.
fn written(schema: &Schema, path: &str, has: impl Fn(&Row) -> bool) -> Result<String> {
    let heading = schema.heading.as_ref().ok_or("no heading")?;
    let (_, options) = path.rsplit_once("::").ok_or("no path in Rust")?;
    let name = options.trim_end_matches("Options").to_string() + "OptionArgs";
    let (mut fields, mut setters, mut flags) = (String::new(), String::new(), 0);
    for row in schema.rows.iter().filter(|row| has(row)) {
        let argument = Argument::of(row)?;
        let help = with_names(&argument.help(), &schema.rows, |row| {
            format!("--{}", row.long())
        });
        fields += &lines(&help, "    /// ", 100);
        let (field, kind) = (row.long().replace('-', "_"), argument.kind());
        let attribute = argument.attribute()?;
        write!(
            fields,
            "    #[arg(help_heading = \"{heading}\", long{attribute})]\n    \
             pub(super) {field}: {kind},\n"
        )?;
        if let Some(setter) = argument.setter() {
            let value = argument.value(&format!("self.{field}"));
            write!(setters, "\n            .{setter}({value})")?;
        }
        flags += usize::from(row.kind == Kind::Bool);
    }
    let expect = match flags {
        0 | 1 => "",
        _ => "#[expect(clippy::struct_excessive_bools, reason = \"independent flags\")]\n",
    };
    Ok(format!(
        "//! {NOTE}\n\nuse clap::Args;\n\n\
         /// Arguments of [`{options}`]({path}).\n#[derive(Args, Clone, Debug)]\n{expect}\
         pub(crate) struct {name} {{\n{fields}}}\n\nimpl {name} {{\n    \
         /// Returns the options whose arguments have their type.\n    \
         pub(crate) fn plain_options(self) -> {path} {{\n        {path}::default(){setters}\n    }}\n}}\n"
    ))
}

/// An argument.
struct Argument<'a> {
    row: &'a Row,
    cli: &'a Differences,
    /// Type that one value is parsed to.
    kind: &'a str,
    /// Default value that clap sets and shows.
    default: Option<Value>,
    range: Option<[Value; 2]>,
    /// Value that a negative number selects. As a default, it is shown as -1.
    negative: Option<Value>,
}

impl<'a> Argument<'a> {
    fn of(row: &'a Row) -> Result<Self> {
        static SAME: LazyLock<Differences> = LazyLock::new(Differences::default);
        let cli = row.cli.as_ref().unwrap_or(&SAME);
        let is_usual = cli.kind.is_none() && cli.default.is_none() && row.kind != Kind::Bool;
        let mut argument = Self {
            row,
            cli,
            kind: match (row.kind, &cli.kind) {
                (_, Some(kind)) => kind,
                (Kind::Choice | Kind::Other, None) => row.rust_type()?,
                (Kind::Text, None) => "String",
                (Kind::Path, None) => "std::path::PathBuf",
                (kind, None) => kind.rust().ok_or("the type of the argument is missing")?,
            },
            default: row.default.filter(|_| is_usual),
            range: row.range,
            negative: None,
        };
        if let Some(sampler) = &row.sampler {
            let default = row.switched_default(sampler)?;
            argument.negative = sampler.negative;
            let same = sampler.negative == Some(default);
            argument.default = Some(if same { row.minus_one() } else { default });
            if row.kind == Kind::U32 {
                argument.kind = "i64";
                let all = [Value::Integer(0), Value::Integer(u32::MAX.into())];
                argument.range = row.range.or(Some(all));
            }
            if let (Some(_), Some([min, _])) = (sampler.negative, &mut argument.range) {
                *min = row.minus_one();
            }
        }
        Ok(argument)
    }

    fn help(&self) -> String {
        let doc = self.cli.doc.as_ref().unwrap_or(&self.row.doc);
        let doc = doc.trim_end_matches('.');
        match (&self.row.sampler, &self.cli.default) {
            (Some(sampler), _) => with_switch(doc, sampler, |name| format!("--{name}")),
            (None, Some(default)) => format!("{doc} [default: {default}]"),
            (None, None) => doc.to_string(),
        }
    }

    /// Returns the type of the field.
    fn kind(&self) -> String {
        let is_optional = match self.row.kind {
            Kind::Bool | Kind::Choice | Kind::Other => false,
            _ => self.cli.kind.is_none() && self.default.is_none(),
        };
        match is_optional {
            true => format!("Option<{}>", self.kind),
            false => self.kind.to_string(),
        }
    }

    /// Returns the name of the setter, if the argument has the type of the option.
    fn setter(&self) -> Option<&String> {
        if self.row.sampler.is_some() {
            return Some(&self.row.name);
        }
        let rust = self.row.of(Language::Rust)?;
        let kind = rust.kind.as_deref();
        let same = kind == self.cli.kind.as_deref() || kind == Some(self.kind);
        same.then(|| rust.name.as_ref().unwrap_or(&self.row.name))
    }

    /// Returns the value of the option.
    fn value(&self, field: &str) -> String {
        match (self.negative, self.row.default) {
            (Some(negative), _) if self.kind == "i64" => {
                format!("u32::try_from({field}).unwrap_or({})", negative.literal())
            }
            (Some(negative), _) => format!("{field}.max({})", negative.literal()),
            (None, Some(Value::Bool(true))) => format!("!{field}"),
            (None, Some(default)) if self.cli.default.is_some() => {
                format!("{field}.unwrap_or({})", default.literal())
            }
            _ => field.to_string(),
        }
    }

    /// Returns the attributes, each after a comma.
    fn attribute(&self) -> Result<String> {
        let Self { row, kind, .. } = self;
        let mut out = String::new();
        // An optional choice lists its values.
        let choices = row.choices.iter().filter(|choice| choice.rust != "None");
        let names: Vec<_> = choices.clone().map(|choice| &*choice.name).collect();
        let is_optional = names.len() < row.choices.len();
        let name = match row.kind {
            Kind::Bool => None,
            Kind::Choice => is_optional.then(|| names.join("|")),
            Kind::Text => Some("TEXT".to_string()),
            Kind::Path => Some("PATH".to_string()),
            Kind::F32 => Some("X".to_string()),
            _ => Some("N".to_string()),
        };
        if let Some(name) = self.cli.value.clone().or(name) {
            write!(out, ", value_name = \"{name}\"")?;
        }
        let default = self.default.map(Value::literal);
        if let Some(default) = &default {
            write!(out, ", default_value_t = {default}")?;
        }
        let range = self.range.map(|range| range.map(Value::literal));
        let mut numbers = default.iter().chain(range.iter().flatten());
        if numbers.any(|number| number.starts_with('-')) {
            out += ", allow_negative_numbers = true";
        }
        match range {
            // clap takes the type of the argument from its parser.
            Some([min, max]) if kind.starts_with('f') => write!(
                out,
                ", value_parser = crate::args::parsers::number::<{kind}>({min}, {max})"
            )?,
            Some([min, max]) => {
                let max = max.replace("u32::MAX", "u32::MAX.into()");
                write!(
                    out,
                    ", value_parser = clap::value_parser!({kind}).range({min}..={max})"
                )?;
            }
            None => {}
        }
        if row.kind == Kind::Choice {
            match is_optional {
                true => out += ", hide_possible_values = true",
                false => write!(out, ", default_value = \"{}\"", names[0])?,
            }
            let values = choices.map(|choice| {
                let value = choice.rust.strip_prefix("Some(");
                let value = value.and_then(|value| value.strip_suffix(')'));
                format!("(\"{}\", {})", choice.name, value.unwrap_or(&choice.rust))
            });
            let values = values.collect::<Vec<_>>().join(", ");
            write!(
                out,
                ", value_parser = crate::args::parsers::choice(const {{ &[{values}] }})"
            )?;
        }
        if let Some(arg) = &self.cli.arg {
            write!(out, ", {arg}")?;
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::parse;
    use super::*;

    const HEAD: &str = r#"
        c = "TablaXOptions"
        rust = "tabla::XOptions"
        doc = "Options of X."
        heading = "X"

        [[option]]
        name = "x_y"
        doc = "Y."
    "#;

    /// Checks the argument and the value of a row.
    fn check(row: &str, argument: &str, value: Option<&str>) {
        let cli = if row.contains("cli = ") {
            ""
        } else {
            "\ncli = {}"
        };
        let list = parse(&format!("{HEAD}{row}{cli}")).expect("a valid list");
        let text = written(&list, "tabla::XOptions", |_| true).expect("arguments");
        let argument = argument.replace("#[", "#[arg(help_heading = \"X\", long");
        assert!(text.contains(&argument), "{argument}\n{text}");
        let expected = value.map(|value| format!(".x_y({value})"));
        let setter = text.lines().find(|line| line.contains(".x_y("));
        assert_eq!(setter.map(str::trim), expected.as_deref(), "{row}");
    }

    #[test]
    fn arguments_have_the_types_and_defaults_of_options() {
        check(
            "type = \"bool\"\ndefault = false",
            "/// Y\n    #[)]\n    pub(super) x_y: bool,",
            Some("self.x_y"),
        );
        check(
            "type = \"bool\"\ndefault = true",
            "#[)]\n    pub(super) no_x_y: bool,",
            Some("!self.no_x_y"),
        );
        check(
            "type = \"u32\"\ndefault = 2\nrange = [1, 8]",
            "#[, value_name = \"N\", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]\n    pub(super) x_y: u32,",
            Some("self.x_y"),
        );
        check(
            "type = \"f64\"\ndefault = -1.0",
            "#[, value_name = \"N\", default_value_t = -1.0, allow_negative_numbers = true)]",
            Some("self.x_y"),
        );
        check(
            "type = \"u32\"\ndefault = 0\ncli = { name = \"z\", default = \"all\" }",
            "/// Y [default: all]\n    #[, value_name = \"N\")]\n    pub(super) z: Option<u32>,",
            Some("self.z.unwrap_or(0)"),
        );
        check(
            "type = \"path\"",
            "#[, value_name = \"PATH\")]\n    pub(super) x_y: Option<std::path::PathBuf>,",
            Some("self.x_y"),
        );
    }

    #[test]
    fn negative_counts_select_a_value_of_a_sampling_parameter() {
        check(
            "type = \"u32\"\ndefault = 2\nc = 1\n\
             sampler = { role = \"detail\", off = 2, negative = 0 }",
            "#[, value_name = \"N\", default_value_t = 2, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=u32::MAX.into()))]\n    pub(super) x_y: i64,",
            Some("u32::try_from(self.x_y).unwrap_or(0)"),
        );
    }

    #[test]
    fn choices_are_parsed_by_their_names() {
        check(
            "type = \"choice\"\nrust = { type = \"X\" }\nchoices = [{ name = \"a\", rust = \"X::A\" }]",
            "#[, default_value = \"a\", value_parser = crate::args::parsers::choice(const { &[(\"a\", X::A)] }))]\n    pub(super) x_y: X,",
            Some("self.x_y"),
        );
        check(
            "type = \"choice\"\nrust = { type = \"Option<X>\" }\nchoices = [\
             { name = \"same\", rust = \"None\" }, { name = \"a\", rust = \"Some(X::A)\" }]",
            "#[, value_name = \"a\", hide_possible_values = true, value_parser = crate::args::parsers::choice(const { &[(\"a\", X::A)] }))]\n    pub(super) x_y: Option<X>,",
            Some("self.x_y"),
        );
    }

    /// Otherwise the option would have the value of another type, or none.
    #[test]
    fn a_value_of_another_type_than_the_option_is_converted_by_hand() {
        let row = "type = \"f64\"\ndefault = 0.2\nrust = { type = \"Option<f64>\" }";
        check(row, "pub(super) x_y: f64,", None);
        let row = "type = \"text\"\nrust = { type = \"X\" }\ncli = { type = \"X\" }";
        check(row, "pub(super) x_y: X,", Some("self.x_y"));
        check(
            "type = \"bool\"\nlacks = [\"rust\"]",
            "pub(super) x_y: bool,",
            None,
        );
    }
}
