//! The APIs: a file per endpoint or group of endpoints.

mod audio;
mod chat;
mod common;
mod completions;
mod embeddings;
mod inside;
mod llamacpp;
mod models;
mod native;
mod page;
mod router;
mod status;

pub(crate) use router::router;
