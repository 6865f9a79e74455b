//! Decides whether the last token of a sequence that is cached completely is computed again for its logits;
//! `Engine::assign_slot` finds the prefix.

/// Origin of the last token of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastToken {
    /// A token of the prompt.
    Prompt,
    /// A sampled token. The step that samples the next token computes it.
    Sampled,
}

/// The logits after the last token of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndLogits {
    /// The request does not read them.
    Unread,
    /// The device still has them.
    OnDevice,
    /// Another pass over the last token computes them, or other output that the request reads.
    Overwritten,
}

/// Returns the number of tokens to reuse of a sequence of `len` tokens, of which the first `cached` are in the
/// KV cache. The last token is computed again if the request needs what its pass computes.
pub(super) fn reused(cached: usize, len: usize, last: LastToken, logits: EndLogits) -> usize {
    match (last, logits) {
        _ if cached < len => cached,
        (_, EndLogits::Unread) | (LastToken::Prompt, EndLogits::OnDevice) => len,
        (LastToken::Sampled, EndLogits::OnDevice) | (_, EndLogits::Overwritten) => {
            len.saturating_sub(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_token_is_computed_again_for_its_logits() {
        use EndLogits::{OnDevice, Overwritten, Unread};
        use LastToken::{Prompt, Sampled};
        for (cached, last, logits, expected) in [
            (0, Prompt, Overwritten, 0),
            (7, Prompt, Overwritten, 7),
            (8, Prompt, Unread, 8),
            (8, Prompt, OnDevice, 8),
            (8, Prompt, Overwritten, 7),
            (7, Sampled, OnDevice, 7),
            (8, Sampled, Unread, 8),
            (8, Sampled, OnDevice, 7),
            (8, Sampled, Overwritten, 7),
        ] {
            let found = reused(cached, 8, last, logits);
            assert_eq!(found, expected, "{cached} {last:?} {logits:?}");
        }
        assert_eq!(reused(0, 0, Prompt, Overwritten), 0);
    }
}
