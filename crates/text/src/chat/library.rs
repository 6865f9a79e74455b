//! The templates that come with a model, and which of all is taken.

use super::fallback;
use super::template::{ChatTemplate, Ends};
use crate::Tokenizer;
use serde_json::Value as Json;
use tabla_core::error::{Context, Result, bail};

/// What files call the template for chats with tools.
const TOOL_USE: &str = "tool_use";

/// The templates that a model's files bring along, unread: a broken one fails no model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatTemplates(Vec<(String, String)>);

/// What `--chat-template` and its like ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'a> {
    /// The name of one of the model's templates, the name of a fall-back, or the source of a
    /// template; `None` takes the model's own.
    pub template: Option<&'a str>,
    /// Whether the conversation has tools, for which some models have a template of its own.
    pub tools: bool,
}

impl ChatTemplates {
    /// What files call the template for ordinary chats.
    pub const DEFAULT: &'static str = "default";

    /// Adds a template; a second one of the same name replaces the first.
    pub fn add(&mut self, name: &str, source: &str) {
        self.0.retain(|(have, _)| have != name);
        self.0.push((name.to_string(), source.to_string()));
    }

    /// Adds the one that files have no name for.
    pub fn add_default(&mut self, source: &str) {
        self.add(Self::DEFAULT, source);
    }

    /// The templates of a folder of Hugging Face: `tokenizer_config.json`, `chat_template.json`
    /// and `chat_template.jinja` as texts, each in front of the one before.
    ///
    /// # Errors
    /// `Format` for a text that is no JSON, or has a template in no known form.
    pub fn of_folder(
        tokenizer_config: Option<&str>,
        chat_template_json: Option<&str>,
        chat_template_jinja: Option<&str>,
    ) -> Result<Self> {
        let mut templates = Self::default();
        for (file, text) in [
            ("tokenizer_config.json", tokenizer_config),
            ("chat_template.json", chat_template_json),
        ] {
            let Some(text) = text else { continue };
            let json: Json = match serde_json::from_str(text) {
                Ok(json) => json,
                Err(e) => bail!(Format, "{file}: {e}"),
            };
            let found = json.get("chat_template").unwrap_or(&Json::Null);
            templates.add_json(found).context(file)?;
        }
        if let Some(source) = chat_template_jinja {
            templates.add_default(source);
        }
        Ok(templates)
    }

    /// A template, or a list of `{"name", "template"}`.
    fn add_json(&mut self, json: &Json) -> Result<()> {
        let listed = match json {
            Json::Null => return Ok(()),
            Json::String(source) => {
                self.add_default(source);
                return Ok(());
            }
            Json::Array(listed) => listed,
            _ => bail!(Format, "chat_template is neither a text nor a list"),
        };
        for item in listed {
            let field = |name: &str| item.get(name).and_then(Json::as_str);
            let (Some(name), Some(source)) = (field("name"), field("template")) else {
                bail!(
                    Format,
                    "an item of chat_template lacks its name or template"
                );
            };
            self.add(name, source);
        }
        Ok(())
    }

    /// Names and sources, in the order of the files.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, source)| (&**name, &**source))
    }

    /// The source of a template by its name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(have, _)| *have == name)
            .map(|found| found.1)
    }

    /// The template that answers a choice: the model's own, else the fall-back that the special
    /// tokens of its vocabulary leave no doubt about.
    ///
    /// # Errors
    /// `Argument` where there is none, or for a name that is none; as [`ChatTemplate::new`].
    pub fn choose(&self, choice: &Choice<'_>, tokenizer: &Tokenizer) -> Result<ChatTemplate> {
        let spelling = |id: Option<u32>| str::from_utf8(tokenizer.token_spelling(id?)).ok();
        let (bos, eos) = (spelling(tokenizer.bos()), spelling(tokenizer.eos()));
        let own = |source: &str| ChatTemplate::new(source, Ends { bos, eos });
        // A fall-back begins with BOS, which not every vocabulary wants.
        let fallback = |source: &str| {
            let bos = bos.filter(|_| tokenizer.adds_bos());
            ChatTemplate::new(source, Ends { bos, eos })
        };
        let Some(wanted) = choice.template else {
            let tool_use = self.get(TOOL_USE).filter(|_| choice.tools);
            if let Some(source) = tool_use.or_else(|| self.get(Self::DEFAULT)) {
                return own(source);
            }
            let detected = fallback::detect(tokenizer).and_then(fallback::source);
            let Some(source) = detected else {
                bail!(
                    Argument,
                    "the model has no chat template; give one: {}",
                    names()
                );
            };
            return fallback(source);
        };
        if let Some(source) = self.get(wanted) {
            return own(source);
        }
        if let Some(source) = fallback::source(wanted) {
            return fallback(source);
        }
        if !wanted.contains("{{") && !wanted.contains("{%") {
            bail!(
                Argument,
                "chat template {wanted:?} is neither a name nor a template; known are {}",
                names()
            );
        }
        own(wanted)
    }

    /// What is taken where nobody asks for another: the name of the model's own template or of a
    /// fall-back.
    pub fn usual(&self, tokenizer: &Tokenizer) -> Option<&str> {
        let own = self.get(Self::DEFAULT).map(|_| Self::DEFAULT);
        own.or_else(|| fallback::detect(tokenizer))
    }
}

/// The names of the fall-backs.
fn names() -> String {
    let names: Vec<&str> = fallback::FALLBACKS.iter().map(|row| row.0).collect();
    names.join(", ")
}
