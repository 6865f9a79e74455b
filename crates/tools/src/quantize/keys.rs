//! Writes the tokenizer and the chat template of a folder as GGUF keys.

use super::mix::EMBEDDING;
use super::source_tensor::SourceTensor;
use crate::arch;
use crate::error::{Result, bail};
use crate::format::write::Writer;
use crate::load::source::Opened;
use crate::load::{chat, hf, tokenizer};
use crate::text::{ChatTemplates, ModelInputs, Tokenizer, Vocab};
use std::collections::HashSet;

/// Tokenizer files of a Hugging Face folder.
pub(super) const TOKENIZER: &str = "tokenizer.json";
pub(super) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// Chat template file.
pub(super) const TEMPLATE: &str = "chat_template.jinja";

/// Maximum size in bytes of a tokenizer file. Gemma 3's has 33 MB.
const BYTES_MAX: u64 = 128 << 20;

/// Embeddings of the token types (segments).
const TOKEN_TYPES: &str = "token_types.weight";

/// GGUF type of unused tokens.
const UNUSED: u32 = 5;

/// Facts of the model that the keys of its tokenizer depend on.
struct Inputs {
    /// Number of rows of the embedding.
    rows: usize,
    model: ModelInputs,
}

impl Inputs {
    fn of(model: &Opened, tensors: &[SourceTensor<'_>]) -> Result<Self> {
        let rows = |name: &str| {
            let tensor = tensors.iter().find(|tensor| tensor.name == name);
            tensor.map(|tensor| tensor.matrix.rows)
        };
        let name = model.file.metadata.str("general.architecture")?;
        let types = rows(TOKEN_TYPES).and_then(|rows| u32::try_from(rows).ok());
        Ok(Self {
            rows: rows(EMBEDDING).unwrap_or(0),
            model: ModelInputs {
                token_type_count: types,
                is_encoder: arch::find(name.unwrap_or_default())?.encoder,
            },
        })
    }
}

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
    if let Some(tokenizer) = text(folder, TOKENIZER)? {
        write_tokenizer(
            folder,
            &tokenizer,
            &Inputs::of(model, tensors)?,
            writer,
            notes,
        )?;
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

/// Converts a `tokenizer.json` and writes its keys.
fn write_tokenizer(
    folder: &hf::Folder,
    tokenizer: &str,
    inputs: &Inputs,
    writer: &mut Writer<'_>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let config = text(folder, TOKENIZER_CONFIG)?;
    let eos_tokens = folder.eos_tokens()?;
    Vocab::from_json(tokenizer, config.as_deref(), inputs.model, |converted| {
        let vocab = &converted.vocab;
        notes.extend(converted.note.clone());
        let eos = vocab.eos.or(eos_tokens.first().copied());
        // Further end tokens become end of turn and end of message.
        let mut others: Vec<u32> = vocab.eot.into_iter().chain(eos_tokens).collect();
        others.retain(|id| Some(*id) != eos);
        let mut seen = HashSet::new();
        others.retain(|id| seen.insert(*id));
        let vocab = Vocab {
            eos,
            eot: others.first().copied(),
            eom: others.get(1).copied(),
            ..vocab.clone()
        };
        if let Some(rest) = others.get(2..).filter(|rest| !rest.is_empty()) {
            // Many end tokens are detected by their texts.
            let known = Tokenizer::new(&vocab)?;
            let missing: Vec<_> = rest.iter().filter(|id| !known.is_stop(**id)).collect();
            if !missing.is_empty() {
                notes.push(format!(
                    "GGUF has keys for three end tokens; these do not end a text: {missing:?}"
                ));
            }
        }
        write_vocab(&vocab, inputs.rows, writer)
    })
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
        // The worst score of Unigram is part of the score of unknown characters.
        let worst = scores.iter().copied().fold(0.0, f32::min);
        scores.resize(rows, worst);
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
        // GGUF spells the key this way.
        ("seperator_token_id", vocab.sep),
        ("padding_token_id", vocab.pad),
        ("mask_token_id", vocab.mask),
        ("token_type_count", vocab.token_type_count),
    ];
    for (name, id) in ids {
        id.map(|id| writer.set(&key(name), id));
    }
    let flags = [
        ("add_bos_token", vocab.add_bos),
        ("add_eos_token", vocab.add_eos),
        ("add_sep_token", vocab.add_sep),
        ("add_space_prefix", vocab.add_space_prefix),
        ("remove_extra_whitespaces", vocab.remove_extra_whitespaces),
        ("normalizer.lowercase", vocab.lowercase),
        ("normalizer.strip_accents", vocab.strip_accents),
    ];
    for (name, flag) in flags {
        flag.map(|flag| writer.set(&key(name), flag));
    }
    if !vocab.precompiled_charsmap.is_empty() {
        writer.list(&key("precompiled_charsmap"), &vocab.precompiled_charsmap);
    }
    if let Some(settings) = vocab.settings {
        writer.set(tokenizer::SETTINGS, settings);
    }
    Ok(())
}
