//! Reads the chat templates from GGUF keys or from the files of a safetensors folder.

use super::hf;
use super::source::Opened;
use crate::error::Result;
use crate::format::Metadata;
use crate::text::ChatTemplates;

/// Key of the default chat template. Named templates append a dot and their name.
pub(super) const KEY: &str = "tokenizer.chat_template";

/// Maximum size in bytes of a file with templates. The largest known one has 1 MB.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads the chat templates of a model.
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

/// Reads the default template and the named templates. Values that are not strings are ignored, so
/// that the model loads without a chat template.
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
