//! The C ABI. `cargo xtask bless` generates `include/tabla.h` from these files.
//!
//! Every exported function runs inside a guard: it checks for a fork, and turns errors and panics
//! into a status and a thread-local message. `docs/ABI.md` describes the contract.

#![expect(unreachable_pub, reason = "symbols exported to C")]

mod adapter;
mod answer;
mod answer_piece;
mod batch;
mod chat;
mod chat_options;
mod classify;
mod embed;
mod exclusive;
mod facts;
mod generate;
mod grammar;
mod guard;
mod handles;
mod hooks;
mod load;
mod log;
mod logit_bias;
#[rustfmt::skip] // generated
mod options;
mod parser;
mod pointers;
mod progress;
mod recording;
mod score;
mod segment;
mod sequence;
mod session;
#[cfg(all(test, feature = "gpu"))]
mod tests;
mod text;
mod transcribe_options;
mod transcription;

/// Allocations that fail become errors of the calls that need too much memory.
#[cfg(feature = "reserve")]
#[global_allocator]
static ALLOCATOR: tabla::reserve::Reserve = tabla::reserve::Reserve::new(std::alloc::System);
