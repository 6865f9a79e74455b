//! Drafting head for multi-token prediction (MTP): a block after the layers, which predicts the token after the next
//! one from the output of the model and the embedding of the next one.
//!
//! Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.2.

use super::config::{Config, Drafting};
use super::drafting_rows;
use super::family::{Arch, HeadBlock};
use super::layer_config::LayerConfig;
use super::parts::{self, Layer};
use crate::error::{Result, bail};
use crate::plan::builder::{Builder, X};

impl Config {
    /// Enables the head of the model.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the model has none.
    pub(crate) fn enable_mtp(&mut self, arch: &Arch) -> Result<()> {
        if arch.mtp.is_none() {
            bail!(
                Unsupported,
                "MTP heads of the architecture {:?} are not supported",
                arch.name
            );
        }
        if self.predict_layers == 0 {
            bail!(
                Unsupported,
                "the model has no MTP head: its files have no block after layer {} (of which GGUF files have the key \
                 {}.nextn_predict_layers)",
                self.layers.saturating_sub(1),
                arch.name
            );
        }
        let mut layers = self.layer_configs.iter().rev();
        let full = layers.find(|layer| layer.mixer.has_attention() && layer.window == 0);
        let Some(full) = full else {
            bail!(
                Unsupported,
                "an MTP head requires a layer with full attention"
            );
        };
        self.drafting = Some(Drafting::Mtp(LayerConfig {
            cache: self.layers,
            // The first position has no previous one.
            skip: 1,
            ..*full
        }));
        self.check_drafting()
    }
}

/// Returns the block after the layers.
fn layer(c: &Config, config: LayerConfig) -> Layer {
    Layer {
        prefix: "",
        index: c.layers,
        config,
    }
}

/// Emits the store of the outputs of the model.
pub(super) fn follow(b: &mut Builder<'_>, c: &Config, h: X) {
    let w = b.vector("output_norm.weight", c.dim);
    let n = b.rms_norm(h, w, c.eps); // [tokens, dim]
    drafting_rows::store_rows(b, c, [n, h]);
}

/// Emits the store of the keys and values of the head.
pub(super) fn keys(b: &mut Builder<'_>, c: &Config, config: LayerConfig, block: HeadBlock) {
    let l = layer(c, config);
    let x = input(b, c, l);
    (block.store)(b, c, l, x);
}

/// Emits the head.
pub(super) fn draft(b: &mut Builder<'_>, c: &Config, config: LayerConfig, block: HeadBlock) {
    let l = layer(c, config);
    let x = input(b, c, l);
    (block.block)(b, c, l, x);
    b.end_of_layer(x);
    let x = b.logit_rows(x);
    let norm = own_or(b, l, "nextn.shared_head_norm", "output_norm");
    let w = b.vector(&format!("{norm}.weight"), c.dim);
    let n = b.rms_norm(x, w, c.eps); // [tokens, dim]
    drafting_rows::store_rows(b, c, [n, x]);
    let head = own_or(b, l, "nextn.shared_head_head", "output");
    parts::logits_of(b, c, &head, n);
}

/// `W [norm embedding, norm output]` of the token and of the output at the previous position, `[tokens, dim]`.
fn input(b: &mut Builder<'_>, c: &Config, l: Layer) -> X {
    let embedding = own_or(b, l, "nextn.embed_tokens", parts::EMBEDDING);
    let e = parts::embed_by(b, c, &embedding);
    let e = l.rms_norm(b, c, "nextn.enorm", e);
    let previous = drafting_rows::previous_row(b, c);
    let previous = l.rms_norm(b, c, "nextn.hnorm", previous);
    let x = b.concat_groups(1, [e, previous]); // [tokens, 2 dim]
    l.project(b, c, "nextn.eh_proj", c.dim, x)
}

/// Returns the name of a weight of the block if the file has it, otherwise of that of the model.
fn own_or(b: &Builder<'_>, l: Layer, own: &str, shared: &str) -> String {
    let own = l.tensor(own);
    match b.has(&format!("{own}.weight")) {
        true => own,
        false => shared.to_string(),
    }
}
