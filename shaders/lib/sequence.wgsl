// Rows of a sequence. Sequences are concatenated; positions count from the first row of each.

// Range of visible rows: `count` rows starting at `first`.
struct Span { first: u32, count: u32 }

// End of the rows up to `limit` that belong to the sequence of `token`, by binary search: the
// difference of row and position is constant within a sequence and increases from sequence to
// sequence.
fn end_of(token: u32, limit: u32) -> u32 {
    let begin = token - state.row[token].position;
    var low = token + 1u;
    var high = limit;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (middle - state.row[middle].position == begin) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}

// Rows of the sequence of `token`, one of `live` rows, at a distance of at most `params.reach`.
fn span_of(token: u32, live: u32) -> Span {
    let first = token - min(min(params.reach, state.row[token].position), token);
    let end = end_of(token, token + 1u + min(params.reach, live - 1u - token));
    return Span(first, end - first);
}
