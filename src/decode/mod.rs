//! Decoding: a session drives the tables of a model from prompt to text, and from texts to
//! embeddings.

mod embed;
mod generate;
mod prefill;
mod sampling;
mod session;

pub use embed::Embed;
pub use generate::{Finish, Flow, Generate, Overflow, Piece, Stats};
pub use sampling::Sampling;
pub use session::{Cancel, Session};
