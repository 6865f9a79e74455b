//! A chat template: its check, and its rendering with the variables of a conversation.

use super::values::Reader;
use super::{engine, source};
use minijinja::Value;
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::time::SystemTime;
use tabla_core::error::{Context, Result, bail};

/// Bytes of a template at most; the longest known has a fifth of it.
pub(super) const TEMPLATE_BYTES_MAX: usize = 128 << 10;

/// Names of variables that an application cannot give: they have a place of their own.
const RESERVED: &[&str] = &[
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "raise_exception",
    "strftime_now",
    "namespace",
    "range",
    "dict",
    source::ONE,
];

/// What a template is given.
#[derive(Clone, Copy, Debug)]
pub struct Conversation<'a> {
    /// Messages as OpenAI's chat completions have them: `role`, `content`, `tool_calls` and so on.
    pub messages: &'a [Json],
    /// Tools that the model may call, in the same form; none is as if nobody had spoken of tools.
    pub tools: &'a [Json],
    /// Documents to answer from, each with `title` and `text`.
    pub documents: &'a [Json],
    /// Whether the text ends with what begins the assistant's answer.
    pub add_generation_prompt: bool,
    /// Further variables that the template knows: `enable_thinking` and the like.
    pub variables: Option<&'a Map<String, Json>>,
    /// What `strftime_now` says, in UTC.
    pub now: SystemTime,
}

impl<'a> Conversation<'a> {
    /// Messages and what begins the answer, now.
    pub fn new(messages: &'a [Json]) -> Self {
        Self {
            messages,
            tools: &[],
            documents: &[],
            add_generation_prompt: true,
            variables: None,
            now: SystemTime::now(),
        }
    }
}

/// How a vocabulary spells the tokens that begin and end a text; templates write them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends<'a> {
    /// `bos_token`.
    pub bos: Option<&'a str>,
    /// `eos_token`.
    pub eos: Option<&'a str>,
}

/// A chat template that was found sound.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: String,
    bos: Option<String>,
    eos: Option<String>,
}

impl ChatTemplate {
    /// A template from its source.
    ///
    /// # Errors
    /// `TooLarge` over 128 KiB, `Format` with the line for what is no template.
    pub fn new(source: &str, ends: Ends<'_>) -> Result<Self> {
        if source.len() > TEMPLATE_BYTES_MAX {
            bail!(
                TooLarge,
                "chat template: {} bytes are over the limit of {TEMPLATE_BYTES_MAX}",
                source.len()
            );
        }
        engine::check(source)?;
        Ok(Self {
            source: source.to_string(),
            bos: ends.bos.map(str::to_string),
            eos: ends.eos.map(str::to_string),
        })
    }

    /// The source, as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text of a conversation. What users wrote is in it as they wrote it: to feed a model,
    /// [`encode`](Self::encode) is the safe way.
    ///
    /// # Errors
    /// `Argument` where the template refuses the conversation or a variable has a reserved name,
    /// `TooLarge` over the limits on time and size, `Format` for a fault in the template.
    pub fn render(&self, conversation: &Conversation<'_>) -> Result<String> {
        self.render_with(conversation, &str::to_string)
    }

    /// The text of a conversation whose texts went through `text`.
    pub(super) fn render_with(
        &self,
        conversation: &Conversation<'_>,
        text: &dyn Fn(&str) -> String,
    ) -> Result<String> {
        let mut reader = Reader::new(text);
        let root = self.root(conversation, &mut reader)?;
        engine::render(&self.source, root, reader.size(), conversation.now)
    }

    /// The variables of a rendering.
    fn root(&self, conversation: &Conversation<'_>, reader: &mut Reader<'_>) -> Result<Value> {
        let mut root: Vec<(String, Value)> = Vec::new();
        for (name, value) in conversation.variables.into_iter().flatten() {
            if RESERVED.contains(&name.as_str()) || !is_identifier(name) {
                bail!(
                    Argument,
                    "the variable {name:?} is not the application's to give"
                );
            }
            root.push((name.clone(), reader.read(value).context(name)?));
        }
        let messages = conversation.messages.iter().map(message);
        let messages: Result<Vec<_>> = messages.map(|m| reader.read(m?.as_ref())).collect();
        root.push(("messages".into(), messages.context("messages")?.into()));
        for (name, list) in [
            ("tools", conversation.tools),
            ("documents", conversation.documents),
        ] {
            let list: Result<Vec<_>> = list.iter().map(|item| reader.read(item)).collect();
            // `transformers` hands over None for none.
            let list = Some(list.context(name)?).filter(|list| !list.is_empty());
            root.push((name.into(), list.into()));
        }
        let prompt = conversation.add_generation_prompt;
        root.push(("add_generation_prompt".into(), prompt.into()));
        for (name, token) in [("bos_token", &self.bos), ("eos_token", &self.eos)] {
            if let Some(token) = token {
                root.push((name.into(), token.into()));
            }
        }
        Ok(Value::from_pairs(root))
    }
}

fn is_identifier(name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() && name.chars().all(word)
}

/// Names under which messages carry what a model thought, the one that templates read first.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A message as templates expect it: reasoning under each name that they read, and arguments of
/// calls, which OpenAI's interface has as a text of JSON, as values.
fn message(given: &Json) -> Result<Cow<'_, Json>> {
    let Json::Object(fields) = given else {
        bail!(Argument, "a message is no object");
    };
    let thought = REASONING
        .iter()
        .find_map(|name| fields.get(*name).filter(|v| !v.is_null()));
    let calls = fields.get("tool_calls").and_then(Json::as_array);
    let spelt = |call: &Json| {
        call.pointer("/function/arguments")
            .is_some_and(Json::is_string)
    };
    let spelt = calls.is_some_and(|calls| calls.iter().any(spelt));
    if thought.is_none() && !spelt {
        return Ok(Cow::Borrowed(given));
    }
    let mut fields = fields.clone();
    if let Some(thought) = thought {
        fields.insert(REASONING[0].into(), thought.clone());
        fields
            .entry(REASONING[1])
            .or_insert_with(|| thought.clone());
    }
    let calls = fields.get_mut("tool_calls").and_then(Json::as_array_mut);
    for arguments in calls
        .into_iter()
        .flatten()
        .filter_map(|call| call.pointer_mut("/function/arguments"))
    {
        let read = arguments
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok());
        if let Some(object @ Json::Object(_)) = read {
            *arguments = object;
        }
    }
    Ok(Cow::Owned(Json::Object(fields)))
}
