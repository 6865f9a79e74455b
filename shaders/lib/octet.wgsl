// Eight numbers in a row of a matrix: the piece in which weights are decoded.

struct Octet {
    lo: vec4<f32>,
    hi: vec4<f32>,
}

// Octets of a row of `params.cols` numbers; the last may be part empty.
fn octets() -> u32 {
    return (params.cols + 7u) / 8u;
}

fn dot8(a: Octet, b: Octet) -> f32 {
    return dot(a.lo, b.lo) + dot(a.hi, b.hi);
}
