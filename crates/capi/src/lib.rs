//! The C ABI: `include/tabla.h` is written from these files.
//!
//! Every function is one guard: it checks the process, runs, turns errors and panics into a
//! status and a thread-local text. `docs/ABI.md` has the contract.

#![expect(unreachable_pub, reason = "exported to C, by symbol")]

mod answer;
mod answer_piece;
mod batch;
mod chat;
mod chat_options;
mod embed;
mod facts;
mod generate;
mod grammar;
mod guard;
mod handles;
mod load;
mod log;
mod model;
mod parser;
mod pointers;
mod score;
mod sequence;
mod session;
#[cfg(all(test, feature = "gpu"))]
mod tests;
mod text;
mod turn;
