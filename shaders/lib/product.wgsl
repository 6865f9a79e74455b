// Products of blocks of W and x in f32.

// A block of x: its elements and, for types with minima, the sums of its halves.
struct X {
    v: Numbers,
    sums: vec2<f32>,
}

fn four_sum(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

fn x_of(v: Numbers) -> X {
    var sums = vec2(0.0);
    if (MINIMA) {
        sums = vec2(
            four_sum((v[0] + v[1]) + (v[2] + v[3])),
            four_sum((v[4] + v[5]) + (v[6] + v[7])),
        );
    }
    return X(v, sums);
}

// `sum + bytes . x`
fn bytes_add(sum: f32, bytes: u32, x: vec4<f32>) -> f32 {
    return dot_add(sum, floats(bytes), x);
}

// A block of W.
alias Weights = Block;

fn weights(row: u32, i: u32) -> Weights {
    return block(row, i);
}

fn product(s: Weights, x: X) -> f32 {
    var lo = bytes_add(0.0, s.lo.x, x.v[0]);
    lo = bytes_add(lo, s.lo.y, x.v[1]);
    lo = bytes_add(lo, s.lo.z, x.v[2]);
    lo = bytes_add(lo, s.lo.w, x.v[3]);
    var hi = bytes_add(0.0, s.hi.x, x.v[4]);
    hi = bytes_add(hi, s.hi.y, x.v[5]);
    hi = bytes_add(hi, s.hi.z, x.v[6]);
    hi = bytes_add(hi, s.hi.w, x.v[7]);
    let scaled = fma(s.scale.y, hi, s.scale.x * lo);
    if (MINIMA) {
        return fma(s.min.y, x.sums.y, fma(s.min.x, x.sums.x, scaled));
    }
    return scaled;
}
