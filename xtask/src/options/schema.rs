//! Rows of the files in `options/`, whose `README.md` describes the columns.

use crate::tree::{Result, root};
use serde::Deserialize;

/// A struct of options: a file of `options/`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Schema {
    /// Name of the file, without its extension.
    #[serde(skip)]
    pub(super) file: String,
    /// Name in C.
    pub(super) c: String,
    pub(super) doc: String,
    #[serde(default)]
    pub(super) zeros: bool,
    /// Path in Rust, if the struct has its fields and conversions from this list.
    pub(super) rust: Option<String>,
    /// Fields that only Rust has.
    #[serde(default)]
    pub(super) fields: Vec<Differences>,
    /// Heading of the arguments in the help of the command line.
    pub(super) heading: Option<String>,
    #[serde(rename = "option")]
    pub(super) rows: Vec<Row>,
}

/// An option.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: Kind,
    pub(super) default: Option<Value>,
    pub(super) range: Option<[Value; 2]>,
    pub(super) doc: String,
    pub(super) c: Option<usize>,
    pub(super) prefix: Option<String>,
    #[serde(default)]
    pub(super) choices: Vec<Choice>,
    pub(super) sampler: Option<Sampler>,
    requests: Option<Vec<String>>,
    #[serde(default)]
    rust: Differences,
    pub(super) cli: Option<Differences>,
    #[serde(default)]
    python: Differences,
    #[serde(default)]
    swift: Differences,
    #[serde(default)]
    lacks: Vec<Language>,
}

/// Type of an option.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    F32,
    F64,
    U32,
    U64,
    I32,
    I64,
    Bool,
    Choice,
    Text,
    Path,
    Json,
    Texts,
    Tokens,
    Biases,
    Model,
    Grammar,
    Chat,
    Progress,
    Pointer,
    Other,
}

impl Kind {
    /// Returns the type of a number or a bool in Rust.
    pub(super) fn rust(self) -> Option<&'static str> {
        Some(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::Bool => "bool",
            _ => return None,
        })
    }
}

/// A value of a choice.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Choice {
    pub(super) name: String,
    pub(super) rust: String,
    pub(super) doc: Option<String>,
    pub(super) swift: Option<String>,
}

/// A value of an option.
#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(untagged)]
pub(super) enum Value {
    Bool(bool),
    Integer(i64),
    Real(f64),
}

/// Columns of a sampling parameter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sampler {
    pub(super) role: Role,
    pub(super) stage: Option<Stage>,
    pub(super) off: Value,
    field: Option<String>,
    pub(super) negative: Option<Value>,
    pub(super) on: Option<On>,
}

/// Another option that switches on a sampling parameter on the command line and in requests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct On {
    pub(super) by: String,
    pub(super) default: Value,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    Logits,
    Filter,
    Detail,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stage {
    Sampled,
    Full,
}

/// A language that may lack an option.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Language {
    Rust,
    Python,
    Swift,
}

/// Differences of an option in a language, or a field that only Rust has.
#[derive(Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Differences {
    pub(super) name: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) value: Option<String>,
    pub(super) c: Option<String>,
    pub(super) doc: Option<String>,
    pub(super) default: Option<String>,
    pub(super) arg: Option<String>,
}

impl Row {
    /// Returns the names in requests.
    pub(super) fn requests(&self) -> Vec<&str> {
        match &self.requests {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => vec![&self.name],
        }
    }

    /// Returns the default on the command line and in requests, where another option may switch a
    /// sampling parameter on.
    pub(super) fn switched_default(&self, sampler: &Sampler) -> Result<Value> {
        let on = sampler.on.as_ref().map(|on| on.default);
        Ok(on.or(self.default).ok_or("no default")?)
    }

    /// Returns -1 in the type of the row: the number that selects `Sampler::negative`.
    pub(super) fn minus_one(&self) -> Value {
        match self.kind {
            Kind::F32 => Value::Real(-1.0),
            _ => Value::Integer(-1),
        }
    }

