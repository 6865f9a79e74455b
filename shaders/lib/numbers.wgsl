// Elements of a block, 32 consecutive columns of a row, in order.
alias Numbers = array<vec4<f32>, 8>;

// `sum + a . b`
fn dot_add(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}
