//! Pairs of texts in one sequence, as cross-encoders read them.

use serde::{Deserialize, Serialize};

/// Ids that join two texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PairFormat {
    pub(super) before: Vec<u32>,
    pub(super) between: Vec<u32>,
    pub(super) after: Vec<u32>,
    /// Token type of the second text and of the ids after it.
    pub(super) second_type: u32,
}

impl PairFormat {
    /// Returns all ids.
    pub(super) fn ids(&self) -> impl Iterator<Item = &u32> {
        [&self.before, &self.between, &self.after]
            .into_iter()
            .flatten()
    }
}

/// Tokens of a pair of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedPair {
    /// Ids of both texts, with the special tokens before, between and after them.
    pub ids: Vec<u32>,
    /// Token type (segment) of each token: 1 for the second text if the vocabulary distinguishes the
    /// texts, otherwise 0.
    pub types: Vec<u32>,
}
