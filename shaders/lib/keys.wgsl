// Numbers as integers in the same order.

// NaN comes below everything, so that no filter keeps it for its size. Whole numbers alone: compilers
// may take a float for no NaN, and -0 for 0 in one place and not in the next.
fn key_of(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return 0u;
    }
    // -0 and 0 are equal and share a key.
    if (size == 0u) {
        return 0x80000000u;
    }
    return bits ^ select(0x80000000u, 0xffffffffu, (bits >> 31u) == 1u);
}

// Through a variable, since WGSL has no constant for it.
fn minus_inf() -> f32 {
    var bits = 0xff800000u;
    return bitcast<f32>(bits);
}
