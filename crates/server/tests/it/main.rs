//! Tests of the server over TCP, with the built-in story model.

mod audio;
mod bodies;
mod chat;
mod classify;
mod client;
mod completions;
mod constraints;
#[path = "../../../../cli/tests/cli/damaged_model.rs"]
mod damaged_model;
mod deadlines;
mod defaults;
mod device_loss;
mod embeddings;
mod errors;
mod failed_allocations;
mod fuzz;
mod limits;
mod llama_server;
mod models;
mod not_finite;
mod page;
mod reasoning;
#[rustfmt::skip] // generated
mod request_names;
mod security;
#[expect(dead_code, reason = "the tests of the program use more of it")]
#[path = "../../../../cli/tests/cli/speech_model.rs"]
mod speech_model;
mod uploads;
