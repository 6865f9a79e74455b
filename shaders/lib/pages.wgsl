// The KV cache in pages of PAGE positions, which lie anywhere in it.
//
// pages: [sequences, stride] u32. The pages of a sequence in a layer are ring of them from first on:
// position p lies in the p / PAGE % ring-th. The shader has these three numbers in its Params.

const PAGE = 64u;

@group(0) @binding(3) var<storage, read> pages: array<u32>;

// Where the pages of a sequence begin.
fn pages_of(sequence: u32) -> u32 {
    return sequence * params.stride + params.first;
}

// The first row of the page that a position lies in.
fn page_of(own: u32, position: u32) -> u32 {
    return pages[own + position / PAGE % params.ring] * PAGE;
}

// The row of a position.
fn row_at(own: u32, position: u32) -> u32 {
    return page_of(own, position) + position % PAGE;
}
