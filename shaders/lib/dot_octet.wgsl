// An octet of W times an octet of x, for types that decode first.

fn dot_octet(row: u32, i: u32, v: Octet) -> f32 {
    return dot8(octet(row, i), v);
}
