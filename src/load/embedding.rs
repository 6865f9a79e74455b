//! Embedding options of a model's files: pooling, maximum length, prompts.

use super::hf::RANK;
use super::source::Opened;
use crate::arch::{self, CLASSIFIER};
use crate::error::{Result, bail};
use crate::format::Metadata;
use crate::model::{Classifier, Embedding, Pooling};

/// Reads the embedding options from the metadata and from the files of a safetensors folder.
pub(super) fn read(model: &Opened, classifier: Option<&Classifier>) -> Result<Embedding> {
    let meta = &model.file.metadata;
    let arch = meta.str("general.architecture")?.unwrap_or_default();
    let key = format!("{arch}.pooling_type");
    let pooling = pooling(meta, &key)?;
    let is_reranker = meta.u32(&key)? == Some(RANK);
    if is_reranker && arch::find(arch)?.encoder && classifier.is_none() {
        bail!(
            Format,
            "{key} is {RANK} (reranking), but the file has no classification head: tensor \
             {CLASSIFIER}.weight is missing"
        );
    }
    let (prompts, default_prompt) = match &model.folder {
        Some(folder) => (folder.prompts()?, folder.default_prompt()?),
        None => Default::default(),
    };
    Ok(Embedding {
        pooling,
        normalize: meta.bool(&format!("{arch}.embedding_normalize"))?,
        length: meta.u32(&format!("{arch}.embedding_context_length"))?,
        prompts,
        default_prompt,
        is_reranker,
    })
}

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
