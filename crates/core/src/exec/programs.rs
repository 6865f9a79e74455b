//! Linked programs of an executor: the first one, and those that are added to it.

use super::Program;
use crate::error::{Result, bail};
use crate::op::table::BufferId;
use std::ops::Range;

/// Whether each program has its own memory for a buffer.
pub fn is_private(buffer: BufferId) -> bool {
    matches!(buffer, BufferId::Scratch(_) | BufferId::Constant(_))
}

/// Rejects a program without tables.
///
/// # Errors
///
/// `Argument`.
pub fn reject_empty(program: &Program) -> Result<()> {
    if program.tables.is_empty() {
        bail!(Argument, "the added program has no tables");
    }
    Ok(())
}

/// Linked programs, by the indices of their tables.
///
/// Each program has consecutive indices. They do not change when other programs are removed.
#[derive(Debug)]
pub struct Programs<P> {
    /// Sorted by table index; at least the first program.
    linked: Vec<(Range<usize>, P)>,
}

impl<P> Programs<P> {
    /// Starts with the first program, which has this number of tables.
    pub fn new(program: P, tables: usize) -> Self {
        Self {
            linked: vec![(0..tables, program)],
        }
    }

    /// Adds a program with this number of tables; returns the index of its first table.
    pub fn add(&mut self, program: P, tables: usize) -> usize {
        let first = self.end();
        self.linked.push((first..first + tables, program));
        first
    }

    /// Removes the added program whose first table is `first`; returns it and its indices.
    ///
    /// # Errors
    ///
    /// `Argument` if `first` is not the first table of an added program.
    pub fn remove(&mut self, first: usize) -> Result<(Range<usize>, P)> {
        let mut added = self.linked.iter().skip(1);
        match added.position(|(tables, _)| tables.start == first) {
            Some(at) => Ok(self.linked.remove(at + 1)),
            None => bail!(
                Argument,
                "table {first} is not the first table of an added program"
            ),
        }
    }

    /// Returns the program of a table, and the index of the table in the program.
    ///
    /// # Errors
    ///
    /// `Argument` for an index without a table.
    pub fn find(&self, table: usize) -> Result<(&P, usize)> {
        let mut linked = self.linked.iter();
        match linked.find(|(tables, _)| tables.contains(&table)) {
            Some((tables, program)) => Ok((program, table - tables.start)),
            None => bail!(
                Argument,
                "invalid table index {table}: removed, or not below {}",
                self.end()
            ),
        }
    }

    /// Returns a value for each table index, from the program and the index of the table in it; the
    /// default value for removed tables.
    pub fn by_table<T: Default>(&self, value: impl Fn(&P, usize) -> T) -> Vec<T> {
        let mut values = Vec::new();
        for (tables, program) in &self.linked {
            values.resize_with(tables.start, T::default);
            values.extend((0..tables.len()).map(|at| value(program, at)));
        }
        values
    }

    /// Index after the last table.
    fn end(&self) -> usize {
        self.linked.last().map_or(0, |(tables, _)| tables.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn indices_remain_after_removal() {
        let mut programs = Programs::new("first", 2);
        let added = ["a", "b", "c"].map(|name| programs.add(name, 3));
        assert_eq!(added, [2, 5, 8]);
        let names = |programs: &Programs<&str>| programs.by_table(|name, at| format!("{name}{at}"));
        let all = [
            "first0", "first1", "a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2",
        ];
        assert_eq!(names(&programs), all);

        assert_eq!(programs.remove(5).expect("it was added"), (5..8, "b"));
        let without = all.map(|name| if name.starts_with('b') { "" } else { name });
        assert_eq!(names(&programs), without);
        assert_eq!(programs.find(10).expect("a table of c"), (&"c", 2));
        for removed in [5, 7] {
            let error = programs.find(removed).expect_err("it was removed");
            assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
        }
        for first in [0, 1, 5, 9, 11] {
            let error = programs.remove(first).expect_err("not the first table");
            assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
        }

        programs.remove(8).expect("it was added");
        assert_eq!(programs.add("d", 1), 5, "after the last linked table");
        assert_eq!(programs.find(1).expect("a table of first"), (&"first", 1));
    }
}
