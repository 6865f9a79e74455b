//! The end of a request: what its session gets back.

use super::grammar_state::GrammarState;
use super::output_request::OutputRequest;
use super::outputs::{DraftStats, Finish};
use super::sequence::Sequence;
use crate::error::Result;
use std::time::Duration;

/// What comes back.
#[derive(Debug)]
pub(super) struct End {
    pub(super) sequence: Sequence,
    pub(super) output: OutputRequest,
    pub(super) submitting: Duration,
    pub(super) draft: DraftStats,
    pub(super) grammar_state: Option<Box<GrammarState>>,
    /// Tokens that the cache held; where it failed, this is what is sure.
    pub(super) cached: usize,
    /// Number of tokens that were computed.
    pub(super) computed: usize,
    /// `None` where there was nothing to pick.
    pub(super) finish: Result<Option<Finish>>,
}
