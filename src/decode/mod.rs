//! Decoding: a session drives the tables of a model from prompt to text, and from texts to
//! embeddings; a batch drives several sequences at once.

mod batch;
mod embed;
mod generate;
mod prefill;
mod rows;
mod sampling;
mod session;

pub use batch::Batch;
pub use embed::Embed;
pub use generate::{Finish, Flow, Generate, Overflow, Piece, Stats};
pub use sampling::Sampling;
pub use session::{Cancel, Session};
