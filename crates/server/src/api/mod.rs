//! The APIs: a file per endpoint or group of endpoints.

mod audio;
mod chat;
mod classify;
mod common;
mod completions;
mod embeddings;
mod format;
mod generation;
mod inside;
mod llamacpp;
mod messages;
mod models;
mod native;
mod opaque;
mod openapi;
mod page;
mod responses;
mod router;
mod status;

#[cfg(test)]
mod testing;

pub(crate) use router::router;
