// Stretches: 32 neighbouring columns of a row, the piece in which matrices are read.

// The numbers of a stretch in their order.
alias Numbers = array<vec4<f32>, 8>;

// Stretches of a row of `params.cols` numbers; the last may be part empty.
fn stretches() -> u32 {
    return (params.cols + 31u) / 32u;
}

// Stretches of the matrix before stretch `i` of a row.
fn stretch_at(row: u32, i: u32) -> u32 {
    return row * stretches() + i;
}

// `sum + a . b`
fn dot_add(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}
