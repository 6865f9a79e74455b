//! What an answer consists of: reasoning, content, and calls of tools, as each family writes them.

mod bodies;
mod forced;
mod formats;
mod parts;
mod stream;

#[cfg(test)]
mod tests;

pub use parts::{Answer, Call, Part};
pub use stream::{AnswerFormat, AnswerStream};
