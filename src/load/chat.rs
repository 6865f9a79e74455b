//! The chat templates of a model: in the keys of a GGUF file, or in the files of a folder.

use super::{Opened, hf};
use crate::error::Result;
use crate::format::Metadata;
use crate::text::ChatTemplates;

const KEY: &str = "tokenizer.chat_template";

/// Bytes of a file with templates; `tokenizer_config.json` may list a vocabulary of its own.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The template for ordinary chats, and those with a name.
///
/// # Errors
///
/// `Format` for a file of a folder that is damaged.
pub(super) fn templates(model: &Opened) -> Result<ChatTemplates> {
    match &model.folder {
        None => Ok(from_metadata(&model.file.metadata)),
        Some(folder) => from_folder(folder),
    }
}

fn from_folder(folder: &hf::Folder) -> Result<ChatTemplates> {
    let text = |name: &str| folder.text(name, FILE_BYTES_MAX);
    let config = text("tokenizer_config.json")?;
    let (json, jinja) = (text("chat_template.json")?, text("chat_template.jinja")?);
    ChatTemplates::of_folder(config.as_deref(), json.as_deref(), jinja.as_deref())
}

/// Keys with a name behind the dot are templates with that name. What is no text is left out: it
/// keeps nobody from using the model for anything else.
fn from_metadata(meta: &Metadata) -> ChatTemplates {
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