    /// Returns the long name of the argument, which switches off what is on by default.
    pub(super) fn long(&self) -> String {
        let name = self.name.replace('_', "-");
        let own = self.cli.as_ref().and_then(|cli| cli.name.as_ref());
        match (own, self.default) {
            (Some(name), _) => name.clone(),
            (None, Some(Value::Bool(true))) => format!("no-{name}"),
            (None, _) => name,
        }
    }

    /// Returns the differences in a language, or `None` if it lacks the option. Sampling parameters
    /// have a struct of their own in Rust.
    pub(super) fn of(&self, language: Language) -> Option<&Differences> {
        let lacks = self.lacks.contains(&language)
            || (language == Language::Rust && self.sampler.is_some());
        let differences = match language {
            Language::Rust => &self.rust,
            Language::Python => &self.python,
            Language::Swift => &self.swift,
        };
        (!lacks).then_some(differences)
    }

    /// Returns whether C and Rust have the option with the same type, so that its conversion is
    /// generated.
    pub(super) fn is_plain(&self) -> bool {
        let converted = match self.kind {
            Kind::Choice => true,
            Kind::Text | Kind::Path => self.rust.kind.is_none(),
            kind => kind.rust().is_some() && self.rust.kind.is_none(),
        };
        converted && self.c.is_some() && self.of(Language::Rust).is_some()
    }

    /// Returns the type in Rust, which is that of the values of a choice.
    pub(super) fn rust_type(&self) -> Result<&str> {
        let kind = self.rust.kind.as_deref();
        Ok(kind.ok_or("the type in Rust is missing")?)
    }

    /// Returns the field of `Sampler` in the shaders.
    pub(super) fn field<'a>(&'a self, sampler: &'a Sampler) -> &'a str {
        sampler.field.as_ref().unwrap_or(&self.name)
    }
}

/// Lists of options, in the order of their generated types.
pub(super) const LISTS: &[&str] = &[
    "load",
    "generate",
    "chat",
    "embed",
    "classify",
    "transcribe",
];

/// Reads all files.
pub(super) fn schemas() -> Result<Vec<Schema>> {
    let schemas: Vec<Schema> = LISTS
        .iter()
        .map(|file| schema(file))
        .collect::<Result<_>>()?;
    // Python converts an option by its name.
    let is_converted = |row: &&Row| {
        matches!(
            row.kind,
            Kind::Choice | Kind::Text | Kind::Path | Kind::Json
        )
    };
    let rows = || schemas.iter().flat_map(|schema| &schema.rows);
    for row in rows().filter(is_converted) {
        if rows().filter(|other| other.name == row.name).count() > 1 {
            return Err(
                format!("options/: {}: Python converts one row of a name", row.name).into(),
            );
        }
    }
    Ok(schemas)
}

/// Reads a file.
pub(super) fn schema(file: &str) -> Result<Schema> {
    let path = format!("options/{file}.toml");
    let text = std::fs::read_to_string(root().join(&path)).map_err(|e| format!("{path}: {e}"))?;
    let schema = parse(&text).map_err(|e| format!("{path}: {e}"))?;
    Ok(Schema {
        file: file.to_string(),
        ..schema
    })
}

/// Parses the text of a file, and checks its rows.
pub(super) fn parse(text: &str) -> Result<Schema> {
    let schema: Schema = toml::from_str(text)?;
    for row in &schema.rows {
        let checked = check(row).and_then(|()| schema.check(row));
        checked.map_err(|e| format!("{}: {e}", row.name))?;
    }
    let count = schema.rows.iter().filter(|row| row.c.is_some()).count();
    for at in 1..=count {
        if schema.rows.iter().filter(|row| row.c == Some(at)).count() != 1 {
            return Err(format!("the row with c = {at} is missing, or twice").into());
        }
    }
    Ok(schema)
}

