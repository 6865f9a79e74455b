//! The tokenizer and the chat template of a folder, as keys of a GGUF file.

use super::mix::EMBEDDING;
use super::stored::Stored;
use crate::error::{Result, bail};
use crate::format::write::Writer;
use crate::load::hf;
use crate::text::Vocab;
use serde_json::Value;

/// Files of the tokenizer beside safetensors.
pub(super) const TOKENIZER: &str = "tokenizer.json";
pub(super) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// A chat template in a file of its own.
pub(super) const TEMPLATE: &str = "chat_template.jinja";
/// Where GGUF has the template; others follow behind a dot.
pub(super) const TEMPLATE_KEY: &str = "tokenizer.chat_template";

/// Bytes of a file of the tokenizer; that of Gemma 3 has 33 MB.
const BYTES_MAX: u64 = 128 << 20;

/// The type of a token that nothing becomes.
const UNUSED: u32 = 5;

/// Writes the keys. A folder without a `tokenizer.json` makes a file without a tokenizer.
pub(super) fn write(
    folder: &hf::Folder,
    tensors: &[Stored<'_>],
    writer: &mut Writer<'_>,
) -> Result<()> {
    let config = text(folder, TOKENIZER_CONFIG)?;
    if let Some(tokenizer) = text(folder, TOKENIZER)? {
        let embedding = tensors.iter().find(|t| t.name == EMBEDDING);
        let rows = embedding.map_or(0, |t| t.matrix.rows);
        Vocab::of_json(&tokenizer, config.as_deref(), |vocab| {
            write_vocab(vocab, rows, writer)
        })?;
    }
    for (name, template) in templates(folder, config.as_deref())? {
        match name.as_str() {
            "default" => writer.set(TEMPLATE_KEY, template),
            name => writer.set(&format!("{TEMPLATE_KEY}.{name}"), template),
        };
    }
    Ok(())
}

/// A text beside the tensors.
pub(super) fn text(folder: &hf::Folder, name: &str) -> Result<Option<String>> {
    folder.text(name, BYTES_MAX)
}

/// The keys of a vocabulary, filled up with unused tokens to the rows of the embedding.
fn write_vocab(vocab: &Vocab<'_>, rows: usize, writer: &mut Writer<'_>) -> Result<()> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let have = vocab.tokens.len();
    if have > rows {
        bail!(Format, "{have} tokens, the embedding has {rows} rows");
    }
    let mut tokens: Vec<String> = vocab.tokens.iter().map(ToString::to_string).collect();
    tokens.extend((have..rows).map(|id| format!("[PAD{id}]")));
    let mut types = vocab.types.clone();
    types.resize(rows, UNUSED);
    writer.set(&key("model"), vocab.model);
    if let Some(pre) = vocab.pre {
        writer.set(&key("pre"), pre);
    }
    writer.list(&key("tokens"), &tokens);
    writer.list(&key("token_type"), &types);
    if !vocab.scores.is_empty() {
        let mut scores = vocab.scores.clone();
        scores.resize(rows, f32::MIN);
        writer.list(&key("scores"), &scores);
    }
    if !vocab.merges.is_empty() {
        writer.list(&key("merges"), &vocab.merges);
    }
    let ids = [
        ("bos_token_id", vocab.bos),
        ("eos_token_id", vocab.eos),
        ("unknown_token_id", vocab.unk),
    ];
    for (name, id) in ids {
        id.map(|id| writer.set(&key(name), id));
    }
    let flags = [
        ("add_bos_token", vocab.add_bos),
        ("add_eos_token", vocab.add_eos),
        ("add_space_prefix", vocab.add_space_prefix),
    ];
    for (name, flag) in flags {
        flag.map(|flag| writer.set(&key(name), flag));
    }
    Ok(())
}

/// The chat templates of a folder by their names.
fn templates(folder: &hf::Folder, config: Option<&str>) -> Result<Vec<(String, String)>> {
    let plain = |text: String| vec![("default".to_string(), text)];
    if let Some(template) = text(folder, TEMPLATE)? {
        return Ok(plain(template));
    }
    // What is damaged has been refused with the tokenizer.
    let config: Value = config
        .and_then(|c| serde_json::from_str(c).ok())
        .unwrap_or_default();
    let named = |one: &Value| {
        let text = |key: &str| Some(one.get(key)?.as_str()?.to_string());
        Some((text("name")?, text("template")?))
    };
    Ok(match config.get("chat_template") {
        Some(Value::String(template)) => plain(template.clone()),
        Some(Value::Array(all)) => all.iter().filter_map(named).collect(),
        _ => Vec::new(),
    })
}
