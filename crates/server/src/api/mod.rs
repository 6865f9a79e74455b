//! The APIs: a file per endpoint or group of endpoints.

mod chat;
mod common;
mod models;
mod native;
mod router;

pub(crate) use router::router;
