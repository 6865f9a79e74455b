//! The chat templates in the keys of a GGUF file.

use crate::format::Metadata;
use crate::text::ChatTemplates;

const KEY: &str = "tokenizer.chat_template";

/// The template for ordinary chats, and those with a name behind the key. What is no text is left
/// out: it keeps nobody from using the model for anything else.
pub(super) fn templates(meta: &Metadata) -> ChatTemplates {
    let mut templates = ChatTemplates::default();
    for (key, value) in meta.iter() {
        let Some(rest) = key.strip_prefix(KEY) else {
            continue;
        };
        match (value.text(), rest.strip_prefix('.')) {
            (Some(source), Some(name)) => templates.add(name, source),
            (Some(source), None) if rest.is_empty() => templates.add_default(source),
            _ => {}
        }
    }
    templates
}
