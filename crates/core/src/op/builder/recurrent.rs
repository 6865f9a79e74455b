//! Recurrent layers: causal convolution and the gated delta rule, with a state per sequence.

use super::base::Builder;
use super::operand::{W, X};
use crate::dtype::DType;
use crate::op::list::Op;
use crate::op::pages::LayerPages;
use crate::op::params::{self, STATE_BLOCK};
use crate::op::table::{BufferId, Slot};

/// Maximum number of taps of a convolution.
pub const TAPS_MAX: u32 = 8;

/// Maximum number of elements of a key of the delta rule.
pub const DELTA_KEY_MAX: u32 = 128;

/// Heads of a layer with the gated delta rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaHeads {
    /// Number of key and query heads; divides `heads`.
    pub key_heads: u32,
    /// Number of value heads, each with its own state.
    pub heads: u32,
    /// Number of elements of a key or query.
    pub key_dim: u32,
    /// Number of elements of a value.
    pub value_dim: u32,
    /// Whether value head `h` uses key head `h mod key_heads` rather than `h key_heads / heads`.
    pub interleaved: bool,
}

impl DeltaHeads {
    /// Returns the number of channels of queries, keys and values.
    pub fn channels(&self) -> u32 {
        2 * self.key_heads * self.key_dim + self.heads * self.value_dim
    }

    /// Returns the number of elements of a state: for each value head, the matrix before the current block,
    /// and key, value and gate for each of its positions.
    pub fn state_len(&self) -> u32 {
        let position = self.key_dim + self.value_dim + 1;
        self.heads * (self.key_dim * self.value_dim + STATE_BLOCK * position)
    }
}

/// Returns the number of elements of the state of a convolution: its inputs in the current block and before
/// it.
pub fn conv_state_len(taps: u32, channels: u32) -> u32 {
    (STATE_BLOCK + taps - 1) * channels
}

impl Builder<'_> {
    /// Emits `y[t, c] = silu(sum_j w[j, c] x[t - taps + 1 + j, c])` over the positions of each sequence. `w`
    /// is a vector of `taps` rows of all channels, `layer` selects the state.
    pub fn conv_tail(&mut self, layer: u32, taps: u32, w: W, x: X) -> X {
        if w.cols != taps * x.cols || !(1..=TAPS_MAX).contains(&taps) {
            self.fail(format!(
                "shape mismatch: convolution of {taps} taps (at most {TAPS_MAX}) has {} elements, input has {} columns",
                w.cols, x.cols
            ));
        }
        let y = self.scratch("conv", x.tokens, x.cols);
        let LayerPages { first, ring, pool } = self.shape.pages.of_states();
        let shape = [pool, conv_state_len(taps, x.cols)];
        let buffer = BufferId::ConvState(layer);
        let conv_state = self.buffer_slot(&format!("conv.{layer}"), DType::F32, shape, buffer);
        let params = params::conv_tail::Params {
            tokens: x.tokens,
            channels: x.cols,
            taps,
            stride: self.shape.pages.stride(),
            first,
            ring,
        };
        let slots = [
            x.slot,
            w.slot,
            conv_state,
            self.page_table(),
            y.slot,
            self.state,
        ];
        self.emit((Op::ConvTail, None), &slots, &params, [x.cols, x.tokens]);
        y
    }

    /// Emits the gates of the delta rule: `[tokens, 2 heads]`, first `rate softplus(a + bias)`, then
    /// `sigmoid(b)`.
    pub fn delta_gates(&mut self, [a, b]: [X; 2], rate: W, bias: W) -> X {
        let y = self.scratch("gates", a.tokens, 2 * a.cols);
        let params = params::delta_gates::Params {
            tokens: a.tokens,
            heads: a.cols,
        };
        let slots = [a.slot, b.slot, rate.slot, bias.slot, y.slot, self.state];
        self.emit((Op::DeltaGates, None), &slots, &params, [a.cols, a.tokens]);
        y
    }

    /// Emits the gated delta rule over the positions of each sequence; returns `[tokens, heads value_dim]`.
    /// `x` is `[q | k | v]`, `gates` are those of [`Self::delta_gates`], `layer` selects the state.
    pub fn delta_net(&mut self, layer: u32, at: DeltaHeads, x: X, gates: X) -> X {
        if x.cols != at.channels() || gates.cols != 2 * at.heads || at.key_dim > DELTA_KEY_MAX {
            self.fail(format!(
                "shape mismatch: {at:?} with {} channels and {} gates; keys have at most {DELTA_KEY_MAX} elements",
                x.cols, gates.cols
            ));
        }
        let y = self.scratch("a", x.tokens, at.heads * at.value_dim);
        let LayerPages { first, ring, pool } = self.shape.pages.of_states();
        let shape = [pool, at.state_len()];
        let buffer = BufferId::RecurrentState(layer);
        let memory = self.buffer_slot(&format!("state.{layer}"), DType::F32, shape, buffer);
        let params = params::delta_net::Params {
            tokens: x.tokens,
            key_heads: at.key_heads,
            heads: at.heads,
            key_dim: at.key_dim,
            value_dim: at.value_dim,
            interleaved: u32::from(at.interleaved),
            stride: self.shape.pages.stride(),
            first,
            ring,
        };
        let pages = self.page_table();
        let slots = [x.slot, gates.slot, memory, pages, y.slot, self.state];
        self.emit((Op::DeltaNet, None), &slots, &params, [at.heads, x.tokens]);
        y
    }

    /// Emits an RMS norm of each group of `w.cols` elements of `x`, multiplied by `silu(gate)`.
    pub fn rms_gate(&mut self, x: X, w: W, gate: X, eps: f32) -> X {
        let y = self.scratch("n", x.tokens, x.cols);
        let groups = x.cols / w.cols.max(1);
        let params = params::rms_gate::Params {
            tokens: x.tokens,
            groups,
            dim: w.cols,
            eps,
        };
        let slots = [x.slot, w.slot, gate.slot, y.slot, self.state];
        self.emit((Op::RmsGate, None), &slots, &params, [groups, x.tokens]);
        y
    }

    /// Returns the page table.
    pub(super) fn page_table(&mut self) -> Slot {
        let table = [self.shape.sequences, self.shape.pages.stride()];
        self.buffer_slot("pages", DType::U32, table, BufferId::Pages)
    }
}
