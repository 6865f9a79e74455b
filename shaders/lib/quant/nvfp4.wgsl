// w as nvfp4: fp4 codes, then an f32 scale t per row, then an 8-bit float d per 16 elements; x = t d
// value.

#import fp4

// Half of an unsigned e4m3 float; 0x7f is 0.
fn half_float(d: u32) -> f32 {
    let m = d & 0x7fu;
    let magnitude = select(bitcast<f32>((m << 20u) + (119u << 23u)), f32(m) / 1024.0, m < 8u);
    return select(magnitude, 0.0, d == 0x7fu);
}

fn block(row: u32, i: u32) -> Block {
    let d = half_at(2u * (codes_end() + params.rows) + block_index(row, i));
    let scale = vec2(half_float(d & 0xffu), half_float(d >> 8u));
    return fp4(row, i, f32_at(codes_end() + row) * scale);
}
