//! Arguments of calls.

use super::failure::{Outcome, fail};
use super::value::Value;
use std::sync::Arc;

/// The arguments of a call.
#[derive(Clone, Debug, Default)]
pub(super) struct CallArguments {
    pub(super) positional: Vec<Value>,
    pub(super) keywords: Vec<(Arc<str>, Value)>,
}

impl CallArguments {
    /// Returns a keyword argument.
    pub(super) fn keyword(&self, name: &str) -> Option<&Value> {
        let mut keywords = self.keywords.iter();
        let found = keywords.find(|(existing, _)| **existing == *name);
        found.map(|(_, value)| value)
    }

    /// Assigns the arguments to the parameters of `function`.
    pub(super) fn bind<const N: usize>(
        self,
        function: &str,
        parameters: [&str; N],
    ) -> Outcome<[Option<Value>; N]> {
        let count = self.positional.len();
        if count > N {
            return fail(format_args!(
                "{function} takes at most {N} arguments, got {count}"
            ));
        }
        let mut positional = self.positional.into_iter();
        let mut bound = [const { None }; N].map(|_: Option<Value>| positional.next());
        for (name, value) in self.keywords {
            let Some(at) = parameters.iter().position(|p| **p == *name) else {
                return fail(format_args!("{function} has no parameter {name:.40}"));
            };
            if bound[at].replace(value).is_some() {
                return fail(format_args!("{function} has two values for {name:.40}"));
            }
        }
        Ok(bound)
    }

    /// Fails if there is an argument.
    pub(super) fn none(self, function: &str) -> Outcome<()> {
        self.bind(function, []).map(|[]| ())
    }
}

/// A required argument.
pub(super) fn required(function: &str, value: Option<Value>) -> Outcome<Value> {
    match value {
        Some(value) => Ok(value),
        None => fail(format_args!("{function} requires more arguments")),
    }
}

/// An argument that is a string.
pub(super) fn text(function: &str, value: &Value) -> Outcome<Arc<str>> {
    match value {
        Value::Str(text) => Ok(Arc::clone(text)),
        other => fail(format_args!(
            "{function} requires a string, got {}",
            other.type_name()
        )),
    }
}

/// An argument that is a string or missing.
pub(super) fn optional_text(function: &str, value: Option<Value>) -> Outcome<Option<Arc<str>>> {
    match value {
        None | Some(Value::None) => Ok(None),
        Some(value) => text(function, &value).map(Some),
    }
}

/// An argument that is an integer.
pub(super) fn integer(function: &str, value: Option<&Value>, default: i128) -> Outcome<i128> {
    match value {
        None => Ok(default),
        Some(value) => match value.int() {
            Some(number) => Ok(number),
            None => fail(format_args!(
                "{function} requires an integer, got {}",
                value.type_name()
            )),
        },
    }
}

/// An argument that is a size; negative numbers are 0.
pub(super) fn size(function: &str, value: Option<&Value>, default: i128) -> Outcome<usize> {
    let number = integer(function, value, default)?.max(0);
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

/// Whether an argument is true.
pub(super) fn flag(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_true)
}
