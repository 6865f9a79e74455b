//! The targets, by name. Each takes the input of the fuzzer as a list of decisions ([`choices::Choices`]).

mod audio;
mod choices;
mod compiled;
mod config;
mod control_vector;
mod edits;
mod errors;
mod folder;
mod forged;
mod gbnf;
mod ggml;
mod gguf;
mod gguf_split;
mod grammar_walk;
mod imatrix;
mod json_edits;
mod json_schema;
mod lora;
mod models;
mod naive_schema;
mod safetensors;
mod safetensors_index;
mod saved_session;
mod stream;
mod tables;
mod template;
mod text;
mod tokenizer;
mod tokenizer_json;

/// A name and the function that checks an input.
type Target = (&'static str, fn(&[u8]));

/// Every target.
pub(crate) const TARGETS: [Target; 19] = [
    ("audio", audio::run),
    ("compiled", compiled::run),
    ("config", config::run),
    ("control_vector", control_vector::run),
    ("gbnf", gbnf::run),
    ("ggml", ggml::run),
    ("gguf", gguf::run),
    ("gguf_split", gguf_split::run),
    ("imatrix", imatrix::run),
    ("json_schema", json_schema::run),
    ("lora", lora::run),
    ("safetensors", safetensors::run),
    ("safetensors_index", safetensors_index::run),
    ("saved_session", saved_session::run),
    ("stream", stream::run),
    ("tables", tables::run),
    ("template", template::run),
    ("tokenizer", tokenizer::run),
    ("tokenizer_json", tokenizer_json::run),
];
