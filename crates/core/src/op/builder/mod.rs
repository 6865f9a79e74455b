//! The builder: recipes call its methods line by line, and a draft of a table comes out.
//!
//! A draft names operations and slots; which kernel runs an operation, how wide, and where a
//! slot lives is decided later, in `plan`. One recipe serves every shape: `tokens` is the
//! builder's, not the recipe's. The first thing that does not fit is kept as the draft's error,
//! so that a recipe reads as a forward pass.

mod attention;
mod base;
mod draft;
mod elementwise;
mod ends;
mod experts;
mod operand;
mod product;
mod shape;
mod ternary;

pub use attention::{Heads, Rope};
pub use base::Builder;
pub use draft::{Draft, Node};
pub use elementwise::Activation;
pub use ends::LogitMap;
pub use experts::Routes;
pub use operand::{W, X};
pub use shape::{FEW_TOKENS, LogitRows, Shape, WeightInfo, Weights};
