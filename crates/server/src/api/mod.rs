//! The APIs: a file per endpoint or group of endpoints.

mod audio;
mod chat;
mod common;
mod completions;
mod embeddings;
mod models;
mod native;
mod router;
mod status;

pub(crate) use router::router;
