//! Decoding: sessions that share a model drive its tables from prompt to text, and from texts to
//! embeddings.
//!
//! A session hands its sequence to the model's thread and gets it back, with what was picked. That
//! thread alone has the device: the scheduler says what goes through it next, the engine has it go,
//! and the cache's pages are shared by all.

mod answer;
mod batch;
mod bell;
mod cancel;
mod chain;
mod drafter;
mod embed;
mod end;
mod engine;
mod follow;
mod generate;
mod inbox;
mod kv;
mod mail;
mod model;
mod outputs;
mod picking;
mod request;
mod rerank;
mod rows;
mod sampling;
mod saved;
mod scheduler;
mod score;
mod sequence;
mod session;
mod speculate;
mod steering;
mod sync;
mod wanted;

pub use answer::Answer;
#[doc(hidden)]
pub use answer::AnswerState;
pub use batch::{Batch, BatchEvent, BatchPiece};
pub use cancel::Cancel;
pub use embed::Embed;
pub use generate::{Generate, Overflow};
pub use model::Model;
pub use outputs::{Finish, Flow, Guesses, LogProb, Piece, Stats};
pub use rerank::Rerank;
pub use sampling::Sampling;
pub use session::Session;
pub use speculate::Speculate;