/// Reads the rows of the sampling parameters.
pub(super) fn samplers() -> Result<Vec<(Row, Sampler)>> {
    let split = |mut row: Row| row.sampler.take().map(|sampler| (row, sampler));
    Ok(schema("generate")?
        .rows
        .into_iter()
        .filter_map(split)
        .collect())
}

impl Schema {
    /// Returns the rows in the order of the fields in C.
    pub(super) fn c_rows(&self) -> Vec<&Row> {
        let mut rows: Vec<_> = self.rows.iter().filter(|row| row.c.is_some()).collect();
        rows.sort_by_key(|row| row.c);
        rows
    }

    /// Checks what a row needs in this struct.
    fn check(&self, row: &Row) -> Result<()> {
        let zero = row.default.is_none_or(|value| value.real() == 0.0);
        if self.zeros && row.c.is_some() && !zero {
            return Err("the defaults of a struct with zeros = true are 0".into());
        }
        let Some(swift) = row.of(Language::Swift) else {
            return Ok(());
        };
        // `withC` is written by hand for structs with arrays.
        let arrays = |row: &Row| matches!(row.kind, Kind::Texts | Kind::Tokens | Kind::Biases);
        let by_hand = self.rows.iter().any(arrays);
        let is_text = matches!(row.kind, Kind::Text | Kind::Path | Kind::Json);
        if by_hand && (is_text || swift.c.is_some()) {
            return Err("withC of this struct is written by hand in Swift".into());
        }
        let stored = swift.kind.is_some() && row.kind != Kind::Choice;
        if !by_hand && stored != swift.c.is_some() {
            return Err(
                "a value with a type of its own in Swift, and no other, has a conversion".into(),
            );
        }
        if swift.value.is_some() && !stored && !self.zeros {
            return Err("Swift has the default of C".into());
        }
        Ok(())
    }

    /// Returns the name in Python and Swift.
    pub(super) fn name(&self) -> &str {
        self.c.trim_start_matches("Tabla")
    }
}

/// Checks the columns of a row.
fn check(row: &Row) -> Result<()> {
    let is_choice = row.kind == Kind::Choice;
    let in_c = row.c.is_some() && is_choice;
    if is_choice == row.choices.is_empty() || in_c != row.prefix.is_some() {
        return Err("a choice, and nothing else, has choices, and in C a prefix".into());
    }
    if row.kind == Kind::Other && row.c.is_some() {
        return Err("a value of another type has no position in C".into());
    }
    if (is_choice || row.kind == Kind::Other) && row.rust.kind.is_none() {
        return Err("a choice and a value of another type have a type in Rust".into());
    }
    let lost = |at, of: &Differences| row.of(at).is_none() && *of != Differences::default();
    if lost(Language::Python, &row.python) || lost(Language::Swift, &row.swift) {
        return Err("a language that lacks the option has no differences".into());
    }
    let is_bool = |value| matches!(value, Value::Bool(_));
    if row
        .default
        .is_some_and(|value| is_bool(value) != (row.kind == Kind::Bool))
    {
        return Err("a bool, and nothing else, has the default true or false".into());
    }
    if row.doc.contains('|') {
        return Err("a description is a cell of a table and has no |".into());
    }
    if row.sampler.is_some() && row.requests().is_empty() {
        return Err("a sampling parameter has a name in requests".into());
    }
    if let Some(python) = row.of(Language::Python)
        && (python.name.is_some() || python.value.is_some() || python.c.is_some())
    {
        return Err("Python differs in type and doc only".into());
    }
    let number = row.kind.rust().is_some();
    if row.c.is_some() && number != row.default.is_some() {
        return Err("a number or a bool, and nothing else, has a default".into());
    }
    if let Some(sampler) = &row.sampler {
        if !matches!(row.kind, Kind::F32 | Kind::U32) || row.default.is_none() || row.c.is_none() {
            return Err(
                "a sampling parameter is an f32 or u32 with a default and a position in C".into(),
            );
        }
        if (sampler.role == Role::Detail) != sampler.stage.is_none() {
            return Err("all sampling parameters except details have a stage".into());
        }
        if row.kind == Kind::F32 && row.range.is_none() {
            return Err("a real number has a range".into());
        }
        if row.kind == Kind::U32 && sampler.negative.is_none() {
            return Err("a count has a value that a negative number selects".into());
        }
    }
    if let Some([min, max]) = row.range {
        let sampler = row.sampler.as_ref();
        let off = sampler.map(|sampler| sampler.off);
        let negative = sampler.and_then(|sampler| sampler.negative);
        let on = sampler.and_then(|sampler| Some(sampler.on.as_ref()?.default));
        for value in [row.default, off, negative, on].into_iter().flatten() {
            let value = value.real();
            if !(min.real()..=max.real()).contains(&value) {
                return Err(format!("{value} is outside the range").into());
            }
        }
    }
    Ok(())
}

