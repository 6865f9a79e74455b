//! Operations of hooks, which capture and change values of a pass, and of adapters.

use super::attention::{Heads, Scores};
use super::base::Builder;
use super::experts::Routes;
use super::operand::{W, X};
use tabla_core::dtype::DType;
use tabla_core::op::list::Op;
use tabla_core::op::params;
use tabla_core::op::table::{BufferId, Slot};

/// Elements of activations to change: columns, and the positions of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EditRows {
    /// First column.
    pub column: u32,
    /// Number of columns.
    pub count: u32,
    /// First position.
    pub first: u32,
    /// End of the positions.
    pub end: u32,
}

/// Place of captured attention weights, `[heads, positions]` per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionCapture {
    /// Hooks that capture them.
    pub hooks: u32,
    /// Number of positions.
    pub positions: u32,
    /// First column.
    pub offset: u32,
    /// Number of columns of a row.
    pub width: u32,
}

impl Builder<'_> {
    /// Returns the f32 constant with this index, `[rows, cols]`.
    pub fn constant(&mut self, index: u32, [rows, cols]: [u32; 2]) -> W {
        let name = format!("constant.{index}");
        let buffer = BufferId::Constant(index);
        W {
            slot: self.buffer_slot(&name, DType::F32, [rows, cols], buffer),
            dtype: DType::F32,
            rows,
            cols,
            scale: None,
        }
    }

    /// Emits the store of `x` in [`BufferId::Captured`] of these hooks, `[tokens, width]`, from
    /// column `offset` on. If `x` has fewer rows than the table, the first rows are stored.
    pub fn capture(&mut self, x: X, hooks: u32, [offset, width]: [u32; 2]) {
        let y = self.captured(hooks, x.cols, [offset, width]);
        let params = params::capture::Params {
            tokens: x.tokens,
            dim: x.cols,
            width,
            offset,
        };
        let slots = [x.slot, y, self.state];
        self.emit(Op::Capture, None, &slots, &params, [x.cols, x.tokens]);
    }

    /// Emits the store of the ids of the selected experts, as numbers, like [`Self::capture`].
    pub fn capture_ids(&mut self, routes: Routes, hooks: u32, [offset, width]: [u32; 2]) {
        let ids = routes.ids;
        let y = self.captured(hooks, ids.cols, [offset, width]);
        let params = params::capture_ids::Params {
            tokens: ids.tokens,
            dim: ids.cols,
            width,
            offset,
        };
        let slots = [ids.slot, y, self.state];
        let work = [ids.cols, ids.tokens];
        self.emit(Op::CaptureIds, None, &slots, &params, work);
    }

    /// Emits `y = keep y + gain v` for the elements `at`. Row `stride i` of the constant `v`, `[rows,
    /// count]`, is for position `first + i`: with a stride of 0 all positions have row 0. Positions
    /// without a row are unchanged. If `keep` or `gain` is 0, its factor is not read.
    pub fn edit(&mut self, v: W, y: X, at: EditRows, stride: u32, keep: f32, gain: f32) {
        self.check_edit(v, y, at);
        let params = params::edit::Params {
            tokens: y.tokens,
            width: y.cols,
            column: at.column,
            count: at.count,
            rows: v.rows,
            first: at.first,
            end: at.end,
            stride,
            keep,
            gain,
        };
        let slots = [v.slot, y.slot, self.state];
        self.emit(Op::Edit, None, &slots, &params, [at.count, y.tokens]);
    }

    /// Emits the subtraction of `strength` times the projection on the unit vector `v`, `[1, count]`,
    /// from the elements `at` of each row of `y`.
    pub fn project_out(&mut self, v: W, y: X, at: EditRows, strength: f32) {
        self.check_edit(v, y, at);
        let params = params::project_out::Params {
            tokens: y.tokens,
            width: y.cols,
            column: at.column,
            count: at.count,
            first: at.first,
            end: at.end,
            strength,
        };
        let slots = [v.slot, y.slot, self.state];
        self.emit(Op::ProjectOut, None, &slots, &params, [1, y.tokens]);
    }

    /// Emits the store of the weights of attention of `q` to the first positions, like
    /// [`Self::capture`]. The other arguments are those of [`Self::attention`].
    pub fn attention_weights(&mut self, at: Heads, q: X, scores: Scores, to: AttentionCapture) {
        let y = self.captured_weights(at.heads, to);
        let ([keys, _], pages) = self.cache(at);
        let pages_of_layer = self.shape.pages.of(at.window);
        let params = params::attention_weights::Params {
            tokens: q.tokens,
            heads: at.heads,
            kv_heads: at.kv_heads,
            head_dim: at.head_dim,
            scale: scores.scale,
            softcap: scores.softcap,
            window: self.window(at, 0),
            stride: self.shape.pages.stride(),
            first: pages_of_layer.first,
            ring: pages_of_layer.ring,
            positions: to.positions,
            offset: to.offset,
            width: to.width,
            sinks: u32::from(scores.sinks.is_some()),
        };
        let slots = [q.slot, keys, y, pages, scores.sinks_or(q), self.state];
        let (cache, work) = (Some(self.shape.cache), [at.heads, q.tokens]);
        self.emit(Op::AttentionWeights, cache, &slots, &params, work);
    }

    /// Emits the store of the weights of bidirectional attention to the first positions of each
    /// sequence, like [`Self::capture`]. The other arguments are those of [`Self::self_attention`].
    pub fn self_attention_weights(
        &mut self,
        [heads, kv_heads, head_dim]: [u32; 3],
        [q, k]: [X; 2],
        scale: f32,
        reach: u32,
        to: AttentionCapture,
    ) {
        let y = self.captured_weights(heads, to);
        let params = params::self_attention_weights::Params {
            tokens: q.tokens,
            heads,
            kv_heads,
            head_dim,
            scale,
            reach,
            positions: to.positions,
            offset: to.offset,
            width: to.width,
        };
        let slots = [q.slot, k.slot, y, self.state];
        let work = [heads, q.tokens];
        self.emit(Op::SelfAttentionWeights, None, &slots, &params, work);
    }

    /// Emits `y *= scale`, with the scale of an adapter for the sequence of each row. The scales of
    /// these hooks are in [`BufferId::AdapterScales`], `[sequences, adapters]`.
    pub fn adapter_scale(&mut self, hooks: u32, [adapters, adapter]: [u32; 2], y: X) {
        if adapter >= adapters {
            self.fail(format!(
                "adapter {adapter} is out of range for {adapters} adapters"
            ));
        }
        let buffer = BufferId::AdapterScales(hooks);
        let shape = [self.shape.sequences, adapters];
        let scales = self.buffer_slot("adapter_scales", DType::F32, shape, buffer);
        self.check_width(scales, adapters);
        let params = params::adapter_scale::Params {
            tokens: y.tokens,
            dim: y.cols,
            adapters,
            adapter,
        };
        let slots = [scales, y.slot, self.state];
        self.emit(Op::AdapterScale, None, &slots, &params, [y.cols, y.tokens]);
    }

    /// Returns the buffer of captured values; checks that it has `cols` columns from `offset` on.
    fn captured(&mut self, hooks: u32, cols: u32, [offset, width]: [u32; 2]) -> Slot {
        if u64::from(offset) + u64::from(cols) > u64::from(width) {
            self.fail(format!(
                "columns out of range: {cols} captured columns at offset {offset}, the buffer has {width}"
            ));
        }
        let shape = [self.shape.tokens, width];
        let slot = self.buffer_slot("captured", DType::F32, shape, BufferId::Captured(hooks));
        self.check_width(slot, width);
        slot
    }

    /// Returns the buffer of captured attention weights.
    fn captured_weights(&mut self, heads: u32, to: AttentionCapture) -> Slot {
        let cols = heads.saturating_mul(to.positions);
        self.captured(to.hooks, cols, [to.offset, to.width])
    }

    /// Checks the row length of a slot that an earlier call may have created.
    fn check_width(&mut self, slot: Slot, width: u32) {
        let info = &self.graph.slots[usize::from(slot.0)];
        if info.cols != width {
            let message = format!(
                "shape mismatch: {} has {} columns, expected {width}",
                info.name, info.cols
            );
            self.fail(message);
        }
    }

    /// Checks that `v` has the columns of an edit, that `y` has them too, and that the rows of `y` are
    /// those of the step state.
    fn check_edit(&mut self, v: W, y: X, at: EditRows) {
        if v.dtype != DType::F32 || v.cols != at.count || v.rows == 0 {
            self.fail(format!(
                "edit of {} columns: expected f32 vectors of this length, got {} [{}, {}]",
                at.count, v.dtype, v.rows, v.cols
            ));
        }
        if u64::from(at.column) + u64::from(at.count) > u64::from(y.cols) {
            self.fail(format!(
                "columns out of range: edit of {} columns at {}, activations have {}",
                at.count, at.column, y.cols
            ));
        }
        if y.tokens != self.shape.tokens {
            self.fail(format!(
                "edit of activations with {} rows: positions are known for all {} rows only",
                y.tokens, self.shape.tokens
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{SQUARE, shape};

    fn check_rejected(emit: impl Fn(&mut Builder<'_>), words: &str) {
        let shape = shape(2);
        let mut b = Builder::new(&SQUARE, shape);
        emit(&mut b);
        let error = b.finish().expect_err(words);
        assert!(error.message().contains(words), "{error}");
    }

    fn check_edit_rejected(column: u32, cols: u32, words: &str) {
        let at = EditRows {
            column,
            count: 4,
            first: 0,
            end: 1,
        };
        check_rejected(
            |b| {
                let (v, y) = (b.constant(0, [1, cols]), b.input("y", 6));
                b.edit(v, y, at, 0, 0.0, 1.0);
            },
            words,
        );
        check_rejected(
            |b| {
                let (v, y) = (b.constant(0, [1, cols]), b.input("y", 6));
                b.project_out(v, y, at, 1.0);
            },
            words,
        );
    }

    #[test]
    fn rejects_captures_out_of_range() {
        let capture = |b: &mut Builder<'_>, at| {
            let x = b.input("x", 3);
            b.capture(x, 0, at);
        };
        check_rejected(|b| capture(b, [3, 5]), "3 captured columns at offset 3");
        check_rejected(|b| capture(b, [u32::MAX, 5]), "the buffer has 5");
        check_rejected(
            |b| {
                capture(b, [0, 5]);
                capture(b, [2, 6]);
            },
            "captured has 5 columns, expected 6",
        );
    }

    #[test]
    fn rejects_edits_out_of_range() {
        check_edit_rejected(0, 5, "edit of 4 columns");
        check_edit_rejected(3, 4, "edit of 4 columns at 3, activations have 6");
        check_edit_rejected(u32::MAX, 4, "activations have 6");
        check_rejected(
            |b| {
                let x = b.input("x", 4);
                let (v, y) = (b.constant(0, [1, 4]), b.logit_rows(x));
                let at = EditRows {
                    column: 0,
                    count: 4,
                    first: 0,
                    end: 1,
                };
                b.edit(v, y, at, 0, 0.0, 1.0);
            },
            "edit of activations with 1 rows",
        );
    }

    #[test]
    fn rejects_unknown_adapters() {
        let scale = |b: &mut Builder<'_>, at| {
            let y = b.input("y", 3);
            b.adapter_scale(0, at, y);
        };
        check_rejected(|b| scale(b, [2, 2]), "adapter 2 is out of range for 2");
        check_rejected(
            |b| {
                scale(b, [2, 1]);
                scale(b, [3, 1]);
            },
            "adapter_scales has 2 columns, expected 3",
        );
    }
}
