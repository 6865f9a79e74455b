//! Builder: model architectures call its methods in the order of the forward pass to create a
//! [`Graph`].
//!
//! A graph has operations and slots; `plan` selects kernels, grids and buffers later. The same
//! architecture code builds tables for any number of tokens. Methods do not return errors; the
//! builder stores the first error, which [`Builder::finish`] returns.

mod adapters;
mod attention;
mod base;
mod elementwise;
mod ends;
mod experts;
mod graph;
mod hooks;
mod in_place;
mod operand;
mod point_list;
mod points;
mod product;
mod recurrent;
mod shape;
mod speech;
mod streams;
mod ternary;

pub use attention::{Heads, Rope, Scores};
pub use base::Builder;
pub use elementwise::{GluClamp, PositionScale};
pub use ends::LogitMap;
pub use experts::{Router, RouterVectors, Routes};
pub use graph::{Graph, Node};
pub use hooks::{AttentionCapture, EditRows};
pub use operand::{W, X};
pub use point_list::Hooks;
pub use recurrent::{
    Conv, DELTA_KEY_MAX, DeltaHeads, SSM_KEY_MAX, SsmHeads, TAPS_MAX, conv_state_len,
};
pub use shape::{LogitRows, Shape, WeightInfo, Weights};
pub use speech::SpeechTokens;
pub use streams::StreamFactor;
