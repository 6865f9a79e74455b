//! Rewrites the options of llama.cpp to those of Tabla before they are parsed, so that none of them is
//! read as another option.
//!
//! An option that the command has is unchanged. Another one has a row in [`table`]. Text that follows a
//! short option without a space must not begin with a letter, as `-ngl` would then be `-n gl`.

mod convert;
#[rustfmt::skip] // rows are lines
pub(crate) mod table;
#[cfg(test)]
mod tests;

use crate::commands::has_text;
use crate::output::Failure;
use clap::{Arg, Command};
use convert::Change;
use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::vec::IntoIter;
use table::{Row, Rule, Values};

/// The arguments of the program, without options of llama.cpp.
#[derive(Debug, Default)]
pub(crate) struct Rewritten {
    pub(crate) args: Vec<OsString>,
    /// Messages about options without an effect.
    pub(crate) notes: Vec<String>,
}

/// Rewrites the arguments of the program. `root` is the built command.
pub(crate) fn rewrite(
    args: impl IntoIterator<Item = OsString>,
    root: &Command,
) -> Result<Rewritten, Failure> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let rest = args.split_off(args.len().min(1));
    let command = rest.first().and_then(|name| root.find_subcommand(name));
    let mut rewriter = Rewriter {
        command: command.unwrap_or(root),
        output: Rewritten {
            args,
            notes: Vec::new(),
        },
        cache_type: None,
        positional: Vec::new(),
    };
    let mut rest = rest.into_iter().peekable();
    while let Some(arg) = rest.next() {
        if arg == "--" {
            rewriter.output.args.push(arg);
            rewriter.output.args.extend(rest.by_ref());
        } else {
            rewriter.argument(arg, &mut rest)?;
        }
    }
    rewriter.finish();
    Ok(rewriter.output)
}

/// The arguments that follow.
type Rest = Peekable<IntoIter<OsString>>;

struct Rewriter<'a> {
    command: &'a Command,
    output: Rewritten,
    /// Option and value of the type of the KV cache, and the number of options for it.
    cache_type: Option<(String, String, usize)>,
    /// Values of options that are arguments without a name in Tabla.
    positional: Vec<OsString>,
}

/// An option as it was typed.
struct Typed {
    name: String,
    /// Value after an equals sign.
    value: Option<OsString>,
}

impl Typed {
    fn parse(text: &str) -> Self {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.into())),
            None => (text, None),
        };
        let name = match name.strip_prefix("--") {
            Some(long) => format!("--{}", long.replace('_', "-")),
            None => name.to_string(),
        };
        Self { name, value }
    }
}

