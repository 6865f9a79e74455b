//! Dynamic time warping: the cheapest monotonic path through a matrix of costs.

/// A step of a path to a cell, from the cell before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Diagonal,
    Above,
    Left,
}

/// Finds the cheapest path from the first to the last cell of a matrix of `costs`, `[rows, columns]`,
/// with steps to the right, down or both, and returns the first column of each row on the path.
///
/// Of equal sums, the step is as in OpenAI's `timing.py`: diagonal if it is cheaper than both others,
/// else down if it is cheaper than both others, else right. Sums are f32. With costs that are not
/// numbers, rows that the path does not reach start at 0.
pub fn dtw(costs: &[f32], columns: usize) -> Vec<u32> {
    if columns == 0 {
        return Vec::new();
    }
    let mut steps = Vec::with_capacity(costs.len());
    // Sums of the row above and of this row, after a border of one column.
    let mut above = vec![f32::INFINITY; columns + 1];
    let mut sums = above.clone();
    above[0] = 0.0;
    for row in costs.chunks_exact(columns) {
        sums[0] = f32::INFINITY;
        for (column, cost) in row.iter().enumerate() {
            let (sum, step) = cheapest(above[column], above[column + 1], sums[column]);
            sums[column + 1] = cost + sum;
            steps.push(step);
        }
        std::mem::swap(&mut above, &mut sums);
    }
    first_columns(&steps, columns)
}

fn cheapest(diagonal: f32, above: f32, left: f32) -> (f32, From) {
    if diagonal < above && diagonal < left {
        (diagonal, From::Diagonal)
    } else if above < diagonal && above < left {
        (above, From::Above)
    } else {
        (left, From::Left)
    }
}

/// Follows the steps back from the last cell.
fn first_columns(steps: &[From], columns: usize) -> Vec<u32> {
    let rows = steps.len() / columns;
    let mut first = vec![0; rows];
    // Both are one more than the position of the cell.
    let (mut row, mut column) = (rows, columns);
    while row > 0 && column > 0 {
        first[row - 1] = u32::try_from(column - 1).unwrap_or(u32::MAX);
        let step = steps[(row - 1) * columns + column - 1];
        row -= usize::from(step != From::Left);
        column -= usize::from(step != From::Above);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_cheap_cells() {
        let costs = [
            0.0, 0.0, 9.0, 9.0, //
            9.0, 9.0, 0.0, 9.0, //
            9.0, 9.0, 9.0, 0.0,
        ];
        assert_eq!(dtw(&costs, 4), [0, 2, 3]);
        // More rows than columns.
        assert_eq!(dtw(&[0.0; 4], 1), [0, 0, 0, 0]);
        assert_eq!(dtw(&[1.0; 4], 4), [0]);
    }

    #[test]
    fn odd_costs_do_not_panic() {
        assert!(dtw(&[], 4).is_empty());
        assert!(dtw(&[1.0], 0).is_empty());
        for cost in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(dtw(&[cost; 12], 4).len(), 3);
        }
    }
}
