//! What the files of a model say of its embeddings: pooling, length, prompts.

use super::Opened;
use crate::error::{Result, bail};
use crate::format::Metadata;
use crate::model::{Embedding, Pooling};

/// Reads what the metadata says, and what stands beside safetensors.
pub(super) fn read(model: &Opened) -> Result<Embedding> {
    let meta = &model.file.metadata;
    let arch = meta.str("general.architecture")?.unwrap_or_default();
    let (prompts, default_prompt) = match &model.folder {
        Some(folder) => (folder.prompts()?, folder.default_prompt()?),
        None => Default::default(),
    };
    Ok(Embedding {
        pooling: pooling(meta, &format!("{arch}.pooling_type"))?,
        normalize: meta.bool(&format!("{arch}.embedding_normalize"))?,
        length: meta.u32(&format!("{arch}.embedding_context_length"))?,
        prompts,
        default_prompt,
    })
}

/// The numbers of llama.cpp's `pooling_type`; 5 is ours, for what only safetensors have.
fn pooling(meta: &Metadata, key: &str) -> Result<Option<Pooling>> {
    Ok(match meta.u32(key)? {
        None | Some(0) => None,
        Some(1) => Some(Pooling::Mean),
        Some(2) => Some(Pooling::Cls),
        Some(3) => Some(Pooling::Last),
        Some(5) => Some(Pooling::Max),
        Some(4) => bail!(
            Unsupported,
            "{key}: 4 is a model that ranks pairs of texts and has no embeddings"
        ),
        Some(other) => bail!(Format, "{key}: {other} is no pooling"),
    })
}