impl Rewriter<'_> {
    fn argument(&mut self, arg: OsString, rest: &mut Rest) -> Result<(), Failure> {
        let Some(text) = arg.to_str().filter(|text| is_option(text)) else {
            self.output.args.push(arg);
            return Ok(());
        };
        let typed = Typed::parse(text);
        let row = table::row(&typed.name);
        let by_value = row.is_some_and(|row| matches!(row.rules, [Rule::Value(..), ..]));
        if self.has(&typed.name) && !by_value {
            let value = typed.value.as_deref();
            self.push(&typed.name, value);
            if value.is_none() && self.option(&typed.name).is_some_and(takes_text) {
                self.output.args.extend(rest.next());
            }
            return Ok(());
        }
        match row {
            Some(row) => self.apply(row, typed, rest),
            None => {
                let last = self.check_short(text)?;
                let value = match last.is_some_and(takes_text) {
                    true => rest.next(),
                    false => None,
                };
                self.output.args.push(arg);
                self.output.args.extend(value);
                Ok(())
            }
        }
    }

    /// Returns the option of the command with this spelling.
    fn option(&self, name: &str) -> Option<&Arg> {
        let mut args = self.command.get_arguments();
        args.find(|arg| match name.strip_prefix("--") {
            Some(long) => {
                let aliases = arg.get_all_aliases().unwrap_or_default();
                arg.get_long() == Some(long) || aliases.contains(&long)
            }
            None => {
                let short = arg.get_short().map(|letter| format!("-{letter}"));
                short.as_deref() == Some(name)
            }
        })
    }

    fn has(&self, name: &str) -> bool {
        matches!(name, "-h" | "--help") || self.option(name).is_some()
    }

    /// Adds an option. Its value can begin with a hyphen.
    fn push(&mut self, name: &str, value: Option<&OsStr>) {
        let mut arg = OsString::from(name);
        if let Some(value) = value {
            arg.push("=");
            arg.push(value);
        }
        self.output.args.push(arg);
    }

    /// Applies the first rule of a row that the command has.
    fn apply(&mut self, row: &Row, typed: Typed, rest: &mut Rest) -> Result<(), Failure> {
        let values = self.values(row.values, &typed, rest)?;
        let name = &typed.name;
        let mut shown = name.clone();
        for value in values.iter().filter(|value| !value.is_empty()) {
            shown.push(' ');
            shown.push_str(&value.to_string_lossy());
        }
        let mut rules = row.rules.iter();
        match rules.find_map(|rule| self.applicable(rule)) {
            Some(Rule::To(option)) => self.push(option, values.first().map(OsString::as_os_str)),
            Some(Rule::Args(args)) => self.output.args.extend(args.iter().map(OsString::from)),
            Some(Rule::Value(_, convert)) => {
                let change = convert(&text(name, values.first())?);
                let change = change.map_err(|why| Failure::Usage(format!("{shown}: {why}")))?;
                self.change(change, name, &shown)?;
            }
            Some(Rule::CacheType) => {
                let value = text(name, values.first())?;
                self.cache_type(name, value)?;
            }
            Some(Rule::Ignore(why)) => self.note(&shown, why),
            Some(Rule::Refuse(why)) => {
                return Err(Failure::Usage(format!("{name} is not supported: {why}")));
            }
            Some(Rule::In(..)) | None => return Err(self.lacks(name)),
        }
        Ok(())
    }

    /// Returns the values of an option: after an equals sign, or the next arguments.
    fn values(
        &self,
        values: Values,
        typed: &Typed,
        rest: &mut Rest,
    ) -> Result<Vec<OsString>, Failure> {
        let name = &typed.name;
        let count = match (values, &typed.value) {
            (Values::Zero, None) => 0,
            (Values::Zero, Some(_)) => {
                return Err(Failure::Usage(format!("{name} takes no value")));
            }
            (Values::One | Values::Text | Values::Switch, Some(value)) => {
                return Ok(vec![value.clone()]);
            }
            (Values::One | Values::Text, None) => 1,
            (Values::Two, _) => 2,
            (Values::Switch, None) => usize::from(rest.peek().is_some_and(|next| is_switch(next))),
        };
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let is_known = |next: &OsString| next.to_str().is_some_and(|text| self.is_known(text));
            let next = rest.next_if(|next| values == Values::Text || !is_known(next));
            let missing = || Failure::Usage(format!("{name}: expected a value"));
            taken.push(next.ok_or_else(missing)?);
        }
        Ok(taken)
    }

    /// Whether an argument is an option of the command or of llama.cpp.
    fn is_known(&self, text: &str) -> bool {
        let name = Typed::parse(text).name;
        is_option(text) && (self.has(&name) || table::row(&name).is_some())
    }

    /// Returns the rule for the command, if it applies.
    fn applicable<'r>(&self, rule: &'r Rule) -> Option<&'r Rule> {
        match rule {
            Rule::To(option) | Rule::Args([option, ..]) => self.has(option).then_some(rule),
            Rule::CacheType => self.has("--cache-type").then_some(rule),
            Rule::In(commands, rule) => {
                let is_named = commands.contains(&self.command_name());
                is_named.then(|| self.applicable(rule)).flatten()
            }
            _ => Some(rule),
        }
    }

    fn change(&mut self, change: Change, name: &str, shown: &str) -> Result<(), Failure> {
        if let Some(first) = change.args.first() {
            let option = Typed::parse(first).name;
            if is_option(&option) && !self.has(&option) {
                let command = self.command_name();
                return Err(Failure::Usage(format!(
                    "{name}: `tabla {command}` has no option {option}"
                )));
            }
        }
        self.output
            .args
            .extend(change.args.into_iter().map(Into::into));
        self.positional.extend(change.positional.map(Into::into));
        if let Some(why) = change.note {
            self.note(shown, &why);
        }
        Ok(())
    }

    fn command_name(&self) -> &str {
        match self.command.get_name() {
            "tabla" => "run",
            name => name,
        }
    }

    fn lacks(&self, option: &str) -> Failure {
        let command = self.command_name();
        Failure::Usage(format!("`tabla {command}` has no option {option}"))
    }

    fn note(&mut self, shown: &str, why: &str) {
        self.output
            .notes
            .push(format!("note: {shown} has no effect: {why}"));
    }

    /// Appends the arguments without a name. Notes that a type of keys or values alone is that of both.
    fn finish(&mut self) {
        let args = &mut self.output.args;
        let has_hyphen = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-");
        if self.positional.iter().any(has_hyphen) && !args.iter().any(|arg| arg == "--") {
            args.push("--".into());
        }
        args.append(&mut self.positional);
        if let Some((name, value, 1)) = &self.cache_type {
            let note = format!("note: {name} {value} is the type of keys and values");
            self.output.notes.push(note);
        }
    }

    /// Sets the type of the KV cache, which has one for keys and values.
    fn cache_type(&mut self, name: &str, value: String) -> Result<(), Failure> {
        const TYPES: [&str; 3] = ["f16", "f32", "q8_0"];
        if !TYPES.contains(&value.as_str()) {
            return Err(Failure::Usage(format!(
                "{name} {value}: the KV cache has one of the types {}",
                TYPES.join(", ")
            )));
        }
        match &mut self.cache_type {
            // The last value of an option applies.
            Some((other, first, 1)) if other == name => {
                first.clone_from(&value);
                self.push("--cache-type", Some(OsStr::new(&value)));
                Ok(())
            }
            Some((other, first, _)) if *first != value => Err(Failure::Usage(format!(
                "{name} {value}: keys and values have one type, and {other} is {first}; use --cache-type TYPE"
            ))),
            Some((_, _, count)) => {
                *count += 1;
                Ok(())
            }
            None => {
                self.push("--cache-type", Some(OsStr::new(&value)));
                self.cache_type = Some((name.to_string(), value, 1));
                Ok(())
            }
        }
    }

    /// Refuses several letters after one hyphen, unless they are flags of the command and a value that
    /// does not begin with a letter. Returns the last option if its value is the next argument.
    fn check_short(&self, text: &str) -> Result<Option<&Arg>, Failure> {
        let Some(letters) = text.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else {
            return Ok(None);
        };
        let mut chars = letters.chars();
        while let Some(letter) = chars.next() {
            let option = format!("-{letter}");
            let rest = chars.as_str();
            match self.option(&option) {
                Some(arg) if arg.get_action().takes_values() => {
                    if !rest.starts_with(char::is_alphabetic) {
                        return Ok(rest.is_empty().then_some(arg));
                    }
                    let (name, value) = attached(text).unwrap_or((&option, rest));
                    return Err(Failure::Usage(format!(
                        "unknown option {text}: write {name} {value} if {value} is the value of {name}"
                    )));
                }
                Some(_) => {}
                None if matches!(letter, 'h' | 'V') => {}
                // An option of one letter is reported with the usage of the command.
                None if letters.chars().nth(1).is_none() => return Ok(None),
                None => return Err(self.unknown(text)),
            }
        }
        Ok(None)
    }

    /// Returns the error of an unknown option, with the way out if it is a text or has its value
    /// attached.
    fn unknown(&self, text: &str) -> Failure {
        let hint = if let Some((name, value)) = attached(text) {
            format!(": write {name} {value}")
        } else if self.command.get_positionals().any(has_text) {
            let command = self.command_name();
            format!(
                ": write -- before texts that begin with a hyphen, as in `tabla {command} -- TEXT`"
            )
        } else {
            String::new()
        };
        Failure::Usage(format!("unknown option {text}{hint}"))
    }
}

