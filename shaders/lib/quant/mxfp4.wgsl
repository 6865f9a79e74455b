// w as mxfp4: codes of fp4, then an exponent e for each stretch; x = 2^(e - 127) value.

#import fp4

// 2^(e - 128)
fn half_power(e: u32) -> f32 {
    return bitcast<f32>(select((e - 1u) << 23u, 0x200000u << e, e < 2u));
}

fn stretch(row: u32, i: u32) -> Stretch {
    return fp4(row, i, vec2(half_power(byte_at(4u * behind() + stretch_at(row, i)))));
}
