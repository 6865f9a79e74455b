//! Hugging Face's `tokenizer.json` and `tokenizer_config.json`, in the format of the `tokenizers`
//! library. Normalizers and pre-tokenizers are in [`pipeline`].

mod file;
mod parse;
mod pipeline;
mod probes;
mod ranked;
mod settings;
#[cfg(test)]
mod tests;
mod translate;

pub(super) use file::{read, read_config};
pub(super) use parse::BoundedVec;
pub(super) use pipeline::STEPS_MAX;
pub(super) use settings::Settings;
pub use translate::{ConvertedVocab, ModelInputs};
