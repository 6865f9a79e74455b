//! The pass through all layers of most architectures.

use super::parts::{self, Layer};
use super::{Config, drafting};
use crate::plan::builder::{Builder, X};

/// Emits embedding, layers and logits.
pub(super) fn decoder(
    b: &mut Builder<'_>,
    c: &Config,
    block: fn(&mut Builder<'_>, &Config, Layer, X),
) {
    let h = parts::embed(b, c); // [tokens, dim]
    let taps = layers(b, c, block, h);
    drafting::follow(b, c, h, &taps);
    parts::head(b, c, h);
}

/// Emits all layers on the embeddings `h`. Returns copies of the residual stream for a drafting head.
pub(super) fn layers(
    b: &mut Builder<'_>,
    c: &Config,
    block: fn(&mut Builder<'_>, &Config, Layer, X),
    h: X,
) -> Vec<X> {
    b.point(parts::EMBEDDING, h);
    let mut taps = Vec::new();
    for l in parts::layers(c) {
        if drafting::taps(b, c, l.index) {
            taps.push(b.columns(h, 0, h.cols()));
        }
        block(b, c, l, h);
        b.end_of_layer(h);
    }
    if drafting::taps(b, c, c.layers) {
        taps.push(h);
    }
    taps
}
