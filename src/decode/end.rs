//! The end of a request: what its session gets back.

use super::follow::Follow;
use super::outputs::{Finish, Guesses};
use super::sequence::Sequence;
use super::wanted::Wanted;
use crate::error::Result;
use std::time::Duration;

/// What comes back.
#[derive(Debug)]
pub(super) struct End {
    pub(super) sequence: Sequence,
    pub(super) wanted: Wanted,
    pub(super) submitting: Duration,
    pub(super) guesses: Guesses,
    pub(super) follow: Option<Box<Follow>>,
    /// Tokens that the cache held; where it failed, this is what is sure.
    pub(super) fed: usize,
    /// Number of tokens that were computed.
    pub(super) computed: usize,
    /// `None` where there was nothing to pick.
    pub(super) finish: Result<Option<Finish>>,
}
