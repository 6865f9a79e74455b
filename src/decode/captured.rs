//! Values that hooks store for the tokens of a sequence.

use crate::error::{Error, ErrorKind, Result};
use crate::op::hooks::{CaptureLayout, CapturePositions, CapturedPoint};
use std::ops::Range;

/// Captured values of a sequence: a row per captured position, with the columns of every point.
#[derive(Clone, Debug, PartialEq)]
pub struct Captured {
    layout: CaptureLayout,
    wanted: CapturePositions,
    /// Positions of the rows, in ascending order.
    positions: Vec<u32>,
    values: Vec<f32>,
}

impl Captured {
    pub(super) fn new(layout: CaptureLayout, wanted: CapturePositions) -> Self {
        Self {
            layout,
            wanted,
            positions: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Returns the points with their columns, in the order of the forward pass.
    pub fn points(&self) -> &[CapturedPoint] {
        &self.layout.points
    }

    /// Returns the number of columns of a row.
    pub fn width(&self) -> usize {
        self.layout.width as usize
    }

    /// Returns the position of each row, in ascending order.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Returns all rows, `[positions, width]`.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Returns the rows of a point, each with its columns.
    ///
    /// # Errors
    ///
    /// `Argument` if the point is not captured.
    pub fn rows(&self, point: &str) -> Result<impl ExactSizeIterator<Item = &[f32]>> {
        let Some(CapturedPoint { offset, cols, .. }) = self.layout.find(point) else {
            let message = format_args!("point {point:?} is not captured");
            return Err(Error::new(ErrorKind::Argument, message));
        };
        let columns = *offset as usize..(offset + cols) as usize;
        let rows = self.values.chunks_exact(self.width().max(1));
        Ok(rows.map(move |row| &row[columns.clone()]))
    }

    /// Returns the first of `len` positions that must be computed to complete the rows.
    pub(super) fn missing_from(&self, len: usize) -> usize {
        let present = |position: u32| self.positions.binary_search(&position).is_ok();
        match &self.wanted {
            CapturePositions::All => self.positions.len().min(len),
            CapturePositions::Last => match self.positions.last() {
                Some(last) if *last as usize + 1 == len => len,
                _ => len.saturating_sub(1),
            },
            CapturePositions::List(list) => {
                let mut list = list.iter().copied();
                let missing = list.find(|p| (*p as usize) < len && !present(*p));
                missing.map_or(len, |p| p as usize)
            }
        }
    }

    /// Removes the rows of positions from `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        let rows = self.positions.partition_point(|p| (*p as usize) < len);
        self.positions.truncate(rows);
        self.values.truncate(rows * self.width());
    }

    /// Returns whether the row of a position is stored; `last` is the last position of the sequence.
    fn is_wanted(&self, position: usize, last: usize) -> bool {
        match &self.wanted {
            CapturePositions::All => true,
            CapturePositions::Last => position == last,
            CapturePositions::List(list) => {
                let position = u32::try_from(position);
                position.is_ok_and(|position| list.binary_search(&position).is_ok())
            }
        }
    }

    /// Stores the rows of a pass over `run`; `last` is the last position of the sequence. `read` copies
    /// the rows of a range of the tokens of the pass.
    ///
    /// # Errors
    ///
    /// `Memory`, and those of `read`.
    pub(super) fn store(
        &mut self,
        run: &Range<usize>,
        last: usize,
        mut read: impl FnMut(Range<usize>, &mut [f32]) -> Result<()>,
    ) -> Result<()> {
        self.truncate(run.start);
        let mut start = run.start;
        while start < run.end {
            let others = (start..run.end).find(|position| !self.is_wanted(*position, last));
            let end = others.unwrap_or(run.end);
            if end > start {
                if self.wanted == CapturePositions::Last {
                    self.truncate(0);
                }
                let rows = self.allocate(start..end)?;
                read(start - run.start..end - run.start, rows)?;
            }
            start = end + 1;
        }
        Ok(())
    }

    /// Adds rows for these positions.
    fn allocate(&mut self, positions: Range<usize>) -> Result<&mut [f32]> {
        let before = self.values.len();
        let more = positions.len() * self.width();
        self.values.try_reserve(more).map_err(|e| {
            let message =
                format_args!("out of memory: cannot allocate {more} more captured numbers");
            Error::new(ErrorKind::Memory, message).caused_by(e)
        })?;
        self.values.resize(before + more, 0.0);
        let position = |p| u32::try_from(p).expect("positions are less than the context");
        self.positions.extend(positions.map(position));
        Ok(&mut self.values[before..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(wanted: CapturePositions) -> Captured {
        let layout = CaptureLayout {
            points: vec![CapturedPoint {
                name: "blk.0".to_string(),
                offset: 1,
                cols: 2,
            }],
            width: 3,
        };
        Captured::new(layout, wanted)
    }

    /// Stores a pass whose values are the positions.
    fn pass(captured: &mut Captured, run: Range<usize>, last: usize) {
        let start = run.start;
        let read = |rows: Range<usize>, out: &mut [f32]| {
            for (row, out) in rows.zip(out.chunks_exact_mut(3)) {
                out.fill((start + row) as f32);
            }
            Ok(())
        };
        captured.store(&run, last, read).expect("it stores");
    }

    fn numbers(captured: &Captured) -> Vec<f32> {
        let rows = captured.rows("blk.0").expect("the point");
        rows.map(|row| row[1]).collect()
    }

    #[test]
    fn stores_rows_of_the_wanted_positions() {
        let mut all = captured(CapturePositions::All);
        pass(&mut all, 0..4, 6);
        assert_eq!(all.missing_from(7), 4);
        pass(&mut all, 4..7, 6);
        assert_eq!(numbers(&all), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(all.missing_from(7), 7);
        pass(&mut all, 2..4, 6);
        assert_eq!(all.positions(), [0, 1, 2, 3], "later rows are outdated");
        let mut last = captured(CapturePositions::Last);
        pass(&mut last, 0..4, 6);
        assert_eq!((numbers(&last), last.missing_from(7)), (vec![], 6));
        pass(&mut last, 4..7, 6);
        assert_eq!((numbers(&last), last.missing_from(7)), (vec![6.0], 7));
        pass(&mut last, 7..8, 7);
        assert_eq!(numbers(&last), [7.0]);
        let mut list = captured(CapturePositions::List(vec![1, 5, 90]));
        assert_eq!(list.missing_from(7), 1);
        pass(&mut list, 0..4, 6);
        assert_eq!((numbers(&list), list.missing_from(7)), (vec![1.0], 5));
        pass(&mut list, 4..7, 6);
        assert_eq!((numbers(&list), list.missing_from(7)), (vec![1.0, 5.0], 7));
        list.truncate(3);
        assert_eq!(list.positions(), [1]);
        assert!(list.rows("blk.1").is_err());
    }
}
