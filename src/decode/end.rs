//! Final state of a request.

use super::captured::Captured;
use super::grammar_state::GrammarState;
use super::output_request::OutputRequest;
use super::outputs::{DraftStats, Finish};
use super::sequence::Sequence;
use crate::error::Result;
use std::time::Duration;

/// Data that a request returns to its session.
#[derive(Debug)]
pub(super) struct End {
    pub(super) sequence: Sequence,
    pub(super) captured: Option<Captured>,
    pub(super) output: OutputRequest,
    pub(super) submitting: Duration,
    pub(super) draft: DraftStats,
    pub(super) grammar_state: Option<Box<GrammarState>>,
    /// Number of tokens in the KV cache; a lower bound after an error.
    pub(super) cached: usize,
    /// Number of tokens that were computed.
    pub(super) computed: usize,
    /// `None` if no tokens were requested.
    pub(super) finish: Result<Option<Finish>>,
}
