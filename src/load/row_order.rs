//! Order of the rows of Q and K, which depends on the file format.

/// Permutation of rows from a source to a target. The value is the head dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RowOrder {
    /// No permutation.
    Same,
    /// Interleaves the two halves of each head, for RoPE on adjacent pairs.
    Interleaved(usize),
    /// Inverse of [`RowOrder::Interleaved`].
    Halves(usize),
}

impl RowOrder {
    /// Returns the source row of `row`.
    pub(super) fn source(self, row: usize) -> usize {
        let (head, interleaved) = match self {
            Self::Same => return row,
            Self::Interleaved(head) => (head, true),
            Self::Halves(head) => (head, false),
        };
        let (first, at, half) = (row / head * head, row % head, head / 2);
        first
            + if interleaved {
                at % 2 * half + at / 2
            } else {
                at % half * 2 + at / half
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_orders_are_inverse() {
        // Two heads of six rows; the halves of the first are 0 1 2 and 3 4 5.
        let interleaved: Vec<_> = (0..12)
            .map(|r| RowOrder::Interleaved(6).source(r))
            .collect();
        assert_eq!(interleaved, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        for row in 0..12 {
            let source = RowOrder::Halves(6).source(row);
            assert_eq!(RowOrder::Interleaved(6).source(source), row);
            assert_eq!(RowOrder::Same.source(row), row);
        }
    }
}
