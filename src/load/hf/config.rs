//! config.json: reading values of a configuration file.

use crate::arch::{self, Checkpoint, Quirk};
use crate::error::{Error, ErrorKind, Result, bail};
use serde_json::Value;

/// Where models that also see or hear have the numbers of their language model.
const NESTED: &str = "text_config";

/// A configuration file: an object whose `null`s count as absent.
#[derive(Debug)]
pub(super) struct Config {
    root: Value,
    /// What is special about models of this kind.
    pub(super) checkpoint: &'static Checkpoint,
    /// What stands for keys that are absent, and not for a `null`.
    defaults: Value,
}

impl Config {
    /// Reads the text of a configuration file.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let root = match serde_json::from_str(text) {
            Ok(root @ Value::Object(_)) => root,
            Ok(_) => bail!(Format, "the JSON is no object"),
            Err(e) => {
                let message = format_args!("the JSON is damaged: {e}");
                return Err(Error::new(ErrorKind::Format, message).caused_by(e));
            }
        };
        let mut config = Self {
            root,
            checkpoint: arch::checkpoint(""),
            defaults: Value::Null,
        };
        if let Some(model_type) = config.find("model_type").and_then(Value::as_str) {
            config.checkpoint = arch::checkpoint(model_type);
            let defaults = serde_json::from_str(config.checkpoint.defaults);
            config.defaults = defaults.expect("the registry's own text, which a test reads");
        }
        Ok(config)
    }

    /// What stands at a path: in the language model's own object, else outside, else by default.
    pub(super) fn find(&self, path: &str) -> Option<&Value> {
        self.said(path).or_else(|| {
            // What is said to be nothing has no default, and neither have parts of what is said.
            let first = path.split('.').next().unwrap_or_default();
            let free = self.roots().all(|root| root.get(first).is_none());
            descend(&self.defaults, path).filter(|_| free)
        })
    }

    /// The first of these paths at which something is said, else at which there is a default.
    pub(super) fn first<'a>(&self, paths: &[&'a str]) -> Option<&'a str> {
        let said = paths.iter().find(|path| self.said(path).is_some());
        let found = said.or_else(|| paths.iter().find(|path| self.find(path).is_some()));
        found.copied()
    }

    fn said(&self, path: &str) -> Option<&Value> {
        let mut found = self.roots().filter_map(|root| descend(root, path));
        found.find(|value| !value.is_null())
    }

    fn roots(&self) -> impl Iterator<Item = &Value> {
        [self.root.get(NESTED), Some(&self.root)]
            .into_iter()
            .flatten()
    }

    /// An integer that fits 32 bits without sign; files write some as floats.
    pub(super) fn integer(&self, path: &str) -> Result<Option<u32>> {
        self.typed(path, "an integer from 0 to 4294967295", integer)
    }

    /// A number.
    pub(super) fn float(&self, path: &str) -> Result<Option<f32>> {
        self.typed(path, "a finite f32", float)
    }

    /// A truth value.
    pub(super) fn boolean(&self, path: &str) -> Result<Option<bool>> {
        self.typed(path, "true or false", Value::as_bool)
    }

    /// A text.
    pub(super) fn text(&self, path: &str) -> Result<Option<&str>> {
        self.typed(path, "a string", Value::as_str)
    }

    /// A list of numbers.
    pub(super) fn floats(&self, path: &str) -> Result<Option<Vec<f32>>> {
        let list = |value: &Value| value.as_array()?.iter().map(float).collect();
        self.typed(path, "a list of finite f32", list)
    }

    /// The names that begin so and are true.
    pub(super) fn flags(&self, prefix: &str) -> Vec<&str> {
        let all = self.root.as_object().into_iter().flatten();
        let set =
            all.filter(|(name, value)| name.starts_with(prefix) && **value == Value::Bool(true));
        set.map(|(name, _)| name.as_str()).collect()
    }

    /// What `read` makes of the value at a path, if there is one.
    pub(super) fn typed<'a, T>(
        &'a self,
        path: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.find(path) else {
            return Ok(None);
        };
        match read(value) {
            Some(found) => Ok(Some(found)),
            None => bail!(Format, "{path}: wanted {wanted}, found {}", shown(value)),
        }
    }

    /// What kind of model this is: its class where that says more than `model_type`, or where an
    /// old file has no other.
    pub(super) fn model_type(&self) -> Result<&str> {
        let class = self
            .find("architectures")
            .and_then(|list| list.get(0)?.as_str());
        let known = class.filter(|class| arch::of_model_type(class).is_some());
        match known.or(self.text("model_type")?).or(class) {
            Some(name) => Ok(name),
            None => bail!(Format, "model_type is missing"),
        }
    }

    /// Whether the head is the embedding; `None` where the tensors decide.
    pub(super) fn tied(&self) -> Result<Option<bool>> {
        self.boolean("tie_word_embeddings")
    }

    /// Rows of the position embedding in front of that of position 0.
    pub(super) fn position_offset(&self) -> Result<u32> {
        if self.checkpoint.quirk != Some(Quirk::PositionsBehindPadding) {
            return Ok(0);
        }
        let padding = self.integer("pad_token_id")?;
        Ok(padding.map_or(0, |id| id.saturating_add(1)))
    }

    /// The tokens that end a text: `eos_token_id` is a number or a list of them.
    pub(super) fn ends(&self) -> Result<Vec<u32>> {
        let list = |value: &Value| match value {
            Value::Array(list) => list.iter().map(integer).collect(),
            one => integer(one).map(|id| vec![id]),
        };
        let found = self.typed("eos_token_id", "a token or a list of tokens", list)?;
        Ok(found.unwrap_or_default())
    }
}

fn descend<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(root, |value, name| value.get(name))
}

fn integer(value: &Value) -> Option<u32> {
    let whole =
        |n: f64| (n.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&n)).then_some(n);
    #[expect(clippy::cast_possible_truncation, reason = "held to the range")]
    #[expect(clippy::cast_sign_loss, reason = "held to the range")]
    value.as_f64().and_then(whole).map(|n| n as u32)
}

fn float(value: &Value) -> Option<f32> {
    #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
    let rounded = value.as_f64().map(|n| n as f32);
    rounded.filter(|n| n.is_finite())
}

/// A value in a message: the beginning of it.
pub(super) fn shown(value: &Value) -> String {
    const SHOWN: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
