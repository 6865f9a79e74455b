//! Tests of the server over TCP, with the built-in story model.

mod chat;
mod client;
mod completions;
mod limits;
mod models;
mod security;
