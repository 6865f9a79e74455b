//! Writes the tokenizer and the chat template of a folder as GGUF keys.

use super::mix::EMBEDDING;
use super::source_tensor::SourceTensor;
use crate::error::{Result, bail};
use crate::format::write::Writer;
use crate::load::source::Opened;
use crate::load::{chat, hf};
use crate::text::{ChatTemplates, Vocab};

/// Tokenizer files of a Hugging Face folder.
pub(super) const TOKENIZER: &str = "tokenizer.json";
pub(super) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// Chat template file.
pub(super) const TEMPLATE: &str = "chat_template.jinja";

/// Maximum size in bytes of a tokenizer file. Gemma 3's has 33 MB.
const BYTES_MAX: u64 = 128 << 20;

/// GGUF type of unused tokens.
const UNUSED: u32 = 5;

/// Writes the tokenizer and chat template keys of a folder. Adds a note if there is no
/// `tokenizer.json`.
pub(super) fn write(
    model: &Opened,
    tensors: &[SourceTensor<'_>],
    writer: &mut Writer<'_>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let Some(folder) = &model.folder else {
        return Ok(());
    };
    let config = text(folder, TOKENIZER_CONFIG)?;
    if let Some(tokenizer) = text(folder, TOKENIZER)? {
        let eos_tokens = folder.eos_tokens()?;
        let embedding = tensors.iter().find(|t| t.name == EMBEDDING);
        let rows = embedding.map_or(0, |t| t.matrix.rows);
        Vocab::from_json(&tokenizer, config.as_deref(), |vocab| {
            let eos = vocab.eos.or(eos_tokens.first().copied());
            // Further end tokens become end of turn and end of message.
            let mut others = eos_tokens.iter().copied().filter(|id| Some(*id) != eos);
            let (eot, eom) = (others.next(), others.next());
            write_vocab(
                &Vocab {
                    eos,
                    eot,
                    eom,
                    ..vocab.clone()
                },
                rows,
                writer,
            )
        })?;
    } else {
        notes.push(format!("no tokenizer: the folder has no {TOKENIZER}"));
    }
    for (name, template) in chat::read(model)?.iter() {
        match name {
            ChatTemplates::DEFAULT => writer.set(chat::KEY, template),
            name => writer.set(&format!("{}.{name}", chat::KEY), template),
        };
    }
    Ok(())
}

/// Reads a text file of the folder.
pub(super) fn text(folder: &hf::Folder, name: &str) -> Result<Option<String>> {
    folder.text(name, BYTES_MAX)
}

/// Writes the keys of a vocabulary, padded with unused tokens to the rows of the embedding.
fn write_vocab(vocab: &Vocab<'_>, rows: usize, writer: &mut Writer<'_>) -> Result<()> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let count = vocab.tokens.len();
    if count > rows {
        bail!(
            Format,
            "the tokenizer has {count} tokens, but the embedding has {rows} rows"
        );
    }
    let mut tokens: Vec<String> = vocab.tokens.iter().map(ToString::to_string).collect();
    tokens.extend((count..rows).map(|id| format!("[PAD{id}]")));
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
        ("eot_token_id", vocab.eot),
        ("eom_token_id", vocab.eom),
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
