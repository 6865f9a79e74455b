// Products of blocks of W and of x, both in signed bytes.

// A block of x: bytes, and a line with their scale and the scaled sums of both halves.
struct X {
    lo: vec4<u32>,
    hi: vec4<u32>,
    line: vec4<f32>,
}

fn dot16(a: vec4<u32>, b: vec4<u32>) -> f32 {
    return f32(dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y)
        + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w));
}

// A block of W.
alias Weights = Block;

fn weights(row: u32, i: u32) -> Weights {
    return block(row, i);
}

fn product(w: Weights, x: X) -> f32 {
    let scaled = x.line.x * fma(w.scale.y, dot16(w.hi, x.hi), w.scale.x * dot16(w.lo, x.lo));
    if (MINIMA) {
        return fma(w.min.y, x.line.z, fma(w.min.x, x.line.y, scaled));
    }
    return scaled;
}
