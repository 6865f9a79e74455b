// Rows of a ring, which is a sequence's part of the KV cache.

// Rows that are looked at: of the ring that begins at base, count of them from first on; behind
// the last of the ring comes its row 0.
struct Span { base: u32, first: u32, count: u32, ring: u32 }

fn row_of(span: Span, i: u32) -> u32 {
    let row = span.first + i;
    return span.base + select(row, row - span.ring, row >= span.ring);
}
