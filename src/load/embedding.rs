//! Embedding options of a model's files: pooling, maximum length, prompts.

use super::source::Opened;
use crate::arch::{self, CLASSIFIER};
use crate::error::{Error, Result, bail};
use crate::format::Metadata;
use crate::model::{Classifier, Embedding, Pooling};

/// Reads the embedding options from the metadata.
pub(super) fn read(model: &Opened, classifier: Option<&Classifier>) -> Result<Embedding> {
    let meta = &model.file.metadata;
    let arch = meta.str("general.architecture")?.unwrap_or_default();
    let key = format!("{arch}.pooling_type");
    let pooling = pooling(meta, &key)?;
    if meta.u32(&key)? == Some(RANK) && arch::find(arch)?.encoder && classifier.is_none() {
        bail!(
            Format,
            "{key} is {RANK} (reranking), but the file has no classification head: tensor \
             {CLASSIFIER}.weight is missing"
        );
    }
    let strings = |name: &str| {
        let list = meta.strs(&format!("{arch}.{name}"))?.unwrap_or_default();
        Ok::<Vec<String>, Error>(list.into_iter().map(str::to_string).collect())
    };
    let names = strings("embedding_prompt_names")?;
    let texts = strings("embedding_prompt_texts")?;
    if names.len() != texts.len() {
        bail!(
            Format,
            "{arch}.embedding_prompt_texts: expected {} texts, got {}",
            names.len(),
            texts.len()
        );
    }
    let default_prompt = meta.str(&format!("{arch}.embedding_default_prompt"))?;
    Ok(Embedding {
        pooling,
        normalize: meta.bool(&format!("{arch}.embedding_normalize"))?,
        length: meta.u32(&format!("{arch}.embedding_context_length"))?,
        prompts: names.into_iter().zip(texts).collect(),
        default_prompt: default_prompt.map(str::to_string),
    })
}

/// `pooling_type` of rerankers. Encoders have a classification head; decoders rank by the logits of two tokens.
const RANK: u32 = 4;

/// Reads llama.cpp's `pooling_type`. 5 is Tabla's own number, for max pooling of safetensors.
fn pooling(meta: &Metadata, key: &str) -> Result<Option<Pooling>> {
    Ok(match meta.u32(key)? {
        None | Some(0 | RANK) => None,
        Some(1) => Some(Pooling::Mean),
        Some(2) => Some(Pooling::Cls),
        Some(3) => Some(Pooling::Last),
        Some(5) => Some(Pooling::Max),
        Some(other) => bail!(Format, "{key}: unknown pooling type {other}"),
    })
}
