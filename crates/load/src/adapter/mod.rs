//! LoRA adapters: folders of `peft` and GGUF files of llama.cpp.
//!
//! A module of an adapter changes the product `W x` of a weight to `W x + B (A x)`. Both formats
//! become an [`AdapterWeights`] that fits the weights of a loaded model: names of GGUF, fused modules split,
//! the rows of Q and K in the order of the model, and the scale multiplied into B.

mod base;
mod gguf;
mod merge;
mod pair;
mod peft;
mod peft_config;
#[cfg(test)]
mod tests;

pub use base::AdapterBase;
pub use merge::Merge;

use crate::error::{Result, bail};
use crate::format::{self, Kind};
use crate::model::AdapterWeights;
use std::path::Path;

/// Reads an adapter for a model: a folder of `peft` or its `adapter_model.safetensors`, or a GGUF
/// file.
///
/// # Errors
///
/// `Io` for a file that cannot be read, `Format` for an invalid file, `Argument` for an adapter of
/// another model, `Unsupported` for other adapters than LoRA, for modules outside of the layers and
/// of single experts. The message names the file and the module.
pub fn read(path: &Path, base: &AdapterBase<'_>) -> Result<AdapterWeights> {
    let modules = if path.is_dir() {
        peft::read(path, base)
    } else {
        match format::detect(path)? {
            Kind::Gguf => gguf::read(path, base),
            Kind::Safetensors => peft::read(path.parent().unwrap_or(Path::new("")), base),
            Kind::Ggml | _ => bail!(
                Unsupported,
                "{}: expected an adapter in a GGUF file or a folder of peft",
                path.display()
            ),
        }
    }?;
    if modules.is_empty() {
        bail!(Format, "{}: the adapter has no modules", path.display());
    }
    let name = if path.is_dir() {
        path.file_name()
    } else {
        path.file_stem()
    };
    Ok(AdapterWeights {
        name: name.unwrap_or_default().to_string_lossy().into_owned(),
        modules,
    })
}
