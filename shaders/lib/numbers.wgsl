// Blocks: 32 consecutive columns of a row, the unit in which matrices are read.

// Elements of a block in order.
alias Numbers = array<vec4<f32>, 8>;

// Number of blocks per row of `params.cols` elements; the last may be partial.
fn blocks() -> u32 {
    return (params.cols + 31u) / 32u;
}

// Index of block `i` of a row in the matrix.
fn block_index(row: u32, i: u32) -> u32 {
    return row * blocks() + i;
}

// `sum + a . b`
fn dot_add(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}
