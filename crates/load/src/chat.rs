//! Reads the chat templates from GGUF keys or from the files of a safetensors folder.

use super::hf;
use super::source::Opened;
use crate::error::Result;
use crate::format::Metadata;
use crate::text::ChatTemplates;

/// Key of the default chat template. Named templates append a dot and their name.
pub const KEY: &str = "tokenizer.chat_template";

/// Folder of named templates: `tool_use.jinja`, `rag.jinja`, ...
pub const NAMED: &str = "additional_chat_templates";

/// Maximum size in bytes of a file with templates. The largest known one has 1 MB.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads the chat templates of a model.
pub fn read(model: &Opened) -> Result<ChatTemplates> {
    match &model.folder {
        None => Ok(from_metadata(&model.file.metadata)),
        Some(folder) => from_folder(folder),
    }
}

/// Reads the templates in files of their own, otherwise those in JSON files, as `transformers` does.
fn from_folder(folder: &hf::Folder) -> Result<ChatTemplates> {
    let text = |name: &str| folder.text(name, FILE_BYTES_MAX);
    let mut templates = ChatTemplates::default();
    if let Some(source) = text("chat_template.jinja")? {
        templates.add_default(&source);
    }
    for file in folder.files(NAMED)? {
        let name = file.strip_suffix(".jinja").filter(|name| !name.is_empty());
        if let (Some(name), Some(source)) = (name, text(&format!("{NAMED}/{file}"))?) {
            templates.add(name, &source);
        }
    }
    if templates.iter().next().is_some() {
        return Ok(templates);
    }
    let (config, json) = (text("tokenizer_config.json")?, text("chat_template.json")?);
    ChatTemplates::from_hf_files(config.as_deref(), json.as_deref(), None)
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
