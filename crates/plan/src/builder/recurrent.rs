//! Recurrent layers: causal convolution, the gated delta rule and state-space models, with a state per sequence.

use super::base::Builder;
use super::operand::{W, X};
use tabla_core::dtype::DType;
use tabla_core::op::list::Op;
use tabla_core::op::pages::LayerPages;
use tabla_core::op::params::{self, STATE_BLOCK};
use tabla_core::op::table::{BufferId, Slot};

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

    /// Returns the number of elements of a state.
    pub fn state_len(&self) -> u32 {
        block_state_len(self.heads, self.key_dim, self.value_dim)
    }
}

/// Maximum number of elements of a key of a state-space model.
pub const SSM_KEY_MAX: u32 = 256;

/// Heads of a layer with a state-space model (Mamba-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SsmHeads {
    /// Number of groups of heads that share keys and queries; divides `heads`.
    pub groups: u32,
    /// Number of heads, each with its own state.
    pub heads: u32,
    /// Number of elements of a key or query (`state_size`).
    pub key_dim: u32,
    /// Number of elements of a value (`head_dim`).
    pub value_dim: u32,
}

impl SsmHeads {
    /// Returns the number of elements of all values.
    pub fn width(&self) -> u32 {
        self.heads * self.value_dim
    }

    /// Returns the number of channels of values, keys and queries.
    pub fn channels(&self) -> u32 {
        self.width() + 2 * self.groups * self.key_dim
    }

    /// Returns the number of elements of a state.
    pub fn state_len(&self) -> u32 {
        block_state_len(self.heads, self.key_dim, self.value_dim)
    }
}

/// Returns the number of elements of the states of heads: for each head, the matrix before the current block, and
/// key, value and gate for each of its positions.
fn block_state_len(heads: u32, key_dim: u32, value_dim: u32) -> u32 {
    let position = key_dim + value_dim + 1;
    heads * (key_dim * value_dim + STATE_BLOCK * position)
}

/// Causal convolution.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// Number of taps.
    pub taps: u32,
    /// Weights: a vector of `taps` rows of all channels.
    pub w: W,
    /// Bias, `[channels]`.
    pub bias: Option<W>,
    /// Whether SiLU is applied to the output.
    pub silu: bool,
}

/// Returns the number of elements of the state of a convolution: its inputs in the current block and before
/// it.
pub fn conv_state_len(taps: u32, channels: u32) -> u32 {
    (STATE_BLOCK + taps - 1) * channels
}

impl Builder<'_> {
    /// Emits `y[t, c] = act(bias[c] + sum_j w[j, c] x[t - taps + 1 + j, c])` over the positions of each sequence.
    /// `layer` selects the state.
    pub fn conv_tail(&mut self, layer: u32, conv: Conv, x: X) -> X {
        let Conv {
            taps,
            w,
            bias,
            silu,
        } = conv;
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
            silu: u32::from(silu),
            biased: u32::from(bias.is_some()),
            stride: self.shape.pages.stride(),
            first,
            ring,
        };
        let slots = [
            x.slot,
            w.slot,
            conv_state,
            self.page_table(),
            // An absent bias is not read; any f32 slot is bound.
            bias.map_or(w.slot, |b| b.slot),
            y.slot,
            self.state,
        ];
        self.emit(Op::ConvTail, None, &slots, &params, [x.cols, x.tokens]);
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
        self.emit(Op::DeltaGates, None, &slots, &params, [a.cols, a.tokens]);
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
        self.emit(Op::DeltaNet, None, &slots, &params, [at.heads, x.tokens]);
        y
    }

    /// Emits the gates of a state-space model: `[tokens, 2 heads]`, first `rate dt`, then `dt`, which is
    /// `softplus(x + bias)` limited to the range from `low` to `high`.
    pub fn ssm_gates(&mut self, x: X, [rate, bias]: [W; 2], [low, high]: [f32; 2]) -> X {
        let y = self.scratch("gates", x.tokens, 2 * x.cols);
        let params = params::ssm_gates::Params {
            tokens: x.tokens,
            heads: x.cols,
            low,
            high,
        };
        let slots = [x.slot, rate.slot, bias.slot, y.slot, self.state];
        self.emit(Op::SsmGates, None, &slots, &params, [x.cols, x.tokens]);
        y
    }

    /// Emits the state-space model over the positions of each sequence; returns `[tokens, heads value_dim]`.
    /// `x` is `[values | keys | queries]`, `gates` are those of [`Self::ssm_gates`], `d` are factors of the values
    /// that are added, `layer` selects the state.
    pub fn ssm_scan(&mut self, layer: u32, at: SsmHeads, x: X, gates: X, d: W) -> X {
        if x.cols != at.channels() || gates.cols != 2 * at.heads || at.key_dim > SSM_KEY_MAX {
            self.fail(format!(
                "shape mismatch: {at:?} with {} channels and {} gates; keys have at most {SSM_KEY_MAX} elements",
                x.cols, gates.cols
            ));
        }
        let y = self.scratch("a", x.tokens, at.width());
        let LayerPages { first, ring, pool } = self.shape.pages.of_states();
        let shape = [pool, at.state_len()];
        let buffer = BufferId::RecurrentState(layer);
        let memory = self.buffer_slot(&format!("state.{layer}"), DType::F32, shape, buffer);
        let params = params::ssm_scan::Params {
            tokens: x.tokens,
            groups: at.groups,
            heads: at.heads,
            key_dim: at.key_dim,
            value_dim: at.value_dim,
            stride: self.shape.pages.stride(),
            first,
            ring,
        };
        let pages = self.page_table();
        let slots = [
            x.slot, gates.slot, memory, pages, d.slot, y.slot, self.state,
        ];
        self.emit(Op::SsmScan, None, &slots, &params, [at.heads, x.tokens]);
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
        self.emit(Op::RmsGate, None, &slots, &params, [groups, x.tokens]);
        y
    }

    /// Returns the page table.
    pub(super) fn page_table(&mut self) -> Slot {
        let table = [self.shape.sequences, self.shape.pages.stride()];
        self.buffer_slot("pages", DType::U32, table, BufferId::Pages)
    }
}
