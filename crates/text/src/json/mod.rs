//! `tokenizer.json` and `tokenizer_config.json` of Hugging Face: the vocabulary and what stands in it.
//!
//! The format is that of the `tokenizers` library. What a text goes through is in [`pipeline`].

mod file;
mod parse;
mod pipeline;
#[cfg(test)]
mod tests;
mod translate;

pub(super) use file::{read, read_config};