impl Value {
    /// Returns the value as a number.
    fn real(self) -> f64 {
        match self {
            Self::Bool(value) => f64::from(u8::from(value)),
            #[expect(clippy::cast_precision_loss, reason = "only compared")]
            Self::Integer(value) => value as f64,
            Self::Real(value) => value,
        }
    }

    /// Returns whether the value stands for all: the maximum of a u32.
    pub(super) fn is_all(self) -> bool {
        self == Self::Integer(u32::MAX.into())
    }

    /// Returns the literal in Rust.
    pub(super) fn literal(self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            value if value.is_all() => "u32::MAX".to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Real(value) => format!("{value:?}"),
        }
    }

    /// Returns the text for people.
    pub(super) fn shown(self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            value if value.is_all() => "all".to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Real(value) => value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_row_and_what_is_wrong() {
        let error = |row: &str| {
            let head =
                "c = \"TablaXOptions\"\ndoc = \"X.\"\n[[option]]\nname = \"top_x\"\ndoc = \"X.\"";
            let text = format!("{head}\n{row}");
            parse(&text).err().map(|error| error.to_string())
        };
        let sampler = "sampler = { role = \"filter\", stage = \"full\", off = 0.0 }";
        let real = "type = \"f32\"\ndefault = 2.0\nc = 1";
        let valid = format!("{real}\nrange = [0.0, 2.0]\n{sampler}");
        assert_eq!(error(&valid), None);
        for (row, expected) in [
            (
                format!("{real}\nrange = [0.0, 1.0]"),
                "top_x: 2 is outside the range",
            ),
            (
                format!("{real}\n{sampler}"),
                "top_x: a real number has a range",
            ),
            (
                format!("type = \"bool\"\n{sampler}"),
                "top_x: a sampling parameter is",
            ),
            (
                format!("{real}\ncli_name = \"x\""),
                "unknown field `cli_name`",
            ),
            ("type = \"f16\"".to_string(), "unknown variant `f16`"),
        ] {
            let error = error(&row).unwrap_or_default();
            assert!(error.contains(expected), "{row}: {error}");
        }
    }

    /// A row without a conversion would be accepted in every language and do nothing.
    #[test]
    fn the_c_api_reads_every_option() {
        let folder = root().join("crates/capi/src");
        let files = std::fs::read_dir(&folder).expect("the folder of the C API");
        let texts: Vec<String> = files
            .filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok())
            .collect();
        for schema in schemas().expect("valid lists") {
            // Two structs may have options of the same name.
            let texts = texts.iter().filter(|text| text.contains(&schema.c));
            let mut text: String = texts.map(String::as_str).collect();
            let generated = folder.join(format!("options/{}.rs", schema.file));
            let generated = std::fs::read_to_string(generated).expect("a generated file");
            if let Some((_, conversion)) = generated.split_once("const DEFAULT") {
                text += conversion;
            }
            let rows = schema.c_rows();
            for row in rows {
                let field = format!(".{}", row.name);
                let found = text.split(&field).skip(1);
                let mut found =
                    found.map(|after| after.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
                let is_read = found.any(|goes_on| !goes_on);
                assert!(is_read, "{}.{}", schema.c, row.name);
            }
        }
    }
}
