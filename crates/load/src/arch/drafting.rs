//! Drafting heads: small parts of a model that draft its next tokens.
//!
//! The row of a head at a position combines the embedding of its token and what the model computed at the previous
//! position (its output, for [MTP](super::mtp), or features of three layers, for [EAGLE-3](super::eagle3)), so that the
//! KV cache of the head depends on the same tokens as those of the layers. Every table stores what the model computes
//! ([`follow`]), in a KV cache because a sequence may continue at any position. Before a draft,
//! a table computes the keys and values of the head for the positions that have none ([`keys`]): most requests draft at
//! few positions, and a chunk of tokens costs less than as many steps. The draft table computes the head ([`draft`]),
//! which continues with its own rows.

use super::config::{Config, Drafting};
use super::family::Arch;
use super::{eagle3, mtp};
use crate::plan::builder::{Builder, X};

/// Emits the store of what a drafting head reads. `h` is the residual stream after the last layer, `taps` what it was
/// before the layers of [`taps`].
pub(super) fn follow(b: &mut Builder<'_>, c: &Config, h: X, taps: &[X]) {
    if b.ends_with_rows() {
        return;
    }
    match &c.drafting {
        Some(Drafting::Mtp(_)) => mtp::follow(b, c, h),
        Some(Drafting::Eagle3(head)) => eagle3::follow(b, c, head, taps),
        None => {}
    }
}

/// Returns whether a drafting head reads the residual stream before this layer, or after the last one.
pub(super) fn taps(b: &Builder<'_>, c: &Config, layer: u32) -> bool {
    match &c.drafting {
        Some(Drafting::Eagle3(head)) => head.taps.contains(&layer) && !b.ends_with_rows(),
        _ => false,
    }
}

/// Emits the store of the keys and values of the head, for tokens that passed through the model.
pub(crate) fn keys(b: &mut Builder<'_>, c: &Config, arch: &Arch) {
    match (&c.drafting, arch.mtp) {
        (Some(Drafting::Mtp(layer)), Some(block)) => mtp::keys(b, c, *layer, block),
        (Some(Drafting::Eagle3(head)), _) => eagle3::keys(b, c, head),
        _ => unreachable!("only models with a drafting head have a table of its keys"),
    }
}

/// Emits the head: the logits of the next token but one.
pub(crate) fn draft(b: &mut Builder<'_>, c: &Config, arch: &Arch) {
    match (&c.drafting, arch.mtp) {
        (Some(Drafting::Mtp(layer)), Some(block)) => mtp::draft(b, c, *layer, block),
        (Some(Drafting::Eagle3(head)), _) => eagle3::draft(b, c, head),
        _ => unreachable!("only models with a drafting head have a draft table"),
    }
}
