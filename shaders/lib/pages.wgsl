// Paged KV cache with pages of PAGE positions.
//
// pages: [sequences, stride] u32. In a layer, a sequence has `ring` pages, starting at entry
// `first` of its row: position p is in page p / PAGE % ring. stride, first and ring are in the
// Params of the kernel.

const PAGE = 64u;

@group(0) @binding(3) var<storage, read> pages: array<u32>;

// Index of the first page of a sequence.
fn pages_of(sequence: u32) -> u32 {
    return sequence * params.stride + params.first;
}

// First row of the page of a position.
fn page_of(own: u32, position: u32) -> u32 {
    return pages[own + position / PAGE % params.ring] * PAGE;
}

// Row of a position.
fn row_at(own: u32, position: u32) -> u32 {
    return page_of(own, position) + position % PAGE;
}
