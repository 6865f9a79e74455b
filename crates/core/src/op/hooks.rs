//! Hooks: values of a forward pass that a table stores for the host or changes, at its points.
//!
//! A point is a value of the forward pass. Its name is that of the tensor that computes it:
//! `blk.3.attn_output` is the output of this projection. The residual stream is `token_embd` before
//! the first layer and `blk.3` after layer 3. Patterns select points: `*` stands for any text without
//! a dot.

use crate::error::{Result, bail};
use std::ops::Range;
use std::str::FromStr;

crate::options! {
    /// Values to store and to change.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct HookSpec {
        /// Patterns of the points whose values are stored.
        pub capture: Vec<String>,
        /// Positions whose values are stored.
        pub positions: CapturePositions,
        /// Number of positions that rows of attention weights have; 0: the context of the model.
        pub attention_positions: u32,
        /// Changes, applied in this order at each point, before its value is stored.
        pub edits: Vec<Edit>,
    }
}

/// Positions whose values are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CapturePositions {
    /// Every token.
    #[default]
    All,
    /// The last token of the sequence.
    Last,
    /// These positions, in ascending order; positions after the end are ignored.
    List(Vec<u32>),
}

/// A change of the value at some points.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// Pattern of the points.
    pub point: String,
    /// What changes.
    pub action: EditAction,
    /// Columns that change, such as those of an attention head; `None`: all.
    pub columns: Option<Range<u32>>,
    /// Positions that change.
    pub positions: Range<u32>,
}

/// What an [`Edit`] does with the row `y` of a token. Vectors have a number for each column of the
/// edit.
#[derive(Clone, Debug, PartialEq)]
pub enum EditAction {
    /// `y = v`; with the rows of several vectors, one for each position of the edit.
    Set(Vec<f32>),
    /// `y += scale v`.
    Add {
        /// The vector `v`.
        vector: Vec<f32>,
        /// The factor.
        scale: f32,
    },
    /// `y *= factor`; 0 removes the value.
    Scale(f32),
    /// `y -= strength (y . u) u`, with the unit vector `u = v / |v|`.
    ProjectOut {
        /// The vector `v`; not zero.
        vector: Vec<f32>,
        /// The factor; 1 removes the direction.
        strength: f32,
    },
}

impl Edit {
    /// Creates an edit of all columns and positions of the points that match a pattern.
    pub fn new(point: impl Into<String>, action: EditAction) -> Self {
        Self {
            point: point.into(),
            action,
            columns: None,
            positions: 0..u32::MAX,
        }
    }

    /// Restricts the edit to these columns.
    #[must_use]
    pub fn columns(mut self, columns: Range<u32>) -> Self {
        self.columns = Some(columns);
        self
    }

    /// Restricts the edit to these positions.
    #[must_use]
    pub fn positions(mut self, positions: Range<u32>) -> Self {
        self.positions = positions;
        self
    }

    /// Returns the vectors of the edit as rows of the table's constant: `u` is normalized.
    ///
    /// # Errors
    ///
    /// `Argument` for an empty or zero vector, a number that is not finite, and an empty range.
    pub fn constant(&self) -> Result<Vec<f32>> {
        let Self {
            point,
            action,
            columns,
            positions,
        } = self;
        if positions.is_empty() || columns.as_ref().is_some_and(Range::is_empty) {
            bail!(
                Argument,
                "edit of {point}: expected a range of positions and columns, got positions {positions:?}, columns {columns:?}"
            );
        }
        let (vector, factor) = match action {
            EditAction::Set(vector) => (&vector[..], 1.0),
            EditAction::Add { vector, scale } => (&vector[..], *scale),
            EditAction::Scale(factor) => (&[0.0][..], *factor),
            EditAction::ProjectOut { vector, strength } => (&vector[..], *strength),
        };
        if vector.is_empty() {
            bail!(Argument, "edit of {point}: the vector is empty");
        }
        if let Some(bad) = vector.iter().chain([&factor]).find(|x| !x.is_finite()) {
            bail!(
                Argument,
                "edit of {point}: expected finite numbers, got {bad}"
            );
        }
        let EditAction::ProjectOut { .. } = action else {
            return Ok(vector.to_vec());
        };
        let squares: f64 = vector.iter().map(|x| f64::from(*x).powi(2)).sum();
        if squares == 0.0 {
            bail!(Argument, "edit of {point}: the direction is zero");
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
        let unit = |x: &f32| (f64::from(*x) / squares.sqrt()) as f32;
        Ok(vector.iter().map(unit).collect())
    }
}

/// A point whose values are stored, as columns of a row per token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedPoint {
    /// Name of the point.
    pub name: String,
    /// First column.
    pub offset: u32,
    /// Number of columns.
    pub cols: u32,
}

