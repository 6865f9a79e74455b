// w as mxfp4: fp4 codes, then an exponent e per block; x = 2^(e - 127) value.

#import fp4

// 2^(e - 128)
fn half_power(e: u32) -> f32 {
    return bitcast<f32>(select((e - 1u) << 23u, 0x200000u << e, e < 2u));
}

fn block(row: u32, i: u32) -> Block {
    return fp4(row, i, vec2(half_power(byte_at(4u * codes_end() + block_index(row, i)))));
}
