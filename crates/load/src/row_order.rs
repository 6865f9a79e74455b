//! Order of the rows of Q and K, and of value heads of recurrent layers, which depends on the file format.

/// Permutation of rows or columns from a source to a target. A single value is the head dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowOrder {
    /// No permutation.
    Same,
    /// Interleaves the two halves of each head, for RoPE on adjacent pairs.
    Interleaved(usize),
    /// Inverse of [`RowOrder::Interleaved`].
    Halves(usize),
    /// Takes the value heads of all key heads in turn: from `v0 v1 .. of k0, v0 v1 .. of k1` to `v0 of k0, v0 of
    /// k1, .. v1 of k0, ..`.
    ValueHeads {
        /// Rows before the value heads, which stay.
        first: usize,
        /// Number of key heads.
        key_heads: usize,
        /// Number of value heads of each key head.
        values: usize,
        /// Rows of a value head.
        size: usize,
    },
}

impl RowOrder {
    /// Returns the source row of `row`.
    pub fn source(self, row: usize) -> usize {
        let (head, interleaved) = match self {
            Self::Same => return row,
            Self::ValueHeads {
                first,
                key_heads,
                values,
                size,
            } => {
                let Some(own) = row.checked_sub(first) else {
                    return row;
                };
                let (head, at) = (own / size, own % size);
                let source = head % key_heads * values + head / key_heads;
                return first + source * size + at;
            }
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
        // Three key heads with two value heads each, of two rows, after one other row.
        let order = RowOrder::ValueHeads {
            first: 1,
            key_heads: 3,
            values: 2,
            size: 2,
        };
        let rows: Vec<_> = (0..13).map(|row| order.source(row)).collect();
        assert_eq!(rows, [0, 1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12]);
    }
}
