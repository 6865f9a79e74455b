//! The C ABI: `include/tabla.h` is written from these files.
//!
//! Every function is one guard: it checks the process, runs, turns errors and panics into a
//! status and a thread-local text. `docs/ABI.md` has the contract.

#![expect(unreachable_pub, reason = "exported to C, by symbol")]

mod chat;
mod embed;
mod guard;
mod handles;
mod model;
mod options;
#[cfg(all(test, feature = "gpu"))]
mod tests;
mod text;
