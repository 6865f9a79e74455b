// Order-preserving map from f32 to u32.

// NaN sorts below everything, so that filters remove it. Uses integer operations only: compilers
// may assume that floats are not NaN and treat -0 inconsistently.
fn key_of(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return 0u;
    }
    // -0 and 0 compare equal and share a key.
    if (size == 0u) {
        return 0x80000000u;
    }
    return bits ^ select(0x80000000u, 0xffffffffu, (bits >> 31u) == 1u);
}

// Tests the exponent, because comparisons with NaN are not reliable.
fn is_finite(v: f32) -> bool {
    return (bitcast<u32>(v) & 0x7f800000u) != 0x7f800000u;
}

// Through a variable, since WGSL has no constant for infinity.
fn minus_inf() -> f32 {
    var bits = 0xff800000u;
    return bitcast<f32>(bits);
}