/// Columns of the stored points in the row of a token, in the order of the forward pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureLayout {
    /// The points, without gaps.
    pub points: Vec<CapturedPoint>,
    /// Number of columns of a row.
    pub width: u32,
}

impl CaptureLayout {
    /// Adds a point after the others.
    ///
    /// # Errors
    ///
    /// `TooLarge` if a row exceeds `u32::MAX` columns.
    pub fn push(&mut self, name: &str, cols: u32) -> Result<()> {
        let Some(width) = self.width.checked_add(cols) else {
            bail!(TooLarge, "the captured points exceed {} columns", u32::MAX);
        };
        self.points.push(CapturedPoint {
            name: name.to_string(),
            offset: self.width,
            cols,
        });
        self.width = width;
        Ok(())
    }

    /// Returns the stored point with this name.
    pub fn find(&self, name: &str) -> Option<&CapturedPoint> {
        self.points.iter().find(|point| point.name == name)
    }
}

/// Returns the name of a matrix of an adapter: `part` is `a`, `[rank, inputs]`, or `b`, `[outputs,
/// rank]`.
pub fn adapter_matrix(module: &str, part: &str, adapter: u32) -> String {
    format!("{module}.lora_{part}.{adapter}")
}

/// Returns a name with the number of the layer replaced by N.
pub fn kind(point: &str) -> String {
    let replace = |part| match u32::from_str(part) {
        Ok(_) => "N",
        Err(_) => part,
    };
    point.split('.').map(replace).collect::<Vec<_>>().join(".")
}

/// Returns whether a pattern matches a whole name. `*` stands for any text without a dot.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (mut patterns, mut parts) = (pattern.split('.'), name.split('.'));
    loop {
        match (patterns.next(), parts.next()) {
            (None, None) => return true,
            (Some(pattern), Some(part)) if matches_part(pattern, part) => {}
            _ => return false,
        }
    }
}

/// Returns whether a pattern matches a part of a name, which has no dot. Each `*` matches as little
/// as possible, except that the text after the last one must be the end of the part.
fn matches_part(pattern: &str, part: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = part.strip_prefix(first) else {
        return false;
    };
    let Some(last) = pieces.next_back() else {
        return rest.is_empty();
    };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name) in [
            ("blk.3", "blk.3"),
            ("*", "token_embd"),
            ("blk.*", "blk.11"),
            ("blk.*.attn_q", "blk.1.attn_q"),
            ("*.*.attn_*", "blk.1.attn_q_norm"),
            ("blk.*.*_q*", "blk.1.attn_q"),
            ("blk.*.a*n*t", "blk.1.attn_output"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("blk.3", "blk.33"),
            ("blk.*", "blk.3.attn"),
            ("*", "blk.3"),
            ("", "blk.1"),
            ("blk.*.attn_q", "blk.1.attn_q_norm"),
            ("blk.*.ffn_*x", "blk.1.ffn_up"),
            ("blk.*.attn*attn", "blk.1.attn"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn vectors_of_edits_are_checked() {
        let project = |vector: &[f32]| {
            let vector = vector.to_vec();
            let strength = 1.0;
            Edit::new("blk.0", EditAction::ProjectOut { vector, strength })
        };
        assert_eq!(
            project(&[0.0, 3.0, -4.0]).constant().expect("a vector"),
            [0.0, 0.6, -0.8]
        );
        let set = |vector: &[f32]| Edit::new("blk.0", EditAction::Set(vector.to_vec()));
        for (edit, words) in [
            (project(&[0.0; 2]), "the direction is zero"),
            (set(&[]), "the vector is empty"),
            (set(&[1.0, f32::NAN]), "expected finite numbers, got NaN"),
            (
                Edit::new("blk.0", EditAction::Scale(f32::INFINITY)),
                "got inf",
            ),
            (set(&[1.0]).positions(3..3), "got positions 3..3"),
            (set(&[1.0]).columns(2..2), "columns Some(2..2)"),
        ] {
            let error = edit.constant().expect_err(words);
            assert!(error.message().contains(words), "{error}");
        }
    }
}
