//! The chat templates, from the keys of a GGUF file or from the files of a folder.

use super::hf;
use super::source::Opened;
use crate::error::Result;
use crate::format::Metadata;
use crate::text::ChatTemplates;

/// The key of the template for ordinary chats; others follow behind a dot.
pub(super) const KEY: &str = "tokenizer.chat_template";

/// Bytes of each file that may hold templates; the largest known is a `tokenizer_config.json` that
/// lists six thousand tokens in a megabyte.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The chat templates of a model: its keys, or the files beside its tensors.
pub(super) fn read(model: &Opened) -> Result<ChatTemplates> {
    match &model.folder {
        None => Ok(from_metadata(&model.file.metadata)),
        Some(folder) => from_folder(folder),
    }
}

fn from_folder(folder: &hf::Folder) -> Result<ChatTemplates> {
    let text = |name| folder.text(name, FILE_BYTES_MAX);
    let [config, json, jinja] = [
        text("tokenizer_config.json")?,
        text("chat_template.json")?,
        text("chat_template.jinja")?,
    ];
    ChatTemplates::from_hf_files(config.as_deref(), json.as_deref(), jinja.as_deref())
}

/// The template for ordinary chats, and those with a name behind the key. What is no text is left
/// out: it keeps nobody from using the model for anything else.
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
