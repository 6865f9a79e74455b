// Numbers as integers in the same order.

// NaN comes below everything, so that no filter keeps it for its size.
fn key_of(v: f32) -> u32 {
    if (v != v) {
        return 0u;
    }
    // -0 and 0 are equal and share a key.
    let bits = bitcast<u32>(select(v, 0.0, v == 0.0));
    return bits ^ select(0x80000000u, 0xffffffffu, (bits >> 31u) == 1u);
}

// Through a variable, since WGSL has no constant for it.
fn minus_inf() -> f32 {
    var bits = 0xff800000u;
    return bitcast<f32>(bits);
}
