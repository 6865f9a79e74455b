//! The chat templates of a model, and the selection of one of them.

use super::builtin;
use super::template::{ChatTemplate, TemplateTokens};
use crate::Tokenizer;
use serde_json::Value as Json;
use tabla_core::error::{Context, Result, bail};
use tabla_core::utf8::without_bom;

/// Name of the template for chats with tools.
const TOOL_USE: &str = "tool_use";

/// The chat templates from a model's files. They are not compiled, so a broken template does not
/// prevent loading the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatTemplates(Vec<(String, String)>);

tabla_core::options! {
    /// Selects a chat template.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct TemplateChoice<'a> {
        /// Name of one of the model's templates, name of a built-in template, or template source.
        /// `None` selects the model's default template.
        pub template: Option<&'a str>,
        /// Whether the conversation has tools. Some models have a separate template for tool use.
        pub tools: bool,
    }
}

impl ChatTemplates {
    /// Name of the default template.
    pub const DEFAULT: &'static str = "default";

    /// Adds a template; replaces an existing one with the same name.
    pub fn add(&mut self, name: &str, source: &str) {
        self.0.retain(|(existing, _)| existing != name);
        self.0.push((name.to_string(), source.to_string()));
    }

    /// Adds the default template.
    pub fn add_default(&mut self, source: &str) {
        self.add(Self::DEFAULT, source);
    }

    /// Reads the templates of a Hugging Face model directory from the text of its
    /// `tokenizer_config.json`, `chat_template.json` and `chat_template.jinja`. Later files override
    /// earlier ones. A byte order mark is ignored.
    ///
    /// # Errors
    /// `Format` for invalid JSON or an invalid `chat_template` value.
    pub fn from_hf_files(
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
            let text = without_bom(text);
            let json: Json = match serde_json::from_str(text) {
                Ok(json) => json,
                Err(e) => bail!(Format, "{file}: {e}"),
            };
            let value = json.get("chat_template").unwrap_or(&Json::Null);
            templates.add_json(value).context(file)?;
        }
        if let Some(source) = chat_template_jinja {
            templates.add_default(source);
        }
        Ok(templates)
    }

    /// Adds a template, or a list of `{"name", "template"}`.
    fn add_json(&mut self, json: &Json) -> Result<()> {
        let listed = match json {
            Json::Null => return Ok(()),
            Json::String(source) => {
                self.add_default(source);
                return Ok(());
            }
            Json::Array(listed) => listed,
            _ => bail!(Format, "chat_template: expected a string or a list"),
        };
        for item in listed {
            let field = |name: &str| item.get(name).and_then(Json::as_str);
            let (Some(name), Some(source)) = (field("name"), field("template")) else {
                bail!(Format, "chat_template: an item lacks its name or template");
            };
            self.add(name, source);
        }
        Ok(())
    }

    /// The names and sources, in the order of the files.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, source)| (&**name, &**source))
    }

    /// Returns the source of a template by name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(existing, _)| *existing == name)
            .map(|(_, source)| source)
    }

    /// Selects and compiles a template. Without a default template in the model's files, selects
    /// the built-in template that matches the special tokens of the vocabulary.
    ///
    /// # Errors
    /// `Argument` if there is no template or the name is unknown; see also [`ChatTemplate::new`].
    pub fn choose(
        &self,
        choice: &TemplateChoice<'_>,
        tokenizer: &Tokenizer,
    ) -> Result<ChatTemplate> {
        let token_text =
            |id: Option<u32>| str::from_utf8(tokenizer.token_bytes_with_special(id?)).ok();
        let (bos, eos) = (token_text(tokenizer.bos()), token_text(tokenizer.eos()));
        let own = |source: &str| ChatTemplate::new(source, TemplateTokens { bos, eos });
        // Built-in templates write BOS, which some vocabularies do not use.
        let builtin_template = |source: &str| {
            let bos = bos.filter(|_| tokenizer.adds_bos());
            ChatTemplate::new(source, TemplateTokens { bos, eos })
        };
        let Some(name) = choice.template else {
            let tool_use = self.get(TOOL_USE).filter(|_| choice.tools);
            if let Some(source) = tool_use.or_else(|| self.get(Self::DEFAULT)) {
                return own(source);
            }
            let detected = builtin::detect(tokenizer).and_then(builtin::source);
            let Some(source) = detected else {
                bail!(
                    Argument,
                    "the model has no chat template; select one of: {}",
                    names()
                );
            };
            return builtin_template(source);
        };
        if let Some(source) = self.get(name) {
            return own(source);
        }
        if let Some(source) = builtin::source(name) {
            return builtin_template(source);
        }
        if !name.contains("{{") && !name.contains("{%") {
            bail!(
                Argument,
                "unknown chat template {name:?}; known templates: {}",
                names()
            );
        }
        own(name)
    }

    /// Returns the name of the template that is used by default: the model's default template or a
    /// built-in one.
    pub fn default_name(&self, tokenizer: &Tokenizer) -> Option<&str> {
        let own = self.get(Self::DEFAULT).map(|_| Self::DEFAULT);
        own.or_else(|| builtin::detect(tokenizer))
    }
}

/// The names of the built-in templates.
fn names() -> String {
    let names: Vec<&str> = builtin::BUILTIN_TEMPLATES.iter().map(|row| row.0).collect();
    names.join(", ")
}