/// Returns an option of llama.cpp and the number that follows it without a space.
fn attached(text: &str) -> Option<(&str, &str)> {
    let number = text.find(|c: char| c.is_ascii_digit())?;
    let (name, value) = text.split_at(number);
    let row = table::row(name)?;
    (row.values == Values::One).then_some((name, value))
}

/// Whether an option takes a text, which can begin with a hyphen.
fn takes_text(option: &Arg) -> bool {
    option.get_action().takes_values() && has_text(option)
}

/// Whether an argument is an option rather than a value: not `-` and not a negative number.
fn is_option(text: &str) -> bool {
    let rest = text.strip_prefix('-').unwrap_or_default();
    rest.starts_with(|first: char| !first.is_ascii_digit() && first != '.')
}

/// Whether an argument is the value of a switch, or several for llama-bench.
fn is_switch(value: &OsStr) -> bool {
    const VALUES: [&str; 9] = [
        "on", "off", "auto", "0", "1", "true", "false", "enabled", "disabled",
    ];
    let is_value = |part: &str| VALUES.contains(&part);
    value
        .to_str()
        .is_some_and(|text| text.split(',').all(is_value))
}

/// Returns a value as text.
fn text(name: &str, value: Option<&OsString>) -> Result<String, Failure> {
    let value = value.and_then(|value| value.to_str());
    let missing = || Failure::Usage(format!("{name}: expected a value in UTF-8"));
    value.map(str::to_string).ok_or_else(missing)
}
