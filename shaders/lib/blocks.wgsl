// Blocks: 32 consecutive columns of a row, the unit in which matrices are read.

// Number of blocks per row of `params.cols` elements; the last may be partial.
fn blocks() -> u32 {
    return (params.cols + 31u) / 32u;
}

// Index of block `i` of a row in the matrix.
fn block_index(row: u32, i: u32) -> u32 {
    return row * blocks() + i;
}
