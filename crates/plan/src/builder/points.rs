//! Points of the forward pass, at which hooks store and change values.

use super::attention::{Heads, Scores};
use super::base::Builder;
use super::experts::Routes;
use super::hooks::{AttentionCapture, EditRows};
use super::operand::{W, X};
use super::point_list::Hooks;
use tabla_core::error::Result;
use tabla_core::op::hooks::{CaptureLayout, Edit, EditAction, matches};

impl<'a> Builder<'a> {
    /// Stores and changes values at points.
    #[must_use]
    pub fn hooked(mut self, hooks: Hooks<'a>) -> Self {
        self.hooks = Some(hooks);
        self
    }

    /// Returns the layout of the values that the hooks store.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::finish`], and `Argument` for a pattern that matches no point.
    pub fn finish_layout(mut self) -> Result<CaptureLayout> {
        let layers = self.graph.layers.len();
        let points = std::mem::take(&mut self.points);
        let spec = self.hooks.map(|hooks| hooks.spec);
        self.finish()?;
        if let Some(spec) = spec {
            let edited = spec.edits.iter().map(|edit| &edit.point);
            for pattern in spec.capture.iter().chain(edited) {
                points.check(pattern, layers)?;
            }
        }
        Ok(points.captured)
    }

    /// Declares a point and returns whether hooks store or change it, for values that tables without hooks
    /// do not compute separately.
    pub fn is_hooked(&mut self, name: &str) -> bool {
        let Some(Hooks { spec, .. }) = self.declare(name) else {
            return false;
        };
        let edited = spec.edits.iter().map(|edit| &edit.point);
        let mut patterns = spec.capture.iter().chain(edited);
        patterns.any(|pattern| matches(pattern, name))
    }

    /// Declares that `x`, `[tokens, cols]`, is the value of a point. Emits its changes and its copy if
    /// there are hooks, and nothing otherwise.
    pub fn point(&mut self, name: &str, x: X) {
        let Some(hooks) = self.declare(name) else {
            return;
        };
        for (index, edit) in (hooks.first_constant..).zip(&hooks.spec.edits) {
            if matches(&edit.point, name) {
                self.emit_edit(name, index, edit, x);
            }
        }
        if let Some(to) = self.capture_columns(name, x.cols) {
            self.capture(x, hooks.id, to);
        }
    }

    /// Declares the selected experts of a token as a point, as numbers.
    pub fn routes_point(&mut self, name: &str, routes: Routes) {
        let Some(hooks) = self.declare_unchangeable(name) else {
            return;
        };
        if let Some(to) = self.capture_columns(name, routes.ids.cols) {
            self.capture_ids(routes, hooks.id, to);
        }
    }

    /// Declares the attention weights of `q`, `[tokens, heads positions]`, as a point: after softmax,
    /// 0 for positions that are not seen.
    pub fn attention_point(&mut self, name: &str, at: Heads, q: X, scores: Scores) {
        if let Some(to) = self.attention_capture(name, at.heads) {
            self.attention_weights(at, q, scores, to);
        }
    }

    /// Declares the weights of bidirectional attention as a point, as [`Self::attention_point`].
    pub fn self_attention_point(
        &mut self,
        name: &str,
        [heads, kv_heads, head_dim]: [u32; 3],
        [q, k]: [X; 2],
        scale: f32,
        reach: u32,
    ) {
        if let Some(to) = self.attention_capture(name, heads) {
            let heads = [heads, kv_heads, head_dim];
            self.self_attention_weights(heads, [q, k], scale, reach, to);
        }
    }

    /// Declares the weights of these heads as a point, and returns the place in which they are stored, if they are.
    fn attention_capture(&mut self, name: &str, heads: u32) -> Option<AttentionCapture> {
        let hooks = self.declare_unchangeable(name)?;
        let positions = match hooks.spec.attention_positions {
            0 => self.shape.context,
            positions => positions.min(self.shape.context),
        };
        let [offset, width] = self.capture_columns(name, heads.saturating_mul(positions))?;
        Some(AttentionCapture {
            hooks: hooks.id,
            positions,
            offset,
            width,
        })
    }

    /// Records a point and returns the hooks, if there are any. Tables differ in their rows after the
    /// last layer, so there are no points.
    fn declare(&mut self, name: &str) -> Option<Hooks<'a>> {
        let hooks = self.hooks.filter(|_| self.graph.head == 0)?;
        self.points.names.push(name.to_string());
        Some(hooks)
    }

    /// Same as [`Self::declare`], for a point that only exists as a copy.
    fn declare_unchangeable(&mut self, name: &str) -> Option<Hooks<'a>> {
        let hooks = self.declare(name)?;
        let mut edits = hooks.spec.edits.iter();
        if let Some(edit) = edits.find(|edit| matches(&edit.point, name)) {
            self.fail_argument(format!(
                "edit of {}: {name} can only be captured",
                edit.point
            ));
        }
        Some(hooks)
    }

    /// Returns the first column and the width of the row in which a point is stored, if it is.
    fn capture_columns(&mut self, name: &str, cols: u32) -> Option<[u32; 2]> {
        let hooks = self.hooks?;
        let mut patterns = hooks.spec.capture.iter();
        if !patterns.any(|pattern| matches(pattern, name)) {
            return None;
        }
        match hooks.layout {
            Some(layout) => {
                let point = layout.find(name)?;
                Some([point.offset, layout.width])
            }
            None => {
                let pushed = self.points.captured.push(name, cols);
                self.note_error(pushed);
                None
            }
        }
    }

    /// Emits a change of a point.
    fn emit_edit(&mut self, name: &str, constant: u32, edit: &Edit, x: X) {
        let columns = edit.columns.clone().unwrap_or(0..x.cols);
        if columns.end > x.cols {
            return self.fail_argument(format!(
                "edit of {name}: columns {columns:?} are out of range, the point has {}",
                x.cols
            ));
        }
        let rows = EditRows {
            column: columns.start,
            count: columns.end - columns.start,
            first: edit.positions.start,
            end: edit.positions.end,
        };
        let count = rows.count;
        let mut check = |len: usize, is_set: bool| {
            let vectors = len / count as usize;
            let positions = edit.positions.len();
            let whole = len.is_multiple_of(count as usize);
            if !whole || vectors != 1 && !(is_set && vectors == positions) {
                let of_positions = match is_set && edit.positions.end < u32::MAX {
                    true => format!(", or one for each of {positions} positions"),
                    false => String::new(),
                };
                self.fail_argument(format!(
                    "edit of {name}: expected a vector of {count} numbers{of_positions}, got {len} numbers"
                ));
                return None;
            }
            u32::try_from(vectors).ok()
        };
        match &edit.action {
            EditAction::Set(values) => {
                let Some(vectors) = check(values.len(), true) else {
                    return;
                };
                let v = self.constant(constant, [vectors, count]);
                self.edit(v, x, rows, u32::from(vectors > 1), 0.0, 1.0);
            }
            EditAction::Add { vector, scale } => {
                if check(vector.len(), false).is_some() {
                    let v = self.constant(constant, [1, count]);
                    self.edit(v, x, rows, 0, 1.0, *scale);
                }
            }
            EditAction::Scale(factor) => {
                // The vector is not read.
                let v = W {
                    cols: count,
                    ..self.constant(constant, [1, 1])
                };
                self.edit(v, x, rows, 0, *factor, 0.0);
            }
            EditAction::ProjectOut { vector, strength } => {
                if check(vector.len(), false).is_some() {
                    let v = self.constant(constant, [1, count]);
                    self.project_out(v, x, rows, *strength);
                }
            }
        }
    }
}
