//! Taint.
use super::{ChatTemplate, Conversation};
use crate::error::Result;
use crate::text::Tokenizer;
pub(super) fn encode(_t: &ChatTemplate, _c: &Conversation<'_>, _k: &Tokenizer) -> Result<Vec<u32>> { unimplemented!() }
