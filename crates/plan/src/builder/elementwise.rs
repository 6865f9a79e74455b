//! Embedding lookups, norms and elementwise operations.

use super::base::Builder;
use super::graph::Node;
use super::operand::{W, X};
use bytemuck::Pod;
use tabla_core::op::functions::Activation;
use tabla_core::op::list::Op;
use tabla_core::op::params;

/// Clamped gated linear unit of gpt-oss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GluClamp {
    /// Factor of the gate in the sigmoid.
    pub alpha: f32,
    /// Maximum of the gate, and of the absolute value of the other factor.
    pub limit: f32,
}

/// Factor that grows with the position: `1 + beta ln(1 + floor(position / length))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionScale {
    /// Growth of the factor.
    pub beta: f32,
    /// Number of positions with the same factor; at least 1.
    pub length: u32,
}

impl Builder<'_> {
    /// Emits `y[t, :] = W[token[t], :]`; returns `[tokens, dim]`.
    pub fn embed(&mut self, w: W) -> X {
        let tokens = self.shape.tokens;
        let y = self.scratch("h", tokens, w.cols);
        let params = params::embed::Params {
            tokens,
            rows: w.rows,
            cols: w.cols,
            first: 0,
        };
        let slots = [w.slot, y.slot, self.state];
        self.emit(Op::Embed, Some(w.dtype), &slots, &params, [w.cols, tokens]);
        y
    }

    /// Emits `y[t, :] += W[stride * position[t] + offset, :]`. The stride is 1 for learned
    /// positions and 0 for a vector that is added to all tokens. Rows out of range add nothing.
    pub fn embed_add(&mut self, w: W, y: X, stride: u32, offset: u32) {
        self.emit_embed_add(w, y, [stride, 0, offset]);
    }

    /// Emits `y[t, :] += W[token_type[t], :]`.
    pub fn embed_add_type(&mut self, w: W, y: X) {
        self.emit_embed_add(w, y, [0, 1, 0]);
    }

    fn emit_embed_add(&mut self, w: W, y: X, [stride, type_stride, offset]: [u32; 3]) {
        let params = params::embed_add::Params {
            tokens: y.tokens,
            rows: w.rows,
            cols: w.cols,
            stride,
            type_stride,
            offset,
            first: 0,
        };
        let slots = [w.slot, y.slot, self.state];
        let work = [w.cols, y.tokens];
        self.emit(Op::EmbedAdd, Some(w.dtype), &slots, &params, work);
    }

    /// Emits an RMS norm of `x` with weight `w`. If `w` is shorter than a row, each of the `cols /
    /// dim` groups (heads) of a row is normalized separately.
    pub fn rms_norm(&mut self, x: X, w: W, eps: f32) -> X {
        let y = self.scratch("n", x.tokens, x.cols);
        let groups = x.cols / w.cols.max(1);
        let params = params::rms_norm::Params {
            tokens: x.tokens,
            groups,
            dim: w.cols,
            eps,
        };
        let slots = [x.slot, w.slot, y.slot, self.state];
        self.emit(Op::RmsNorm, None, &slots, &params, [groups, x.tokens]);
        y
    }

    /// Emits an RMS norm without weight of each group of `dim` elements of `x`.
    pub fn unit_norm(&mut self, x: X, dim: u32, eps: f32) -> X {
        let y = self.scratch("n", x.tokens, x.cols);
        let groups = x.cols / dim.max(1);
        let params = params::unit_norm::Params {
            tokens: x.tokens,
            groups,
            dim,
            eps,
        };
        let slots = [x.slot, y.slot, self.state];
        self.emit(Op::UnitNorm, None, &slots, &params, [groups, x.tokens]);
        y
    }

    /// Emits a layer norm of `x` with weight `w`, without bias.
    pub fn layer_norm(&mut self, x: X, w: W, eps: f32) -> X {
        let y = self.scratch("n", x.tokens, x.cols);
        let params = params::layer_norm::Params {
            tokens: x.tokens,
            dim: x.cols,
            eps,
        };
        let slots = [x.slot, w.slot, y.slot, self.state];
        self.emit(Op::LayerNorm, None, &slots, &params, [1, x.tokens]);
        y
    }

    /// Emits `act(gate) * up`; returns `[tokens, ffn]`.
    pub fn glu(&mut self, act: Activation, gate: X, up: X) -> X {
        self.check_same_shape(gate, up);
        let y = self.scratch("f", gate.tokens, gate.cols);
        let params = params::glu::Params {
            tokens: gate.tokens,
            dim: gate.cols,
            activation: act as u32,
        };
        let slots = [gate.slot, up.slot, y.slot, self.state];
        self.emit(Op::Glu, None, &slots, &params, [gate.cols, gate.tokens]);
        y
    }

    /// Emits `act(gate) * up` for each of `groups` groups of columns, whose first half is the gate;
    /// returns `[tokens, groups ffn]`.
    pub fn glu_halves(&mut self, act: Activation, x: X, groups: u32) -> X {
        let dim = x.cols / groups.saturating_mul(2).max(1);
        if dim == 0 || dim.saturating_mul(groups).checked_mul(2) != Some(x.cols) {
            self.fail(format!(
                "shape mismatch: {} columns do not divide into {groups} groups of two halves",
                x.cols
            ));
        }
        let y = self.scratch("f", x.tokens, x.cols / 2);
        let params = params::glu_halves::Params {
            tokens: x.tokens,
            groups,
            dim,
            activation: act as u32,
        };
        let slots = [x.slot, y.slot, self.state];
        self.emit(Op::GluHalves, None, &slots, &params, [y.cols, y.tokens]);
        y
    }

    /// Emits the gated linear unit of gpt-oss: `g sigmoid(alpha g) (u + 1)` with clamped gate and `up`; returns
    /// `[tokens, ffn]`.
    pub fn glu_clamped(&mut self, clamp: GluClamp, gate: X, up: X) -> X {
        self.check_same_shape(gate, up);
        self.emit_glu_clamped(clamp, [gate, up], 1)
    }

    /// Same as [`Self::glu_clamped`], with gate and `up` in turn in the columns of `x`, `[tokens, 2 ffn]`.
    pub fn glu_clamped_pairs(&mut self, clamp: GluClamp, x: X) -> X {
        if !x.cols.is_multiple_of(2) {
            self.fail(format!(
                "shape mismatch: {} columns do not divide into pairs",
                x.cols
            ));
        }
        self.emit_glu_clamped(clamp, [x, x], 2)
    }

    fn emit_glu_clamped(&mut self, clamp: GluClamp, [gate, up]: [X; 2], stride: u32) -> X {
        let y = self.scratch("f", gate.tokens, gate.cols / stride);
        let params = params::glu_clamped::Params {
            tokens: y.tokens,
            dim: y.cols,
            stride,
            alpha: clamp.alpha,
            limit: clamp.limit,
        };
        let slots = [gate.slot, up.slot, y.slot, self.state];
        self.emit(Op::GluClamped, None, &slots, &params, [y.cols, y.tokens]);
        y
    }

    /// Emits `y = act(y)`.
    pub fn activate(&mut self, act: Activation, y: X) {
        let params = params::activate::Params {
            tokens: y.tokens,
            dim: y.cols,
            activation: act as u32,
        };
        self.emit_in_place(Op::Activate, y, &params);
    }

    /// Emits `y[t, :] *= 1 + beta ln(1 + floor(position[t] / length))`.
    pub fn scale_at(&mut self, y: X, scale: PositionScale) {
        if scale.length == 0 {
            self.fail("length of a scale by position: expected a positive number, got 0".into());
        }
        let params = params::scale_at::Params {
            tokens: y.tokens,
            dim: y.cols,
            beta: scale.beta,
            length: scale.length,
        };
        self.emit_in_place(Op::ScaleAt, y, &params);
    }

    /// Emits `y *= w` for all tokens; a shorter `w` is repeated.
    pub fn mul(&mut self, w: W, y: X) {
        if !y.cols.is_multiple_of(w.cols) {
            self.fail(format!(
                "shape mismatch: row length {} is not a multiple of vector length {}",
                y.cols, w.cols
            ));
        }
        let params = params::mul::Params {
            tokens: y.tokens,
            dim: y.cols,
            len: w.cols,
        };
        let slots = [w.slot, y.slot, self.state];
        self.emit(Op::Mul, None, &slots, &params, [y.cols, y.tokens]);
    }

    /// Emits a copy of columns `offset..offset + dim` of `x`; returns `[tokens, dim]`.
    pub fn columns(&mut self, x: X, offset: u32, dim: u32) -> X {
        self.columns_of_groups(x, 1, [offset, dim])
    }

    /// Emits a copy of `x`. Planning emits the transfers between devices.
    pub fn transfer(&mut self, x: X) -> X {
        let y = self.scratch("t", x.tokens, x.cols);
        let node = Node::transfer([x.slot, y.slot, self.state], [x.tokens, x.cols]);
        self.graph.nodes.push(node);
        y
    }

    /// Emits a copy of columns `offset..offset + dim` of each of the `groups` groups (heads) of `x`; returns
    /// `[tokens, groups dim]`.
    pub fn columns_of_groups(&mut self, x: X, groups: u32, [offset, dim]: [u32; 2]) -> X {
        let width = x.cols / groups.max(1);
        let fits = u64::from(offset) + u64::from(dim) <= u64::from(width);
        if !fits || groups.checked_mul(width) != Some(x.cols) {
            self.fail(format!(
                "columns out of range: {dim} columns at offset {offset}, input has {} in {groups} groups",
                x.cols
            ));
        }
        let cols = groups.saturating_mul(dim);
        let y = self.scratch("c", x.tokens, cols);
        let params = params::columns::Params {
            tokens: x.tokens,
            groups,
            width,
            offset,
            dim,
        };
        let slots = [x.slot, y.slot, self.state];
        self.emit(Op::Columns, None, &slots, &params, [cols, x.tokens]);
        y
    }

    /// Emits the columns `index` of `x`, -inf where the index is negative, in place of the logits of the table. `index`
    /// has an integer for each token of the vocabulary.
    pub fn pick_logits(&mut self, x: X, index: W) {
        let logits = self.logits_slot(index.cols);
        let params = params::pick_columns::Params {
            tokens: x.tokens,
            width: x.cols,
            dim: logits.cols,
        };
        let slots = [x.slot, index.slot, logits.slot, self.state];
        let work = [logits.cols, x.tokens];
        self.emit(Op::PickColumns, None, &slots, &params, work);
    }

    /// Emits `[a, b]` for each of the `groups` groups (heads) of their columns; returns `[tokens, a.cols + b.cols]`.
    pub fn concat_groups(&mut self, groups: u32, [a, b]: [X; 2]) -> X {
        let fits = groups > 0
            && [a.cols, b.cols]
                .iter()
                .all(|cols| cols.is_multiple_of(groups));
        if !fits || a.tokens != b.tokens {
            self.fail(format!(
                "shape mismatch: activations [{}, {}] and [{}, {}] in {groups} groups",
                a.tokens, a.cols, b.tokens, b.cols
            ));
            return a;
        }
        let y = self.scratch("c", a.tokens, a.cols.saturating_add(b.cols));
        let params = params::concat::Params {
            tokens: a.tokens,
            groups,
            a_dim: a.cols / groups,
            b_dim: b.cols / groups,
        };
        let slots = [a.slot, b.slot, y.slot, self.state];
        self.emit(Op::Concat, None, &slots, &params, [y.cols, y.tokens]);
        y
    }

    /// Emits an in-place elementwise operation.
    fn emit_in_place<P: Pod>(&mut self, op: Op, y: X, params: &P) {
        let slots = [y.slot, self.state];
        self.emit(op, None, &slots, params, [y.cols, y.tokens]);
    }

    /// Checks that two activations have the same shape.
    pub(super) fn check_same_shape(&mut self, a: X, b: X) {
        if [a.tokens, a.cols] != [b.tokens, b.cols] {
            self.fail(format!(
                "shape mismatch: activations [{}, {}] and [{}, {}]",
                a.tokens, a.cols, b.tokens, b.cols
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{F32s, shape};

    fn check_rejected(emit: impl Fn(&mut Builder<'_>), words: &str) {
        let shape = shape(2);
        let vector = F32s(|_: &str| [0, 1, 5]);
        let mut b = Builder::new(&vector, shape);
        emit(&mut b);
        let error = b.finish().expect_err(words);
        assert!(error.message().contains(words), "{error}");
    }

    #[test]
    fn activation_numbers_match_their_order() {
        for (number, act) in (0u32..).zip(Activation::ALL) {
            assert_eq!(*act as u32, number);
        }
    }

    #[test]
    fn rejects_shape_mismatches() {
        let words = "[2, 3] and [2, 4]";
        check_rejected(
            |b| {
                let (x, y) = (b.input("x", 3), b.input("y", 4));
                b.add(x, y, 1.0);
            },
            words,
        );
        check_rejected(
            |b| {
                let (x, y) = (b.input("x", 3), b.input("y", 4));
                b.glu(Activation::Silu, x, y);
            },
            words,
        );
        let mul = |b: &mut Builder<'_>| {
            let (w, y) = (b.vector("w", 5), b.input("y", 12));
            b.mul(w, y);
        };
        check_rejected(mul, "row length 12 is not a multiple of vector length 5");
        let columns = |b: &mut Builder<'_>| {
            let x = b.input("x", 12);
            b.columns(x, u32::MAX, 10);
        };
        check_rejected(columns, "input has 12");
        let nowhere = |b: &mut Builder<'_>| {
            let y = b.input("y", 12);
            let (beta, length) = (0.1, 0);
            b.scale_at(y, PositionScale { beta, length });
        };
        check_rejected(nowhere, "expected a positive number, got 0");
    }
}
